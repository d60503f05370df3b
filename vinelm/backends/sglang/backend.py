"""SGLang by its native ``/generate``: priorities, cached tokens, cache flushes. For tools or images use provider openai."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.http.answer_body import BodyLimits
from vinelm.backends.http.deadline import CONNECT_TIMEOUT_S
from vinelm.backends.http.sdk_transport import adrained, drained
from vinelm.backends.openai.client import OpenAISdkTransport, rehearsing_clients, timeout_of
from vinelm.backends.openai.response import begun
from vinelm.backends.remote.backend import RemoteBackend, check_base
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.transport import TransportRequest
from vinelm.backends.settings import ProviderSettings
from vinelm.backends.sglang.request import attempt_bound, check_options, generate_request
from vinelm.backends.sglang.response import FINISH_FAILURES, SGLangStreamReader, failed
from vinelm.catalog import Model
from vinelm.errors import ConfigError

_ANSWER = {
    "text": "yes",
    "meta_info": {"id": "rehearsal", "finish_reason": {"type": "stop"}, "prompt_tokens": 1, "completion_tokens": 1},
}
"""An answer of the engine, for rehearsals."""
WHERE = 'say where the engine is: "http://host:30000"'


class SGLangTransport(OpenAISdkTransport):
    """The transport over the openai SDK's HTTP client."""

    finish_failures = FINISH_FAILURES
    attempt_bound = staticmethod(attempt_bound)
    failed = staticmethod(failed)
    body_limits = BodyLimits(stream=None)  # each event repeats the text so far

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> TransportRequest:
        """Build the body of the generation."""
        return generate_request(model, messages, options, is_streamed=is_streamed)

    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """Make one attempt."""
        from openai import Stream

        client: Any = self.clients.of(model).sync()
        reader = _reader(model)
        if not request.is_streamed:
            yield reader.delta(client.post("/generate", **_arguments(model, request)))
            return
        with closing(client.post("/generate", **_arguments(model, request), stream=True, stream_cls=Stream[object])) as events:
            yield begun(events.response.headers, is_streamed=True)
            for event in events:
                delta = reader.delta(event)
                yield delta
                if delta.finish_reason is not None:
                    drained(events.response)
                    return

    async def asend(self, model: Model, request: TransportRequest) -> AsyncGenerator[Delta]:
        """Like :meth:`send`, for a coroutine."""
        from openai import AsyncStream

        client: Any = await self.clients.of(model).asynchronous()
        reader = _reader(model)
        if not request.is_streamed:
            yield reader.delta(await client.post("/generate", **_arguments(model, request)))
            return
        events = await client.post("/generate", **_arguments(model, request), stream=True, stream_cls=AsyncStream[object])
        try:
            yield begun(events.response.headers, is_streamed=True)
            async for event in events:
                delta = reader.delta(event)
                yield delta
                if delta.finish_reason is not None:
                    await adrained(events.response)
                    return
        finally:
            await events.response.aclose()

    def rehearsal(self) -> SGLangTransport:
        """See :class:`vinelm.backends.remote.transport.Transport`."""
        twin = type(self)()
        twin.clients = rehearsing_clients(_ANSWER, _ANSWER)
        return twin

    def ask(self, model: Model, method: str, path: str, kind: Any) -> Any:
        """Send an administrative request to the engine. Errors of the HTTP client are not translated."""
        client: Any = self.clients.of(model).sync()
        return getattr(client, method)(path, cast_to=kind, options={"timeout": CONNECT_TIMEOUT_S})

    def context_tokens(self, model: Model) -> int | None:
        """Return the context length that the engine reports."""
        plain: Any = None
        with suppress(Exception):
            plain = self.ask(model, "get", "/get_server_info", object)
        known = plain if isinstance(plain, Mapping) else {}
        found = known.get("context_length") or known.get("max_req_input_len")
        return found if isinstance(found, int) else None

    def _base(self, model: Model) -> str:
        return str(model.api_base).rstrip("/").removesuffix("/v1")


class SGLangBackend(RemoteBackend[SGLangTransport]):
    """Chat models on SGLang engines.

    In a catalog entry, the option ``chat_template`` renders messages as text, ``priority`` needs a server that was started
    with ``--enable-priority-scheduling``, and all options that are not fields of the request are sampling parameters.
    """

    def flush_cache(self, model: Model) -> bool:
        """Flush the engine's prefix cache. Returns False if the engine is busy or does not answer."""
        with suppress(Exception):
            self.transport.ask(model, "post", "/flush_cache", str)
            return True
        return False


def _arguments(model: Model, request: TransportRequest) -> dict[str, Any]:
    return {"cast_to": object, "body": request.body, "options": {"timeout": timeout_of(model)}}


def _reader(model: Model) -> SGLangStreamReader:
    return SGLangStreamReader(is_incremental=bool(model.options.get("incremental_stream", False)))


def create(settings: ProviderSettings) -> SGLangBackend:
    """Create the backend of the catalog's SGLang models. Makes no call. :class:`ConfigError` for invalid settings."""
    for model in settings.models:
        check_options(model, model.options)
        check_base(model, WHERE)
        if model.api_base is None:
            raise ConfigError(f"model {model.name!r}: api_base is None: {WHERE}")
    return SGLangBackend(settings, SGLangTransport())
