"""Durable access to a SQLite file; converts SQLite errors to :class:`StoreError`."""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, MetaData, create_engine, delete, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from vinelm.errors import StoreError
from vinelm.io.file_kinds import instead_of
from vinelm.traces.databases import schema
from vinelm.traces.databases.address import require_store_file
from vinelm.traces.databases.lock import RunLock, holder, run_lock

if TYPE_CHECKING:
    from vinelm.traces.databases.address import PostgresUrl

_MAGIC = b"SQLite format 3\0"
_BUSY_TIMEOUT_S = 10.0
_BRIEF_TIMEOUT_MS = 50
_LONG_LOG = 4 << 20
"""The size of the write-ahead log, in bytes, from which it is copied into the file during a run."""
_NOT_WHOLE = delete(schema.meta).where(schema.meta.c.key == schema.OPEN_LOG)


class Database:
    """A connection to a SQLite file, which the threads of a process share through a lock. Must not be used across ``fork``.

    WAL mode with ``synchronous=FULL``: a committed transaction survives a power failure. SQLite errors become
    :class:`StoreError`.

    Args:
        path: the file; created if it does not exist.
        shown_as: the path to name in error messages, if ``path`` is a temporary copy of it or will later be renamed to it. None
            names ``path``.
        is_read_only: whether to open the file for reading only, without SQLite's additional files next to it. The file must
            then have no write-ahead log.

    Attributes:
        path: the path that error messages name.
        file: the file that is open.
    """

    path: Path | PostgresUrl
    not_a_store = "a SQLite file, but not an observation store"
    """The description, in error messages, of a file that is no store."""
    _run_lock: RunLock | None = None
    _open_run: str | None = None
    _fold_at = _LONG_LOG

    def __init__(self, path: Path, *, shown_as: Path | None = None, is_read_only: bool = False) -> None:
        self.path = shown_as or path
        self.file = path
        require_store_file(path)
        self._lock = threading.RLock()
        self._closing = ExitStack()
        engine = create_engine(
            _url_to_read(path) if is_read_only else URL.create("sqlite", database=str(path)),
            poolclass=StaticPool,
            connect_args={"check_same_thread": False, "timeout": _BUSY_TIMEOUT_S},
            hide_parameters=True,  # errors never show rows
        )
        if not is_read_only:
            event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)
        self._engine = engine
        with self.translated():
            self._connection = engine.connect()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield a connection inside one transaction: committed when the block ends, rolled back if it raises.

        A nested block of the same thread joins the outer transaction.
        """
        with self._lock, self.translated():
            if self._connection.in_transaction():
                yield self._connection
                return
            with self._connection.begin():
                yield self._connection
            self._fold_log()

    def translated(self) -> AbstractContextManager[None]:
        """Inside the block, convert errors of the database to a one-line :class:`StoreError`.

        The message names the store, and quotes no stored data.
        """
        return translated(self.path)

    def size_bytes(self) -> int:
        """Return the size in bytes of the file together with its write-ahead log."""
        files = (self.file, self.file.with_name(f"{self.file.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def create_tables(self, metadata: MetaData, connection: Connection) -> None:
        """Create all tables of ``metadata`` in the caller's transaction."""
        metadata.create_all(connection)

    def truncate_wal(self) -> None:
        """Copy the write-ahead log into the file and empty it. Not inside a transaction.

        Raises:
            StoreError: the disk is full; the log is not emptied.
        """
        with self._lock, self.translated():
            raw = self._connection.connection.driver_connection
            if raw is not None:
                raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()

    def copy_to(self, path: Path) -> None:
        """Write a copy of the file in its current state to ``path``, which must not exist. Not inside a transaction."""
        with self._lock, self.translated(), closing(sqlite3.connect(path)) as target:
            raw = self._connection.connection.driver_connection
            if raw is not None:
                raw.backup(target)

    # -- runs ----------------------------------------------------------------------------------------------------

    def holders(self) -> list[str]:
        """Return the processes whose runs have locked the store, as ``pid N on HOST``."""
        found = holder(self.file)
        return [] if found is None else [found]

    def require_held(self) -> None:
        """Raise if this run's lock on the store was lost; called before each purchase.

        Raises:
            StoreError: another run may have locked the store (code ``store-hold-lost``).
        """
        if self._run_lock is not None:
            self._run_lock.require_held()

    def alone(self) -> AbstractContextManager[None]:
        """Lock the store for a run while the block runs; other processes may still read it.

        Until it ends, the run sets a marker in the file. By the marker, a copy of the file without its write-ahead log is
        recognized as incomplete (module ``recovery``).

        Raises:
            StoreError: another process has locked the store; the message names it.
        """
        return self._marked()

    @contextmanager
    def _marked(self) -> Iterator[None]:
        with run_lock(self.file) as lock:
            run = f"{datetime.now(UTC).isoformat(timespec='seconds')} {secrets.token_hex(4)}"
            with self.transaction() as connection:
                connection.execute(_NOT_WHOLE)
                schema.set_meta(connection, schema.OPEN_RUN, run)
            # The marker is written into the file itself: a copy without the log would not show a marker that is only in the
            # log.
            self.truncate_wal()
            self._run_lock = lock
            try:
                # In contrast, this marker is only in the log, for as long as the run lives. If it is in the file, whoever
                # closed the store last has copied the whole log there, as every SQLite tool does, and removed it.
                self._pragma("wal_autocheckpoint=0")
                with self.transaction() as connection:
                    schema.set_meta(connection, schema.OPEN_LOG, run)
                self._open_run, self._fold_at = run, _LONG_LOG
                yield
            finally:
                self._run_lock = self._open_run = None
                with suppress(StoreError):
                    self._pragma("wal_autocheckpoint=1000")
                self._clear_marker(lock, run)

    def _clear_marker(self, lock: RunLock, run: str) -> None:
        """Clear the marker ``run`` at the end of a run. If the disk is full, it stays until the store is opened again."""
        with suppress(StoreError):
            try:
                self._delete_marker()
            except StoreError:
                self.truncate_wal()  # frees the space that the deletion needs
                lock.note_folded(run)
                self._delete_marker()

    def _delete_marker(self) -> None:
        with self.transaction() as connection:
            connection.execute(delete(schema.meta).where(schema.meta.c.key == schema.OPEN_RUN))
            connection.execute(_NOT_WHOLE)

    def _pragma(self, text: str) -> None:
        with self._lock, self.translated():
            raw = self._connection.connection.driver_connection
            if raw is not None:
                raw.execute(f"PRAGMA {text}").close()

    def _fold_log(self) -> None:
        """If the write-ahead log has grown long during a run, copy it into the store's file and empty it.

        The log contains a marker of the run in progress. The marker must not be copied into the file while the run continues.
        So the marker is deleted before the copy, and written into the emptied log afterwards.
        """
        run, wal = self._open_run, self.file.with_name(f"{self.file.name}-wal")
        if run is None:
            return
        with suppress(OSError):
            size = wal.stat().st_size
            if size < self._fold_at:
                return
            self._open_run = None
            try:
                with suppress(StoreError):  # a full disk: the next write will report it
                    with self.transaction() as connection:
                        connection.execute(_NOT_WHOLE)
                    self._pragma(f"busy_timeout={_BRIEF_TIMEOUT_MS}")  # do not wait for readers
                    try:
                        self.truncate_wal()
                    finally:
                        self._pragma(f"busy_timeout={round(_BUSY_TIMEOUT_S * 1000)}")
                    with self.transaction() as connection:
                        schema.set_meta(connection, schema.OPEN_LOG, run)
            finally:
                self._open_run = run
                self._fold_at = wal.stat().st_size + _LONG_LOG

    def close(self) -> None:
        """Close the connection; SQLite copies the write-ahead log into the file. Idempotent."""
        with self._lock:
            self._connection.close()
            self._engine.dispose()
            self._closing.close()

    def and_then(self, closing: ExitStack) -> None:
        """Make :meth:`close` close the resources in ``closing``, in addition to the database itself."""
        self._closing.push(closing)


def connect_read_only(path: Path) -> sqlite3.Connection:
    """Open a read-only connection that creates no files. Reconnect to see later writes of other processes."""
    require_store_file(path)
    return sqlite3.connect(_address(path), uri=True, timeout=_BUSY_TIMEOUT_S)


def _address(path: Path) -> str:
    # Without a WAL file nobody is writing. `immutable` then keeps even a read-only connection from creating one.
    mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
    return f"{path.absolute().as_uri()}?{mode}"


def _url_to_read(path: Path) -> URL:
    address, _, query = _address(path).partition("?")
    settings = dict(item.split("=") for item in query.split("&"))
    return URL.create("sqlite", database=address, query={**settings, "uri": "true"})


def is_writable(path: Path) -> bool:
    """Return whether this process may write the file and its folder."""
    return os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK | os.X_OK)


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """Yield a path for reading the store: ``path``, or a temporary copy if its folder is read-only.

    SQLite cannot read a write-ahead log in a folder where it cannot write.

    Raises:
        StoreError: the copy cannot be made.
    """
    wal = path.with_name(f"{path.name}-wal")
    if is_writable(path) or not (wal.exists() and wal.stat().st_size):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="vinelm-store-") as folder:
        copy = Path(folder) / path.name
        try:
            # The lock file too: its note may say that the missing log is not a sign of a copy.
            for ending in ("", "-wal", ".lock"):
                if path.with_name(f"{path.name}{ending}").exists():
                    shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
        except OSError as error:
            raise StoreError(f"{path}: cannot copy the store to read it: {error.strerror or error}") from error
        yield copy


def read_meta(path: Path) -> dict[str, str] | None:
    """Read the ``meta`` table of the store at ``path`` (key to value) without writing to the file.

    Returns:
        An empty mapping if the database is not a store. None for an empty file or a database without tables, as left by an
        interrupted creation.

    Raises:
        StoreError: the file cannot be read or is not SQLite.
    """
    require_store_file(path)
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise StoreError(f"{path}: cannot read the store: {error.strerror}") from error
    if not head:
        return None
    if head != _MAGIC:
        if other := instead_of(path, "a store", "`vinelm profile`"):
            raise StoreError(f"{path}: {other}", code="other-file")
        raise StoreError(f"{path}: not a SQLite file: use the path of an observation store, or of a new file")
    try:
        with readable(path) as source, closing(connect_read_only(source)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables:
                return None
            return dict(connection.execute("SELECT key, value FROM meta")) if "meta" in tables else {}
    except SQLITE_ERRORS as error:
        raise _store_error(error, f"{path}: cannot read the store") from error


SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""The exceptions that sqlite3 raises for a file that it cannot read; UnicodeDecodeError if its message quotes damaged text."""
_ADVICE = {
    "SQLITE_BUSY": ("another process is writing to it: wait for it to end", "store-locked"),
    "SQLITE_FULL": ("free some space and resume: every row stored so far is kept", "store-disk"),
    "SQLITE_IOERR": (
        "check whether the disk is full or disconnected, then resume: every row stored so far is kept",
        "store-disk",
    ),
    "SQLITE_READONLY": ("make the file and its folder writable, or work on a copy", "store-not-writable"),
    "SQLITE_CANTOPEN": ("make the folder writable, or work on a copy", "store-not-writable"),
    "SQLITE_CORRUPT": ("the file is damaged: restore it from a copy", "store-damaged"),
    "SQLITE_NOTADB": ("the file is damaged: restore it from a copy", "store-damaged"),
}
"""SQLite result code to (what to do, code of the :class:`StoreError`)."""


@contextmanager
def translated(path: Path | PostgresUrl) -> Iterator[None]:
    """Inside the block, convert errors of SQLite and SQLAlchemy to a one-line :class:`StoreError`.

    The message names the file, and quotes no stored data.
    """
    try:
        yield
    except DBAPIError as error:
        raise _store_error(error.orig, str(path)) from error
    except SQLITE_ERRORS as error:
        raise _store_error(error, str(path)) from error
    except SQLAlchemyError as error:
        raise StoreError(f"{path}: {type(error).__name__}") from error


def _store_error(error: BaseException | None, where: str) -> StoreError:
    """Return the :class:`StoreError` for a SQLite error, with SQLite's message and, if known, a remedy."""
    if isinstance(error, UnicodeDecodeError):
        return StoreError(f"{where}: text that is not UTF-8: {_ADVICE['SQLITE_CORRUPT'][0]}", code="store-damaged")
    name = getattr(error, "sqlite_errorname", "")
    said = str(error).partition(" with text ")[0]  # the rest is a value of the store
    for prefix, (advice, code) in _ADVICE.items():
        if name == prefix or name.startswith(f"{prefix}_"):  # extended codes: SQLITE_IOERR_WRITE
            return StoreError(f"{where}: {said}: {advice}", code=code)
    return StoreError(f"{where}: {said}")


def _set_up(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # no implicit BEGIN: _begin sends it, so that CREATE TABLE is in the transaction too
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")
