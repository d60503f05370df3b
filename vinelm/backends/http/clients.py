"""HTTP clients for SDKs: limited in time and size, and without redirects."""

from __future__ import annotations

import importlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from vinelm.backends.http.answer_body import BodyLimits
from vinelm.backends.http.transport import AsyncBoundedTransport, BoundedTransport
from vinelm.backends.remote.client_pool import EventLoopClients


def http_client(library: str, limits: BodyLimits | None = None, *, ca_file: str | None = None, **settings: Any) -> Any:
    """Return a client of ``library`` ("httpx" or "httpx2") for synchronous calls.

    Args:
        library: the library that the SDK is built on.
        limits: the largest response.
        ca_file: the certificates to trust; None for those of httpx, or of ``SSL_CERT_FILE``.
        settings: of the library's ``Client``, such as ``event_hooks``.
    """
    httpx = importlib.import_module(library)
    transport = BoundedTransport(httpx, limits or BodyLimits(), ca_file)
    return httpx.Client(transport=transport, follow_redirects=False, **settings)


def async_http_client(library: str, limits: BodyLimits | None = None, **settings: Any) -> Any:
    """Like :func:`http_client`, for the coroutines of one event loop."""
    httpx = importlib.import_module(library)
    transport = AsyncBoundedTransport(httpx, limits or BodyLimits())
    return httpx.AsyncClient(transport=transport, follow_redirects=False, **settings)


def sdk_clients(
    load: Callable[[], tuple[Any, Any, str, Mapping[str, Any]]], limits: BodyLimits | None = None
) -> EventLoopClients[Any, Any]:
    """Return the clients of an SDK over our own HTTP clients, which bound the time and size of each answer.

    ``load`` imports the SDK: its class of synchronous clients and of others, their HTTP library and what both are made with.
    """

    def make() -> tuple[Any, Callable[[], None]]:
        kind, _, library, settings = load()
        client = kind(http_client=http_client(library, limits), **settings)
        return client, client.close

    def amake() -> tuple[Any, Callable[[], Awaitable[None]]]:
        _, kind, library, settings = load()
        client = kind(http_client=async_http_client(library, limits), **settings)
        return client, client.close

    return EventLoopClients(make, amake)


def answering_client(library: str, whole: Mapping[str, Any], stream: str) -> Any:
    """Return a synchronous client of ``library`` that sends nothing: a request that asks for a stream gets ``stream``."""
    httpx = importlib.import_module(library)

    def answer(request: Any) -> Any:
        if json.loads(request.content).get("stream") or "alt=sse" in str(request.url):
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream.encode())
        return httpx.Response(200, json=whole)

    return httpx.Client(transport=httpx.MockTransport(answer))


def library_of_openai() -> str:
    """Return the HTTP library that the installed openai SDK is built on."""
    from openai import DefaultHttpxClient

    return library_of(DefaultHttpxClient)


def library_of(client: type[Any]) -> str:
    """Return the HTTP library of an SDK's default client: httpx, or its fork httpx2."""
    homes = [kind.__module__.partition(".")[0] for kind in client.__mro__]
    return next(home for home in homes if home.startswith("httpx"))
