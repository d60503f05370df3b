"""The durable record of the dollars that were leased: one SQLite file, or one database, that all processes of a fleet share."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
CREATE TABLE IF NOT EXISTS fleet_facts (  -- name: the fleet; day: the last day on which dollars were granted or restored
    fact TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
INSERT INTO fleet_generation VALUES (1, 0) ON CONFLICT DO NOTHING;
"""
"""What SQLite and PostgreSQL both take. Journals of the first version have no facts; they get them when they are opened."""
BUSY_TIMEOUT_S = 1.0
KEPT_DAYS = 7
"""Grants of days so long before the present one are deleted when the totals are restored."""

TenantDay = tuple[str, int]
"""A tenant's name, and a day as days since 1970-01-01, UTC."""


class Grant(NamedTuple):
    """One process's holdings and spending of a tenant's day, in billionths of a dollar."""

    process: str
    tenant: str
    day: int
    nano_usd: int


class Restored(NamedTuple):
    """The journal's state when a new generation begins: its number, the last day, and all grants."""

    generation: int
    last_day: int
    grants: list[Grant]


class JournalConnection(Protocol):
    """A connection to a database, in a transaction. Parameters are marked with ``?``."""

    def execute(self, sql: str, parameters: tuple[str | int, ...] = (), /) -> Any:
        """Run a statement and return its cursor."""


class SpendJournal(ABC):
    """Grants of dollars that survive the death of every process and of Redis. For one thread; processes may share it.

    What is written is on disk when a method returns. Amounts are billionths of a dollar, so that sums are exact. Methods raise
    :class:`~vinelm.errors.JournalUnavailable` where it cannot be read or written: then no dollars can be leased.
    """

    name: str
    """Where the journal is, for messages; holds no password."""

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

    def belongs_to(self, fleet: str) -> None:
        """Make this the journal of the fleet of that name.

        Raises:
            ConfigError: it is the journal of another fleet, whose dollars would be mixed with this one's.
        """
        with self._transaction() as connection:
            connection.execute("INSERT INTO fleet_facts VALUES ('name', ?) ON CONFLICT DO NOTHING", (fleet,))
            owner = connection.execute("SELECT value FROM fleet_facts WHERE fact = 'name'").fetchone()[0]
        if owner != fleet:
            raise ConfigError(
                f"{self.name}: is the journal of the fleet {owner!r}, and this one is {fleet!r}: give each fleet its own"
            )

    def hold(self, generation: int, process: str, where: TenantDay, nano_usd: int) -> bool:
        """Write down all that the process holds or has spent of a tenant's day, before any more of it is spent.

        The whole amount, so that it may be written again where nobody knows whether it was.

        Returns:
            False, and nothing is written, if the generation is an earlier one.
        """
        with self._transaction() as connection:
            if connection.execute("SELECT number FROM fleet_generation").fetchone()[0] != generation:
                return False
            connection.execute(
                "INSERT INTO fleet_grants VALUES (?, ?, ?, ?) "
                "ON CONFLICT (process, tenant, day) DO UPDATE SET nano_usd = excluded.nano_usd",
                (process, *where, nano_usd),
            )
            _note_day(connection, where[1])
        return True

    def give_back(self, process: str, where: TenantDay, nano_usd: int) -> None:
        """Write down that of what it was granted the process holds, or has spent, only so much."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE fleet_grants SET nano_usd = ? WHERE process = ? AND tenant = ? AND day = ?", (nano_usd, process, *where)
            )

    def restore(self, today: int) -> Restored:
        """Begin a new generation, and return what is spent or leased.

        Grants of earlier generations that are not written yet will never be. Old grants are deleted only if no grant is of a
        day after ``today``: else a clock is wrong, and nobody can say which grants are old.
        """
        with self._transaction() as connection:
            connection.execute("UPDATE fleet_generation SET number = number + 1")
            number = connection.execute("SELECT number FROM fleet_generation").fetchone()[0]
            last = _last_day(connection)
            if last <= today:
                connection.execute("DELETE FROM fleet_grants WHERE day < ?", (min(today, last + 1) - KEPT_DAYS,))
            rows = connection.execute("SELECT process, tenant, day, nano_usd FROM fleet_grants ORDER BY process, tenant, day")
            return Restored(int(number), last, [Grant(row[0], row[1], int(row[2]), int(row[3])) for row in rows])


def _last_day(connection: JournalConnection) -> int:
    """The last day on which dollars were granted; 0 if they never were."""
    noted = connection.execute("SELECT value FROM fleet_facts WHERE fact = 'day'").fetchone()
    granted = connection.execute("SELECT max(day) FROM fleet_grants").fetchone()[0]
    return max(int(noted[0]) if noted else 0, int(granted or 0))


def _note_day(connection: JournalConnection, day: int) -> None:
    """Remember a day, so that it stays known when its grants are deleted."""
    if day > _last_day(connection) or connection.execute("SELECT 1 FROM fleet_facts WHERE fact = 'day'").fetchone() is None:
        connection.execute(
            "INSERT INTO fleet_facts VALUES ('day', ?) ON CONFLICT (fact) DO UPDATE SET value = excluded.value", (str(day),)
        )


class SqliteJournal(SpendJournal):
    """A journal in one file, for the processes of one machine.

    Args:
        path: the file; created if it does not exist.

    Raises:
        ConfigError: the file cannot be a journal.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = str(path)
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
