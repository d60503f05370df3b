"""Clients of the anthropic SDK, one set per server and key."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vinelm.backends.openai.client import CONNECT_TIMEOUT_S, named_key
from vinelm.backends.remote.client_pool import EventLoopClients, SdkTransport, keep_quiet
from vinelm.catalog import Model
from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic, Timeout

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
        return clients_of(model.api_base or HOME, key)


def check_sdk(model: Model) -> None:
    """Raise :class:`ConfigError` if the SDK is not installed."""
    try:
        import anthropic  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"model {model.name!r}: Anthropic needs its SDK: pip install 'vinelm[anthropic]'") from error


def clients_of(base_url: str, key: str) -> EventLoopClients[Anthropic, AsyncAnthropic]:
    """Create the clients of one server, with the SDK's retries and its tracing disabled."""
    keep_quiet(*LOGGERS)

    def make() -> tuple[Anthropic, Any]:
        from anthropic import Anthropic

        client = Anthropic(api_key=key, base_url=base_url, **_settings(base_url))
        return client, client.close

    def amake() -> tuple[AsyncAnthropic, Any]:
        from anthropic import AsyncAnthropic

        client = AsyncAnthropic(api_key=key, base_url=base_url, **_settings(base_url))
        return client, client.close

    return EventLoopClients(make, amake)


def _settings(base_url: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"max_retries": 0, "open_telemetry": False}
    if base_url.startswith(HOME):
        return settings
    return {**settings, "default_headers": _elsewhere()}


def _elsewhere() -> dict[str, Any]:
    """Headers for other servers than Anthropic's: they suppress those that the SDK reads from the environment."""
    from anthropic import Omit

    lines = os.environ.get(AMBIENT_HEADERS, "").split("\n")
    return {line.partition(":")[0].strip(): Omit() for line in lines if ":" in line}


def timeout_of(model: Model) -> Timeout:
    """Return the timeouts: seconds to connect, and between two pieces of a response."""
    from anthropic import Timeout

    return Timeout(model.timeout_s, connect=min(model.timeout_s, CONNECT_TIMEOUT_S))
