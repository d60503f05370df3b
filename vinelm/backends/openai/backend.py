"""OpenAI, and servers with its chat completions API (vLLM, SGLang, ...) by ``api_base``. Calls spend money."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.http.deadline import CONNECT_TIMEOUT_S
from vinelm.backends.http.transport import DEADLINE
from vinelm.backends.openai.client import OpenAISdkTransport, named_key, timeout_of
from vinelm.backends.openai.rehearsal import CHUNKS, COMPLETION, rehearsing_clients
from vinelm.backends.openai.request import attempt_bound, check_options, completion_request
from vinelm.backends.openai.response import FINISH_FAILURES, begun, delta_of, failed
from vinelm.backends.remote.attempt_bound import AttemptBound
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.backends.remote.transport import TransportRequest
from vinelm.backends.settings import ProviderSettings
from vinelm.catalog import Model
from vinelm.errors import FailureKind

DRAIN_S, DRAIN_PIECES = 0.25, 16
"""Seconds and pieces that a stream is given to end after its answer has."""


class OpenAITransport(OpenAISdkTransport):
    """The transport over the SDK; see :class:`vinelm.backends.remote.transport.Transport`."""

    finish_failures: Mapping[str, FailureKind] = FINISH_FAILURES

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> TransportRequest:
        """Build the body of the completion."""
        return completion_request(model, messages, options, is_streamed=is_streamed)

    def attempt_bound(self, model: Model, body: Mapping[str, Any]) -> AttemptBound:
        """Return the most tokens that one attempt can cost."""
        return attempt_bound(body)

    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """Make one attempt."""
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
                    if _is_last(chunk):
                        drained(raw.http_response)
                        break
        finally:
            raw.http_response.close()

    async def asend(self, model: Model, request: TransportRequest) -> AsyncGenerator[Delta]:
        """Like :meth:`send`, for a coroutine."""
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
                if _is_last(chunk):
                    await adrained(raw.http_response)
                    break
        finally:
            await raw.http_response.aclose()

    def failed(self, error: Exception) -> AttemptFailed | None:
        """Translate an exception of the SDK."""
        return failed(error)

    def rehearsal(self) -> OpenAITransport:
        """See :class:`vinelm.backends.remote.rehearsal.Rehearses`."""
        twin = type(self)()
        twin.clients = rehearsing_clients(COMPLETION, *CHUNKS)
        return twin

    def context_tokens(self, model: Model) -> int | None:
        """Return the context length in tokens, if the server's list of models has it."""
        if model.api_base is None:
            return None
        tokens = None
        with suppress(Exception):  # not every server has this list
            for listed in self.clients.of(model).sync().models.list(timeout=CONNECT_TIMEOUT_S).data:
                if listed.id == model.model_id:
                    tokens = getattr(listed, "max_model_len", None)
        return tokens if isinstance(tokens, int) else None


class OpenAIBackend(RemoteBackend[OpenAITransport]):
    """Chat models over the openai SDK.

    A catalog entry's ``options`` are added to the request's body unchanged, so that parameters of a server (``top_k``,
    ``chat_template_kwargs``) work; the server rejects unknown ones.
    """

    def context_tokens(self, model: Model) -> int | None:
        """See :class:`vinelm.backends.diagnostics.KnowsContext`. vLLM and SGLang report it, OpenAI does not."""
        return self.transport.context_tokens(model)


def drained(response: Any) -> None:
    """Read a stream to its end, so that the connection can be reused, unless the end does not come at once."""
    deadline = response.extensions.get(DEADLINE)
    with suppress(Exception):  # the answer is complete, only the connection is lost
        if deadline is not None:
            deadline.shorten(DRAIN_S)
        for _, _ in zip(range(DRAIN_PIECES), response.stream, strict=False):
            pass


async def adrained(response: Any) -> None:
    """Like :func:`drained`, for a coroutine."""
    pieces = 0
    with suppress(Exception):
        async with asyncio.timeout(DRAIN_S):
            async for _ in response.stream:
                pieces += 1
                if pieces >= DRAIN_PIECES:
                    break


def _is_last(chunk: Any) -> bool:
    """True if a chunk is the one with the usage, after which nothing of the answer follows."""
    return chunk.usage is not None and not chunk.choices


def _arguments(model: Model, request: TransportRequest) -> dict[str, Any]:
    """Pass everything but the messages as ``extra_body``, so that the JSON does not depend on the SDK's version."""
    body = dict(request.body)
    return {
        "model": model.model_id,
        "messages": body.pop("messages"),
        "stream": request.is_streamed,
        "extra_body": body,
        "timeout": timeout_of(model),
    }


def create(settings: ProviderSettings) -> OpenAIBackend:
    """Create the backend of the catalog's OpenAI-like models; :class:`ConfigError` for invalid settings. Makes no call."""
    for model in settings.models:
        check_options(model, model.options)
        check_base(model)
        if model.api_base is None and model.api_key_env is None:
            named_key(model, "OPENAI_API_KEY")  # raises if it is missing
    return OpenAIBackend(settings, OpenAITransport())
