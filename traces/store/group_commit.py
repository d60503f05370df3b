"""Combines writes of many threads into few transactions: writes that arrive during a commit join the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from sqlalchemy import Connection

from vinelm.errors import StoreError
from vinelm.traces.store.store import ObservationStore

Result = TypeVar("Result")


class _Write:
    """A write for which a caller waits: a function, and once it has run, its result or exception."""

    __slots__ = ("error", "is_done", "is_undone_alone", "result", "turn", "work")

    def __init__(self, work: Callable[[], Any], *, is_undone_alone: bool) -> None:
        self.work, self.turn, self.is_undone_alone = work, threading.Lock(), is_undone_alone
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_done = False


class GroupCommit:
    """Runs writes on a store, and combines the writes of all threads that wait into one transaction. Thread-safe.

    A commit takes milliseconds on disk, whatever its size. Each statement also releases Python's interpreter lock. If many
    threads are busy, getting that lock back takes milliseconds too.
    """

    def __init__(self, store: ObservationStore) -> None:
        self._store = store
        self._waiting: list[_Write] = []
        self._lock = threading.Lock()
        self._is_busy = False

    def run(self, work: Callable[[], Result], *, is_one_statement: bool = False) -> Result:
        """Run ``work``, possibly on another thread, and return its result once its writes are durable.

        Args:
            work: The write.
            is_one_statement: Whether ``work`` executes at most one statement, so that nothing needs to be undone if it fails.

        Raises:
            StoreError: the store failed, and no write of the whole transaction was made.
            Exception: what ``work`` raised; its writes are undone.
        """
        mine = _Write(work, is_undone_alone=not is_one_statement)
        self._wait_for(mine)
        if mine.error is not None:
            raise mine.error
        result: Result = mine.result
        return result

    def _wait_for(self, mine: _Write) -> None:
        """Wait until another thread has done the write ``mine``; if it is this thread's turn, do all waiting writes here."""
        # Taken twice: the second time waits until another thread has done this write, or hands over to this one.
        mine.turn.acquire()
        with self._lock:
            self._waiting.append(mine)
            is_mine, self._is_busy = not self._is_busy, True
        if not is_mine:
            mine.turn.acquire()
        if not mine.is_done:
            self._commit()

    def _commit(self) -> None:
        """Do all waiting writes in order, wake their callers, and let another waiting thread continue with later writes."""
        with self._lock:
            writes, self._waiting = self._waiting, []
        try:
            with self._store.together(), self._store.database.transaction() as connection:
                for write in writes:
                    try:
                        # If one of several fails, its writes are undone separately; a single one needs no savepoint for that.
                        with _savepoint(connection) if len(writes) > 1 and write.is_undone_alone else nullcontext():
                            write.result = write.work()
                    except StoreError:
                        raise
                    except Exception as error:  # whoever waits for this write gets it
                        if len(writes) == 1:
                            raise
                        write.error = error
        except BaseException as error:
            # The transaction is undone as a whole, so none of the others was written either.
            for write in writes:
                write.error = error
        for write in writes:
            write.is_done = True
        # Handed over before anyone is woken: a newcomer then queues instead of starting a second transaction.
        with self._lock:
            following = self._waiting[0].turn if self._waiting else None
            self._is_busy = following is not None
        for write in writes:
            write.turn.release()
        if following is not None:
            following.release()


@contextmanager
def _savepoint(connection: Connection) -> Iterator[None]:
    """If the block raises an exception, roll back the writes of the block. SQLAlchemy's savepoints are several times slower."""
    connection.exec_driver_sql("SAVEPOINT one")
    try:
        yield
    except BaseException:
        connection.exec_driver_sql("ROLLBACK TO SAVEPOINT one")
        raise
    connection.exec_driver_sql("RELEASE SAVEPOINT one")
