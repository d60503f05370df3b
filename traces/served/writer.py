"""Writes served rows in a thread of its own, so that no request waits for a disk, to a store that processes may share."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread, current_thread
from types import TracebackType
from typing import Self
from weakref import WeakSet

from sqlalchemy import bindparam, select, update
from sqlalchemy.dialects.sqlite import insert

from vinelm.errors import StoreError, VineLMError
from vinelm.rows.observation import Observation
from vinelm.traces.databases import schema
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.store.rows import decode_prefix, insert_rows
from vinelm.traces.store.store import ObservationStore, number_of

OPENING_S = 0.5
"""How long processes that create one store at the same moment wait for each other, in seconds."""

_ADD_REQUEST = insert(schema.requests).on_conflict_do_nothing()
_CELLS = select(schema.observations.c.request_id, schema.observations.c.prefix)
_ROWS_OF = select(schema.observations.c.row_id).where(
    schema.observations.c.request_id == bindparam("request"), schema.observations.c.failure.is_(None)
)
_LAST_ROW = _ROWS_OF.order_by(schema.observations.c.depth.desc(), schema.observations.c.row_id.desc()).limit(1)
_SET_SUCCESS = (
    update(schema.observations).where(schema.observations.c.row_id == bindparam("row")).values(success=bindparam("right"))
)


class ServedStore:
    """An :class:`~vinelm.traces.ObservationStore` to which served rows are added. Each write is one transaction.

    Args:
        path: the file; created if it does not exist. Its folder must exist.
        identity: the workflow, template and catalog that serve.

    Raises:
        StoreError: the file is no store, or one of another workflow.
    """

    def __init__(self, path: Path, identity: StoreIdentity) -> None:
        give_up = time.monotonic() + OPENING_S
        while True:
            try:
                self.store = ObservationStore.open_or_create(path, identity)
                break
            except StoreError as error:
                if error.code == "store-mismatch" or time.monotonic() > give_up or not path.parent.is_dir():
                    raise
                time.sleep(0.05)  # another process is creating it
        with self.store.database.transaction() as connection:
            self._identity_id = number_of(connection, identity)

    def add(self, rows: Sequence[Observation]) -> int:
        """Add the rows whose cells have none yet, and return their number."""
        if not rows:
            return 0
        with self.store.database.transaction() as connection:
            requests = sorted({row.request_id for row in rows})
            connection.execute(_ADD_REQUEST, [{"request_id": name, "digest": "served"} for name in requests])
            found = connection.execute(_CELLS.where(schema.observations.c.request_id.in_(requests)))
            seen = {(row.request_id, decode_prefix(row.prefix)) for row in found}
            new: list[Observation] = []
            for row in rows:
                if (row.request_id, row.prefix) not in seen:
                    seen.add((row.request_id, row.prefix))
                    new.append(row)
            if new:
                insert_rows(connection, new, self._identity_id)
            return len(new)

    def set_success(self, request_id: str, success: bool | float) -> bool:
        """Say whether the last answer of a request is right; False if the store has no row of it."""
        with self.store.database.transaction() as connection:
            row_id = connection.execute(_LAST_ROW, {"request": request_id}).scalar()
            if row_id is None:
                return False
            connection.execute(_SET_SUCCESS, {"row": row_id, "right": success})
            return True

    def close(self) -> None:
        """Close the file. Idempotent."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


BOUND = 10_000
"""Rows that wait in memory at most."""
BATCH = 512
"""Rows of one transaction at most."""
GATHERED_S = 0.2
"""Seconds that a batch is gathered for: each transaction is flushed to the disk."""
RETRY_S = 1.0
CLOSING_S = 10.0
"""Seconds that :meth:`EvidenceWriter.close` waits for the disk at most."""

_LOG = logging.getLogger(__name__)
_OPEN: WeakSet[EvidenceWriter] = WeakSet()


@dataclass(frozen=True)
class Feedback:
    """A user's verdict on a request's last answer: right, wrong, or a score in [0, 1]."""

    request_id: str
    success: bool | float


_REFUSALS = (
    UnicodeError, OverflowError, TypeError, ValueError,
    sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError,
)  # fmt: skip


class EvidenceWriter:
    """Takes rows without blocking and writes them in batches. Thread-safe; goes on in a forked child with an empty queue.

    When ``bound`` rows wait, the oldest is dropped for each new one: counted, and told in the log. A row that the store
    refuses is set aside, counted and named in the log, and the others are written. What waits when the process ends is written
    then, by the thread that ends it: no thread is started during shutdown.

    Args:
        path: the store, created if it does not exist.
        identity: the workflow, template and catalog that serve.
        on_rows: called in the writer's thread with the rows of each batch; what it raises is logged.
        on_end: called before the process ends, to queue what is still held elsewhere.
        bound: rows that wait at most, >= 1.

    Attributes:
        written: rows in the store.
        dropped: rows and feedback that were lost: the queue was full, the store could not be written to the end, or refused
            them.
        refused: those of them that the store refused.
        unknown: feedback of requests without a row.
    """

    def __init__(
        self,
        path: Path,
        identity: StoreIdentity,
        *,
        on_rows: Callable[[Sequence[Observation]], None] | None = None,
        on_end: Callable[[], None] | None = None,
        bound: int = BOUND,
    ) -> None:
        self.path, self.identity = path, identity
        self._on_rows, self._on_end, self._bound = on_rows, on_end, bound
        self._reset()
        _OPEN.add(self)

    def _reset(self) -> None:
        self.written = self.dropped = self.unknown = self.refused = 0
        self._pid = os.getpid()
        self._ready = Condition()
        self._waiting: deque[Observation | Feedback] = deque()
        self._deferred: deque[Callable[[], None]] = deque()
        self._is_over = self._is_finishing = False
        _end_with_the_worker()
        self._writing = 0
        self._thread: Thread | None = None
        self._closes_by: float | None = None
        self._told: str | None = None

    def start(self) -> None:
        """Start the thread, so that none has to be started later, in a moment where that cannot be done."""
        if self._pid != os.getpid():
            self._reset()
        with self._ready:
            if self._thread is None and not self._is_over:
                self._closes_by = None
                self._thread = Thread(target=self._run, name="vinelm-evidence", daemon=True)
                self._thread.start()

    def put(self, item: Observation | Feedback) -> None:
        """Queue a row, or feedback on one that was queued before."""
        self.start()
        with self._ready:
            if len(self._waiting) >= self._bound:
                self._waiting.popleft()
                self._drop(1, "more rows come than can be written")
            self._waiting.append(item)
            if len(self._waiting) == 1:
                self._ready.notify_all()
        if (
            self._is_over and not sys.is_finalizing() and current_thread() is not self._thread
        ):  # an exit handler that runs after ours still serves
            self._write_what_waits()

    def defer(self, finish: Callable[[], None]) -> None:
        """Have ``finish``, which may put rows, called by the thread. Starts none: safe wherever objects are finalized."""
        if self._pid == os.getpid():
            with self._ready:
                if len(self._deferred) >= self._bound:
                    self._deferred.popleft()
                    self._drop(1, "more requests end than can be written")
                self._deferred.append(finish)
                self._ready.notify_all()

    @property
    def waiting(self) -> int:
        """Rows and feedback that are not in the store yet."""
        return len(self._waiting) + self._writing

    def flush(self, timeout_s: float = CLOSING_S) -> bool:
        """Wait until all that was queued is written; False if it is not within the time. Errors of the disk are logged."""
        with self._ready:
            return self._ready.wait_for(lambda: not (self.waiting or self._deferred or self._is_finishing), timeout_s)

    def close(self, timeout_s: float = CLOSING_S) -> bool:
        """Write what waits and end the thread; False if some of it is lost, which is counted and logged. Idempotent.

        A row that is queued afterwards starts the thread again.
        """
        if self._pid != os.getpid():
            return True
        with self._ready:
            thread, lost = self._thread, self.dropped
            self._closes_by = time.monotonic() + timeout_s
            self._ready.notify_all()
        if thread is not None:
            thread.join(timeout_s + RETRY_S)
        if self._is_over and not (thread is not None and thread.is_alive()):
            self._write_what_waits()
        return self.dropped == lost and not self.waiting

    def end(self) -> None:
        """Write everything for the last time: the process ends."""
        if self._pid != os.getpid():
            return
        if self._on_end is not None:
            with suppress(Exception):
                self._on_end()
        self._is_over = True
        self.close()

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        store: ServedStore | None = None
        try:
            while (batch := self._take()) is not None:
                store = self._write(store, batch)
        finally:
            if store is not None:
                with suppress(VineLMError):
                    store.close()

    def _write_what_waits(self) -> None:
        """As the thread does, on this thread: shutdown starts no other."""
        with self._ready:
            self._closes_by = self._closes_by or time.monotonic() + CLOSING_S
        self._run()

    def _finish_deferred(self) -> None:
        """Call what was deferred, without the lock: it queues its rows."""
        while True:
            with self._ready:
                self._is_finishing = bool(self._deferred)
                if not self._is_finishing:
                    self._ready.notify_all()
                    return
                finish = self._deferred.popleft()
            with suppress(Exception):
                finish()

    def _take(self) -> list[Observation | Feedback] | None:
        """The next batch; None once the queue is empty and the writer closes."""
        while True:
            self._finish_deferred()
            with self._ready:
                self._ready.wait_for(lambda: self._waiting or self._deferred or self._closes_by is not None)
                if self._deferred:
                    continue
                if not self._waiting:
                    self._thread = None
                    return None
                return self._batch()

    def _batch(self) -> list[Observation | Feedback]:
        """The next rows, with the lock held; others may still join them."""
        if self._closes_by is None and len(self._waiting) < BATCH:
            self._ready.wait_for(lambda: self._closes_by is not None, GATHERED_S)
        batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        self._writing = len(batch)
        return batch

    def _write(self, store: ServedStore | None, batch: list[Observation | Feedback]) -> ServedStore | None:
        """Write a batch, again and again until it succeeds or the writer closes; the store, None if it has to be reopened."""
        while True:
            try:
                if store is None:
                    store = ServedStore(self.path, self.identity)
                self._write_once(store, batch)
                self._told = None
                break
            except Exception as error:
                if store is not None:
                    with suppress(VineLMError):
                        store.close()
                store = None
                if _is_about_rows(error):
                    batch = self._one_by_one(batch)
                    continue
                self._tell(error)
                if self._gives_up(error):
                    with self._ready:
                        self._drop(len(batch), "they could not be written")
                    break
        with self._ready:
            self._writing = 0
            self._ready.notify_all()
        return store

    def _one_by_one(self, batch: list[Observation | Feedback]) -> list[Observation | Feedback]:
        """Write each item alone, and set those aside that the store refuses; what is left where the store itself fails."""
        for at, item in enumerate(batch):
            try:
                with ServedStore(self.path, self.identity) as store:
                    self._write_once(store, [item])
            except Exception as error:
                if not _is_about_rows(error):
                    return batch[at:]
                with self._ready:
                    self.refused += 1
                    self.dropped += 1
                what = "the row" if isinstance(item, Observation) else "feedback"
                _LOG.warning(
                    "%s: %s of the run %.80s is set aside, since the store refuses it (%s)",
                    self.path, what, ascii(item.request_id), type(error.__cause__ or error).__name__,
                )  # fmt: skip
        return []

    def _write_once(self, store: ServedStore, batch: list[Observation | Feedback]) -> None:
        rows = [item for item in batch if isinstance(item, Observation)]
        self.written += store.add(rows)
        for item in batch:  # rows are there by then
            if isinstance(item, Feedback) and not store.set_success(item.request_id, item.success):
                self.unknown += 1
                _LOG.warning("feedback on the run %r: no row of it in %s", item.request_id, self.path)
        if self._on_rows is not None and rows:
            try:
                self._on_rows(rows)
            except Exception as error:
                _LOG.warning("the drift hook raised %s: rows are written all the same", type(error).__name__)

    def _gives_up(self, error: Exception) -> bool:
        """Wait before another attempt; whether there is to be none."""
        if isinstance(error, StoreError) and error.code == "store-mismatch":
            return True
        with self._ready:
            closing = self._ready.wait_for(lambda: self._closes_by is not None, RETRY_S)
            if closing and self._closes_by is not None:
                left_s = self._closes_by - time.monotonic()
                if left_s <= 0:
                    return True
        if closing:
            time.sleep(min(left_s, 0.1))
        return False

    def _drop(self, count: int, why: str) -> None:
        """Count lost rows, with the lock held; the first of a series is told."""
        if not self.dropped:
            _LOG.warning("%s: rows of served requests are lost: %s", self.path, why)
        self.dropped += count

    def _tell(self, error: Exception) -> None:
        text = str(error) if isinstance(error, VineLMError) else type(error).__name__
        if text != self._told:
            _LOG.warning("%s: rows of served requests wait: %s", self.path, text)
        self._told = text


def _is_about_rows(error: BaseException | None) -> bool:
    """True if a write failed for what was to be written, and not for the state of the store."""
    while error is not None:
        if isinstance(error, _REFUSALS):
            return True
        error = getattr(error, "orig", None) or error.__cause__
    return False


@atexit.register
def _end_all() -> None:
    for writer in list(_OPEN):
        writer.end()


def _end_with_the_worker() -> None:
    """Processes of :mod:`multiprocessing` end without exit handlers, but call their own finalizers."""
    if "multiprocessing.util" in sys.modules and multiprocessing.parent_process() is not None:
        sys.modules["multiprocessing.util"].Finalize(None, _end_all, exitpriority=100)
