"""Base classes of transports over an SDK: their clients, and the attempts of SDKs that show the raw HTTP response."""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Mapping
from contextlib import closing, suppress
from typing import Any, Generic, TypeVar

from vinelm.backends.http.transport import DEADLINE
from vinelm.backends.remote.client_pool import ClientPool, EventLoopClients
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.transport import Transport, TransportRequest
from vinelm.catalog import Model

S = TypeVar("S")
A = TypeVar("A")
DRAIN_S, DRAIN_PIECES = 0.25, 16
"""Seconds and pieces that a stream is given to end after its answer has."""


class SdkTransport(Transport, Generic[S, A]):
    """Base of transports over an SDK: the methods of its clients."""

    def __init__(self) -> None:
        self.clients: ClientPool[EventLoopClients[S, A]] = ClientPool(self._made, self._place)

    def connect(self, model: Model) -> None:
        """Create the synchronous client."""
        self.clients.of(model).sync()

    async def aconnect(self, model: Model) -> None:
        """Create the client of the running event loop."""
        await self.clients.of(model).asynchronous()

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        self.clients.close()

    def _place(self, model: Model) -> Hashable:
        """Return a key that is equal for models that share clients."""
        return (model.api_base, model.api_key_env)

    def _made(self, model: Model) -> EventLoopClients[S, A]:
        """Create the clients for the model's place."""
        raise NotImplementedError


class RawSdkTransport(SdkTransport[S, A]):
    """Base of transports over the SDKs of OpenAI and Anthropic, which are alike: each call has a raw form with its headers."""

    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """Make one attempt."""
        parse = self._parser(model, request)
        calls = self._calls(self.clients.of(model).sync())
        raw = calls.with_raw_response.create(**self._arguments(model, request))
        try:
            yield self._begun(raw.headers, is_streamed=request.is_streamed)
            parsed = raw.parse()
            if not request.is_streamed:
                yield parse(parsed)
                return
            with closing(parsed) as pieces:
                for piece in pieces:
                    yield parse(piece)
                    if self._is_last(piece):
                        drained(raw.http_response)
                        break
        finally:
            raw.http_response.close()

    async def asend(self, model: Model, request: TransportRequest) -> AsyncGenerator[Delta]:
        """Like :meth:`send`, for a coroutine."""
        parse = self._parser(model, request)
        calls = self._calls(await self.clients.of(model).asynchronous())
        raw = await calls.with_raw_response.create(**self._arguments(model, request))
        try:
            yield self._begun(raw.headers, is_streamed=request.is_streamed)
            parsed = raw.parse()
            if inspect.isawaitable(parsed):
                parsed = await parsed
            if not request.is_streamed:
                yield parse(parsed)
                return
            async for piece in parsed:
                yield parse(piece)
                if self._is_last(piece):
                    await adrained(raw.http_response)
                    break
        finally:
            await raw.http_response.aclose()

    @abstractmethod
    def _parser(self, model: Model, request: TransportRequest) -> Callable[[Any], Delta]:
        """Return what parses the pieces of one attempt in order, or its whole answer."""

    @staticmethod
    @abstractmethod
    def _begun(headers: Mapping[str, str], *, is_streamed: bool) -> Delta:
        """Return the first piece, from the headers."""

    @staticmethod
    @abstractmethod
    def _calls(client: Any) -> Any:
        """Return the resource of the client whose ``create`` makes the call."""

    @staticmethod
    @abstractmethod
    def _arguments(model: Model, request: TransportRequest) -> dict[str, Any]:
        """Return the arguments of ``create``."""

    @staticmethod
    @abstractmethod
    def _is_last(piece: Any) -> bool:
        """True if nothing of the answer follows this piece of a stream."""


def drained(response: Any) -> None:
    """Read a stream to its end, so that the connection can be reused, unless the end does not come at once."""
    deadline = response.extensions.get(DEADLINE)
    with suppress(Exception):  # the answer is complete, only the connection is lost
        if deadline is not None:
            deadline.shorten(DRAIN_S)
        for _, _ in zip(range(DRAIN_PIECES), response.stream, strict=False):
            pass


async def adrained(response: Any) -> None:
    """Like :func:`drained`, for a coroutine."""
    pieces = 0
    with suppress(Exception):
        async with asyncio.timeout(DRAIN_S):
            async for _ in response.stream:
                pieces += 1
                if pieces >= DRAIN_PIECES:
                    break
