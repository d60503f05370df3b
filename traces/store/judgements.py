"""The judgements of a store: a judge's score of each row, the cost of judging, and the score by the label.

They are in a separate table, which is created with the first judgement.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
    update,
)

from vinelm.judging import Judgement
from vinelm.judging.judgement import JUDGED
from vinelm.rows.observation import Cell
from vinelm.traces.databases import schema
from vinelm.traces.store.rows import decode_prefix, encode_prefix
from vinelm.traces.store.store import ObservationStore

metadata = MetaData()
judgements = Table(
    "judgements",
    metadata,
    Column("judgement_id", Integer, primary_key=True, autoincrement=True, comment="order; the last one of a row holds"),
    Column("request_id", String, nullable=False, comment="the request"),
    Column("prefix", String, nullable=False, comment="the row's prefix, JSON list"),
    Column("judge", String, nullable=False, comment="hash of the judge's model, rubric and keys"),
    Column("asked", String, nullable=False, comment="hash of the judge's model and what it was sent"),
    Column("correct", Boolean, comment="its verdict; NULL: it gave none"),
    Column("truth", Boolean, comment="what the request's label says of the answer; NULL: no label"),
    Column("label", String, comment="hash of the label and of how it is compared; NULL: no label"),
    Column("model", String, nullable=False, comment="name of the judge's model"),
    Column("cost_usd", Float, nullable=False, comment="dollars of the calls, part of the unit's entry in the ledger"),
    Column("calls", Integer, nullable=False, comment="calls; 0: an equal question had been asked before"),
    Column("tokens_in", Integer, comment="prompt tokens; NULL: unknown"),
    Column("tokens_out", Integer, comment="generated tokens; NULL: unknown"),
    Column("detail", String, comment="why there is no verdict, one line without prompt or answer"),
    Index("judgements_by_row", "request_id", "prefix"),
    comment="What a judge said of the answer after each row. Made with the first judgement.",
)
_FIELDS = tuple(field.name for field in fields(Judgement))


class Judgements:
    """Reads and adds the judgements of a store. Every write is durable.

    Args:
        store: the store; to add something, the caller must have locked it.
    """

    def __init__(self, store: ObservationStore) -> None:
        self._store, self._database = store, store.database

    def add(self, request_id: str, prefix: tuple[str, ...], judgement: Judgement) -> None:
        """Add a judge's score of a row, and set the row's success to this score, in the caller's transaction."""
        with self._database.transaction() as connection:
            metadata.create_all(connection)
            _insert(connection, request_id, encode_prefix(prefix), judgement)
            rows = schema.observations
            of_row = (rows.c.request_id == request_id) & (rows.c.prefix == encode_prefix(prefix))
            connection.execute(update(rows).where(of_row).values(success=judgement.correct))

    def cost_usd(self) -> float:
        """Return the cost of all judgements in dollars, including those that a later judgement of the same row replaces."""
        with self._database.transaction() as connection:
            if not inspect(connection).has_table(judgements.name):
                return 0.0
            return float(connection.execute(select(func.coalesce(func.sum(judgements.c.cost_usd), 0.0))).scalar_one())

    @property
    def are_in_force(self) -> bool:
        """Whether a judge gave the present scores of the rows. False if no judge ever scored, or another scorer replaced the
        judge.
        """
        return self._store.identity.fingerprint.get("scorer") == JUDGED

    def latest(self) -> dict[Cell, Judgement]:
        """Return the latest judgement of each row, by (request, prefix); empty if nothing was judged."""
        with self._database.transaction() as connection:
            return _latest(connection)


def _insert(connection: Connection, request_id: str, prefix: str, judgement: Judgement) -> None:
    connection.execute(insert(judgements).values(request_id=request_id, prefix=prefix, **judgement.to_dict()))


def _latest(connection: Connection) -> dict[Cell, Judgement]:
    if not inspect(connection).has_table(judgements.name):
        return {}
    found = connection.execute(select(judgements).order_by(judgements.c.judgement_id))
    return {
        (row.request_id, decode_prefix(row.prefix)): Judgement(**{name: row._mapping[name] for name in _FIELDS})
        for row in found
    }


def copy_judgements(source: Connection, target: Connection, cells: Collection[Cell]) -> None:
    """Copy the latest judgement of each of these rows, given by (request, prefix), from one store to another.

    Joins the caller's transactions.
    """
    found = {cell: judgement for cell, judgement in _latest(source).items() if cell in cells}
    if found:
        metadata.create_all(target)
        for (request_id, prefix), judgement in found.items():
            _insert(target, request_id, encode_prefix(prefix), judgement)
