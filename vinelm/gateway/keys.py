"""Stores hashes of callers' keys, and each key's spending per day, in an SQLite file.

Processes of one machine may share the file.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
import secrets
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vinelm.errors import CallRefused, ConfigError, VineLMError
from vinelm.rows.observation import Usage

SCHEMA = """
CREATE TABLE IF NOT EXISTS gateway_keys (
    name TEXT PRIMARY KEY,  -- given by the operator
    digest TEXT NOT NULL UNIQUE,  -- SHA-256 of the key, which has 256 random bits and is not stored
    tenant TEXT NOT NULL,
    daily_usd REAL,  -- NULL: no cap
    calls_per_min INTEGER,  -- NULL: no limit
    made_at REAL NOT NULL,  -- Unix time
    revoked_at REAL  -- Unix time; NULL: not revoked
);
CREATE TABLE IF NOT EXISTS gateway_days (
    key TEXT NOT NULL,
    day INTEGER NOT NULL,  -- days since 1970-01-01, UTC
    held_nano INTEGER NOT NULL,  -- billionths of a dollar: spent, or reserved for calls under way or of a process that died
    spent_nano INTEGER NOT NULL,  -- billionths of a dollar that calls have cost that are over
    calls INTEGER NOT NULL,  -- calls that are over
    PRIMARY KEY (key, day)
);
"""
NANO = 1_000_000_000
MOST_NANO = 1 << 61
"""The most that a call of a key without a cap counts for, since the file holds 64-bit numbers."""
_LOG = logging.getLogger(__name__)
BEGINS = "sk-vinelm-"
"""Prefix of keys, similar to those of other services, so that tools that search for leaked keys find these, too."""
WINDOW_S = 60.0
_NAME = re.compile(r"[\w.@-]{1,64}")


@dataclass(frozen=True, slots=True)
class CallerKey:
    """A caller's key, as the operator sees it.

    Attributes:
        name, tenant: the names that the operator gave the key and its owner.
        daily_usd: maximum cost per UTC day in dollars; None means no cap.
        calls_per_min: maximum number of calls per minute in each process; None means no limit.
        is_revoked: whether the key is no longer valid.
    """

    name: str
    tenant: str
    daily_usd: float | None
    calls_per_min: int | None
    is_revoked: bool


@dataclass(frozen=True, slots=True)
class KeyDay:
    """What a key has spent on the current UTC day.

    ``spent_usd`` and ``calls`` count finished calls. ``reserved_usd`` is the maximum cost of calls in flight, and of
    calls that were in flight when a gateway was killed.
    """

    key: CallerKey
    spent_usd: float
    reserved_usd: float
    calls: int


class KeyBook:
    """The keys and their spending. Thread-safe; processes may share the file, which only its owner may read (mode 600).

    A reservation is a single SQL statement that adds an amount only if it fits under the cap. So the cap holds for all
    processes together, and after a process is killed, its reservations still count at the calls' maximum cost.

    Args:
        path: The file; created if it does not exist.
        now: Returns the Unix time in seconds.

    Raises:
        ConfigError: The file cannot be opened, or is not a file of keys.
    """

    def __init__(self, path: str | Path, *, now: Callable[[], float] = time.time) -> None:
        self.path, self._now = Path(path), now
        self._lock = threading.Lock()
        self._recent: dict[str, deque[float]] = {}
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600))
            self._connection = sqlite3.connect(self.path, timeout=1.0, isolation_level=None, check_same_thread=False)
            tables = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables and "gateway_keys" not in tables:  # before anything in the file is changed
                self._connection.close()
                raise ConfigError(f"{self.path}: is another program's database, and not a gateway's keys: name another file")
            self._connection.execute("PRAGMA journal_mode = WAL")
            # What a process has written survives the process's death; a power cut may lose the last moments.
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.executescript(SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(f"{self.path}: cannot hold the gateway's keys ({_line(error)}): name another file") from None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    # -- keys ------------------------------------------------------------------------------------------------------------

    def add(
        self, name: str, *, tenant: str | None = None, daily_usd: float | None = None, calls_per_min: int | None = None
    ) -> str:
        """Create a key and return it. The key cannot be shown again, since only its hash is stored.

        Args:
            name: The key's name; 1 to 64 letters, digits and ``._@-``.
            tenant: The tenant that owns the key. None makes a separate tenant with the key's name.
            daily_usd: Maximum cost per UTC day in dollars, >= 0; None means no cap.
            calls_per_min: Maximum number of calls per minute, >= 1; None means no limit.

        Raises:
            ConfigError: A key with this name exists, or a number is out of range.
        """
        for what, text in (("name", name), ("tenant", name if tenant is None else tenant)):
            if not _NAME.fullmatch(text):
                raise ConfigError(f"the {what} of a key is {text!r}: use 1 to 64 letters, digits and ._@-")
        if daily_usd is not None and not (0.0 <= daily_usd < 1e6):
            raise ConfigError(f"daily_usd is {daily_usd}: it must be dollars, from 0 to a million")
        if calls_per_min is not None and not 1 <= calls_per_min <= 1_000_000:
            raise ConfigError(f"calls_per_min is {calls_per_min}: it must be a whole number from 1 to a million")
        key = BEGINS + secrets.token_urlsafe(32)
        row = (name, digest_of(key), name if tenant is None else tenant, daily_usd, calls_per_min, self._now())
        with self._writing():
            try:
                self._connection.execute("INSERT INTO gateway_keys VALUES (?, ?, ?, ?, ?, ?, NULL)", row)
            except sqlite3.IntegrityError:
                raise ConfigError(f"there is a key {name!r}: give this one another name") from None
        return key

    def revoke(self, name: str) -> None:
        """Revoke a key, so that no process starts a call with it. Raise :class:`ConfigError` if no key has this name."""
        with self._writing():
            found = self._connection.execute(
                "UPDATE gateway_keys SET revoked_at = coalesce(revoked_at, ?) WHERE name = ?", (self._now(), name)
            )
            if not found.rowcount:
                raise ConfigError(f"unknown key {name!r}: `vinelm keys list` has the names")

    def find(self, key: str) -> CallerKey | None:
        """Return the stored record of the key that a caller sent; None if the key is unknown or revoked. Reads the
        file, so revocations take effect immediately.
        """
        with self._lock:
            row = self._connection.execute(f"{_READ} WHERE digest = ? AND revoked_at IS NULL", (digest_of(key),)).fetchone()
        return None if row is None else _key_of(row)

    @property
    def has_keys(self) -> bool:
        """Whether any key was ever created, so that callers need a key."""
        with self._lock:
            return bool(self._connection.execute("SELECT EXISTS (SELECT 1 FROM gateway_keys)").fetchone()[0])

    def today(self) -> list[KeyDay]:
        """Return every key, revoked keys included, with its spending on the current UTC day."""
        with self._lock:
            rows = self._connection.execute(f"{_READ} ORDER BY made_at").fetchall()
            days = self._connection.execute(
                "SELECT key, held_nano, spent_nano, calls FROM gateway_days WHERE day = ?", (self._day(),)
            ).fetchall()
        spent = {key: rest for key, *rest in days}
        found = []
        for *facts, revoked_at in rows:
            held, done, calls = spent.get(facts[0], (0, 0, 0))
            key = _key_of((*facts, revoked_at))
            found.append(KeyDay(key, done / NANO, max(held - done, 0) / NANO, calls))
        return found

    def wait_s(self, key: CallerKey) -> float:
        """If the key's limit of calls per minute allows another call now, count that call and return 0. Otherwise return
        the seconds to wait.
        """
        if key.calls_per_min is None:
            return 0.0
        now_s = self._now()
        with self._lock:
            recent = self._recent.setdefault(key.name, deque())
            while recent and not 0.0 <= now_s - recent[0] < WINDOW_S:
                recent.popleft()
            if len(recent) >= key.calls_per_min:
                return recent[0] + WINDOW_S - now_s
            recent.append(now_s)
        return 0.0

    # -- dollars -----------------------------------------------------------------------------------------------------------

    def account(self, key: CallerKey) -> KeyAccount | None:
        """Return the guard that enforces a key's daily cap; None if the key has no cap. Costs of a key without a cap
        have to be reported to :meth:`count`.
        """
        return None if key.daily_usd is None else KeyAccount(self, key, key.daily_usd)

    def count(self, key: CallerKey, usages: Sequence[Usage]) -> None:
        """Add the cost of a call to the day's spending of a key without a cap. If the file cannot be written, only log
        an error.
        """
        cost_nano = min(sum(math.ceil(usage.cost_usd * NANO) for usage in usages), MOST_NANO)
        calls = sum(bool(usage.model) for usage in usages)
        with _noted(), self._writing():
            self._connection.execute(
                "INSERT INTO gateway_days VALUES (?, ?, ?, ?, ?) ON CONFLICT (key, day) DO UPDATE SET "
                "held_nano = held_nano + excluded.held_nano, spent_nano = spent_nano + excluded.spent_nano, "
                "calls = calls + excluded.calls",
                (key.name, self._day(), cost_nano, cost_nano, calls),
            )

    def reserve(self, key: CallerKey, upper_nano: int, most: int) -> int | None:
        """Reserve a call's maximum cost on the current UTC day, and return the day's number, counted from 1970-01-01.
        If the day's spending could then exceed the cap, reserve nothing and return None.

        Args:
            key: The key of the call.
            upper_nano: The call's maximum cost in billionths of a dollar.
            most: The key's cap per day in billionths of a dollar.
        """
        day = self._day()
        if upper_nano > most:
            return None
        with self._writing():
            found = self._connection.execute(
                "INSERT INTO gateway_days VALUES (?, ?, ?, 0, 0) ON CONFLICT (key, day) DO UPDATE "
                "SET held_nano = held_nano + excluded.held_nano WHERE held_nano + excluded.held_nano <= ?",
                (key.name, day, upper_nano, most),
            )
        return day if found.rowcount else None

    def settle(self, key: CallerKey, day: int, upper_nano: int, cost_nano: int, *, calls: int) -> None:
        """Replace a reservation of ``upper_nano`` by the real cost ``cost_nano``, both in billionths of a dollar.

        Args:
            key: The key of the call.
            day: The day that :meth:`reserve` returned.
            upper_nano: The reserved cost.
            cost_nano: The real cost.
            calls: The number to add to the day's finished calls.
        """
        with self._writing():
            self._connection.execute(
                "UPDATE gateway_days SET held_nano = held_nano + ?, spent_nano = spent_nano + ?, calls = calls + ? "
                "WHERE key = ? AND day = ?",
                (cost_nano - upper_nano, cost_nano, calls, key.name, day),
            )

    def held_usd(self, key: CallerKey) -> float:
        """Return a key's spending on the current UTC day in dollars, including reservations."""
        with self._lock:
            row = self._connection.execute(
                "SELECT held_nano FROM gateway_days WHERE key = ? AND day = ?", (key.name, self._day())
            ).fetchone()
        return float(row[0] / NANO) if row else 0.0

    def _day(self) -> int:
        return int(self._now() // 86_400)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise KeysUnwritable(f"{self.path}: cannot be written ({_line(error)})") from None


class KeysUnwritable(VineLMError):
    """The file of keys cannot be written, so calls are refused."""

    default_code = "keys-unwritable"


_READ = "SELECT name, tenant, daily_usd, calls_per_min, revoked_at FROM gateway_keys"


def _key_of(row: Any) -> CallerKey:
    name, tenant, daily_usd, calls_per_min, revoked_at = row
    return CallerKey(name, tenant, daily_usd, calls_per_min, revoked_at is not None)


@contextmanager
def _noted() -> Iterator[None]:
    """Log an error, instead of raising it, if the ``with`` block cannot write the cost of a finished call to the file
    of keys.
    """
    try:
        yield
    except KeysUnwritable as error:
        _LOG.error("%s: what a call has cost is not in it", error)


class KeyAccount:
    """Authorizes the calls of one key within the key's daily cap; a :class:`~vinelm.requests.protocols.CallGuard`."""

    __slots__ = ("_book", "_daily_usd", "_key")

    def __init__(self, book: KeyBook, key: CallerKey, daily_usd: float) -> None:
        self._book, self._key, self._daily_usd = book, key, daily_usd

    def authorize(self, upper_usd: float) -> KeyPermit:
        """Reserve ``upper_usd`` dollars, the call's maximum cost, and return the call's permit.

        Raises:
            CallRefused: The key's daily cap does not allow the call, or the file cannot be written.
        """
        upper_nano = math.ceil(upper_usd * NANO)
        try:
            day = self._book.reserve(self._key, upper_nano, int(self._daily_usd * NANO))
        except KeysUnwritable as error:  # for this call only: the file may be writable again for the next
            _LOG.error("%s: a call was refused", error)
            raise CallRefused("the gateway's file of keys cannot be written, so no cap can be kept: try again later") from None
        if day is None:
            left_usd = max(self._daily_usd - self._book.held_usd(self._key), 0.0)
            raise CallRefused(
                f"the call may cost up to ${upper_usd:.6f}, and ${left_usd:.6f} is left of this key's "
                f"${self._daily_usd:g} for today (UTC): ask for fewer tokens, or wait until tomorrow"
            )
        return KeyPermit(self._book, self._key, day, upper_nano)


class KeyPermit:
    """The permission for one call that a key's account has authorized. Its reservation is settled exactly once."""

    __slots__ = ("_book", "_day", "_is_settled", "_key", "_upper_nano")

    def __init__(self, book: KeyBook, key: CallerKey, day: int, upper_nano: int) -> None:
        self._book, self._key, self._day, self._upper_nano = book, key, day, upper_nano
        self._is_settled = False

    def settle(self, usage: Usage) -> None:
        """Replace the reservation by the call's real cost."""
        self._settle(math.ceil(usage.cost_usd * NANO), calls=int(bool(usage.model)))

    def close(self) -> None:
        """Charge the call's maximum cost, unless the call is already settled."""
        self._settle(self._upper_nano, calls=1)

    def _settle(self, cost_nano: int, *, calls: int) -> None:
        if not self._is_settled:
            self._is_settled = True
            with _noted():  # otherwise the reservation stays
                self._book.settle(self._key, self._day, self._upper_nano, cost_nano, calls=calls)


def digest_of(key: str) -> str:
    """Return the hash under which a key is stored. Keys are random, so adding a salt would not make them harder to guess."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def _line(error: Any) -> str:
    return str(getattr(error, "strerror", None) or error).splitlines()[0][:200]
