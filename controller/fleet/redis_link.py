"""The connection to Redis. Commands have short timeouts and raise only VineLM's errors. Only this module imports redis."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from vinelm.errors import ConfigError, FleetUnreachable
from vinelm.extras import required_extra

T = TypeVar("T")
TIMEOUT_S = 0.5
"""Longest wait for an answer. Only background threads wait."""
SCHEMES = ("redis://", "rediss://", "unix://")
_SILENT = "does not answer"
SILENT_REDIS = f"the fleet's Redis {_SILENT}"
_REFUSALS: Sequence[tuple[str, str, str]] = (
    (r"AuthenticationError|AuthenticationWrongNumberOfArgsError|NOAUTH|WRONGPASS", "refuses user and password",
     "give the right ones in the URL, redis://user:password@host:port/db"),
    (r"NoPermissionError|AuthorizationError|NOPERM|can't run this command", "refuses commands to its user",
     "let its ACL allow all commands on the keys vinelm:* (~vinelm:* +@all)"),
    (r"DB index|invalid DB|SELECT is not allowed", "has no database of that number", "write another one at the URL's end"),
    (r"OutOfMemoryError|\bOOM\b", "is full and refuses to write", "raise its maxmemory"),
    (r"ReadOnlyError|READONLY", "is a replica, which refuses to write", "give the address of the primary"),
    (r"BusyLoadingError|LOADING", "refuses commands while it loads its data", "wait until it has"),
    (r"InvalidResponse|Protocol Error", "answers, but not as a Redis does", "check its address and port"),
    (r"max number of clients|MaxConnectionsError", "refuses further connections", "raise its maxclients"),
)  # fmt: skip
"""How a reachable Redis refuses: the form of its error, the meaning, and the fix."""
_CODE = re.compile(r"(?:^|error: )([A-Z]{3,20})\b")
"""Redis's code of an error. No other text of the error is repeated, since it may quote a command."""
_DIGITS = frozenset("0123456789")
RUN = "local run = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')"
"""Lua code that sets ``run`` to an id which Redis renews at each start; a key with another id may come from an old file."""


class RedisLink:
    """Runs the fleet's commands on one Redis, under keys that begin with ``vinelm:{name}:``. For one thread.

    The first command opens the connection; after a failure, the next command opens it again.

    Args:
        url: ``redis://host:port/db``, ``rediss://...`` or ``unix://...``; may hold a password, which no error shows.
        name: the fleet's name; fleets of different names are separate.

    Raises:
        ConfigError: the URL or the name is invalid.
        MissingExtra: the extra ``fleet`` is not installed.
    """

    def __init__(self, url: str, name: str = "default") -> None:
        with required_extra("fleet", "a fleet"):
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        if not url.startswith(SCHEMES):
            raise ConfigError("fleet= is no Redis URL: it begins with redis://, rediss:// or unix://", code="fleet-url")
        if not name or any(mark in name for mark in "{}: \n"):
            raise ConfigError(f"the fleet's name is {name!r}: use letters, digits and dashes")
        try:
            self._redis: Any = redis.Redis.from_url(
                url,
                socket_timeout=TIMEOUT_S,
                socket_connect_timeout=TIMEOUT_S,
                # The client does not retry: the next round does.
                retry=Retry(NoBackoff(), 0),
            )
        except ValueError as error:
            raise ConfigError("fleet= is no Redis URL: write redis://host:port/db", code="fleet-url") from error
        where = self._redis.connection_pool.connection_kwargs
        self._where: str = where.get("path") or f"{where.get('host', 'localhost')}:{where.get('port', 6379)}"
        self.prefix = f"vinelm:{{{name}}}:"  # the braces keep all keys of a fleet on one node of a cluster
        self.has_answered = False
        """True if Redis has ever answered."""
        self.why = ""
        """Why it cannot be reached, without the address; empty if the last command was answered."""
        self._scripts: dict[str, Any] = {}

    def publish(self, process: str, version: int, load: bytes, rows: bytes, ttl_s: float) -> None:
        """Publish this process's summary and snapshot in place of the previous ones; they expire after ``ttl_s`` seconds.

        Args:
            process: the name of the process.
            version: larger than the previous version.
            load: the summary that every process reads.
            rows: the whole snapshot, which few processes read.
            ttl_s: seconds, > 0.
        """
        key = self._process(process)

        def send(pipe: Any) -> None:
            pipe.sadd(f"{self.prefix}processes", process)
            pipe.hset(key, mapping={"version": version, "load": load, "rows": rows})
            pipe.pexpire(key, int(ttl_s * 1000))

        self._pipelined(send, is_atomic=True)

    def withdraw(self, process: str) -> None:
        """Delete what this process has published; called when the process ends regularly."""

        def send(pipe: Any) -> None:
            pipe.srem(f"{self.prefix}processes", process)
            pipe.delete(self._process(process))

        self._pipelined(send, is_atomic=True)

    def loads(self) -> dict[str, tuple[int, bytes]]:
        """Return the version and summary of each process whose publication has not expired."""
        names = sorted(name.decode() for name in self._answer(lambda: self._redis.smembers(f"{self.prefix}processes")))
        found: dict[str, tuple[int, bytes]] = {}
        expired = []
        for name, (version, load) in zip(names, self._fields(names, "version", "load"), strict=True):
            if version is None or load is None:
                expired.append(name)
            elif set(version.decode()) <= _DIGITS:
                found[name] = int(version), load
        if expired:
            # A process that was killed cannot remove its own name.
            self._answer(lambda: self._redis.srem(f"{self.prefix}processes", *expired))
        return found

    def rows(self, processes: Sequence[str]) -> dict[str, bytes]:
        """Return the snapshots of these processes, without those that have expired."""
        found = zip(processes, self._fields(processes, "rows"), strict=True)
        return {name: rows for name, (rows,) in found if rows is not None}

    def run_script(self, text: str, keys: Sequence[str], arguments: Sequence[str | int | float | bytes]) -> Any:
        """Run a Lua script on the fleet's ``keys``, given without the fleet's prefix, and return the script's answer."""
        if text not in self._scripts:
            self._scripts[text] = self._redis.register_script(text)
        script = self._scripts[text]
        return self._answer(lambda: script(keys=[self.prefix + key for key in keys], args=list(arguments)))

    def set(self, key: str, value: bytes, ttl_s: float | None = None) -> None:
        """Set the value of a fleet's key, given without the prefix; it expires after ``ttl_s`` seconds (None: never)."""
        self._answer(lambda: self._redis.set(self.prefix + key, value, px=None if ttl_s is None else int(ttl_s * 1000)))

    def get(self, key: str) -> bytes | None:
        """Return the value of a fleet's key, given without the prefix; None if there is none."""
        found: bytes | None = self._answer(lambda: self._redis.get(self.prefix + key))
        return found

    def hash(self, key: str) -> Mapping[str, bytes]:
        """Return all fields of a fleet's hash, whose key is given without the prefix; empty if the hash does not exist."""
        return {name.decode(): value for name, value in self._answer(lambda: self._redis.hgetall(self.prefix + key)).items()}

    def fields(self, key: str, *names: str) -> list[bytes | None]:
        """Return these fields of a fleet's hash, whose key is given without the prefix; None for each missing field."""
        found: list[bytes | None] = self._answer(lambda: self._redis.hmget(self.prefix + key, names))
        return found

    def evicts_anything(self) -> str:
        """Return the name of Redis's eviction policy if it allows Redis to delete any key when memory is full.

        Return "" if Redis only deletes keys with an expiry, or none.
        """
        memory = self._answer(lambda: self._redis.info("memory"))
        policy = str(memory.get("maxmemory_policy", ""))
        return policy if int(memory.get("maxmemory", 0)) and policy.startswith("allkeys") else ""

    @property
    def where(self) -> str:
        """The host and port of Redis, or its socket; without a password."""
        return self._where

    def ping(self) -> None:
        """Raise :class:`FleetUnreachable` if Redis does not answer."""
        self._answer(self._redis.ping)

    def close(self) -> None:
        """Close the connections to Redis."""
        self._redis.close()

    def __del__(self) -> None:
        """Close the connection of a link that was not closed."""
        with suppress(AttributeError):  # it was never made whole
            self._redis.close()

    def _process(self, name: str) -> str:
        return f"{self.prefix}process:{name}"

    def _fields(self, processes: Iterable[str], *names: str) -> list[list[bytes | None]]:
        return self._pipelined(lambda pipe: [pipe.hmget(self._process(process), names) for process in processes])

    def _pipelined(self, send: Callable[[Any], object], *, is_atomic: bool = False) -> list[Any]:
        def ask() -> list[Any]:
            with self._redis.pipeline(transaction=is_atomic) as pipe:
                send(pipe)
                found: list[Any] = pipe.execute()
                return found

        return self._answer(ask)

    def _answer(self, ask: Callable[[], T]) -> T:
        try:
            found = ask()
            self.has_answered, self.why = True, ""
            return found
        except Exception as error:  # any type, if it is not Redis that answers; it may hold a password
            said, mend = _problem(error)
            self.why = f"the fleet's Redis {said}"
            raise FleetUnreachable(f"the fleet's Redis at {self._where} {said} ({type(error).__name__}): {mend}") from None


def _problem(error: Exception) -> tuple[str, str]:
    """Return two phrases for a message: what is wrong with the Redis that raised ``error``, and how to fix it."""
    text = str(error)
    for pattern, said, mend in _REFUSALS:
        if re.search(pattern, f"{type(error).__name__} {text}"):
            return said, mend
    if any(base.__name__ == "ResponseError" for base in type(error).__mro__):
        code = _CODE.search(text)
        return f"refuses a command{f' ({code[1]})' if code else ''}", "its log says why"
    return _SILENT, "see that it runs, and that address and password are right"
