"""The journal of a fleet's dollars in PostgreSQL, for processes on several machines."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vinelm.controller.fleet.leases.journal import SCHEMA, JournalConnection, SpendJournal, SqliteJournal
from vinelm.errors import ConfigError, JournalUnavailable
from vinelm.extras import required_extra

_URL = re.compile(r"postgres(?:ql)?:/+")
CONNECT_TIMEOUT_S = 2
STATEMENT_TIMEOUT_S = 1.0
RESTS_S = 5.0
"""After a failure the server is left alone for so long: the thread that asks has snapshots to publish as well."""


def journal_at(where: str | Path, fleet: str = "default") -> SpendJournal:
    """Return the journal of a fleet in this SQLite file, or in the database of this ``postgresql://`` address.

    Raises:
        ConfigError: it cannot be opened, or is another fleet's.
        MissingExtra: it is in PostgreSQL, and the extra ``postgres`` is not installed.
    """
    journal = PostgresJournal(str(where)) if _URL.match(str(where)) else SqliteJournal(where)
    try:
        journal.belongs_to(fleet)
    except JournalUnavailable as error:
        journal.close()
        raise ConfigError(f"{error}: see that no other program holds it") from error
    except ConfigError:
        journal.close()
        raise
    return journal


class PostgresJournal(SpendJournal):
    """A :class:`SpendJournal` in PostgreSQL. A connection that is lost is made anew.

    Args:
        url: ``postgresql://user@host:port/database``; may hold a password, which no error shows. The user may create tables, or
            they are there.

    Raises:
        ConfigError: the address cannot be one, or the server refuses or does not answer.
        MissingExtra: the extra ``postgres`` is not installed.
    """

    def __init__(self, url: str) -> None:
        with required_extra("postgres", "a journal in PostgreSQL"):
            import psycopg
        self._psycopg = psycopg
        try:
            self._settings: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(_URL.sub("postgresql://", url, count=1))
        except psycopg.Error:
            raise ConfigError("journal= is no address of PostgreSQL: write postgresql://user@host:port/database") from None
        shown = (self._settings.get(name) for name in ("host", "port", "dbname"))
        self.name = f"PostgreSQL at {':'.join(str(part) for part in shown if part)}"
        self._made: Any = None  # the connection
        self._rests_until = float("-inf")
        try:
            self._open()
        except psycopg.Error as error:
            raise ConfigError(
                f"{self.name}: cannot be the fleet's journal ({_first_line(error)}): see that PostgreSQL runs there, and that "
                "the user may create tables"
            ) from None

    def _open(self) -> None:
        connection = self._psycopg.connect(
            **{"connect_timeout": CONNECT_TIMEOUT_S, "tcp_user_timeout": 2000, **self._settings},
            autocommit=True,
        )
        try:
            # What is granted has to be on the server's disk, and transactions have to see each other, whatever is usual there.
            connection.execute("SET synchronous_commit = on")
            connection.execute("SET default_transaction_isolation = 'read committed'")
            connection.execute(f"SET statement_timeout = {int(STATEMENT_TIMEOUT_S * 1000)}")
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('vinelm fleet journal'))")
                connection.execute(SCHEMA)
        except BaseException:
            connection.close()
            raise
        self._made = connection

    def close(self) -> None:
        """Close the connection."""
        if self._made is not None:
            self._made.close()
            self._made = None

    @contextmanager
    def _transaction(self) -> Iterator[JournalConnection]:
        if time.monotonic() < self._rests_until:
            raise JournalUnavailable(f"{self.name}: the fleet's journal could not be written just now")
        try:
            if self._made is None or self._made.closed:
                self._open()
            with self._made.transaction():
                self._made.execute("SELECT 1 FROM fleet_generation WHERE id = 1 FOR UPDATE")
                yield _Marked(self._made)
        except self._psycopg.Error as error:
            self._rests_until = time.monotonic() + RESTS_S
            with suppress(self._psycopg.Error):
                self.close()
            raise JournalUnavailable(f"{self.name}: the fleet's journal cannot be written ({_first_line(error)})") from None


class _Marked:
    """A connection whose parameters are marked with ``?``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: tuple[str | int, ...] = (), /) -> Any:
        return self._connection.execute(sql.replace("?", "%s"), parameters)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
