"""Clients of the openai SDK that answer from memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vinelm.backends.http.clients import answering_client, library_of_openai
from vinelm.backends.http.transport import tls_context
from vinelm.backends.openai.client import NO_KEY
from vinelm.backends.remote.client_pool import ClientPool, EventLoopClients, rehearsing_pool

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


def rehearsing_clients(
    whole: Mapping[str, Any], *events: Mapping[str, Any]
) -> ClientPool[EventLoopClients[OpenAI, AsyncOpenAI]]:
    """Return a pool of synchronous clients: whole calls are answered with ``whole``, streamed ones with ``events``."""
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    def make() -> tuple[OpenAI, Callable[[], None]]:
        import openai

        library = library_of_openai()
        tls_context(library)  # for the asynchronous clients: a synchronous one is made before the first call
        http = answering_client(library, whole, stream)
        client = openai.OpenAI(api_key=NO_KEY, base_url="http://rehearsal.invalid/v1", max_retries=0, http_client=http)
        return client, client.close

    return rehearsing_pool(make)


_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
_HEAD = {"id": "rehearsal", "created": 1, "model": "rehearsal"}
COMPLETION = {
    **_HEAD,
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
    "usage": _USAGE,
}
"""A whole answer of the chat completions API."""
CHUNKS = (
    {
        **_HEAD,
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}],
    },
    {**_HEAD, "object": "chat.completion.chunk", "choices": [], "usage": _USAGE},
)
"""The same answer, streamed."""
