"""Clients of the openai SDK, one set per server and key; and some that answer from memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vinelm.backends.http.answer_body import BodyLimits
from vinelm.backends.http.clients import answering_client, library_of_openai, sdk_clients
from vinelm.backends.http.deadline import CONNECT_TIMEOUT_S
from vinelm.backends.http.sdk_transport import SdkTransport
from vinelm.backends.http.transport import tls_context
from vinelm.backends.remote.client_pool import ClientPool, EventLoopClients, keep_quiet, rehearsing_pool
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

    def load() -> tuple[Any, Any, str, Mapping[str, Any]]:
        from openai import AsyncOpenAI, OpenAI

        settings = {} if base_url.startswith("https://api.openai.com/") else {"default_headers": elsewhere()}
        given = {"api_key": key, "base_url": base_url, "max_retries": 0, **settings}
        return OpenAI, AsyncOpenAI, library_of_openai(), given

    return sdk_clients(load, limits)


def elsewhere() -> dict[str, Any]:
    """Return headers for other servers than OpenAI's: they suppress the account that the SDK reads from the environment."""
    from openai import Omit

    return {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}


def timeout_of(model: Model) -> Timeout:
    """Return the timeouts: seconds to connect, and for the whole attempt (see :mod:`vinelm.backends.http.deadline`)."""
    from openai import Timeout

    return Timeout(model.timeout_s, connect=min(model.timeout_s, CONNECT_TIMEOUT_S))


# -- rehearsals --------------------------------------------------------------------------------------------------


def rehearsing_clients(
    whole: Mapping[str, Any], *events: Mapping[str, Any]
) -> ClientPool[EventLoopClients[OpenAI, AsyncOpenAI]]:
    """Return a pool of synchronous clients: whole calls are answered with ``whole``, streamed ones with ``events``."""
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"

    def make() -> tuple[OpenAI, Callable[[], None]]:
        from openai import OpenAI

        library = library_of_openai()
        tls_context(library)  # for the asynchronous clients: a synchronous one is made before the first call
        http = answering_client(library, whole, stream)
        client = OpenAI(api_key=NO_KEY, base_url="http://rehearsal.invalid/v1", max_retries=0, http_client=http)
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
