"""Any LangChain chat model as a provider: instances, and ``provider:model`` strings of LangChain's integrations.

Calls spend money with paid models. A model's own retries count as latency: disable them (``max_retries=0``).
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from importlib import import_module
from inspect import signature
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableBinding, RunnableSequence

from vinelm.backends.langchain.response import FINISH_FAILURES, LangChainStreamReader, failed
from vinelm.backends.remote.backend import RemoteBackend
from vinelm.backends.remote.call_options import PARALLEL
from vinelm.backends.remote.response import Delta
from vinelm.backends.remote.transport import AttemptBound, Transport, TransportRequest
from vinelm.backends.settings import ProviderSettings
from vinelm.backends.structured_output import Structured
from vinelm.catalog import Model
from vinelm.errors import UNSUPPORTED_CALL, ConfigError
from vinelm.extras import required_extra


class LangChainTransport(Transport):
    """Delegates to a chat model's own ``_generate`` and ``_stream``; see :class:`vinelm.backends.remote.transport.Transport`.

    Not to ``invoke``: LangChain would then call every callback twice.
    """

    finish_failures = FINISH_FAILURES
    failed = staticmethod(failed)

    def __init__(self, live: Mapping[str, BaseChatModel]) -> None:
        self._chats = {name: _with_usage(chat) for name, chat in live.items()}
        self._with_reasons: set[str] = set()
        self._lock = threading.Lock()

    def check(self, model: Model) -> None:
        """Create the chat model; :class:`ConfigError` if it cannot be created."""
        self._chat(model)

    def request(
        self, model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
    ) -> TransportRequest:
        """Build the request: the chat model and the arguments of its call."""
        given = {key: value for key, value in options.items() if value is not None}
        stop, tools, choice = given.pop("stop", None), given.pop("tools", None), given.pop("tool_choice", None)
        limit = given.get("max_tokens", model.max_tokens)
        if not isinstance(limit, int) or not 1 <= limit <= model.max_tokens:
            raise ConfigError(
                f"model {model.name!r}: max_tokens is the entry's, {model.max_tokens}: a call may only ask for less",
                code=UNSUPPORTED_CALL,
            )
        chat = self._chat(model)
        if tools:
            if PARALLEL in given and PARALLEL not in signature(chat.bind_tools).parameters:
                del given[PARALLEL]  # its provider has no such parameter
            chat, bound = _with_tools(model, chat, tools, choice)
            given = {**bound, **given}
        is_streamed = is_streamed and _streams(chat)
        body = {"chat": chat, "messages": list(messages), "stop": stop, "options": given, "max_tokens": limit, "tools": tools}
        return TransportRequest(body=body, prompt_chars=len(_prompt_text(body)), is_streamed=is_streamed)

    def output_options(self, model: Model, asked: Structured) -> Mapping[str, Any] | None:
        """What the chat model's own method binds; None where it has none, or makes a tool of the schema."""
        chat = self._chat(model)
        if type(chat).with_structured_output is BaseChatModel.with_structured_output:
            return None
        bound: Any = chat.with_structured_output(asked.schema, **asked.options)
        if isinstance(bound, RunnableSequence):
            bound = bound.first
        if not isinstance(bound, RunnableBinding) or bound.bound is not chat or "tools" in bound.kwargs:
            return None
        return {name: one for name, one in bound.kwargs.items() if not name.startswith("ls_")}

    @staticmethod
    def attempt_bound(body: Mapping[str, Any]) -> AttemptBound:
        """Return the most tokens that one attempt can cost, if the chat model respects the entry's ``max_tokens``."""
        prompt = _prompt_text(body)
        return AttemptBound.of(
            prompt,
            max_tokens=body["max_tokens"],
            writes_cache="cache_control" in prompt or "cachePoint" in prompt,
        )

    def connect(self, model: Model) -> None:
        """Create the chat model."""
        self._chat(model)

    def send(self, model: Model, request: TransportRequest) -> Generator[Delta]:
        """Make one attempt."""
        body, reader = request.body, LangChainStreamReader()
        chat: BaseChatModel = body["chat"]
        if request.is_streamed:
            with closing(chat._stream(body["messages"], stop=body["stop"], **body["options"])) as chunks:  # type: ignore[type-var]
                for chunk in chunks:
                    yield reader.chunk(chunk)
        else:
            result = chat._generate(body["messages"], stop=body["stop"], **body["options"])
            yield reader.whole(result)
        yield self._last(model, reader)

    async def asend(self, model: Model, request: TransportRequest) -> AsyncGenerator[Delta]:
        """Like :meth:`send`, for a coroutine."""
        body, reader = request.body, LangChainStreamReader()
        chat: BaseChatModel = body["chat"]
        if request.is_streamed:
            stream = chat._astream(body["messages"], stop=body["stop"], **body["options"])
            async with aclosing(stream) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    yield reader.chunk(chunk)
        else:
            result = await chat._agenerate(body["messages"], stop=body["stop"], **body["options"])
            yield reader.whole(result)
        yield self._last(model, reader)

    def preload(self, model: Model) -> None:
        """Import the model's integration; create the chat model too where that starts no thread and opens no connection."""
        if model.name in self._chats or ":" not in model.model_id:
            return
        provider = model.model_id.partition(":")[0]
        for name in ("langchain.chat_models", f"langchain_{_PACKAGES.get(provider, provider)}"):
            with suppress(ImportError):  # the first call reports what is missing
                import_module(name)
        if provider in _OVER_HTTP:
            self._chat(model)

    def _last(self, model: Model, reader: LangChainStreamReader) -> Delta:
        """Return the last piece. A chat model that has given a finish reason once is expected to do so always."""
        last = reader.last(always_has_reason=model.name in self._with_reasons)
        if reader.has_reason:
            self._with_reasons.add(model.name)
        return last

    def _chat(self, model: Model) -> BaseChatModel:
        with self._lock:
            if model.name not in self._chats:
                self._chats[model.name] = _with_usage(_made(model))
            return self._chats[model.name]


class LangChainBackend(RemoteBackend[LangChainTransport]):
    """Metered LangChain chat models: usage from their ``usage_metadata``, else estimated. Thread-safe if they are.

    Instances come from the catalog; other entries are created by ``langchain.chat_models.init_chat_model`` at the first call.
    """

    def preload(self) -> None:
        """See :class:`vinelm.requests.protocols.Preloads`.

        Some integrations open channels when a chat model is made: those are left.
        """
        for model in self._models:
            with suppress(ConfigError):
                self.transport.preload(model)


_PACKAGES = {
    "azure_openai": "openai",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "google_anthropic_vertex": "google_vertexai",
}
"""Integrations whose package has another name."""
_OVER_HTTP = frozenset(
    ("anthropic", "azure_openai", "deepseek", "fireworks", "groq", "mistralai", "openai", "perplexity", "together", "xai")
)
"""Integrations whose chat models hold HTTP clients only, which may cross a fork; Google's open gRPC channels."""


def _prompt_text(body: Mapping[str, Any]) -> str:
    messages = [(message.content, getattr(message, "tool_calls", None)) for message in body["messages"]]
    return json.dumps([messages, body["tools"]], ensure_ascii=False, default=str)


def _streams(chat: BaseChatModel) -> bool:
    return type(chat)._stream is not BaseChatModel._stream and not chat.disable_streaming


def _with_usage(chat: BaseChatModel) -> BaseChatModel:
    """Return a chat model that states the usage of streams, too.

    It is a field, not an argument of the call, which langchain-openai would hand on to the Responses API, where there is none.
    """
    return chat if getattr(chat, "stream_usage", True) else chat.model_copy(update={"stream_usage": True})


def _with_tools(model: Model, chat: BaseChatModel, tools: Any, choice: Any) -> tuple[BaseChatModel, dict[str, Any]]:
    """Return the chat model and the arguments that its own ``bind_tools`` creates."""
    try:
        bound: Any = chat.bind_tools(tools) if choice is None else chat.bind_tools(tools, tool_choice=choice)
    except NotImplementedError:
        bound = None
    if not isinstance(bound, RunnableBinding) or not isinstance(bound.bound, BaseChatModel):
        raise ConfigError(
            f"model {model.name!r}: {type(chat).__name__} takes no tools: choose another model for this stage",
            code=UNSUPPORTED_CALL,
        )
    return bound.bound, dict(bound.kwargs)


def _made(model: Model) -> BaseChatModel:
    if ":" not in model.model_id:
        raise ConfigError(
            f"model {model.name!r}: was a ready chat model of another process: pass it again, "
            f"VineLM(models={{{model.name!r}: ...}})"
        )
    with required_extra("langchain", f"model {model.name!r}: provider langchain"):
        from langchain.chat_models import init_chat_model
    options = {"max_tokens": model.max_tokens, "timeout": model.timeout_s, "max_retries": 0, **model.options}
    if model.api_base is not None:
        options["base_url"] = model.api_base
    reason = "does init_chat_model know the provider, and is its key in the environment?"
    try:
        chat: BaseChatModel = init_chat_model(model.model_id, **options)
        return chat
    except ImportError as error:
        reason = f"its LangChain package is missing: pip install langchain-{model.model_id.partition(':')[0].replace('_', '-')}"
        cause: Exception = error
    except Exception as error:  # an integration's own checks: pydantic's may quote a key
        cause = error
    raise ConfigError(f"model {model.name!r}: cannot be made ({type(cause).__name__}): {reason}")


def create(settings: ProviderSettings) -> LangChainBackend:
    """Create the backend of the catalog's LangChain models. Makes no call. :class:`ConfigError` for invalid settings."""
    live = {model.name: settings.catalog.live[model.name] for model in settings.models if model.name in settings.catalog.live}
    for model in settings.models:
        if model.group is not None:
            raise ConfigError(f"model {model.name!r}: group has no effect on LangChain models: leave it out")
        if model.api_key_env is not None:
            raise ConfigError(
                f"model {model.name!r}: api_key_env has no effect: LangChain's integrations read their own variable"
            )
    return LangChainBackend(settings, LangChainTransport(live))
