"""Access to a store in PostgreSQL; converts its errors to :class:`StoreError`."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError, PendingRollbackError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from vinelm.errors import StoreError
from vinelm.extras import required_extra
from vinelm.traces.databases.address import PostgresUrl
from vinelm.traces.databases.database import Database

ALONE = 1
"""The number of the advisory lock with which a run locks a store's schema."""
CONNECT_TIMEOUT_S = 10
SURE_S = 0.1
"""Seconds for which the server's confirmation that this run still has the lock counts, before the server is asked again."""
_SCHEMA = "(SELECT oid::integer FROM pg_namespace WHERE nspname = current_schema())"
_HOLDERS = text(
    "SELECT coalesce(nullif(a.application_name, ''), 'backend ' || l.pid) FROM pg_locks l LEFT JOIN pg_stat_activity a "
    "ON a.pid = l.pid WHERE l.locktype = 'advisory' AND l.granted AND l.objid = :lock AND l.classid = "
    "(SELECT oid FROM pg_namespace WHERE nspname = current_schema()) "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) ORDER BY l.pid"
)


class PostgresDatabase(Database):
    """A connection to a schema of a PostgreSQL database, which the threads of a process share through a lock.

    The durability of a committed transaction depends on the server's ``synchronous_commit``.

    Raises:
        ConfigError: psycopg is not installed.
        StoreError: the server cannot be reached.
    """

    not_a_store = "a database with other tables, not an observation store"

    def __init__(self, url: PostgresUrl) -> None:
        self.path = self.url = url
        self.file = Path()
        self._lock = threading.RLock()
        self._closing = ExitStack()
        self._hold: str | None = None
        self._sure_until_s = 0.0
        with required_extra("postgres", f"{url}: a store in PostgreSQL"):
            import psycopg  # noqa: F401
        host = socket.gethostname()
        with self.translated():
            self._engine = create_engine(
                url.url,
                poolclass=StaticPool,
                isolation_level="READ COMMITTED",  # whatever the server's default is
                connect_args={
                    "application_name": f"vinelm pid {os.getpid()} on {host}"[:63],
                    **{"connect_timeout": CONNECT_TIMEOUT_S, "keepalives_idle": 10, "keepalives_interval": 5},
                },
                hide_parameters=True,  # rows never show in an error
            )
            self._connection = self._engine.connect()

    def translated(self) -> AbstractContextManager[None]:
        """Inside the block, convert errors of PostgreSQL to a one-line :class:`StoreError`.

        The message names the store, and quotes no stored data.
        """
        return _translated(self.url)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield a connection inside one transaction; see :meth:`Database.transaction`."""
        with self._lock, self.translated():
            if self._connection.in_transaction():
                yield self._connection
                return
            with self._connection.begin():
                self._require_session()
                yield self._connection

    def require_held(self) -> None:
        """Raise :class:`StoreError` if this run's lock on the store was lost.

        The server is asked unless it has just confirmed the lock.
        """
        if self._hold is not None and time.monotonic() >= self._sure_until_s:
            with self.transaction():
                pass

    def _require_session(self) -> None:
        """Raise :class:`StoreError` if this is not the session that locked the store: the server may have released the lock.

        A session can change unnoticed: after an error the driver reconnects, and a pooler such as PgBouncer may run each
        transaction in another session.
        """
        if self._hold is not None and self._connection.execute(_HOLD).scalar() != self._hold:
            raise StoreError(
                f"{self.url}: the connection that held the store for this run is gone, and another run may have it now: run "
                "the same line again, which continues (through PgBouncer: with pool_mode = session)",
                code="store-hold-lost",
            )
        self._sure_until_s = time.monotonic() + SURE_S

    def truncate_wal(self) -> None:
        """Do nothing: the server manages its log."""

    def copy_to(self, path: Path) -> None:
        """Raise :class:`StoreError`, because a store in PostgreSQL can only be copied by an export."""
        raise StoreError(f"{self.path}: a store in PostgreSQL is not copied into a file: use vinelm store export")

    def size_bytes(self) -> int:
        """Return how many bytes the store's tables and their indexes take up in PostgreSQL."""
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

    def holders(self) -> list[str]:
        """Return the processes whose runs have locked the store, as ``vinelm pid N on HOST``; empty if none has."""
        with self.transaction() as connection:
            return list(connection.execute(_HOLDERS, {"lock": ALONE}).scalars())

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the store for a run while the block runs. The server releases the lock at the end of the session.

        Raises:
            StoreError: another run has locked it; the message names that run.
        """
        with self.transaction() as connection:
            if not connection.execute(text(f"SELECT pg_try_advisory_lock({_SCHEMA}, {ALONE})")).scalar():
                owner = next(iter(self.holders()), "unknown")
                raise StoreError(f"{self.path}: another run is writing to it ({owner}): wait for it to end, or stop it")
            # A setting of the session: it ends with the session, as the lock does, and with whatever else releases the lock.
            hold = secrets.token_hex(8)
            connection.execute(_NOTE_HOLD, {"hold": hold})
            connection.execute(_STAY_IDLE)
        self._hold = hold
        try:
            yield
        finally:
            self._hold = None
            with suppress(StoreError), self.transaction() as connection:  # a lost session has lost its locks
                connection.execute(text(f"SELECT pg_advisory_unlock({_SCHEMA}, {ALONE})"))


_NOTE_HOLD = text("SELECT set_config('vinelm.hold', :hold, false)")
_HOLD = text("SELECT current_setting('vinelm.hold', true)")
_STAY_IDLE = text("SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'")
"""Allows a run to stay idle for hours while it waits for a provider's batch. Since PostgreSQL 14."""
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
    except PendingRollbackError as error:  # an earlier statement of the transaction lost the connection
        raise _plain_error(ConnectionError("the connection was lost"), where, is_lost=True) from error
    except (SQLAlchemyError, UnicodeEncodeError) as error:
        raise StoreError(f"{where}: {type(error).__name__}") from error
    except _driver_errors() as error:
        raise _plain_error(error, where, is_lost=False) from error


def _driver_errors() -> tuple[type[Exception], ...]:
    """Return the exception classes that the driver raises outside of SQLAlchemy; empty if psycopg is not loaded."""
    driver = sys.modules.get("psycopg")
    return () if driver is None else (driver.Error,)


def _store_error(error: DBAPIError, where: PostgresUrl) -> StoreError:
    is_lost = error.connection_invalidated or (isinstance(error, OperationalError) and not _sqlstate(error.orig))
    return _plain_error(error.orig, where, is_lost=is_lost or _sqlstate(error.orig)[:2] in ("08", "57"))


def _plain_error(error: BaseException | None, where: PostgresUrl, *, is_lost: bool) -> StoreError:
    """Return a :class:`StoreError` with the first line of the server's or driver's message and a remedy, without stored data.

    ``is_lost``: whether the connection was lost.
    """
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    state = _sqlstate(error)
    if state.startswith("23"):  # the rest quotes the row
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
