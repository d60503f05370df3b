"""Batches of model calls in a store, recorded before submission, and kept until the results of their calls are written."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, delete, func, insert, select, update

from vinelm.requests.protocols import OpenBatch
from vinelm.rows.observation import Cell
from vinelm.traces.databases import schema
from vinelm.traces.store.rows import decode_prefix, encode_prefix
from vinelm.traces.store.store import ObservationStore, new_key


class BatchRecords:
    """Reads and writes a store's records of batches of model calls. Thread-safe; writes are durable when they return."""

    def __init__(self, store: ObservationStore) -> None:
        self._database = store.database

    def record(self, key: str, model: str, calls: Sequence[tuple[str, Cell, float]]) -> OpenBatch:
        """Record a batch before it is submitted, and return the record.

        Args:
            key: VineLM's key of the batch.
            model: the name of the model that is called.
            calls: for each call: its digest; the (request, prefix) of the result that it contributes to; and its maximum cost
                in dollars.
        """
        self._database.require_held()
        recorded_s = time.time()
        values = {"key": key, "model": model, "calls": len(calls), "is_closed": False, "recorded_s": recorded_s}
        with self._database.transaction() as connection:
            batch_id = new_key(connection.execute(insert(schema.batches), values))
            rows = [
                {
                    "digest": digest,
                    "batch_id": batch_id,
                    "request_id": cell[0],
                    "prefix": encode_prefix(cell[1]),
                    "upper_usd": usd,
                }
                for digest, cell, usd in calls
            ]
            connection.execute(insert(schema.batch_calls), rows)
        return OpenBatch(batch_id, key, model, None, len(calls), recorded_s)

    def submitted(self, batch_id: int, provider_id: str) -> None:
        """Record the id that the provider gave to a batch."""
        with self._database.transaction() as connection:
            connection.execute(update(_BATCHES).where(_BATCHES.c.batch_id == batch_id).values(provider_id=provider_id))

    def forget(self, batch_id: int) -> None:
        """Delete a batch that was never submitted."""
        with self._database.transaction() as connection:
            connection.execute(delete(_CALLS).where(_CALLS.c.batch_id == batch_id))
            connection.execute(delete(_BATCHES).where(_BATCHES.c.batch_id == batch_id))

    def close(self, batch_id: int, answers: Mapping[str, str]) -> None:
        """Store the answers of a finished batch by call digest, and mark the batch as done."""
        here = and_(_CALLS.c.digest == bindparam("of"), _CALLS.c.batch_id == batch_id)
        with self._database.transaction() as connection:
            if answers:
                rows = [{"of": digest, "said": answer} for digest, answer in answers.items()]
                connection.execute(update(_CALLS).where(here).values(answer=bindparam("said")), rows)
            connection.execute(update(_BATCHES).where(_BATCHES.c.batch_id == batch_id).values(is_closed=True))

    def open(self) -> list[OpenBatch]:
        """Return the batches whose answers are not stored yet, in the order of recording."""
        columns = [_BATCHES.c[name] for name in OpenBatch._fields]
        query = select(*columns).where(_BATCHES.c.is_closed.is_(False)).order_by(_BATCHES.c.batch_id)
        with self._database.transaction() as connection:
            return [OpenBatch(*row) for row in connection.execute(query)]

    def provider_ids(self) -> frozenset[str]:
        """Return the ids that the providers have given to the submitted batches."""
        with self._database.transaction() as connection:
            return frozenset(connection.execute(select(_BATCHES.c.provider_id)).scalars()) - {None}

    def calls_of(self, batch_id: int) -> list[str]:
        """Return the digests of those calls of a batch that are still stored, because their results are not written yet."""
        with self._database.transaction() as connection:
            return list(connection.execute(select(_CALLS.c.digest).where(_CALLS.c.batch_id == batch_id)).scalars())

    def find(self, digest: str) -> tuple[int, str | None] | None:
        """Return (the number of the batch that has the call, the call's answer); None if no batch has the call.

        The answer is None until the batch is finished. ``digest`` is the digest of the call.
        """
        with self._database.transaction() as connection:
            row = connection.execute(select(_CALLS.c.batch_id, _CALLS.c.answer).where(_CALLS.c.digest == digest)).first()
            return None if row is None else (row[0], row[1])

    def upper_usd(self, cell: Cell, asked: frozenset[str]) -> float:
        """Return the maximum total cost, in dollars, of the stored batch calls made for one result.

        ``cell`` is the result's (request, prefix). Calls whose digests are in ``asked`` are left out: the job that computes the
        result has made them already.
        """
        with self._database.transaction() as connection:
            found = connection.execute(select(_CALLS.c.digest, _CALLS.c.upper_usd).where(_of(cell)))
            return float(sum(row.upper_usd for row in found if row.digest not in asked))

    def drop(self, cell: Cell) -> None:
        """Delete the stored batch calls made for one result, in the transaction that writes this result.

        ``cell`` is the result's (request, prefix).
        """
        with self._database.transaction() as connection:
            connection.execute(delete(_CALLS).where(_of(cell)))

    def digests(self, cell: Cell) -> frozenset[str]:
        """Return the digests of the stored batch calls made for one result; ``cell`` is its (request, prefix)."""
        with self._database.transaction() as connection:
            return frozenset(connection.execute(select(_CALLS.c.digest).where(_of(cell))).scalars())

    def requests(self) -> frozenset[str]:
        """Return the ids of the requests for which a batch call is stored."""
        with self._database.transaction() as connection:
            return frozenset(connection.execute(select(_CALLS.c.request_id).distinct()).scalars())

    def since_s(self, cell: Cell) -> float | None:
        """Return when the first batch for a request and prefix was recorded, in seconds since 1970; None without a batch."""
        query = select(func.min(_BATCHES.c.recorded_s)).where(_of(cell), _CALLS.c.batch_id == _BATCHES.c.batch_id)
        with self._database.transaction() as connection:
            found = connection.execute(query).scalar()
            return None if found is None else float(found)

    def terms(self) -> dict[str, Any] | None:
        """Return the settings by which requests in progress choose their models, as :meth:`note_terms` recorded them.

        None if no batch call is stored, or no settings were recorded.
        """
        with self._database.transaction() as connection:
            if connection.execute(select(_CALLS.c.digest).limit(1)).first() is None:
                return None
            text = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == _TERMS)).scalar()
            return json.loads(text) if text else None

    def note_terms(self, terms: Mapping[str, Any]) -> None:
        """Record, as plain JSON, those settings of a dataset run that decide which models its requests call.

        If the run is interrupted and continued, it uses the recorded settings, so that its requests make the same calls again.
        """
        with self._database.transaction() as connection:
            schema.set_meta(connection, _TERMS, json.dumps(dict(terms)))

    # -- the ledger ------------------------------------------------------------------------------------------------

    def abandoned(self) -> dict[Cell, float]:
        """Return what unfinished jobs may have spent on batch calls, in dollars, keyed by (request, prefix).

        The amounts are those of abandoned ledger entries whose calls all go through batch APIs. An entry is abandoned if its
        run was killed, or by :meth:`leave`. If the job runs again, it fetches the answers that are paid for already. Its new
        ledger entry then replaces the abandoned entries (:meth:`replace`).
        """
        request, prefix = _ENTRIES.c.request_id, _ENTRIES.c.prefix
        query = select(request, prefix, func.sum(_ENTRIES.c.settled_usd)).where(_IS_ABANDONED).group_by(request, prefix)
        with self._database.transaction() as connection:
            found = connection.execute(query)
            return {(row[0], decode_prefix(row[1])): float(row[2]) for row in found}

    def replace(self, cell: Cell) -> None:
        """Set the abandoned ledger entries of ``cell``, a pair (request, prefix), to $0; they no longer count as abandoned."""
        with self._database.transaction() as connection:
            here = and_(_IS_ABANDONED, _ENTRIES.c.request_id == cell[0], _ENTRIES.c.prefix == encode_prefix(cell[1]))
            connection.execute(update(_ENTRIES).where(here).values(settled_usd=0.0, is_abandoned=False))

    def release_unsent(self) -> None:
        """Set abandoned ledger entries to $0 if no batch call is stored for their request and prefix, because no call was sent.

        An entry is abandoned if its job has not finished; see :meth:`abandoned`.
        """
        with self._database.transaction():
            for cell in self.abandoned():
                if not self.digests(cell):
                    self.replace(cell)

    def leave(self, entry: int) -> None:
        """Mark the ledger entry of a job as abandoned, because the budget refused one of the job's calls.

        Other calls of the job were sent in batches before. The entry's cost counts until :meth:`replace` is called for its
        request and prefix.
        """
        with self._database.transaction() as connection:
            here = and_(_ENTRIES.c.entry_id == entry, _ENTRIES.c.is_batched)
            connection.execute(update(_ENTRIES).where(here).values(is_abandoned=True))

    def keep(self, entry: int) -> None:
        """Let the cost of a ledger entry count permanently, because the answers that it paid for can no longer be fetched."""
        with self._database.transaction() as connection:
            connection.execute(update(_ENTRIES).where(_ENTRIES.c.entry_id == entry).values(is_batched=False))


def _of(cell: Cell) -> ColumnElement[bool]:
    return and_(_CALLS.c.request_id == cell[0], _CALLS.c.prefix == encode_prefix(cell[1]))


_TERMS = "batch_terms"
_BATCHES, _CALLS, _ENTRIES = schema.batches, schema.batch_calls, schema.ledger
_IS_ABANDONED = and_(_ENTRIES.c.is_abandoned, _ENTRIES.c.is_batched, _ENTRIES.c.settled_usd > 0)
