"""google-genai's clients on HTTP clients of ours: responses can be closed early, and event loops do not share sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.genai import Client

MAX_CONNECTIONS = 256
_RESPONSES: ContextVar[list[Any] | None] = ContextVar("vinelm_gemini_responses", default=None)


@contextmanager
def kept_responses(kept: list[Any]) -> Iterator[None]:
    """While this is open, responses that begin in this context are put into ``kept``: the SDK itself does not give them out."""
    token = _RESPONSES.set(kept)
    try:
        yield
    finally:
        _RESPONSES.reset(token)


class GeminiClients:
    """Clients of one endpoint and one key. Thread-safe; asynchronous ones close with their event loop."""

    def __init__(self, api_base: str | None, key: str) -> None:
        self._api_base = api_base
        self._key = key
        self._lock = threading.Lock()
        self._sync: tuple[Client, Any] | None = None
        self._async: dict[asyncio.AbstractEventLoop, tuple[Client, Any]] = {}

    def sync(self) -> Client:
        """The synchronous client."""
        import httpx2

        with self._lock:
            if self._sync is None:
                http = httpx2.Client(event_hooks={"response": [_keep]}, limits=_limits(), follow_redirects=True)
                self._sync = (self._made(httpx_client=http), http)
            return self._sync[0]

    async def asynchronous(self) -> Client:
        """The client of the running event loop."""
        import httpx2

        loop = asyncio.get_running_loop()
        with self._lock:
            held = self._async.get(loop)
            if held is None:
                for other in [other for other in self._async if other.is_closed()]:
                    del self._async[other]
                http = httpx2.AsyncClient(event_hooks={"response": [_akeep]}, limits=_limits(), follow_redirects=True)
                closer = self._closed_with(loop, http)
                made = self._made(httpx_async_client=http)
                self._async[loop] = (made, closer)
        if held is not None:
            return held[0]
        await anext(closer)
        return made

    def close(self) -> None:
        """Close the synchronous client's connections."""
        with self._lock:
            if self._sync is not None:
                self._sync[1].close()
                self._sync = None

    async def _closed_with(self, loop: asyncio.AbstractEventLoop, http: Any) -> AsyncGenerator[None]:
        """Suspended until the loop shuts its asynchronous generators down, as ``asyncio.run`` does at its end."""
        try:
            yield
        finally:
            with self._lock:
                self._async.pop(loop, None)
            await http.aclose()

    def _made(self, **http: Any) -> Client:
        from google.genai import Client
        from google.genai.types import HttpOptions

        return Client(vertexai=False, api_key=self._key, http_options=HttpOptions(base_url=self._api_base, **http))


def _limits() -> Any:
    import httpx2

    return httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)


def _keep(response: Any) -> None:
    kept = _RESPONSES.get()
    if kept is not None:
        kept.append(response)


async def _akeep(response: Any) -> None:
    _keep(response)
