"""The durable record of the dollars that were leased: one SQLite file, or one database, that all processes of a fleet share."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from vinelm.errors import ConfigError, JournalUnavailable

SCHEMA = """
CREATE TABLE IF NOT EXISTS fleet_generation (  -- one row: the number of the epoch under which dollars are granted
    id INTEGER PRIMARY KEY CHECK (id = 1),
    number BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS fleet_grants (  -- what each process was granted and has not returned: spent, or still leased
    process TEXT NOT NULL,
    tenant TEXT NOT NULL,
    day INTEGER NOT NULL,  -- days since 1970-01-01, UTC
    nano_usd BIGINT NOT NULL,
    PRIMARY KEY (process, tenant, day)
);
INSERT INTO fleet_generation VALUES (1, 0) ON CONFLICT DO NOTHING;
"""
"""What SQLite and PostgreSQL both take."""
BUSY_TIMEOUT_S = 1.0
KEPT_DAYS = 7
"""Grants of days so long before the last one are deleted when the totals are restored."""

TenantDay = tuple[str, int]
"""A tenant's name, and a day as days since 1970-01-01, UTC."""


class JournalConnection(Protocol):
    """A connection to a database, in a transaction. Parameters are marked with ``?``."""

    def execute(self, sql: str, parameters: tuple[str | int, ...] = (), /) -> Any:
        """Run a statement and return its cursor."""


class SpendJournal(ABC):
    """Grants of dollars that survive the death of every process and of Redis. For one thread; processes may share it.

    What is written is on disk when a method returns. Amounts are billionths of a dollar, so that sums are exact. Methods raise
    :class:`~vinelm.errors.JournalUnavailable` where it cannot be read or written: then no dollars can be leased.
    """

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[JournalConnection]:
        """One transaction that no other process writes beside, from its first read on.

        Raises:
            JournalUnavailable: it cannot be begun, or its end is not known.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    def generation(self) -> int:
        """Return the number of the epoch: it grows whenever the totals are restored."""
        with self._transaction() as connection:
            return int(connection.execute("SELECT number FROM fleet_generation").fetchone()[0])

    def add(self, generation: int, process: str, where: TenantDay, nano_usd: int) -> bool:
        """Write a grant down before any of it is spent; False, and nothing is written, if it is of an earlier generation."""
        with self._transaction() as connection:
            if connection.execute("SELECT number FROM fleet_generation").fetchone()[0] != generation:
                return False
            connection.execute(
                "INSERT INTO fleet_grants VALUES (?, ?, ?, ?) "
                "ON CONFLICT (process, tenant, day) DO UPDATE SET nano_usd = fleet_grants.nano_usd + excluded.nano_usd",
                (process, *where, nano_usd),
            )
        return True

    def give_back(self, process: str, where: TenantDay, nano_usd: int) -> None:
        """Write down that the process will not spend so much of what it was granted."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE fleet_grants SET nano_usd = nano_usd - ? WHERE process = ? AND tenant = ? AND day = ?",
                (nano_usd, process, *where),
            )

    def restore(self) -> tuple[int, Mapping[TenantDay, int]]:
        """Begin a new generation, and return its number and what is spent or leased by tenant and day.

        Grants of earlier generations that are not written yet will never be.
        """
        with self._transaction() as connection:
            connection.execute("UPDATE fleet_generation SET number = number + 1")
            number = connection.execute("SELECT number FROM fleet_generation").fetchone()[0]
            connection.execute("DELETE FROM fleet_grants WHERE day < (SELECT max(day) FROM fleet_grants) - ?", (KEPT_DAYS,))
            rows = connection.execute("SELECT tenant, day, sum(nano_usd) FROM fleet_grants GROUP BY tenant, day")
            return int(number), {(tenant, day): int(nano_usd) for tenant, day, nano_usd in rows}


class SqliteJournal(SpendJournal):
    """A journal in one file, for the processes of one machine.

    Args:
        path: the file; created if it does not exist.

    Raises:
        ConfigError: the file cannot be a journal.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise ConfigError(f"{path}: no journal can be kept there: make the folder first")
        try:
            self._open()
        except sqlite3.Error as error:
            raise ConfigError(f"{path}: cannot be the fleet's journal ({error}): name a new file") from error

    def _open(self) -> None:
        # autocommit: transactions are begun by hand, so that they hold the write lock from their first read on
        self._connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL").close()
        self._connection.execute("PRAGMA synchronous=FULL").close()
        self._connection.executescript(SCHEMA).close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[JournalConnection]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise JournalUnavailable(f"{self.path}: the fleet's journal cannot be written ({error})") from error
