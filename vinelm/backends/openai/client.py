"""Clients of the openai SDK, one set per server and key."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vinelm.backends.http.answer_body import BodyLimits
from vinelm.backends.http.clients import async_http_client, http_client, library_of_openai
from vinelm.backends.http.deadline import CONNECT_TIMEOUT_S
from vinelm.backends.remote.client_pool import EventLoopClients, SdkTransport, keep_quiet
from vinelm.catalog import Model
from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI, Timeout

NO_KEY = "none"
"""The key sent to a server that needs none, instead of one that the SDK finds in the environment."""
LOGGERS = ("openai._base_client",)
"""Loggers of the SDK, whose older versions log whole requests."""


def named_key(model: Model, example: str) -> str:
    """Return the key from the environment variable of the entry; :class:`ConfigError` if it names none or it is not set."""
    if model.api_key_env is None:
        raise ConfigError(f'model {model.name!r}: no api_key_env: name the variable of the key, such as "{example}"')
    key = os.environ.get(model.api_key_env, "").strip()
    if not key:
        raise ConfigError(f"model {model.name!r}: environment variable {model.api_key_env} is not set: put the API key there")
    return key


def api_key(model: Model) -> str:
    """Return the entry's key, or a placeholder for a server of one's own without keys."""
    if model.api_key_env is None and model.api_base is not None:
        return NO_KEY
    return named_key(model, "OPENAI_API_KEY")


class OpenAISdkTransport(SdkTransport["OpenAI", "AsyncOpenAI"]):
    """Base of transports that use the openai SDK's HTTP client."""

    body_limits = BodyLimits()
    """The largest response."""

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the entry's key is missing."""
        api_key(model)

    def _made(self, model: Model) -> EventLoopClients[OpenAI, AsyncOpenAI]:
        key = api_key(model)  # read outside of the cache: a missing key must not be cached
        return clients_of(self._base(model), key, self.body_limits)

    def _base(self, model: Model) -> str:
        return model.api_base or "https://api.openai.com/v1"


def clients_of(base_url: str, key: str, limits: BodyLimits) -> EventLoopClients[OpenAI, AsyncOpenAI]:
    """Create the clients of one server, with the SDK's retries disabled."""
    keep_quiet(*LOGGERS)

    def make() -> tuple[OpenAI, Any]:
        from openai import OpenAI

        http = http_client(library_of_openai(), limits)
        client = OpenAI(api_key=key, base_url=base_url, http_client=http, **_settings(base_url))
        return client, client.close

    def amake() -> tuple[AsyncOpenAI, Any]:
        from openai import AsyncOpenAI

        http = async_http_client(library_of_openai(), limits)
        client = AsyncOpenAI(api_key=key, base_url=base_url, http_client=http, **_settings(base_url))
        return client, client.close

    return EventLoopClients(make, amake)


def _settings(base_url: str) -> dict[str, Any]:
    if base_url.startswith("https://api.openai.com/"):
        return {"max_retries": 0}
    return {"max_retries": 0, "default_headers": elsewhere()}


def elsewhere() -> dict[str, Any]:
    """Return headers for other servers than OpenAI's: they suppress the account that the SDK reads from the environment."""
    from openai import Omit

    return {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}


def timeout_of(model: Model) -> Timeout:
    """Return the timeouts: seconds to connect, and for the whole attempt (see :mod:`vinelm.backends.http.deadline`)."""
    from openai import Timeout

    return Timeout(model.timeout_s, connect=min(model.timeout_s, CONNECT_TIMEOUT_S))
