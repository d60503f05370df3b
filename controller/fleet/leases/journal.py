"""The durable record of leased dollars: one SQLite file or one database that all processes of a fleet share."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from vinelm.errors import ConfigError, JournalUnavailable
from vinelm.extras import required_extra

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
CREATE TABLE IF NOT EXISTS fleet_facts (  -- name: the fleet; day: the last day of a grant; recent: the day of the last grant;
    -- back: the last day of a grant below that, since a clock has gone back; carry: the later day on which that counts, too
    fact TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
INSERT INTO fleet_generation VALUES (1, 0) ON CONFLICT DO NOTHING;
"""
"""SQL that both SQLite and PostgreSQL accept. Journals of the first version lack the facts and get them when opened."""
BUSY_TIMEOUT_S = 1.0
CONNECT_TIMEOUT_S = 2
STATEMENT_TIMEOUT_S = 1.0
RESTS_S = 5.0
"""Seconds without requests to a server after a failure, since the same thread also has to publish snapshots."""
KEPT_DAYS = 30
"""Restoring keeps the grants of this many days up to the last day with a grant, and of all later ones. Days with grants count,
whatever the clock says, since it may have leapt."""
_URL = re.compile(r"postgres(?:ql)?:/+")

TenantDay = tuple[str, int]
"""A tenant's name, and a day as days since 1970-01-01, UTC."""


class Grant(NamedTuple):
    """The amount that one process holds or has spent of a tenant's cap for a day, in billionths of a dollar."""

    process: str
    tenant: str
    day: int
    nano_usd: int


class Restored(NamedTuple):
    """The journal's state at the time when Redis's sums of leased dollars are restored from it (a new generation).

    Attributes:
        generation: the number of the new generation.
        last_day: the last day for which dollars were granted, in days since 1970.
        grants: all grants in the journal, after old grants were deleted.
        back: if dollars were granted for an earlier day than ``last_day``, because a clock was set back: the day of the latest
            such grants; otherwise 0.
        carry: the first day with new grants after the clock had reached ``last_day`` again; 0 until then. The grants for the
            day ``back`` also count against the caps of this day.
    """

    generation: int
    last_day: int
    grants: list[Grant]
    back: int = 0
    carry: int = 0


@dataclass(frozen=True, kw_only=True)
class JournalDatabase:
    """A database that can hold a journal.

    Attributes:
        name: the database's address for messages, without the password.
        error: base class of the driver's errors.
        connect: opens a connection with explicit transactions, and creates the tables.
        begin: the statements that begin a transaction. After them, no other process can write until the transaction ends.
        parameter: the driver's mark for a parameter.
        is_server: whether the database is a server. After a failure of a server, no connection is tried for some seconds.
        hint: advice on what to check if the database cannot be opened.
    """

    name: str
    error: type[Exception]
    connect: Callable[[], Any]
    begin: tuple[str, ...]
    parameter: str
    is_server: bool
    hint: str


class SpendJournal:
    """Records grants of dollars so that they survive crashes of all processes and of Redis.

    One thread may use it; several processes may share the database.

    When a method returns, its writes are on disk. Amounts are billionths of a dollar, so that sums are exact. Methods raise
    :class:`~vinelm.errors.JournalUnavailable` if the journal cannot be read or written; then no dollars can be leased.

    Raises:
        ConfigError: the file is not a journal, or the server refuses or does not answer.
    """

    def __init__(self, database: JournalDatabase) -> None:
        self._database, self.name = database, database.name
        self._rests_until = float("-inf")
        try:
            self._connection = database.connect()
        except database.error as error:
            raise ConfigError(f"{self.name}: cannot be the fleet's journal ({_first_line(error)}): {database.hint}") from None

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., Any]]:
        """Run the block in one exclusive transaction, and yield a function that runs an SQL statement.

        The function takes the statement, in which ``?`` marks each parameter, and the parameters' values.

        Raises:
            JournalUnavailable: the transaction cannot begin, or it is unknown whether it was committed.
        """
        # Each attempt to reach a server that is away takes seconds, in the thread that does all chores of the fleet.
        if time.monotonic() < self._rests_until:
            raise JournalUnavailable(f"{self.name}: the fleet's journal could not be written just now")
        database = self._database
        try:
            if self._connection is None:
                self._connection = database.connect()
            connection = self._connection
            try:
                for statement in database.begin:
                    connection.execute(statement)
                yield lambda sql, *values: connection.execute(sql.replace("?", database.parameter), values)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(database.error):  # a lost connection has rolled back
                    connection.execute("ROLLBACK")
                raise
        except database.error as error:
            if database.is_server:
                # The connection is dropped as well, since its state is unknown.
                self._rests_until = time.monotonic() + RESTS_S
                with suppress(database.error):
                    self.close()
            raise JournalUnavailable(f"{self.name}: the fleet's journal cannot be written ({_first_line(error)})") from None

    def generation(self) -> int:
        """Return the number of the current generation, which increases by 1 whenever Redis's sums of leased dollars are
        restored.
        """
        with self._transaction() as run:
            return int(run("SELECT number FROM fleet_generation").fetchone()[0])

    def belongs_to(self, fleet: str) -> None:
        """Record that this journal belongs to the named fleet.

        Raises:
            ConfigError: the journal belongs to another fleet, whose dollars would be mixed with this one's.
        """
        with self._transaction() as run:
            run("INSERT INTO fleet_facts VALUES ('name', ?) ON CONFLICT DO NOTHING", fleet)
            owner = run("SELECT value FROM fleet_facts WHERE fact = 'name'").fetchone()[0]
        if owner != fleet:
            raise ConfigError(
                f"{self.name}: is the journal of the fleet {owner!r}, and this one is {fleet!r}: give each fleet its own"
            )

    def hold(self, generation: int, process: str, where: TenantDay, nano_usd: int) -> bool:
        """Record the amount that a process holds or has spent of a tenant's cap for a day, before the process spends more.

        The whole amount is written, not the change, so a write can be repeated if it is unknown whether it succeeded.

        Returns:
            True; False, without writing anything, if Redis's sums have been restored since ``generation``, a number from
                :meth:`generation`.
        """
        with self._transaction() as run:
            # In the same transaction: a restoration voids every grant that it does not find here.
            if run("SELECT number FROM fleet_generation").fetchone()[0] != generation:
                return False
            run(
                "INSERT INTO fleet_grants VALUES (?, ?, ?, ?) "
                "ON CONFLICT (process, tenant, day) DO UPDATE SET nano_usd = excluded.nano_usd",
                *(process, *where, nano_usd),
            )
            _note_day(run, where[1])
        return True

    def give_back(self, process: str, where: TenantDay, nano_usd: int) -> None:
        """Reduce a process's grant for a tenant and day to ``nano_usd`` billionths of a dollar.

        This is the amount that the process has spent or keeps; the rest of the grant is free for other processes again.
        ``where`` is the tenant and the day.
        """
        with self._transaction() as run:
            run("UPDATE fleet_grants SET nano_usd = ? WHERE process = ? AND tenant = ? AND day = ?", nano_usd, process, *where)

    def restore(self) -> Restored:
        """Begin a new generation of grants, because Redis's sums are being restored, and return the journal's state.

        From then on, :meth:`hold` rejects amounts that were granted in an earlier generation. Old grants are deleted, but
        never those of the last :data:`KEPT_DAYS` days that have grants.
        """
        with self._transaction() as run:
            run("UPDATE fleet_generation SET number = number + 1")
            number = run("SELECT number FROM fleet_generation").fetchone()[0]
            last = _last_day(run)
            recent, back, carry = (_fact(run, name) for name in ("recent", "back", "carry"))
            days = [int(row[0]) for row in run("SELECT DISTINCT day FROM fleet_grants ORDER BY day DESC").fetchall()]
            older = [day for day in days if day <= (recent or last)]
            if older[KEPT_DAYS:]:
                run("DELETE FROM fleet_grants WHERE day <= ?", older[KEPT_DAYS])
            rows = run("SELECT process, tenant, day, nano_usd FROM fleet_grants ORDER BY process, tenant, day")
            grants = [Grant(row[0], row[1], int(row[2]), int(row[3])) for row in rows]
            return Restored(int(number), last, grants, back, carry)


def _fact(run: Callable[..., Any], name: str) -> int:
    found = run("SELECT value FROM fleet_facts WHERE fact = ?", name).fetchone()
    return int(found[0]) if found else 0


def _set_fact(run: Callable[..., Any], name: str, value: int) -> None:
    run("INSERT INTO fleet_facts VALUES (?, ?) ON CONFLICT (fact) DO UPDATE SET value = excluded.value", name, str(value))


def _last_day(run: Callable[..., Any]) -> int:
    """Return the last day for which dollars were granted; 0 if none ever were."""
    granted = run("SELECT max(day) FROM fleet_grants").fetchone()[0]
    return max(_fact(run, "day"), int(granted or 0))


def _note_day(run: Callable[..., Any], day: int) -> None:
    """Record that dollars are granted for ``day``. If there are grants for a later day, record that a clock was set back.

    If Redis loses its data, these records are copied from the journal back to Redis. ``run`` runs one SQL statement.
    """
    last, recent, back = _last_day(run), _fact(run, "recent"), _fact(run, "back")
    if day != recent or day > last:
        _set_fact(run, "day", max(day, last))
        _set_fact(run, "recent", day)
    if day < last:
        _set_fact(run, "back", day)
        _set_fact(run, "carry", 0)
    elif back:
        carry = _fact(run, "carry") or day
        _set_fact(run, "carry", carry if carry == day else 0)
        _set_fact(run, "back", back if carry == day else 0)


# -- opening -----------------------------------------------------------------------------------------------------


def journal_at(where: str | Path, fleet: str = "default") -> SpendJournal:
    """Return the journal of a fleet in this SQLite file, or in the database of this ``postgresql://`` address.

    No error shows the address's password. The database's user must be allowed to create tables, unless they exist.

    Raises:
        ConfigError: the journal cannot be opened, or belongs to another fleet.
        MissingExtra: the journal is in PostgreSQL, and the extra ``postgres`` is not installed.
    """
    journal = SpendJournal(_in_postgres(str(where)) if _URL.match(str(where)) else _in_file(Path(where)))
    try:
        journal.belongs_to(fleet)
    except JournalUnavailable as error:
        journal.close()
        raise ConfigError(f"{error}: see that no other program holds it") from error
    except ConfigError:
        journal.close()
        raise
    return journal


def _in_file(path: Path) -> JournalDatabase:
    """Return the journal's database in a SQLite file, for processes of one machine; its ``connect`` creates a missing file."""
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: no journal can be kept there: make the folder first")

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL").close()
        connection.execute("PRAGMA synchronous=FULL").close()
        connection.executescript(SCHEMA).close()
        return connection

    return JournalDatabase(
        name=str(path), error=sqlite3.Error, connect=connect, begin=("BEGIN IMMEDIATE",), parameter="?", is_server=False,
        hint="name a new file",
    )  # fmt: skip


def _in_postgres(url: str) -> JournalDatabase:
    """Return the journal's database on a PostgreSQL server, for processes on several machines."""
    with required_extra("postgres", "a journal in PostgreSQL"):
        import psycopg
    try:
        settings: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(_URL.sub("postgresql://", url, count=1))
    except psycopg.Error:
        raise ConfigError("journal= is no address of PostgreSQL: write postgresql://user@host:port/database") from None

    def connect() -> Any:
        connection = psycopg.connect(
            **{"connect_timeout": CONNECT_TIMEOUT_S, "tcp_user_timeout": 2000, **settings}, autocommit=True
        )
        try:
            # Grants have to be on the server's disk, and transactions have to see each other, whatever the server's defaults
            # are.
            connection.execute("SET synchronous_commit = on")
            connection.execute("SET default_transaction_isolation = 'read committed'")
            connection.execute(f"SET statement_timeout = {int(STATEMENT_TIMEOUT_S * 1000)}")
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('vinelm fleet journal'))")
                connection.execute(SCHEMA)
        except BaseException:
            connection.close()
            raise
        return connection

    shown = (settings.get(part) for part in ("host", "port", "dbname"))
    return JournalDatabase(
        name=f"PostgreSQL at {':'.join(str(part) for part in shown if part)}",
        error=psycopg.Error,
        connect=connect,
        begin=("BEGIN", "SELECT 1 FROM fleet_generation WHERE id = 1 FOR UPDATE"),
        parameter="%s",
        is_server=True,
        hint="see that PostgreSQL runs there, and that the user may create tables",
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
