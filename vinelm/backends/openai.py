"""OpenAI and every server that speaks its chat completions: vLLM, SGLang, ... by ``api_base``. Spends money."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from vinelm.backends.answer import Delta
from vinelm.backends.limits import Gate, gates
from vinelm.backends.openai_clients import Clients, api_key
from vinelm.backends.openai_reply import FINISH_FAILURES, begun, delta_of, failed
from vinelm.backends.openai_request import check_options, completion_request, upper_bound_usd
from vinelm.backends.provider import Setup
from vinelm.backends.remote import Connection, RemoteChatModel, WireRequest
from vinelm.backends.retry import SETTINGS, AttemptFailed, RetryPolicy
from vinelm.catalog import Model
from vinelm.errors import ConfigError, FailureKind
from vinelm.protocols import CallContext

CONNECT_TIMEOUT_S = 15.0


class OpenAIBackend:
    """Chat models over the openai SDK, whose own retries are off: they would hide in the latency.

    An entry's ``options`` go into the request's body as they are, so that servers' own parameters (``top_k``,
    ``chat_template_kwargs``) work; unknown ones are for the server to refuse. ``streams``: whole answers are streamed too,
    for their time to first token. Keys are read from the environment at the first call. Thread-safe.
    """

    is_simulated = False
    is_virtual_time = False

    def __init__(
        self,
        models: Sequence[Model],
        gates: Mapping[str, Gate],
        *,
        policy: RetryPolicy | None = None,
        streams: bool = True,
    ) -> None:
        self._models = tuple(models)
        self._gates = gates
        self._policy = policy or RetryPolicy()
        self._streams = streams
        self._wire = OpenAIWire()
        self._has_keys = False

    @property
    def gates(self) -> Mapping[str, Gate]:
        """The limits of its engines, by engine: whoever runs units in processes of their own holds the calls back here."""
        return self._gates

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """A chat model for one invocation. :class:`ConfigError` if the key of any of the backend's models is missing."""
        if not self._has_keys:  # before the first dollar, not in the middle of a run
            for entry in self._models:
                api_key(entry)
            self._has_keys = True
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
        return upper_bound_usd(model, completion_request(model, messages, options, is_streamed=True).body)

    def context_tokens(self, model: Model) -> int | None:
        """See :class:`vinelm.backends.checkup.KnowsContext`. vLLM and SGLang say it, OpenAI does not."""
        return self._wire.context_tokens(model)

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        self._wire.close()


class OpenAIWire:
    """The two thin shells around the SDK; see :class:`vinelm.backends.remote.Wire`."""

    finish_failures: Mapping[str, FailureKind] = FINISH_FAILURES

    def __init__(self) -> None:
        self._clients: dict[tuple[str | None, str | None], Clients] = {}
        self._lock = threading.Lock()

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> WireRequest:
        """The body of the completion."""
        return completion_request(model, messages, options, is_streamed=is_streamed)

    def connect(self, model: Model) -> None:
        """Make the client."""
        self._of(model).sync()

    async def aconnect(self, model: Model) -> None:
        """Make the event loop's client."""
        await self._of(model).asynchronous()

    def send(self, model: Model, request: WireRequest) -> Generator[Delta]:
        """One attempt."""
        completions = self._of(model).sync().chat.completions
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

    async def asend(self, model: Model, request: WireRequest) -> AsyncGenerator[Delta]:
        """The same for a coroutine."""
        client = await self._of(model).asynchronous()
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
            for listed in self._of(model).sync().models.list(timeout=CONNECT_TIMEOUT_S).data:
                if listed.id == model.model_id:
                    tokens = getattr(listed, "max_model_len", None)
        return tokens if isinstance(tokens, int) else None

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        with self._lock:
            for clients in self._clients.values():
                clients.close()

    def _of(self, model: Model) -> Clients:
        place = (model.api_base, model.api_key_env)
        with self._lock:
            if place not in self._clients:
                self._clients[place] = Clients(model.api_base, api_key(model))
            return self._clients[place]


def drained(response: Any) -> None:
    """Read past the last chunk, which has the usage: the SDK stops at ``[DONE]`` and its synchronous client then gives up a
    connection that is as good as new (its asynchronous one drains).
    """
    with suppress(Exception):  # the answer is whole, only the connection is lost
        for _ in response.stream:
            pass


def _arguments(model: Model, request: WireRequest) -> dict[str, Any]:
    """All but the messages goes by ``extra_body``: the same JSON whatever parameters the installed SDK knows by name."""
    from openai import Timeout

    body = dict(request.body)
    return {
        "model": model.model_id,
        "messages": body.pop("messages"),
        "stream": request.is_streamed,
        "extra_body": body,
        "timeout": Timeout(model.timeout_s, connect=min(model.timeout_s, CONNECT_TIMEOUT_S)),
    }


def create(setup: Setup) -> OpenAIBackend:
    """The backend for a catalog's OpenAI-compatible models. Makes no call and reads no key.

    Settings: ``limits`` (per engine: ``requests_per_min``, ``tokens_per_min``, ``concurrency``), ``stream`` (default true),
    ``max_retries``, ``backoff_s``, ``max_wait_s``. :class:`ConfigError` names what does not fit.
    """
    setup.refuse_unknown("limits", "stream", *SETTINGS)
    for model in setup.models:
        check_options(model, model.options)
        if model.api_base is not None and not model.api_base.startswith(("http://", "https://")):
            raise ConfigError(f"model {model.name!r}: api_base is {model.api_base!r}: it must start with http:// or https://")
        if model.api_base is None and model.api_key_env is None:
            api_key(model)  # says what is missing
    return OpenAIBackend(setup.models, gates(setup), policy=RetryPolicy.of(setup), streams=setup.setting("stream", bool, True))
