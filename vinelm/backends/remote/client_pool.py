"""Pools of SDK clients: created on first use and shared by all calls to one server, with one async client per event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

from vinelm.catalog import Model


class Closes(Protocol):
    """An object that holds connections."""

    def close(self) -> None:
        """Close the connections."""


C = TypeVar("C", bound=Closes)
S = TypeVar("S")
A = TypeVar("A")


class ClientPool(Generic[C]):
    """One object per place: created by ``make(model)``, and shared by models with equal ``place(model)``. Thread-safe."""

    def __init__(self, make: Callable[[Model], C], place: Callable[[Model], Hashable]) -> None:
        self._make = make
        self._place = place
        self._made: dict[Hashable, C] = {}
        self._lock = threading.Lock()

    def of(self, model: Model) -> C:
        """Return the object for the model's place; creates it on first use."""
        place = self._place(model)
        with self._lock:
            if place not in self._made:
                # With the lock held: of two that are made at once, one would never be closed.
                self._made[place] = self._make(model)
            return self._made[place]

    def all(self) -> list[C]:
        """Return the objects created so far."""
        with self._lock:
            return list(self._made.values())

    def close(self) -> None:
        """Close all objects; the next call creates new ones."""
        with self._lock:
            for made in self._made.values():
                made.close()
            self._made.clear()


class EventLoopClients(Generic[S, A]):
    """The clients of one server and one key: one synchronous, one per event loop. Thread-safe.

    The synchronous client closes with the process, an asynchronous one with its event loop. ``make`` and ``amake`` return a
    client and the object that closes it.
    """

    def __init__(
        self,
        make: Callable[[], tuple[S, Callable[[], None]]],
        amake: Callable[[], tuple[A, Callable[[], Awaitable[None]]]],
    ) -> None:
        self._make, self._amake = make, amake
        self._lock = threading.Lock()
        self._sync: tuple[S, Callable[[], None]] | None = None
        self._async: dict[asyncio.AbstractEventLoop, tuple[A, AsyncGenerator[None]]] = {}

    def sync(self) -> S:
        """Return the synchronous client."""
        with self._lock:
            if self._sync is None:
                self._sync = self._make()
            return self._sync[0]

    async def asynchronous(self) -> A:
        """Return the client of the running event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            held = self._async.get(loop)
            if held is None:
                # A loop that was closed without shutting down its async generators never removed its client: it is dropped
                # here, since closing it would need the loop.
                for other in [other for other in self._async if other.is_closed()]:
                    del self._async[other]
                client, aclose = self._amake()
                closer = self._closed_with(loop, aclose)
                self._async[loop] = (client, closer)
        if held is not None:
            return held[0]
        # Outside of the lock, which must not be held over an await. The first step registers the generator with the loop.
        await anext(closer)
        return client

    def close(self) -> None:
        """Close the synchronous client's connections."""
        with self._lock:
            if self._sync is not None:
                self._sync[1]()
                self._sync = None

    @property
    def loops(self) -> int:
        """Number of event loops that have a client now."""
        return len(self._async)

    async def _closed_with(
        self, loop: asyncio.AbstractEventLoop, aclose: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[None]:
        """Wait until the loop shuts down its async generators, as ``asyncio.run`` does at its end; then close the client."""
        try:
            yield
        finally:
            with self._lock:
                self._async.pop(loop, None)
            await aclose()


def rehearsing_pool(make: Callable[[], tuple[S, Callable[[], None]]]) -> ClientPool[EventLoopClients[S, Any]]:
    """Return a pool with one synchronous client, for calls that are answered from memory."""

    def amake() -> Any:
        raise NotImplementedError("a rehearsal has no event loop")

    return ClientPool(lambda model: EventLoopClients(make, amake), lambda model: None)


def keep_quiet(*names: str) -> None:
    """Drop the debug and info records of these loggers; keep warnings and errors."""
    for name in names:
        logger = logging.getLogger(name)
        if _is_loud not in logger.filters:
            logger.addFilter(_is_loud)


def _is_loud(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
