"""Stores the results of whole served requests: whether the answer is right, its cost and duration.

The table ``observations`` cannot store this: a row is one call of a stage, and its seconds exclude waiting for a rate limit.
The returned answer may come from an earlier call, and a request may fail before its first call. Several policies may also run
the same models for a request. Served requests therefore have a separate table, which is created when first needed. Their
cost is in the store's ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from sqlalchemy import Boolean, Column, Float, Integer, MetaData, String, Table, UniqueConstraint, insert, inspect, select

from vinelm.errors import FailureKind
from vinelm.traces.store.rows import decode_prefix, encode_prefix
from vinelm.traces.store.store import ObservationStore

metadata = MetaData()
served = Table(
    "served",
    metadata,
    Column("entry_id", Integer, primary_key=True, autoincrement=False, comment="its entry in the ledger"),
    Column("policy", String, nullable=False, comment="the policy that served it"),
    Column("request_id", String, nullable=False, comment="the request"),
    Column("prefix", String, nullable=False, comment="the models that ran, in order, JSON list"),
    Column(
        "success", Boolean, nullable=False, comment="whether the answer is right; false for one that failed or was not judged"
    ),
    Column("cost_usd", Float, nullable=False, comment="dollars of all its calls"),
    Column("latency_s", Float, nullable=False, comment="seconds from its arrival to its answer, waiting included"),
    Column("failure", String, comment="failure kind; NULL: the application returned"),
    Column("detail", String, comment="one line about the failure, without prompt or key"),
    UniqueConstraint("policy", "request_id", name="served_once"),
    comment="Requests that `vinelm verify`, `evaluate --serve` and `tools record` have served. Made with the first of them.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """The result of one served request.

    Attributes:
        request_id: The request's id.
        success: Whether the answer is right; False for a request that failed or was not scored.
        cost_usd: The cost of all calls in dollars, including failed calls.
        latency_s: The duration in seconds by the policy's clock, which is virtual for simulated and recorded backends.
        prefix: The models that ran, in order.
        failure: Kind of the failure; None if the application returned an answer.
        detail: The failure's message.
    """

    request_id: str
    success: bool
    cost_usd: float
    latency_s: float
    prefix: tuple[str, ...]
    failure: FailureKind | None = None
    detail: str | None = None


_KEPT = tuple(field.name for field in fields(ServedRequest))


class ServedRequests:
    """Reads and adds the served requests of a store. Every write is durable.

    Args:
        store: the store; to add something, the caller must have locked it.
    """

    def __init__(self, store: ObservationStore) -> None:
        self._database = store.database

    def add(self, entry_id: int, policy: str, request: ServedRequest) -> None:
        """Add a request that a policy has served, in the caller's transaction.

        ``entry_id`` is the number of the ledger entry with the request's cost, ``policy`` the policy's name.
        """
        values = {name: getattr(request, name) for name in _KEPT} | {"prefix": encode_prefix(request.prefix)}
        with self._database.transaction() as connection:
            metadata.create_all(connection)
            connection.execute(insert(served).values(entry_id=entry_id, policy=policy, **values))

    def by_policy(self) -> Mapping[tuple[str, str], ServedRequest]:
        """Return the served requests by (policy, request id), in serving order."""
        with self._database.transaction() as connection:
            if not inspect(connection).has_table(served.name):
                return {}
            return {
                (row.policy, row.request_id): ServedRequest(
                    **{name: row._mapping[name] for name in _KEPT} | {"prefix": decode_prefix(row.prefix)}
                )
                for row in connection.execute(select(served).order_by(served.c.entry_id))
            }
