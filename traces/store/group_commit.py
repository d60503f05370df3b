"""Writes of many threads as few transactions: whoever comes while one is on its way to the disk joins the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

from vinelm.errors import StoreError
from vinelm.traces.store.store import ObservationStore

Result = TypeVar("Result")


class _Write:
    """One caller's write: what it returned or raised, once it is done."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False


class GroupCommit:
    """Runs writes on a store, those of threads that wait at the same time in one transaction. Thread-safe.

    A disk takes milliseconds for a commit, however much it holds.
    """

    def __init__(self, store: ObservationStore) -> None:
        self._store = store
        self._waiting: list[_Write] = []
        self._list, self._turn = threading.Lock(), threading.Lock()

    def run(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` returns, once what it wrote is durable; it may run on another thread.

        Raises:
            StoreError: the store failed: no write of the transaction is there, this one's or another's.
            Exception: what ``work`` itself raised; nothing that it wrote is there.
        """
        mine = _Write(work)
        with self._list:
            self._waiting.append(mine)
        with self._turn:
            if not mine.is_done:
                self._commit()
        if mine.error is not None:
            raise mine.error
        result: Result = mine.result
        return result

    def _commit(self) -> None:
        """Write all that waits, in the order in which it came."""
        with self._list:
            writes, self._waiting = self._waiting, []
        try:
            with self._store.together(), self._store.database.transaction() as connection:
                for write in writes:
                    try:
                        # What one of several leaves undone is undone alone; a single one needs no savepoint for that.
                        with connection.begin_nested() if len(writes) > 1 else nullcontext():
                            write.result = write.work()
                    except StoreError:
                        raise
                    except Exception as error:
                        if len(writes) == 1:
                            raise
                        write.error = error
        except BaseException as error:
            for write in writes:
                write.error = error
        for write in writes:
            write.is_done = True
