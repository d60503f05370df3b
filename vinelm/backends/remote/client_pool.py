"""Keeps one client for synchronous calls and one for each event loop, because connections belong to their loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

S = TypeVar("S")
A = TypeVar("A")


_LIVE: WeakSet[EventLoopClients[Any, Any]] = WeakSet()
_PARENTS: list[object] = []
"""In a forked child: the parent's clients. Closing or collecting them could wait for a lock for ever."""


class EventLoopClients(Generic[S, A]):
    """A pool of clients for one server and key: one client for synchronous calls, and one for each event loop. Thread-safe.

    The synchronous client closes with the process, an asynchronous client with its event loop. ``make`` and ``amake`` each
    return a client and the object that closes the client.
    """

    def __init__(
        self,
        make: Callable[[], tuple[S, Callable[[], None]]],
        amake: Callable[[], tuple[A, Callable[[], Awaitable[None]]]],
    ) -> None:
        self._make, self._amake = make, amake
        self._start()
        _LIVE.add(self)

    def _start(self) -> None:
        """Create the lock and empty pools of clients: for a new object, and again in a forked child, whose connections belong
        to the parent.
        """
        self._lock = threading.Lock()
        self._sync: tuple[S, Callable[[], None]] | None = None
        self._async: dict[asyncio.AbstractEventLoop, tuple[A, AsyncGenerator[None]]] = {}

    def sync(self) -> S:
        """Return the synchronous client."""
        held = self._sync
        if held is None:
            with self._lock:
                held = self._sync = self._sync or self._make()
        return held[0]

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
        # Outside of the lock, which must not be held across an await. The first step registers the generator with the loop.
        await anext(closer)
        return client

    def close(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Close the connections of the synchronous client, and of the client of an event loop running in another thread."""
        with self._lock:
            if self._sync is not None:
                self._sync[1]()
                self._sync = None
            held = self._async.get(loop) if loop is not None else None
        if held is not None and loop is not None and loop.is_running():
            asyncio.run_coroutine_threadsafe(held[1].aclose(), loop)

    @property
    def loops(self) -> int:
        """Number of event loops that currently have a client."""
        return len(self._async)

    async def _closed_with(
        self, loop: asyncio.AbstractEventLoop, aclose: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[None]:
        """An asynchronous generator that closes a client when the event loop shuts down its asynchronous generators.

        ``asyncio.run`` does so at its end. ``aclose`` closes the client.
        """
        try:
            yield
        finally:
            with self._lock:
                self._async.pop(loop, None)
            await aclose()


def _forget() -> None:
    for clients in list(_LIVE):
        _PARENTS.extend((clients._sync, clients._async))
        clients._start()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
