"""Claude models on Anthropic's Messages API over its SDK (extra ``anthropic``). Calls spend money."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.anthropic.client import KEY_ENV, AnthropicSdkTransport, check_sdk, timeout_of
from vinelm.backends.anthropic.messages import Thinking
from vinelm.backends.anthropic.rehearsal import rehearsing_clients
from vinelm.backends.anthropic.request import attempt_bound, check_options, message_request
from vinelm.backends.anthropic.response import FINISH_FAILURES, MessageReader, begun, failed
from vinelm.backends.http.deadline import CONNECT_TIMEOUT_S
from vinelm.backends.openai.backend import adrained, drained
from vinelm.backends.openai.client import named_key
from vinelm.backends.remote.attempt_bound import AttemptBound
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.remote.call_memory import CallMemory
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.backends.remote.transport import TransportRequest
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import FailureKind


class AnthropicTransport(AnthropicSdkTransport):
    """The transport over the SDK; see :class:`vinelm.backends.remote.transport.Transport`."""

    finish_failures: Mapping[str, FailureKind] = FINISH_FAILURES

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

    def attempt_bound(self, model: Model, body: Mapping[str, Any]) -> AttemptBound:
        """Return the most tokens that one attempt can cost."""
        return attempt_bound(body)

    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """Make one attempt."""
        reader = MessageReader(model.model_id, self._thinking)
        raw = self.clients.of(model).sync().messages.with_raw_response.create(**_arguments(model, request))
        try:
            yield begun(raw.headers, is_streamed=request.is_streamed)
            parsed = raw.parse()
            if not request.is_streamed:
                yield reader.whole(parsed)
                return
            with closing(parsed) as events:
                for event in events:
                    yield reader.delta(event)
                    if event.type == "message_stop":
                        drained(raw.http_response)
                        break
        finally:
            raw.http_response.close()

    async def asend(self, model: Model, request: TransportRequest) -> AsyncGenerator[Delta]:
        """Like :meth:`send`, for a coroutine."""
        reader = MessageReader(model.model_id, self._thinking)
        client = await self.clients.of(model).asynchronous()
        raw = await client.messages.with_raw_response.create(**_arguments(model, request))
        try:
            yield begun(raw.headers, is_streamed=request.is_streamed)
            parsed = await raw.parse()
            if not request.is_streamed:
                yield reader.whole(parsed)
                return
            async for event in parsed:
                yield reader.delta(event)
                if event.type == "message_stop":
                    await adrained(raw.http_response)
                    break
        finally:
            await raw.http_response.aclose()

    def failed(self, error: Exception) -> AttemptFailed | None:
        """Translate an exception of the SDK."""
        return failed(error)

    def rehearsal(self) -> AnthropicTransport:
        """See :class:`vinelm.backends.remote.rehearsal.Rehearses`."""
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


class AnthropicBackend(RemoteBackend[AnthropicTransport]):
    """Chat models on Anthropic's Messages API, and on servers with that API by ``api_base``.

    A catalog entry's ``options`` are parameters of the API (``temperature``, ``thinking``, ...), which rejects unknown ones.
    """

    def context_tokens(self, model: Model) -> int | None:
        """See :class:`vinelm.backends.diagnostics.KnowsContext`."""
        return self.transport.context_tokens(model)


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


def create(settings: ProviderSettings) -> AnthropicBackend:
    """Create the backend of the catalog's Anthropic models. Makes no call. :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        check_options(model, model.options)
        check_base(model)
    return AnthropicBackend(settings, AnthropicTransport())
