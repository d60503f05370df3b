"""Clients of the anthropic SDK, one set per server and key."""

from __future__ import annotations

import os
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from vinelm.backends.http.clients import async_http_client, http_client, library_of
from vinelm.backends.http.deadline import CONNECT_TIMEOUT_S
from vinelm.backends.openai.client import named_key
from vinelm.backends.remote.client_pool import EventLoopClients, SdkTransport, keep_quiet
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


class AnthropicSdkTransport(SdkTransport["Anthropic", "AsyncAnthropic"]):
    """Base of the transport: its clients."""

    def _made(self, model: Model) -> EventLoopClients[Anthropic, AsyncAnthropic]:
        key = named_key(model, KEY_ENV)  # read outside of the cache: a missing key must not be cached
        return clients_of(model.api_base or HOME, key, api_version(model))

    def _place(self, model: Model) -> Hashable:
        return (model.api_base, model.api_key_env, api_version(model))


def api_version(model: Model) -> str:
    """Return the API version of the entry: its option ``anthropic_version``, or the default."""
    return str(model.options.get("anthropic_version", VERSION))


def check_sdk(model: Model) -> None:
    """Raise :class:`ConfigError` if the SDK is not installed."""
    with required_extra("anthropic", f"model {model.name!r}: Anthropic"):
        import anthropic  # noqa: F401


def clients_of(base_url: str, key: str, version: str) -> EventLoopClients[Anthropic, AsyncAnthropic]:
    """Create the clients of one server, with the SDK's retries and its tracing disabled."""
    keep_quiet(*LOGGERS)

    def make() -> tuple[Anthropic, Any]:
        from anthropic import Anthropic, DefaultHttpxClient

        http = http_client(library_of(DefaultHttpxClient))
        client = Anthropic(api_key=key, base_url=base_url, http_client=http, **_settings(base_url, key, version))
        return client, client.close

    def amake() -> tuple[AsyncAnthropic, Any]:
        from anthropic import AsyncAnthropic, DefaultHttpxClient

        http = async_http_client(library_of(DefaultHttpxClient))
        client = AsyncAnthropic(api_key=key, base_url=base_url, http_client=http, **_settings(base_url, key, version))
        return client, client.close

    return EventLoopClients(make, amake)


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
