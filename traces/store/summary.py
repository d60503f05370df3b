"""Summary of a store's contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from vinelm.traces.databases import schema
from vinelm.traces.databases.schema import RESCORING, SCHEMA_VERSION
from vinelm.traces.store.shown import SignalRecord, record_of
from vinelm.traces.store.store import ObservationStore
from vinelm.traces.store.tool_rows import tool_counts


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Numbers of rows and other contents of a store, with their dollars and bytes.

    Args:
        version: schema version.
        requests: number of registered requests.
        requests_observed: number of requests with at least one row.
        rows_per_depth: for each depth (from 1), the number of rows.
        failures: for each failure kind, the number of rows.
        committed_usd: dollars spent plus dollars reserved.
        abandoned_usd: the part of ``committed_usd`` charged for calls that never returned.
        open_usd: the part of ``committed_usd`` reserved for calls in flight or by a killed run.
        checkpoints: number of checkpoints.
        checkpoint_bytes: compressed size of the checkpoints in the store.
        checkpoint_url: where checkpoint contents outside of the store are; None if there are none.
        size_bytes: size of the file and its write-ahead log.
        held_by: the process of the run that has locked the store; None if it is not locked.
        sources: origins of imported and merged rows.
        retired: for each reason, the number of retired rows, which no estimate uses.
        retired_usd: the part of ``committed_usd`` that was spent on retired rows.
        repriced: number of rows whose cost was recomputed at a later price.
        waiting: whether retired rows must be scored again, which the next run does.
        signals: for each signal, the number of rows that have it.
        answers: number of rows with an answer.
        continued: number of rows that follow an answer that the workflow's own check passed.
        tools: counts of recorded tool calls; see :func:`~vinelm.traces.store.tool_rows.tool_counts`.
        shown: declarations of signals and answer classes, with counts of problems; None if nothing was declared.
    """

    version: int
    requests: int
    requests_observed: int
    rows_per_depth: dict[int, int]
    failures: dict[str, int]
    committed_usd: float
    abandoned_usd: float
    open_usd: float
    checkpoints: int
    checkpoint_bytes: int
    checkpoint_url: str | None
    size_bytes: int
    held_by: str | None
    sources: list[dict[str, Any]]
    retired: dict[str, int]
    retired_usd: float
    repriced: int
    waiting: bool
    signals: dict[str, int]
    answers: int
    continued: int
    tools: dict[str, int]
    shown: SignalRecord | None


def contents_of(store: ObservationStore) -> Contents:
    """Return a summary of ``store`` from one consistent snapshot, even while a run is writing."""
    rows, ledger = schema.observations.c, schema.ledger.c
    with store.database.transaction() as connection:

        def one(query: Any) -> Any:
            return connection.execute(query).scalar_one()

        by_depth = connection.execute(select(rows.depth, func.count()).group_by(rows.depth).order_by(rows.depth))
        failed = select(rows.failure, func.count()).where(rows.failure.is_not(None)).group_by(rows.failure)
        return Contents(
            version=SCHEMA_VERSION,
            requests=one(select(func.count()).select_from(schema.requests)),
            requests_observed=one(select(func.count(rows.request_id.distinct()))),
            rows_per_depth={row[0]: row[1] for row in by_depth},
            failures={row[0]: row[1] for row in connection.execute(failed)},
            committed_usd=one(select(func.coalesce(func.sum(func.coalesce(ledger.settled_usd, ledger.reserved_usd)), 0.0))),
            abandoned_usd=one(select(func.coalesce(func.sum(ledger.settled_usd), 0.0)).where(ledger.is_abandoned)),
            open_usd=one(select(func.coalesce(func.sum(ledger.reserved_usd), 0.0)).where(ledger.settled_usd.is_(None))),
            checkpoints=one(select(func.count()).select_from(schema.checkpoints)),
            checkpoint_bytes=one(select(func.coalesce(func.sum(func.length(schema.blobs.c.content)), 0))),
            checkpoint_url=connection.execute(_CHECKPOINT_URL).scalar(),
            size_bytes=store.database.size_bytes(),
            held_by=store.held_by(),
            sources=[dict(row._mapping) for row in connection.execute(select(schema.sources))],
            retired={row[0]: row[1] for row in connection.execute(_RETIRED)},
            retired_usd=one(_RETIRED_USD),
            repriced=one(select(func.count()).where(rows.recorded_usd.is_not(None))),
            waiting=bool(one(select(func.count()).where(schema.meta.c.key == RESCORING))),
            signals={row[0]: row[1] for row in connection.execute(_SIGNALS)},
            answers=one(select(func.count(rows.answer_digest))),
            continued=one(select(func.count()).where(rows.is_continued)),
            tools=tool_counts(connection),
            shown=record_of(connection),
        )


_CHECKPOINT_URL = select(schema.meta.c.value).where(schema.meta.c.key == schema.CHECKPOINTS)
_LABEL = schema.observations.c.signal
_SIGNALS = select(_LABEL, func.count()).where(_LABEL.is_not(None)).group_by(_LABEL).order_by(_LABEL)
_OLD = schema.retired.c
_RETIRED = select(_OLD.reason, func.count()).group_by(_OLD.reason).order_by(func.count().desc(), _OLD.reason)
_RETIRED_USD = select(func.coalesce(func.sum(func.coalesce(_OLD.recorded_usd, _OLD.cost_usd) + _OLD.tool_cost_usd), 0.0))
