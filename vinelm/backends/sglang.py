"""SGLang by its own ``/generate``: priorities, cached tokens, flushes. For tools or images: its ``/v1`` (provider openai)."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from vinelm.backends.answer import Delta
from vinelm.backends.limits import Gate, gates
from vinelm.backends.openai import CONNECT_TIMEOUT_S, drained
from vinelm.backends.openai_clients import Clients, api_key
from vinelm.backends.openai_reply import begun
from vinelm.backends.provider import Setup
from vinelm.backends.remote import Connection, RemoteChatModel, WireRequest
from vinelm.backends.retry import SETTINGS, AttemptFailed, RetryPolicy
from vinelm.backends.sglang_reply import FINISH_FAILURES, Reader, failed
from vinelm.backends.sglang_request import check_options, generate_request, upper_bound_usd
from vinelm.catalog import Model
from vinelm.errors import ConfigError, FailureKind
from vinelm.protocols import CallContext


class SGLangBackend:
    """Chat models on SGLang engines, over the openai SDK's HTTP client. Thread-safe.

    An entry's option ``chat_template`` makes text of messages; ``priority`` needs ``--enable-priority-scheduling``; what
    is not of the request itself is a sampling parameter.
    """

    is_simulated = False
    is_virtual_time = False

    def __init__(self, gates: Mapping[str, Gate], *, policy: RetryPolicy | None = None, streams: bool = True) -> None:
        self._gates = gates
        self._policy = policy or RetryPolicy()
        self._streams = streams
        self._wire = SGLangWire()

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """A chat model for one invocation. :class:`ConfigError` if its key is missing."""
        api_key(model)
        return RemoteChatModel.bound(
            Connection(
                wire=self._wire,
                model=model,
                call=call,
                gate=self._gates[model.engine],
                policy=self._policy,
                streams=self._streams,
                upper_bound_usd=upper_bound_usd,
            )
        )

    def upper_bound_usd(self, model: Model, messages: Sequence[BaseMessage], **options: Any) -> float:
        """See :class:`vinelm.protocols.PricesCalls`."""
        return upper_bound_usd(model, generate_request(model, messages, options, is_streamed=True).body)

    def flush_cache(self, model: Model) -> bool:
        """Empty the engine's prefix cache. False where it is busy (it then keeps its cache) or does not answer."""
        with suppress(Exception):
            self._wire.client(model).post("/flush_cache", cast_to=str, options={"timeout": CONNECT_TIMEOUT_S})
            return True
        return False

    def context_tokens(self, model: Model) -> int | None:
        """See :class:`vinelm.backends.checkup.KnowsContext`."""
        plain: Any = None
        with suppress(Exception):
            plain = self._wire.client(model).get("/get_server_info", cast_to=object, options={"timeout": CONNECT_TIMEOUT_S})
        known = plain if isinstance(plain, Mapping) else {}
        found = known.get("context_length") or known.get("max_req_input_len")
        return found if isinstance(found, int) else None

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        self._wire.close()


class SGLangWire:
    """The two thin shells around the HTTP client; see :class:`vinelm.backends.remote.Wire`."""

    finish_failures: Mapping[str, FailureKind] = FINISH_FAILURES

    def __init__(self) -> None:
        self._clients: dict[tuple[str | None, str | None], Clients] = {}
        self._lock = threading.Lock()

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> WireRequest:
        """The body of the generation."""
        return generate_request(model, messages, options, is_streamed=is_streamed)

    def connect(self, model: Model) -> None:
        """Make the client."""
        self.client(model)

    async def aconnect(self, model: Model) -> None:
        """Make the event loop's client."""
        await self._of(model).asynchronous()

    def client(self, model: Model) -> Any:
        """The synchronous client of the model's server."""
        return self._of(model).sync()

    def send(self, model: Model, request: WireRequest) -> Generator[Delta]:
        """One attempt."""
        from openai import Stream

        client, reader = self.client(model), _reader(model)
        if not request.is_streamed:
            yield reader.delta(client.post("/generate", cast_to=object, body=request.body, options=_options(model)))
            return
        arguments = {"cast_to": object, "body": request.body, "options": _options(model)}
        with closing(client.post("/generate", **arguments, stream=True, stream_cls=Stream[object])) as events:
            yield begun(events.response.headers, is_streamed=True)
            for event in events:
                delta = reader.delta(event)
                yield delta
                if delta.finish_reason is not None:
                    drained(events.response)
                    return

    async def asend(self, model: Model, request: WireRequest) -> AsyncGenerator[Delta]:
        """The same for a coroutine."""
        from openai import AsyncStream

        client: Any = await self._of(model).asynchronous()
        reader = _reader(model)
        if not request.is_streamed:
            yield reader.delta(await client.post("/generate", cast_to=object, body=request.body, options=_options(model)))
            return
        arguments: dict[str, Any] = {"cast_to": object, "body": request.body, "options": _options(model)}
        events = await client.post("/generate", **arguments, stream=True, stream_cls=AsyncStream[object])
        try:
            yield begun(events.response.headers, is_streamed=True)
            async for event in events:
                yield reader.delta(event)
        finally:
            await events.response.aclose()

    def failed(self, error: Exception) -> AttemptFailed | None:
        """What an exception of the HTTP client means."""
        return failed(error)

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        with self._lock:
            for clients in self._clients.values():
                clients.close()

    def _of(self, model: Model) -> Clients:
        place = (model.api_base, model.api_key_env)
        with self._lock:
            if place not in self._clients:
                base = str(model.api_base).rstrip("/").removesuffix("/v1")
                self._clients[place] = Clients(base, api_key(model))
            return self._clients[place]


def _reader(model: Model) -> Reader:
    return Reader(is_incremental=bool(model.options.get("incremental_stream", False)))


def _options(model: Model) -> dict[str, Any]:
    from openai import Timeout

    return {"timeout": Timeout(model.timeout_s, connect=min(model.timeout_s, CONNECT_TIMEOUT_S))}


def create(setup: Setup) -> SGLangBackend:
    """The backend for a catalog's SGLang models. Makes no call and reads no key.

    Settings as for OpenAI. :class:`ConfigError` names what does not fit.
    """
    setup.refuse_unknown("limits", "stream", *SETTINGS)
    for model in setup.models:
        check_options(model, model.options)
        if model.api_base is None or not model.api_base.startswith(("http://", "https://")):
            raise ConfigError(
                f'model {model.name!r}: api_base is {model.api_base!r}: say where the engine is: "http://host:30000"'
            )
    return SGLangBackend(gates(setup), policy=RetryPolicy.of(setup), streams=setup.setting("stream", bool, True))
