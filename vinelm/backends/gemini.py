"""Google's Gemini API by google-genai (extra ``gemini``). Spends money."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from vinelm.backends.answer import Delta
from vinelm.backends.gemini_clients import GeminiClients, kept_responses
from vinelm.backends.gemini_reply import FINISH_FAILURES, Reader, failed
from vinelm.backends.gemini_request import check_options, content_request, upper_bound_usd
from vinelm.backends.gemini_signatures import Signatures
from vinelm.backends.limits import Gate, gates
from vinelm.backends.openai_reply import begun
from vinelm.backends.provider import Setup
from vinelm.backends.remote import Connection, RemoteChatModel, WireRequest
from vinelm.backends.retry import SETTINGS, AttemptFailed, RetryPolicy
from vinelm.catalog import Model
from vinelm.errors import ConfigError, FailureKind
from vinelm.protocols import CallContext


class GeminiBackend:
    """Chat models on the Gemini API. The key is read from the entry's ``api_key_env``; ``api_base`` is another endpoint.

    An entry's ``options`` go into the SDK's ``GenerateContentConfig`` (``temperature``, ``thinking_config``, ...). The SDK's
    retries and automatic function calls are off. Thread-safe.
    """

    is_simulated = False
    is_virtual_time = False

    def __init__(self, gates: Mapping[str, Gate], *, policy: RetryPolicy | None = None, streams: bool = True) -> None:
        self._gates = gates
        self._policy = policy or RetryPolicy()
        self._streams = streams
        self._wire = GeminiWire()

    def chat_model(self, model: Model, call: CallContext) -> BaseChatModel:
        """A chat model for one invocation. :class:`ConfigError` if its key, the SDK or an option is missing or unknown."""
        self._wire.check(model)
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
        return upper_bound_usd(model, self._wire.request(model, messages, options, is_streamed=True).body)

    def context_tokens(self, model: Model) -> int | None:
        """See :class:`vinelm.backends.checkup.KnowsContext`: what the API gives as the model's input limit."""
        with suppress(Exception):
            return self._wire.of(model).sync().models.get(model=model.model_id).input_token_limit
        return None

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        self._wire.close()


class GeminiWire:
    """The two thin shells around the SDK; see :class:`vinelm.backends.remote.Wire`."""

    finish_failures: Mapping[str, FailureKind] = FINISH_FAILURES

    def __init__(self) -> None:
        self._clients: dict[tuple[str | None, str | None], GeminiClients] = {}
        self._signatures = Signatures()
        self._checked: set[str] = set()
        self._lock = threading.Lock()

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> WireRequest:
        """Contents and config."""
        return content_request(model, messages, options, self._signatures, is_streamed=is_streamed)

    def check(self, model: Model) -> None:
        """:class:`ConfigError` if the model cannot be called."""
        api_key(model)
        if model.name not in self._checked:
            if _config(model, model.options) is None:
                raise ConfigError(
                    f"model {model.name!r}: options are not of google-genai's GenerateContentConfig: see its names"
                )
            self._checked.add(model.name)

    def connect(self, model: Model) -> None:
        """Make the client."""
        self.of(model).sync()

    async def aconnect(self, model: Model) -> None:
        """Make the event loop's client."""
        await self.of(model).asynchronous()

    def send(self, model: Model, request: WireRequest) -> Generator[Delta]:
        """One attempt."""
        models, reader = self.of(model).sync().models, Reader(self._signatures.of(model.model_id))
        arguments = _arguments(model, request)
        kept: list[Any] = []
        try:
            with kept_responses(kept):  # the stream begins with its first chunk
                if request.is_streamed:
                    chunks = iter(models.generate_content_stream(**arguments))
                    reply = next(chunks, None)
                else:
                    chunks, reply = iter(()), models.generate_content(**arguments)
            yield _begun(kept, request)
            while reply is not None:
                yield reader.delta(reply)
                reply = next(chunks, None)
        finally:
            for response in kept:
                response.close()

    async def asend(self, model: Model, request: WireRequest) -> AsyncGenerator[Delta]:
        """The same for a coroutine."""
        models = (await self.of(model).asynchronous()).aio.models
        reader = Reader(self._signatures.of(model.model_id))
        arguments = _arguments(model, request)
        kept: list[Any] = []
        chunks: Any = None
        try:
            with kept_responses(kept):
                if request.is_streamed:
                    chunks = aiter(await models.generate_content_stream(**arguments))
                    reply = await anext(chunks, None)
                else:
                    reply = await models.generate_content(**arguments)
            yield _begun(kept, request)
            while reply is not None:
                yield reader.delta(reply)
                reply = None if chunks is None else await anext(chunks, None)
        finally:
            for response in kept:
                await response.aclose()

    def failed(self, error: Exception) -> AttemptFailed | None:
        """What an exception of the SDK means."""
        return failed(error)

    def close(self) -> None:
        """Close the connections of synchronous calls."""
        with self._lock:
            for clients in self._clients.values():
                clients.close()

    def of(self, model: Model) -> GeminiClients:
        """The clients of the model's endpoint and key."""
        place = (model.api_base, model.api_key_env)
        with self._lock:
            if place not in self._clients:
                self._clients[place] = GeminiClients(model.api_base, api_key(model))
            return self._clients[place]


def api_key(model: Model) -> str:
    """The key from the variable that the entry names; :class:`ConfigError` names the variable if it is not set."""
    if model.api_key_env is None:
        raise ConfigError(f'model {model.name!r}: no api_key_env: name the variable of the key, such as "GEMINI_API_KEY"')
    key = os.environ.get(model.api_key_env, "").strip()
    if not key:
        raise ConfigError(f"model {model.name!r}: environment variable {model.api_key_env} is not set: put the API key there")
    return key


def _begun(kept: list[Any], request: WireRequest) -> Delta:
    return begun(kept[-1].headers, is_streamed=request.is_streamed) if kept else Delta()


def _config(model: Model, config: Mapping[str, Any]) -> Any:
    """The SDK's config; None where it has no such options. :class:`ConfigError` without the SDK."""
    try:
        from google.genai import types
    except ImportError as error:
        raise ConfigError(f"model {model.name!r}: Gemini needs google-genai: pip install 'vinelm[gemini]'") from error
    try:
        return types.GenerateContentConfig.model_validate(dict(config))
    except ValueError:
        return None  # pydantic's text may quote a prompt


def _arguments(model: Model, request: WireRequest) -> dict[str, Any]:
    config = _config(model, {**request.body["config"], "http_options": {"timeout": round(model.timeout_s * 1000)}})
    if config is None:
        raise AttemptFailed("malformed", "google-genai's GenerateContentConfig has no such options", is_final=True)
    from google.genai import types

    contents = [types.Content.model_validate(turn) for turn in request.body["contents"]]
    return {"model": model.model_id, "contents": contents, "config": config}


def create(setup: Setup) -> GeminiBackend:
    """The backend for a catalog's Gemini models. Makes no call and reads no key.

    Settings as for OpenAI. :class:`ConfigError` names what does not fit.
    """
    setup.refuse_unknown("limits", "stream", *SETTINGS)
    for model in setup.models:
        check_options(model, model.options)
        if model.api_base is not None and not model.api_base.startswith(("http://", "https://")):
            raise ConfigError(f"model {model.name!r}: api_base is {model.api_base!r}: it must start with http:// or https://")
    return GeminiBackend(gates(setup), policy=RetryPolicy.of(setup), streams=setup.setting("stream", bool, True))
