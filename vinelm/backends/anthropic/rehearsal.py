"""Clients of the anthropic SDK that answer from memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vinelm.backends.http.clients import answering_client, library_of
from vinelm.backends.http.transport import tls_context
from vinelm.backends.remote.client_pool import ClientPool, EventLoopClients, rehearsing_pool

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic

_USAGE = {"input_tokens": 1, "output_tokens": 1}
_MESSAGE = {
    "id": "msg_rehearsal",
    "type": "message",
    "role": "assistant",
    "model": "rehearsal",
    "content": [{"type": "text", "text": "yes"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": _USAGE,
}
_EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "message_start", "message": {**_MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "yes"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": _USAGE},
    {"type": "message_stop"},
)


def rehearsing_clients() -> ClientPool[EventLoopClients[Anthropic, AsyncAnthropic]]:
    """Return a pool of synchronous clients that answer every call alike."""

    def make() -> tuple[Anthropic, Callable[[], None]]:
        from anthropic import Anthropic, DefaultHttpxClient

        library = library_of(DefaultHttpxClient)
        tls_context(library)  # for the asynchronous clients: a synchronous one is made before the first call
        stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in _EVENTS)
        http = answering_client(library, _MESSAGE, stream)
        client = Anthropic(api_key="none", base_url="http://rehearsal.invalid", max_retries=0, http_client=http)
        return client, client.close

    return rehearsing_pool(make)
