"""Writes records of served requests in a separate thread, so that requests do not wait for the disk."""

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
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from vinelm.errors import StoreError, VineLMError
from vinelm.foreign_code import answered
from vinelm.rows.observation import Observation
from vinelm.threads import started
from vinelm.traces.databases.identity import StoreIdentity
from vinelm.traces.served.served_store import ServedStore
from vinelm.traces.store.store import ObservationStore

BOUND = 10_000
"""The maximum number of rows that wait in memory."""
AT_ONCE = 512
"""The maximum number of rows in one transaction."""
GATHERED_S = 0.2
"""Seconds for which items are collected, since each transaction is flushed to the disk."""
RETRY_S = 1.0
CLOSING_S = 10.0
"""The maximum time, in seconds, that :meth:`EvidenceWriter.close` waits for the disk."""

_LOG = logging.getLogger(__name__)
_OPEN: WeakSet[StoreWriter[Any, Any]] = WeakSet()


Item = TypeVar("Item")
Kept = TypeVar("Kept", bound=ServedStore | ObservationStore)


@dataclass(frozen=True)
class Feedback:
    """Feedback on the last answer of a request.

    ``success`` is True (right), False (wrong) or a score in [0, 1]. ``caller`` names who gives the feedback; it is empty for
    the application itself.
    """

    request_id: str
    success: bool | float
    caller: str = ""


_REFUSALS = (
    UnicodeError, OverflowError, TypeError, ValueError,
    sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError,
)  # fmt: skip


class StoreWriter(Generic[Item, Kept]):
    """Queues items without blocking, and writes many at once. Thread-safe; a forked child continues with an empty queue.

    If ``bound`` items are queued, each new item replaces the oldest item, which is counted and logged. An item that the store
    rejects is skipped, counted and logged; the other items are written. At the end of the process, the ending thread writes the
    remaining items, since no thread can be started during shutdown.

    Args:
        path: the store, created if it does not exist.
        on_end: called before the process ends, to queue items that are not queued yet.
        bound: the maximum queue length, >= 1.

    Attributes:
        what: the name of the items in the log.
        written: the number of items written.
        dropped: the number of items lost because the queue was full, the store could not be written, or the store rejected
            them.
        refused: the number of items that the store rejected.
    """

    what = "rows of served requests"

    def __init__(self, path: Path, *, on_end: Callable[[], None] | None = None, bound: int = BOUND) -> None:
        self.path = path
        self._on_end, self._bound = on_end, bound
        self._reset()
        _OPEN.add(self)

    def opened(self) -> Kept:
        """Open the store and return it. If this raises, the writer calls this method again later."""
        raise NotImplementedError

    def write(self, store: Kept, items: list[Item]) -> None:
        """Write items to the store in order, and add their number to ``written``."""
        raise NotImplementedError

    def named(self, item: Item) -> str:
        """Return a skipped item's name for the log, in printable characters."""
        raise NotImplementedError

    def _reset(self) -> None:
        self.written = self.dropped = self.refused = 0
        self._pid = os.getpid()
        self._ready = Condition()
        self._waiting: deque[Item] = deque()
        self._deferred: deque[Callable[[], None]] = deque()
        self._is_over = self._is_finishing = False
        _end_with_the_worker()
        self._writing = 0
        self._thread: Thread | None = None
        self._closes_by: float | None = None
        self._told: str | None = None

    def start(self) -> None:
        """Start the writer's thread now. Call this early, because some processes can start no thread later."""
        if self._pid != os.getpid():
            self._reset()
        with self._ready:
            if self._thread is None and not self._is_over:
                self._closes_by = None
                self._thread = started(self._run, "vinelm-evidence")

    def put(self, item: Item) -> None:
        """Add an item to the queue of items to write. If the queue is full, drop the oldest item."""
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
        ):  # an exit handler that runs after ours still serves requests
            self._write_what_waits()

    def defer(self, finish: Callable[[], None]) -> None:
        """Have ``finish`` called by the writer's thread as soon as that thread runs; ``finish`` may queue items.

        This starts no thread, so it may be called in a finalizer.
        """
        if self._pid == os.getpid():
            with self._ready:
                if len(self._deferred) >= self._bound:
                    self._deferred.popleft()
                    self._drop(1, "more requests end than can be written")
                self._deferred.append(finish)
                self._ready.notify_all()

    @property
    def waiting(self) -> int:
        """The number of items that are not in the store yet."""
        return len(self._waiting) + self._writing

    def flush(self, timeout_s: float = CLOSING_S) -> bool:
        """Wait until all queued items are written and all deferred functions called; return False after ``timeout_s`` seconds.

        Errors of the disk are logged.
        """
        with self._ready:
            return self._ready.wait_for(lambda: not (self.waiting or self._deferred or self._is_finishing), timeout_s)

    def close(self, timeout_s: float = CLOSING_S) -> bool:
        """Write queued items and end the thread; return False if items were lost. Losses are counted and logged. Idempotent.

        An item that is queued afterwards starts the thread again.
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
        """Write all remaining items, because the process ends."""
        if self._pid != os.getpid():
            return
        if self._on_end is not None:
            answered(self._on_end, None)
        self._is_over = True
        self.close()

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        store: Kept | None = None
        try:
            while (items := self._take()) is not None:
                store = self._write(store, items)
        finally:
            if store is not None:
                with suppress(VineLMError):
                    store.close()

    def _write_what_waits(self) -> None:
        """Write the queued items, on the calling thread. Used at shutdown, when Python starts no threads any more."""
        with self._ready:
            self._closes_by = self._closes_by or time.monotonic() + CLOSING_S
        self._run()

    def _finish_deferred(self) -> None:
        """Call the functions given to :meth:`defer`. The lock is not held, because these functions may queue items."""
        while True:
            with self._ready:
                self._is_finishing = bool(self._deferred)
                if not self._is_finishing:
                    self._ready.notify_all()
                    return
                finish = self._deferred.popleft()
            answered(finish, None)

    def _take(self) -> list[Item] | None:
        """Wait for the next items and return them; None if the queue is empty and the writer is closing."""
        while True:
            self._finish_deferred()
            with self._ready:
                self._ready.wait_for(lambda: self._waiting or self._deferred or self._closes_by is not None)
                if self._deferred:
                    continue
                if not self._waiting:
                    self._thread = None
                    return None
                return self._next_items()

    def _next_items(self) -> list[Item]:
        """Remove the next items from the queue and return them, after a short wait for more. Call with the lock held."""
        if self._closes_by is None and len(self._waiting) < AT_ONCE:
            self._ready.wait_for(lambda: self._closes_by is not None, GATHERED_S)
        items = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
        self._writing = len(items)
        return items

    def _write(self, store: Kept | None, items: list[Item]) -> Kept | None:
        """Write items, retrying until success or until the writer closes.

        ``store`` is the open store, None if it must be opened first. Return the open store, or None if it was closed after an
        error.
        """
        batches = [items]
        while batches:
            try:
                if store is None:
                    store = self.opened()
                self.write(store, batches[0])
                self._told = None
                del batches[0]
            except Exception as error:  # the database, its driver or its disk, or a row that the store refuses
                if store is not None:
                    with suppress(VineLMError):
                        store.close()
                store = None
                if _is_about_rows(error):
                    batch = batches.pop(0)
                    if len(batch) == 1:
                        self._set_aside(batch[0], error)
                    else:  # one by one, to find the rows that the store refuses
                        batches = [[item] for item in batch] + batches
                    continue
                self._tell(error)
                if self._gives_up(error):
                    with self._ready:
                        self._drop(sum(map(len, batches)), "they could not be written")
                    break
        with self._ready:
            self._writing = 0
            self._ready.notify_all()
        return store

    def _set_aside(self, item: Item, error: Exception) -> None:
        """Count and log an item that the store rejects with ``error``; the item is lost."""
        with self._ready:
            self.refused += 1
            self.dropped += 1
        _LOG.warning(
            "%s: %s is set aside, since the store refuses it (%s)",
            self.path, self.named(item), type(error.__cause__ or error).__name__,
        )  # fmt: skip

    def _gives_up(self, error: Exception) -> bool:
        """Return True if the writer should give up after ``error``; otherwise wait until the next attempt and return False.

        It should give up if the store belongs to another workflow, or if no time is left to close.
        """
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
        """Count lost items, and log the first loss with the reason ``why``. Called with the lock held."""
        if not self.dropped:
            _LOG.warning("%s: %s are lost: %s", self.path, self.what, why)
        self.dropped += count

    def _tell(self, error: Exception) -> None:
        text = str(error) if isinstance(error, VineLMError) else type(error).__name__
        if text != self._told:
            _LOG.warning("%s: %s wait: %s", self.path, self.what, text)
        self._told = text


class EvidenceWriter(StoreWriter["Observation | Feedback", ServedStore]):
    """Writes rows, and feedback on rows that were queued before.

    Args:
        path: the store, created if it does not exist; see :class:`StoreWriter`, also for ``on_end`` and ``bound``.
        identity: the workflow, template and catalog that are served.
        on_rows: called in the writer's thread with the rows of each write; its exceptions are logged.

    Attributes:
        written: the number of rows added; feedback does not count.
        unknown: the number of feedback items whose request has no row with an answer.
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
        self.identity, self._on_rows = identity, on_rows
        super().__init__(path, on_end=on_end, bound=bound)

    def _reset(self) -> None:
        self.unknown = 0
        super()._reset()

    def opened(self) -> ServedStore:
        """Open and return the store for served requests."""
        return ServedStore(self.path, self.identity)

    def write(self, store: ServedStore, items: list[Observation | Feedback]) -> None:
        """Write the rows among the items, then the feedback."""
        rows = [item for item in items if isinstance(item, Observation)]
        self.written += store.add(rows)
        for item in items:  # rows are written by then
            if isinstance(item, Feedback) and not store.set_success(item.request_id, item.success, item.caller):
                self.unknown += 1
                _LOG.warning("feedback on the run %r: no row of it in %s", item.request_id, self.path)
        if self._on_rows is not None and rows:
            try:
                self._on_rows(rows)
            except Exception as error:  # the caller's hook
                _LOG.warning("the drift hook raised %s: rows are written all the same", type(error).__name__)

    def named(self, item: Observation | Feedback) -> str:
        """Return a text that says whether the item is a row or feedback, and names its request."""
        return f"{'the row' if isinstance(item, Observation) else 'feedback'} of the run {ascii(item.request_id)[:80]}"


def _is_about_rows(error: BaseException | None) -> bool:
    """Return whether ``error``, or an error that caused it, was raised because the items are invalid.

    False if the store itself failed.
    """
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
    """In a child process of :mod:`multiprocessing`, arrange that all open writers write their remaining items at exit.

    Such processes skip Python's exit handlers, so a finalizer of :mod:`multiprocessing` is used.
    """
    if "multiprocessing.util" in sys.modules and multiprocessing.parent_process() is not None:
        sys.modules["multiprocessing.util"].Finalize(None, _end_all, exitpriority=100)
