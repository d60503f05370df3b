"""The clients of an SDK, made on first use and shared by all calls to one place: one synchronous, one per event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from typing import Generic, Protocol, TypeVar

from vinelm.catalog import Model


class Closes(Protocol):
    """What holds connections."""

    def close(self) -> None:
        """Give them up."""


C = TypeVar("C", bound=Closes)
S = TypeVar("S")
A = TypeVar("A")


class ClientPool(Generic[C]):
    """One ``make(model)`` for all models of one ``place(model)``. Thread-safe."""

    def __init__(self, make: Callable[[Model], C], place: Callable[[Model], Hashable]) -> None:
        self._make = make
        self._place = place
        self._made: dict[Hashable, C] = {}
        self._lock = threading.Lock()

    def of(self, model: Model) -> C:
        """The one for that model's place."""
        place = self._place(model)
        with self._lock:
            if place not in self._made:
                self._made[place] = self._make(model)
            return self._made[place]

    def all(self) -> list[C]:
        """Those that were made so far."""
        with self._lock:
            return list(self._made.values())

    def close(self) -> None:
        """Close all of them; the next call makes them anew."""
        with self._lock:
            for made in self._made.values():
                made.close()
            self._made.clear()


class EventLoopClients(Generic[S, A]):
    """Clients of one server and one key. Thread-safe; they close with the process, asynchronous ones with their event loop.

    ``make`` and ``amake`` give a client and what closes it.
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
        """The synchronous client."""
        with self._lock:
            if self._sync is None:
                self._sync = self._make()
            return self._sync[0]

    async def asynchronous(self) -> A:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            held = self._async.get(loop)
            if held is None:
                for other in [other for other in self._async if other.is_closed()]:
                    del self._async[other]
                client, aclose = self._amake()
                closer = self._closed_with(loop, aclose)
                self._async[loop] = (client, closer)
        if held is not None:
            return held[0]
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
        """How many event loops have a client now."""
        return len(self._async)

    async def _closed_with(
        self, loop: asyncio.AbstractEventLoop, aclose: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[None]:
        """Suspended until the loop shuts its asynchronous generators down, as ``asyncio.run`` does at its end."""
        try:
            yield
        finally:
            with self._lock:
                self._async.pop(loop, None)
            await aclose()


class SdkTransport(Generic[S, A]):
    """The part of a :class:`~vinelm.backends.remote.transport.Transport` that is about clients; each provider makes its own."""

    def __init__(self) -> None:
        self.clients: ClientPool[EventLoopClients[S, A]] = ClientPool(self._made, self._place)

    def connect(self, model: Model) -> None:
        """Make the client."""
        self.clients.of(model).sync()

    async def aconnect(self, model: Model) -> None:
        """Make the event loop's client."""
        await self.clients.of(model).asynchronous()

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        self.clients.close()

    def _place(self, model: Model) -> Hashable:
        """Models that share clients have the same one."""
        return (model.api_base, model.api_key_env)

    def _made(self, model: Model) -> EventLoopClients[S, A]:
        """Clients for that place."""
        raise NotImplementedError


def keep_quiet(*names: str) -> None:
    """Drop the debug records of these loggers; what is louder stays."""
    for name in names:
        logger = logging.getLogger(name)
        if _is_loud not in logger.filters:
            logger.addFilter(_is_loud)


def _is_loud(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
