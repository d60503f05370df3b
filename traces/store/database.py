"""One SQLite file: opening it durably, and turning its errors into ours. What the tables mean is in ``store``."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, MetaData, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from vinelm.errors import StoreError

_MAGIC = b"SQLite format 3\0"
_BUSY_TIMEOUT_S = 10.0


class Database:
    """One connection to one file, shared by the threads of this process through a lock. Use from one process each.

    ``shown_as`` is the path that errors name, where the file will be moved once it is whole.
    WAL with ``synchronous=FULL``: a transaction that returned survives a power cut. Errors become :class:`StoreError`.
    """

    def __init__(self, path: Path, *, shown_as: Path | None = None) -> None:
        self.path = shown_as or path
        self._lock = threading.RLock()
        engine = create_engine(
            URL.create("sqlite", database=str(path)),
            poolclass=StaticPool,
            connect_args={"check_same_thread": False, "timeout": _BUSY_TIMEOUT_S},
            hide_parameters=True,  # rows never show in an error
        )
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
        self._engine = engine
        with translated(self.path):
            self._connection = engine.connect()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """A connection inside one transaction: durable when the block is left, undone if it raises.

        Inside another such block of the same thread, a part of that one.
        """
        with self._lock, translated(self.path):
            if self._connection.in_transaction():
                yield self._connection
                return
            with self._connection.begin():
                yield self._connection

    def create_tables(self, metadata: MetaData, connection: Connection) -> None:
        """All tables of ``metadata``, in the caller's transaction."""
        metadata.create_all(connection)

    def fold_log(self) -> None:
        """Move what the log holds into the file itself, as far as other readers allow. Not inside a transaction."""
        with self._lock, translated(self.path):
            raw = self._connection.connection.driver_connection
            if raw is not None:
                raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()

    def close(self) -> None:
        """Fold the log back into the file. Harmless when repeated."""
        with self._lock:
            self._connection.close()
            self._engine.dispose()


def connect_read_only(path: Path) -> sqlite3.Connection:
    """A plain connection that leaves no byte behind. Connect again to see what others write later."""
    # Without a log the file is at rest: immutable then, because even a read-only connection would leave a log beside it.
    mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY_TIMEOUT_S)


def read_meta(path: Path) -> dict[str, str] | None:
    """The ``meta`` table of the store at ``path``: key to value, read without writing a byte; empty if the file is no store.

    None for an empty file and for a database without tables (a store whose creation was cut short): not made yet.
    :class:`StoreError` if the file cannot be read or is not SQLite.
    """
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise StoreError(f"{path}: cannot read the store: {error.strerror}") from error
    if not head:
        return None
    if head != _MAGIC:
        raise StoreError(f"{path}: not a SQLite file: give the path of an observation store, or of a file that does not exist")
    connection = connect_read_only(path)
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            return None
        return dict(connection.execute("SELECT key, value FROM meta")) if "meta" in tables else {}
    except sqlite3.Error as error:
        raise StoreError(f"{path}: cannot read the store: {_reason(str(error))}") from error
    finally:
        connection.close()


_HINTS = {
    "database is locked": "another process is writing to it; wait for it to end",
    "database or disk is full": "free some space and run the same line again: every row that was kept before is there",
    "disk I/O error": "is the disk full or gone? Mend it and run the same line again: every row that was kept before is there",
    "attempt to write a readonly database": "make the file and its folder writable, or work on a copy",
    "unable to open database file": "make the folder writable, or work on a copy",
    "database disk image is malformed": "the file is damaged: restore it from a copy (`vinelm store check` says what is wrong)",
    "file is not a database": "the file is damaged: restore it from a copy",
}


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's and SQLAlchemy's errors as one :class:`StoreError` line that names the file and no row."""
    try:
        yield
    except DBAPIError as error:
        raise StoreError(f"{path}: {_reason(str(error.orig))}") from error
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {_reason(str(error))}") from error
    except SQLAlchemyError as error:
        raise StoreError(f"{path}: {type(error).__name__}") from error


def _reason(text: str) -> str:
    return f"{text}: {_HINTS[text]}" if text in _HINTS else text


def _set_up(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, so that making tables is in the transaction too
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
