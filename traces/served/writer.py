"""Writes served rows in a thread of its own, so that no request waits for a disk."""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from weakref import WeakSet

from vinelm.errors import StoreError, VineLMError
from vinelm.observation import Observation
from vinelm.traces.served.served_store import ServedStore
from vinelm.traces.store.identity import StoreIdentity

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
    """What is said of a request's last answer: right, wrong, or a score in [0, 1]."""

    request_id: str
    success: bool | float


class EvidenceWriter:
    """Takes rows without blocking and writes them in batches. Thread-safe; goes on in a forked child with an empty queue.

    When ``bound`` rows wait, the oldest is dropped for each new one: counted, and told in the log. What waits when the process
    ends is written then.

    Args:
        path: the store, created if it does not exist.
        identity: the workflow, template and catalog that serve.
        on_rows: called in the writer's thread with the rows of each batch; what it raises is logged.
        bound: rows that wait at most, >= 1.

    Attributes:
        written: rows in the store.
        dropped: rows and feedback that were lost: the queue was full, or the store could not be written to the end.
        unknown: feedback of requests without a row.
    """

    def __init__(
        self,
        path: Path,
        identity: StoreIdentity,
        *,
        on_rows: Callable[[Sequence[Observation]], None] | None = None,
        bound: int = BOUND,
    ) -> None:
        self.path, self.identity = path, identity
        self._on_rows, self._bound = on_rows, bound
        self._reset()
        _OPEN.add(self)

    def _reset(self) -> None:
        self.written = self.dropped = self.unknown = 0
        self._pid = os.getpid()
        self._ready = Condition()
        self._waiting: deque[Observation | Feedback] = deque()
        self._writing = 0
        self._thread: Thread | None = None
        self._closes_by: float | None = None
        self._told: str | None = None

    def put(self, item: Observation | Feedback) -> None:
        """Queue a row, or feedback on one that was queued before."""
        if self._pid != os.getpid():
            self._reset()
        with self._ready:
            if len(self._waiting) >= self._bound:
                self._waiting.popleft()
                self._drop(1, "more rows come than can be written")
            self._waiting.append(item)
            if self._thread is None:
                self._closes_by = None
                self._thread = Thread(target=self._run, name="vinelm-evidence", daemon=True)
                self._thread.start()
            if len(self._waiting) == 1:
                self._ready.notify_all()

    @property
    def waiting(self) -> int:
        """Rows and feedback that are not in the store yet."""
        return len(self._waiting) + self._writing

    def flush(self, timeout_s: float = CLOSING_S) -> bool:
        """Wait until all that was queued is written; False if it is not within the time. Errors of the disk are logged."""
        with self._ready:
            return self._ready.wait_for(lambda: not self.waiting, timeout_s)

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
        return self.dropped == lost and not self.waiting

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

    def _take(self) -> list[Observation | Feedback] | None:
        """The next batch; None once the queue is empty and the writer closes."""
        with self._ready:
            self._ready.wait_for(lambda: self._waiting or self._closes_by is not None)
            if not self._waiting:
                self._thread = None
                return None
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
                self._tell(error)
                if store is not None:
                    with suppress(VineLMError):
                        store.close()
                store = None
                if self._gives_up(error):
                    with self._ready:
                        self._drop(len(batch), "they could not be written")
                    break
        with self._ready:
            self._writing = 0
            self._ready.notify_all()
        return store

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


@atexit.register
def _close_all() -> None:
    for writer in list(_OPEN):
        writer.close()
