"""Records of calls under an autopilot, in order. All processes of a service add rows, and one process reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Column, Float, Integer, MetaData, String, Table, func, insert, inspect, select

from vinelm.traces.store.store import ObservationStore

TODAY, PLAN, ESCALATED, BELOW, SAME, DIFFERENT = "t", "p", "e", "b", "s", "d"
PLAN_RIGHT, PLAN_WRONG, TODAY_RIGHT, TODAY_WRONG = "R", "W", "r", "w"
"""Letters for a call: answered by today's model; by the plan; by the plan, then by today's model in the end; by the plan proven
before; compared with the plan's answer (same, different); and what feedback said of the plan or of today's model."""

metadata = MetaData()
served = Table(
    "autopilot_served",
    metadata,
    Column("served_id", Integer, primary_key=True, autoincrement=True, comment="order in which they are counted"),
    Column("step", String, nullable=False, comment="key of the step that made the calls"),
    Column("attempt", Integer, nullable=False, comment="number of the attempt whose plan is on its way; 0: none"),
    Column("day", Integer, nullable=False, comment="UTC day, counted from 1970"),
    Column("outcomes", String, nullable=False, comment="a letter for each call, in order: t, p, e, b, s, d, R, W, r, w"),
    Column("figures", String, nullable=False, comment="dollars and seconds of each, as JSON; null where they are not compared"),
    Column("usd", Float, nullable=False, comment="dollars of the calls of plans"),
    Column("saved_usd", Float, nullable=False, comment="what today's model would have cost instead, less that"),
    comment="What an autopilot served, a row for some calls of a process.",
)


class ServedRows:
    """Reads and adds records of model calls that an autopilot served, in the table ``autopilot_served``.

    An autopilot answers some calls by a plan instead of today's model. Each write is a durable transaction, or joins the
    caller's transaction.
    """

    def __init__(self, store: ObservationStore) -> None:
        self._database = store.database

    def create(self) -> None:
        """Create the table of these records if it is missing."""
        with self._database.transaction() as connection:
            metadata.create_all(connection)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append rows, given as mappings from the table's columns to values."""
        with self._database.transaction() as connection:
            for row in rows:
                connection.execute(insert(served).values(**row))

    def after(self, served_id: int) -> list[dict[str, Any]]:
        """Return the rows whose number is above ``served_id``, in order, each as a mapping from column to value."""
        query = select(served).where(served.c.served_id > served_id).order_by(served.c.served_id)
        with self._database.transaction() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def last_id(self) -> int:
        """Return the number of the last row; 0 without rows."""
        with self._database.transaction() as connection:
            return int(connection.execute(select(func.max(served.c.served_id))).scalar() or 0)

    def saved(self, since_day: int) -> dict[str, tuple[float, float]]:
        """Return (cost of the calls that plans made, savings by these plans), in dollars, for each step.

        The keys are those of the steps (places in the application that make calls). ``since_day`` is the first UTC day that
        counts, in days since 1970.
        """
        query = select(served.c.step, func.sum(served.c.usd), func.sum(served.c.saved_usd)).where(served.c.day >= since_day)
        with self._database.transaction() as connection:
            if not inspect(connection).has_table(served.name):
                return {}
            return {step: (usd or 0.0, saved or 0.0) for step, usd, saved in connection.execute(query.group_by(served.c.step))}
