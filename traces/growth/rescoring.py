"""Scores rows again after a change of the scorer: the rows are retired until then, and restored in waves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, delete, select, update

from vinelm.errors import StoreError
from vinelm.signals.declaration import digest_of_text
from vinelm.traces.databases import schema
from vinelm.traces.databases.schema import RESCORING
from vinelm.traces.growth import retirement
from vinelm.traces.growth.plan import (
    ENDS_EARLIER,
    RequestDigest,
    Restoration,
    RowRules,
    restoration_of,
)
from vinelm.traces.store.checkpoints import unpacked
from vinelm.traces.store.rows import cell_name, decode_prefix
from vinelm.traces.store.store import ObservationStore

_LARGEST_WAVE = 5000  # rows whose states are in memory at a time


@dataclass(frozen=True, slots=True)
class RowToScore:
    """A row that must be scored again.

    Attributes:
        retired_id: the row's number among the retired rows.
        request_id: the row's request.
        prefix: the models of the row's calls.
        state: the workflow state after the row, serialized.
        is_continued: whether the row follows an answer that the workflow's own check passed.
    """

    retired_id: int
    request_id: str
    prefix: tuple[str, ...]
    state: bytes
    is_continued: bool = False


class Rescored(NamedTuple):
    """The result of scoring a stored row again.

    Attributes:
        success: The new score of the row; None if unknown.
        reason: Why the row cannot be scored and is therefore still not used; empty if it can.
        answer: The row's answer, as canonical JSON, to compare with a recorded reference answer; None if nothing is compared.
    """

    success: bool | float | None = None
    reason: str = ""
    answer: str | None = None


class RowsToScore:
    """The rows of a store that must be scored again, shorter prefixes first. The caller has locked the store.

    Rows are scored in waves (groups of rows). After a killed run, the next run continues with the same wave, and
    restores the same rows in the same order.

    Args:
        store: the store.
        wanted: the digests of the current requests, by request id.
    """

    def __init__(self, store: ObservationStore, wanted: Mapping[str, RequestDigest]) -> None:
        self._store, self._wanted = store, wanted

    @property
    def is_pending(self) -> bool:
        """Whether some rows must still be scored again, because this run, or an earlier run that was killed, found changes."""
        with self._store.database.transaction() as connection:
            return self._first(connection) is not None

    def wave(self) -> list[RowToScore]:
        """Return the rows to score next, which all have prefixes of the same length; empty if no row is left.

        All earlier rows on their paths are already valid.
        """
        with self._store.database.transaction() as connection:
            rows: list[RowToScore] = []
            for retired_id in self._restoration(connection).score:  # shorter prefixes first
                row = self._to_score(connection, retired_id)
                if rows and (len(row.prefix) > len(rows[0].prefix) or len(rows) == _LARGEST_WAVE):
                    break  # rows come before those that depend on them, in a fixed order
                rows.append(row)
            return rows

    def record(self, scores: Iterable[tuple[RowToScore, Rescored]]) -> None:
        """Record the scores of one wave (group of rows) in a transaction, and bring its scored rows back into use."""
        number = self._store.identity_id
        with self._store.database.transaction() as connection:
            for row, found in scores:
                if found.reason:
                    self._set(connection, row.retired_id, {"unscored_id": number, "reason": found.reason})
                    continue
                full = self._wanted[row.request_id].full
                values: dict[str, object] = {"success": found.success, "scored_id": number, "request_digest": full}
                if found.answer is not None:
                    values |= {"answer": found.answer, "answer_digest": digest_of_text(found.answer)}
                self._set(connection, row.retired_id, values)
            retirement.restore(connection, self._restoration(connection).restore)
            self._reprice(connection)

    def finish(self) -> Mapping[str, int]:
        """Record that all rows have been scored; return, for each reason, how many rows stay retired (unused)."""
        with self._store.database.transaction() as connection:
            first = self._first(connection) or 0
            for retired_id in self._restoration(connection).ended:
                if retired_id >= first:
                    self._set(connection, retired_id, {"reason": ENDS_EARLIER})
            connection.execute(delete(schema.meta).where(schema.meta.c.key == RESCORING))
            table = schema.retired.c
            found: dict[str, int] = {}
            for (reason,) in connection.execute(select(table.reason).where(table.retired_id >= first)):
                found[reason] = found.get(reason, 0) + 1
            return found

    def _to_score(self, connection: Connection, retired_id: int) -> RowToScore:
        table, blobs = schema.retired.c, schema.blobs.c
        query = select(table.request_id, table.prefix, table.is_continued, blobs.digest, blobs.content).where(
            table.retired_id == retired_id, blobs.digest == table.state
        )
        row = connection.execute(query).one()
        prefix, state = decode_prefix(row.prefix), unpacked(row.digest, row.content, self._store.checkpoint_place)
        if state is None:
            cell = cell_name(row.request_id, prefix)
            raise StoreError(f"{self._store.path}: {cell}: the checkpoint is damaged", code="store-damaged")
        return RowToScore(retired_id, row.request_id, prefix, state, bool(row.is_continued))

    def _restoration(self, connection: Connection) -> Restoration:
        rules = self._rules(connection)
        rows = retirement.current_rows(connection, self._store.identity_id, self._wanted)
        kept = {row.cell: rules.after(row) for row in rows}
        return restoration_of(retirement.retired_rows(connection), rules, kept)

    def _reprice(self, connection: Connection) -> None:
        rows = retirement.current_rows(connection, self._store.identity_id, self._wanted)
        retirement.reprice(connection, self._rules(connection), rows)

    def _rules(self, connection: Connection) -> RowRules:
        return RowRules(retirement.identities(connection), self._store.identity, self._wanted)

    def _first(self, connection: Connection) -> int | None:
        text = connection.execute(select(schema.meta.c.value).where(schema.meta.c.key == RESCORING)).scalar()
        return None if text is None else int(text)

    def _set(self, connection: Connection, retired_id: int, values: Mapping[str, object]) -> None:
        connection.execute(update(schema.retired).where(schema.retired.c.retired_id == retired_id).values(dict(values)))
