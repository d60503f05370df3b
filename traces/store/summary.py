"""What is in a store, at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from vinelm.traces.store import schema
from vinelm.traces.store.lock import holder
from vinelm.traces.store.schema import SCHEMA_VERSION
from vinelm.traces.store.store import ObservationStore


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Counts, dollars and bytes of a store, without its rows.

    ``committed_usd`` is spent plus set aside; ``abandoned_usd`` the part charged for calls that never came back, ``open_usd``
    that of calls in flight (or whose run died). ``size_bytes`` includes the log. ``held_by`` names the process of a live run.
    ``sources``: where imported and merged rows came from.
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
    size_bytes: int
    held_by: str | None
    sources: list[dict[str, Any]]


def contents_of(store: ObservationStore) -> Contents:
    """Read at one moment, also while a run is writing."""
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
            size_bytes=_size(store.path),
            held_by=holder(store.path),
            sources=[dict(row._mapping) for row in connection.execute(select(schema.sources))],
        )


def _size(path: Path) -> int:
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
