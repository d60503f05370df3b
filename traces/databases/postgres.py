"""Access to a store in PostgreSQL, and translation of its errors to :class:`StoreError`."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from vinelm.errors import StoreError
from vinelm.extras import required_extra
from vinelm.traces.databases.address import PostgresUrl
from vinelm.traces.databases.database import Database
from vinelm.traces.databases.running_totals import Totals, of_no_live_run, totals

ALONE, SETUP, RUN = 1, 2, 1000
"""Numbers of advisory locks within a store's schema: of the store, of the beginning and end of a run, of run 0."""
CONNECT_TIMEOUT_S = 10
SURE_S = 0.1
"""After the server has said that the store is this run's, it is not asked for so long whether it still is."""
_SCHEMA = "(SELECT oid::integer FROM pg_namespace WHERE nspname = current_schema())"
_HOLDERS = text(
    "SELECT coalesce(nullif(a.application_name, ''), 'backend ' || l.pid) FROM pg_locks l LEFT JOIN pg_stat_activity a "
    "ON a.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted AND l.objid = :lock AND l.classid = "
    "(SELECT oid FROM pg_namespace WHERE nspname = current_schema()) "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY l.pid"
)


class Lease(NamedTuple):
    """The right of a run to the units that it has claimed, for so many ``seconds`` after it was renewed last."""

    run_id: int
    owner: str
    seconds: float


RENEW = text(
    "INSERT INTO runs (run_id, owner, expires_at) "
    "VALUES (:run_id, :owner, clock_timestamp() + make_interval(secs => :seconds)) "
    "ON CONFLICT (run_id) DO UPDATE SET expires_at = excluded.expires_at"
)
"""Renews a lease, by the clock of the database."""


class PostgresDatabase(Database):
    """One connection to one schema of a PostgreSQL database, shared by the threads of a process through a lock.

    A committed transaction is durable as far as the server's ``synchronous_commit`` says.

    Raises:
        ConfigError: psycopg is not installed.
        StoreError: the server cannot be reached.
    """

    not_a_store = "a database with other tables, not an observation store"
    is_shareable = True

    def __init__(self, url: PostgresUrl) -> None:
        self.path = self.url = url
        self.file = Path()
        self._lock = threading.RLock()
        self._closing = ExitStack()
        self._unflushed: Lease | None = None
        self._hold: str | None = None
        self._sure_until_s = 0.0
        with required_extra("postgres", f"{url}: a store in PostgreSQL"):
            import psycopg  # noqa: F401
        host = socket.gethostname()
        with self.translated():
            self._engine = create_engine(
                url.url,
                poolclass=StaticPool,
                isolation_level="READ COMMITTED",  # sums are read after the lock: whatever the server's default is
                connect_args={
                    "application_name": f"vinelm pid {os.getpid()} on {host}"[:63],
                    **{"connect_timeout": CONNECT_TIMEOUT_S, "keepalives_idle": 10, "keepalives_interval": 5},
                },
                hide_parameters=True,  # rows never show in an error
            )
            self._connection = self._engine.connect()

    def translated(self) -> AbstractContextManager[None]:
        """Turn errors of PostgreSQL into a one-line :class:`StoreError` that names the store and shows no row."""
        return _translated(self.url)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """As :meth:`Database.transaction`. What was written under :meth:`lock_for_writing` is durable when the block ends."""
        with self._lock, self.translated():
            if self._connection.in_transaction():
                yield self._connection
                return
            # A transaction that was undone may have left its lease here, and has nothing to be flushed.
            self._unflushed = None
            with self._connection.begin():
                self._require_session()
                yield self._connection
            self._flush()

    def require_held(self) -> None:
        """As :meth:`Database.require_held`; asks the server, unless it has said so just now."""
        if self._hold is not None and time.monotonic() >= self._sure_until_s:
            with self.transaction():
                pass

    def _require_session(self) -> None:
        """Raise if the session is not the one that took the hold: the server has given that to whoever asked for it since.

        Whatever ended it: the driver connects anew by itself after an error, and a pooler such as PgBouncer gives each
        transaction to another session.
        """
        if self._hold is not None and self._connection.execute(_HOLD).scalar() != self._hold:
            raise StoreError(
                f"{self.url}: the connection that held the store for this run is gone, and another run may have it now: run "
                "the same line again, which continues (through PgBouncer: with pool_mode = session)",
                code="store-hold-lost",
            )
        self._sure_until_s = time.monotonic() + SURE_S

    def _flush(self) -> None:
        if self._unflushed is not None:
            with self._connection.begin():
                # The server's log is one sequence: this commit waits for the disk, and so the one before, which did
                # not, is on it too.
                self._connection.execute(RENEW, self._unflushed._asdict())

    def lock_for_writing(self, connection: Connection, lease: Lease) -> Totals:
        """Keep other writers of this store waiting until the end of the caller's transaction; return the store's totals.

        The lock is given back before the server's disk has the transaction, so that writers do not wait for each other's disk.
        A writer that has seen what a server lost when it crashed has lost its own later writes as well.

        Args:
            connection: in a transaction.
            lease: of the run that writes.

        Raises:
            StoreError: the store has another version by now: it was upgraded while it was open.
        """
        if self._unflushed is not None:  # this transaction has the lock
            return totals(connection)
        found = connection.execute(_WRITE_LOCK).one_or_none()
        self.require_version(None if found is None else found.value)
        assert found is not None
        self._unflushed = lease
        return Totals(found.usd, found.calls)

    def is_untouched(self) -> bool:
        """False: nothing tells without a query."""
        return False

    def truncate_wal(self) -> None:
        """Do nothing: the server looks after its log."""

    def copy_to(self, path: Path) -> None:
        """Refuse: a copy is made by export."""
        raise StoreError(f"{self.path}: a store in PostgreSQL is not copied into a file: use vinelm export")

    def size_bytes(self) -> int:
        """Return the bytes of the schema's tables and their indexes."""
        with self.transaction() as connection:
            return int(connection.execute(_SIZE).scalar_one())

    def close(self) -> None:
        """Close the connection, which releases its locks. Idempotent."""
        with self._lock, suppress(SQLAlchemyError):
            self._connection.close()
        with suppress(SQLAlchemyError):
            self._engine.dispose()
        self._closing.close()

    # -- advisory locks ------------------------------------------------------------------------------------------

    def alone(self) -> AbstractContextManager[None]:
        """Hold the store for one run; see :meth:`held`."""
        return self.held(is_shared=False)

    def open_entries(self) -> ColumnElement[bool]:
        """As :meth:`Database.open_entries`; those of a run that is alive stay open."""
        return and_(super().open_entries(), of_no_live_run())

    def holders(self) -> list[str]:
        """Return the processes of the runs on the store, as ``vinelm pid N on HOST``."""
        with self.transaction() as connection:
            return list(connection.execute(_HOLDERS, {"lock": ALONE}).scalars())

    @contextmanager
    def held(self, *, is_shared: bool) -> Iterator[None]:
        """Hold the store for a run: alone, or with other runs that hold it shared. The server releases it with the session.

        Raises:
            StoreError: others hold it; the message names one.
        """
        kind = "_shared" if is_shared else ""
        with self.transaction() as connection:
            if not connection.execute(text(f"SELECT pg_try_advisory_lock{kind}({_SCHEMA}, {ALONE})")).scalar():
                owner = next(iter(self.holders()), "unknown")
                raise StoreError(f"{self.path}: another run is writing to it ({owner}): wait for it to end, or stop it")
            # A setting of the session: it ends with it, as the lock does, and with whatever else gives the lock back.
            hold = secrets.token_hex(8)
            connection.execute(_NOTE_HOLD, {"hold": hold})
            connection.execute(_STAY_IDLE)
        self._hold = hold
        try:
            yield
        finally:
            self._hold = None
            self._unlock(ALONE, kind)

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Wait until no other run is beginning or ending, and be the only one that is."""
        with self.transaction() as connection:
            connection.execute(text(f"SELECT pg_advisory_lock({_SCHEMA}, {SETUP})"))
        try:
            yield
        finally:
            self._unlock(SETUP, "")

    def _unlock(self, lock: int, kind: str) -> None:
        with suppress(StoreError), self.transaction() as connection:  # a lost session has lost its locks
            connection.execute(text(f"SELECT pg_advisory_unlock{kind}({_SCHEMA}, {lock})"))


_NOTE_HOLD = text("SELECT set_config('vinelm.hold', :hold, false)")
_HOLD = text("SELECT current_setting('vinelm.hold', true)")
_STAY_IDLE = text("SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'")
"""A run may write nothing for hours, while it waits for a provider's batch. Since PostgreSQL 14."""
_WRITE_LOCK = text(
    "SELECT m.value, t.usd, t.calls, set_config('synchronous_commit', 'off', true) FROM meta m, totals t "
    "WHERE m.key = 'schema_version' FOR UPDATE"
)
_SIZE = text(
    "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n "
    "ON n.oid = c.relnamespace WHERE n.nspname = current_schema() AND c.relkind = 'r'"
)


@contextmanager
def _translated(where: PostgresUrl) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        raise _store_error(error, where) from error.orig
    except (SQLAlchemyError, UnicodeEncodeError) as error:
        raise StoreError(f"{where}: {type(error).__name__}") from error
    except Exception as error:
        if not type(error).__module__.startswith("psycopg"):
            raise
        raise _plain_error(error, where, is_lost=False) from error


def _store_error(error: DBAPIError, where: PostgresUrl) -> StoreError:
    is_lost = error.connection_invalidated or (isinstance(error, OperationalError) and not _sqlstate(error.orig))
    return _plain_error(error.orig, where, is_lost=is_lost or _sqlstate(error.orig)[:2] in ("08", "57"))


def _plain_error(error: BaseException | None, where: PostgresUrl, *, is_lost: bool) -> StoreError:
    """The first line of what the server or the driver said, and what to do about it. Never a value of a row."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    state = _sqlstate(error)
    if state.startswith("23"):  # what follows quotes the row
        said = "a row of this key is there already"
    if is_lost:
        advice = "the server cannot be reached: start it and run the same line again: every row stored so far is kept"
        return StoreError(f"{where}: {advice} ({said})", code="store-unreachable")
    if state == "42501":
        return StoreError(f"{where}: {said}: grant it to this user, or use another database", code="store-not-writable")
    if state.startswith("53"):
        return StoreError(f"{where}: {said}: free some space on the server and resume", code="store-disk")
    return StoreError(f"{where}: {said}")


def _sqlstate(error: Any) -> str:
    return getattr(error, "sqlstate", None) or ""
