"""Clients of the anthropic SDK, one set per server and key; and some that answer from memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vinelm.backends.http.answer_body import BodyLimits
from vinelm.backends.http.clients import answering_client, library_of, sdk_clients
from vinelm.backends.http.deadline import CONNECT_TIMEOUT_S
from vinelm.backends.http.transport import tls_context
from vinelm.backends.remote.client_pool import ClientPool, EventLoopClients, keep_quiet, rehearsing_pool
from vinelm.catalog import Model
from vinelm.extras import required_extra

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic, Timeout

VERSION = "2023-06-01"
"""The API version that is asked for, whatever the SDK's: 2026-10-21 refuses ``temperature``, which LangChain users set."""
HOME = "https://api.anthropic.com"
KEY_ENV = "ANTHROPIC_API_KEY"
"""The usual variable of the key, for messages."""
LOGGERS = ("anthropic._base_client",)
"""Loggers of the SDK, which log whole requests."""
AMBIENT_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
"""A variable with headers that the SDK would send to every server."""


def api_version(model: Model) -> str:
    """Return the API version of the entry: its option ``anthropic_version``, or the default."""
    return str(model.options.get("anthropic_version", VERSION))


def check_sdk(model: Model) -> None:
    """Raise :class:`ConfigError` if the SDK is not installed."""
    with required_extra("anthropic", f"model {model.name!r}: Anthropic"):
        import anthropic  # noqa: F401


def clients_of(
    base_url: str, key: str, version: str, limits: BodyLimits | None = None
) -> EventLoopClients[Anthropic, AsyncAnthropic]:
    """Create the clients of one server, with the SDK's retries and its tracing disabled; ``limits`` of a response's size."""
    keep_quiet(*LOGGERS)

    def load() -> tuple[Any, Any, str, Mapping[str, Any]]:
        from anthropic import Anthropic, AsyncAnthropic, DefaultHttpxClient

        settings = {"api_key": key, "base_url": base_url, **_settings(base_url, key, version)}
        return Anthropic, AsyncAnthropic, library_of(DefaultHttpxClient), settings

    return sdk_clients(load, limits)


def _settings(base_url: str, key: str, version: str) -> dict[str, Any]:
    """The key goes into the header that every version of the API and every server with its protocol knows."""
    from anthropic import Omit

    headers = {} if base_url.startswith(HOME) else _elsewhere()
    headers |= {"anthropic-version": version, "x-api-key": key, "Authorization": Omit()}
    return {"max_retries": 0, "open_telemetry": False, "default_headers": headers}


def _elsewhere() -> dict[str, Any]:
    """Headers for other servers than Anthropic's: they suppress those that the SDK reads from the environment."""
    from anthropic import Omit

    lines = os.environ.get(AMBIENT_HEADERS, "").split("\n")
    return {line.partition(":")[0].strip(): Omit() for line in lines if ":" in line}


def timeout_of(model: Model) -> Timeout:
    """Return the timeouts: seconds to connect, and for the whole attempt (see :mod:`vinelm.backends.http.deadline`)."""
    from anthropic import Timeout

    return Timeout(model.timeout_s, connect=min(model.timeout_s, CONNECT_TIMEOUT_S))


# -- rehearsals --------------------------------------------------------------------------------------------------

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
