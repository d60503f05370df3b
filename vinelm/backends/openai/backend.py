"""OpenAI and every server that speaks its chat completions: vLLM, SGLang, ... by ``api_base``. Spends money."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.openai.client import CONNECT_TIMEOUT_S, OpenAIClientWire, named_key, timeout_of
from vinelm.backends.openai.request import check_options, completion_request, upper_bound_usd
from vinelm.backends.openai.response import FINISH_FAILURES, begun, delta_of, failed
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.backends.remote.transport import TransportRequest
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import FailureKind


class OpenAIWire(OpenAIClientWire):
    """The two thin shells around the SDK; see :class:`vinelm.backends.remote.transport.Transport`."""

    finish_failures: Mapping[str, FailureKind] = FINISH_FAILURES

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> TransportRequest:
        """The body of the completion."""
        return completion_request(model, messages, options, is_streamed=is_streamed)

    def upper_bound_usd(self, model: Model, body: Mapping[str, Any]) -> float:
        """Dollars that a call with that body cannot exceed."""
        return upper_bound_usd(model, body)

    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """One attempt."""
        completions = self.clients.of(model).sync().chat.completions
        raw = completions.with_raw_response.create(**_arguments(model, request))
        try:
            yield begun(raw.headers, is_streamed=request.is_streamed)
            parsed = raw.parse()
            if not request.is_streamed:
                yield delta_of(parsed, is_streamed=False)
                return
            with closing(parsed) as chunks:
                for chunk in chunks:
                    yield delta_of(chunk, is_streamed=True)
                    if chunk.usage is not None and not chunk.choices:
                        drained(raw.http_response)
                        break
        finally:
            raw.http_response.close()

    async def asend(self, model: Model, request: TransportRequest) -> AsyncGenerator[Delta]:
        """The same for a coroutine."""
        client = await self.clients.of(model).asynchronous()
        raw = await client.chat.completions.with_raw_response.create(**_arguments(model, request))
        try:
            yield begun(raw.headers, is_streamed=request.is_streamed)
            parsed = raw.parse()
            if not request.is_streamed:
                yield delta_of(parsed, is_streamed=False)
                return
            async for chunk in parsed:
                yield delta_of(chunk, is_streamed=True)
        finally:
            await raw.http_response.aclose()

    def failed(self, error: Exception) -> AttemptFailed | None:
        """What an exception of the SDK means."""
        return failed(error)

    def context_tokens(self, model: Model) -> int | None:
        """Tokens of prompt and answer together, if the list of models has them."""
        if model.api_base is None:
            return None
        tokens = None
        with suppress(Exception):  # a server need not have that list
            for listed in self.clients.of(model).sync().models.list(timeout=CONNECT_TIMEOUT_S).data:
                if listed.id == model.model_id:
                    tokens = getattr(listed, "max_model_len", None)
        return tokens if isinstance(tokens, int) else None


class OpenAIBackend(RemoteBackend[OpenAIWire]):
    """Chat models over the openai SDK.

    An entry's ``options`` go into the request's body as they are, so that servers' own parameters (``top_k``,
    ``chat_template_kwargs``) work; unknown ones are for the server to refuse.
    """

    def context_tokens(self, model: Model) -> int | None:
        """See :class:`vinelm.backends.diagnostics.KnowsContext`. vLLM and SGLang say it, OpenAI does not."""
        return self.wire.context_tokens(model)


def drained(response: Any) -> None:
    """Read past the last chunk, which has the usage: the SDK stops at ``[DONE]`` and its synchronous client then gives up a
    connection that is as good as new (its asynchronous one drains).
    """
    with suppress(Exception):  # the answer is whole, only the connection is lost
        for _ in response.stream:
            pass


def _arguments(model: Model, request: TransportRequest) -> dict[str, Any]:
    """All but the messages goes by ``extra_body``: the same JSON whatever parameters the installed SDK knows by name."""
    body = dict(request.body)
    return {
        "model": model.model_id,
        "messages": body.pop("messages"),
        "stream": request.is_streamed,
        "extra_body": body,
        "timeout": timeout_of(model),
    }


def create(setup: ProviderSettings) -> OpenAIBackend:
    """The backend for a catalog's OpenAI-compatible models. Makes no call. :class:`ConfigError` names what does not fit."""
    for model in setup.models:
        check_options(model, model.options)
        check_base(model)
        if model.api_base is None and model.api_key_env is None:
            named_key(model, "OPENAI_API_KEY")  # says what is missing
    return OpenAIBackend(setup, OpenAIWire())
