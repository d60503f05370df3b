"""Clients of google-genai over our own HTTP clients, so that responses can be closed early and event loops share no socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from vinelm.backends.http.answer_body import BodyLimits
from vinelm.backends.http.clients import answering_client, async_http_client, http_client
from vinelm.backends.remote.client_pool import ClientPool, EventLoopClients, rehearsing_pool

if TYPE_CHECKING:
    from google.genai import Client

_RESPONSES: ContextVar[list[Any] | None] = ContextVar("vinelm_gemini_responses", default=None)


@contextmanager
def kept_responses(kept: list[Any]) -> Iterator[None]:
    """Collect the HTTP responses that start in this context in ``kept``; the SDK does not expose them."""
    token = _RESPONSES.set(kept)
    try:
        yield
    finally:
        _RESPONSES.reset(token)


def clients_of(limits: BodyLimits | None = None, **settings: Any) -> EventLoopClients[Client, Client]:
    """Create google-genai's clients with these settings (key, endpoint, ...): one for all threads, one per event loop.

    ``limits`` of a response's size.
    """

    def make() -> tuple[Client, Any]:
        http = http_client("httpx2", limits, event_hooks={"response": [_keep]})
        return client_over(settings, httpx_client=http), http.close

    def amake() -> tuple[Client, Any]:
        http = async_http_client("httpx2", limits, event_hooks={"response": [_akeep]})
        return client_over(settings, httpx_async_client=http), http.aclose

    return EventLoopClients(make, amake)


def client_over(settings: dict[str, Any], **http: Any) -> Client:
    """Return google-genai's client with these settings, over an HTTP client of ours."""
    from google.genai import Client
    from google.genai.types import HttpOptions

    given = dict(settings)
    return Client(http_options=HttpOptions(base_url=given.pop("base_url", None), **http), **given)


def _keep(response: Any) -> None:
    kept = _RESPONSES.get()
    if kept is not None:
        kept.append(response)


async def _akeep(response: Any) -> None:
    _keep(response)


# -- rehearsals --------------------------------------------------------------------------------------------------

_ANSWER = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "yes"}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
}


def rehearsing_clients() -> ClientPool[EventLoopClients[Client, Client]]:
    """Return a pool of synchronous clients that answer every call alike."""

    def make() -> tuple[Client, Any]:
        http = answering_client("httpx2", _ANSWER, f"data: {json.dumps(_ANSWER)}\n\n")
        return client_over({"vertexai": False, "api_key": "none"}, httpx_client=http), http.close

    return rehearsing_pool(make)
