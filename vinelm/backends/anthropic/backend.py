"""Claude models on Anthropic's Messages API over its SDK (extra ``anthropic``). Calls spend money."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langchain_core.messages import BaseMessage

from vinelm.backends.anthropic.batches import AnthropicBatches
from vinelm.backends.anthropic.cache_marks import marked, prompt_parts
from vinelm.backends.anthropic.client import HOME, KEY_ENV, api_version, check_sdk, clients_of, rehearsing_clients, timeout_of
from vinelm.backends.anthropic.messages import Thinking
from vinelm.backends.anthropic.request import attempt_bound, check_options, message_request
from vinelm.backends.anthropic.response import FINISH_FAILURES, MessageReader, begun, failed
from vinelm.backends.http.deadline import CONNECT_TIMEOUT_S
from vinelm.backends.http.sdk_transport import RawSdkTransport
from vinelm.backends.openai.client import named_key
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.remote.client_pool import EventLoopClients
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.transport import TransportRequest
from vinelm.backends.settings import ProviderSettings
from vinelm.backends.turns import CallMemory
from vinelm.catalog import Model

if TYPE_CHECKING:
    from anthropic import Anthropic, AsyncAnthropic


class AnthropicTransport(RawSdkTransport["Anthropic", "AsyncAnthropic"]):
    """The transport over the SDK, for Anthropic and for servers with its API by ``api_base``.

    A catalog entry's ``options`` are parameters of the API (``temperature``, ``thinking``, ...), which rejects unknown ones.
    """

    finish_failures = FINISH_FAILURES
    takes_marks = True
    attempt_bound = staticmethod(attempt_bound)
    prompt_parts = staticmethod(prompt_parts)
    failed = staticmethod(failed)
    _begun = staticmethod(begun)

    def __init__(self) -> None:
        super().__init__()
        self._thinking: CallMemory[Thinking] = CallMemory()

    def check(self, model: Model) -> None:
        """Raise :class:`ConfigError` if the model's key or the SDK is missing."""
        named_key(model, KEY_ENV)
        check_sdk(model)

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> TransportRequest:
        """Build the body of the request."""
        return message_request(model, messages, options, self._thinking, is_streamed=is_streamed)

    def marked(self, model: Model, body: Mapping[str, Any], marks: Collection[int], first: int) -> Mapping[str, Any]:
        """Return a copy of the body with cache marks."""
        return marked(body, marks)

    def _made(self, model: Model) -> EventLoopClients[Anthropic, AsyncAnthropic]:
        key = named_key(model, KEY_ENV)  # read outside of the cache: a missing key must not be cached
        return clients_of(model.api_base or HOME, key, api_version(model))

    def _place(self, model: Model) -> Hashable:
        return (model.api_base, model.api_key_env, api_version(model))

    def _parser(self, model: Model, request: TransportRequest) -> Callable[[Any], Delta]:
        reader = MessageReader(model.model_id, self._thinking)
        return reader.delta if request.is_streamed else reader.whole

    @staticmethod
    def _calls(client: Any) -> Any:
        return client.messages

    @staticmethod
    def _arguments(model: Model, request: TransportRequest) -> dict[str, Any]:
        """Pass most of the request as ``extra_body``, so that the JSON does not depend on the SDK's version."""
        body = dict(request.body)
        arguments: dict[str, Any] = {
            "model": model.model_id,
            "messages": body.pop("messages"),
            "max_tokens": body.pop("max_tokens"),
            "stream": request.is_streamed,
            "timeout": timeout_of(model),
        }
        if betas := body.pop("betas", None):
            arguments["extra_headers"] = {"anthropic-beta": betas if isinstance(betas, str) else ",".join(betas)}
        return {**arguments, "extra_body": body}

    @staticmethod
    def _is_last(piece: Any) -> bool:
        return bool(piece.type == "message_stop")

    def batches(self) -> AnthropicBatches:
        """See :class:`vinelm.backends.remote.transport.Transport`."""
        return AnthropicBatches(self._thinking)

    def rehearsal(self) -> AnthropicTransport:
        """See :class:`vinelm.backends.remote.transport.Transport`."""
        twin = type(self)()
        twin.clients = rehearsing_clients()
        return twin

    def context_tokens(self, model: Model) -> int | None:
        """Return the longest prompt in tokens, if the server says so."""
        with suppress(Exception):  # not every server has this list
            told = self.clients.of(model).sync().models.retrieve(model.model_id, timeout=CONNECT_TIMEOUT_S)
            tokens = getattr(told, "max_input_tokens", None)
            return tokens if isinstance(tokens, int) else None
        return None


def create(settings: ProviderSettings) -> RemoteBackend[AnthropicTransport]:
    """Create the backend of the catalog's Anthropic models. Makes no call. :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        check_options(model, model.options)
        check_base(model)
    return RemoteBackend(settings, AnthropicTransport())
