"""A LangChain chat model that runs each call on the model that the policy chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from functools import cache
from typing import Any, ClassVar

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, Field, field_validator

from vinelm.adapters.calls.delegating_model import Attempt, DelegatingChatModel, name_model
from vinelm.adapters.calls.fallback_model import REPEATABLE, failed_call
from vinelm.adapters.calls.tool_binding import OWN_MODEL
from vinelm.adapters.langchain.openai_client import chats_of, openai_client, with_clients
from vinelm.adapters.langchain.own_model import OwnModel, Wrap, told_of, wrapped
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.adapters.langgraph.adapter import GraphInterface
from vinelm.adapters.langgraph.runs.chat_call import ChatCall, halted_here, node_of
from vinelm.adapters.langgraph.runs.run_finder import InvokeOptions
from vinelm.adapters.langgraph.structure.chat_search import CHAT_MARK, makes_client, makes_client_holder
from vinelm.catalog.langchain import entry_of_chat
from vinelm.foreign_code import answered
from vinelm.objective import Objective

TAKES_FORMAT = frozenset({"openai", "azure", "anthropic"})
"""Providers whose packages accept the ``response_format`` of an agent, each in a different form."""
BEGUN = "vinelm_begun"
"""Key of a call's options that holds the invocation already begun for the call, a :class:`_Begun`."""


class VineChatModel(DelegatingChatModel):
    """A LangChain chat model that runs each call on the model that the policy chooses. Each call is an invocation of ``stage``,
    a named step of the application.

    Without ``stage``, the calling node is the stage. All calls inside one run of a graph, or inside one ``with
    vine.request(...)``, belong to one request. Their models form the request's path; parallel calls share one position in it.
    Any other call is a separate request, with the objective ``objective`` if one is given. The path is stored in a channel of
    the root graph if a wrapped stage or a ``VineMiddleware`` adds that channel; otherwise this process keeps the path for the
    graph's thread. Plans come from the ``VineLM`` of the run's context, or from the profiler, even if another ``VineLM`` made
    the model.

    ``temperature``, ``stop``, ``max_tokens`` and ``timeout`` (seconds) apply to every chosen model. ``default`` is the model
    that runs without a plan. After a failed call up to ``max_retries`` further invocations are made, for which the policy may
    choose another model. Spends money.
    """

    __vinelm_chat__: ClassVar[bool] = True
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())

    vine: Any = Field(exclude=True, repr=False)
    stage: str | None = None
    default: str | None = None
    objective: Objective | None = Field(default=None, exclude=True)
    temperature: float | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    timeout: float | None = Field(default=None, gt=0)
    stop: list[str] | None = None
    max_retries: int = Field(default=0, ge=0)
    streaming: bool = False
    cache: Any = Field(default=False, exclude=True)
    """Off, unless the application's own model has one: a cache answers with an earlier choice of model."""
    own: Any = Field(default=None, exclude=True, repr=False)
    """The application's own chat model (:class:`~vinelm.adapters.langchain.own_model.OwnModel`); None without one."""

    @field_validator("objective", mode="before")
    @classmethod
    def _from_json(cls, value: Any) -> Any:
        return Objective.from_dict(value) if isinstance(value, Mapping) else value

    def model_post_init(self, context: Any, /) -> None:
        """Register the stage with the adapter; raise :class:`~vinelm.errors.ConfigError` if the default model is unknown."""
        adapter: GraphAdapter = self.vine.adapter
        if self.stage is None:
            adapter.declare_unnamed(self.default)
        else:
            adapter.declare(self.stage, self.default)

    @property
    def _llm_type(self) -> str:
        return "vinelm"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"stage": self.stage}

    @property
    def model_name(self) -> str | None:
        """The name by which the provider knows the default model. LangChain's agents use it to decide whether the model has
        built-in support for output schemas.

        None if the default model or another model that the stage allows may lack that support, or if the name cannot be
        determined.
        """
        adapter: GraphAdapter = self.vine.adapter

        def name() -> str | None:
            default = adapter.catalog[self.default or adapter.default_model(self.stage or "")]
            allowed = (adapter.catalog[name] for name in adapter.defaults.allowed_models(self.stage or ""))
            return default.model_id if all(model.provider in TAKES_FORMAT for model in (default, *allowed)) else None

        return answered(name, None)  # our own fault must not fail the application: it then asks in another way

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        """Return the parameters for LangChain's traces, with the chosen model's provider and name once the call has begun."""
        begun: _Begun | None = kwargs.pop(BEGUN, None)
        params = super()._get_ls_params(stop=stop or self.stop, **kwargs)
        params["ls_provider"], params["ls_model_name"] = "vinelm", kwargs.get("model") or self.stage or "vinelm"
        return params if begun is None else {**params, **begun.names()}

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return parameters for tracers, with the model's name under both keys that tracers read."""
        begun: _Begun | None = kwargs.pop(BEGUN, None)
        params = super()._get_invocation_params(stop=stop, **kwargs)
        name = None if begun is None else begun.names().get("ls_model_name")
        return params if name is None else {"model": name, "model_name": name, **params}

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """Return the text that LangChain's cache uses as key of a call.

        It contains the call's settings, the settings of the application's own chat model, and the name of the chosen model.
        """
        begun: _Begun | None = kwargs.pop(BEGUN, None)
        asked = super()._get_llm_string(stop=stop or self.stop, **kwargs)
        own = None if self.own is None else self.own.inner.given._get_llm_string(stop=stop)
        chosen = None if begun is None else sorted(begun.names().items())
        return str((asked, self.temperature, self.max_tokens, own, chosen))

    # The model is chosen before LangChain tells callbacks that a run starts: they are told which one it is.

    def generate(self, messages: list[list[BaseMessage]], *args: Any, **kwargs: Any) -> LLMResult:
        """Return the answers to the prompts. Each prompt is a separate invocation; the invocations begin in order."""
        if len(messages) != 1 or BEGUN in kwargs:
            return super().generate(messages, *args, **kwargs)
        with self._begin(kwargs) as begun:
            return super().generate(messages, *args, **_with(kwargs, begun))

    def stream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, *, stop: list[str] | None = None, **kwargs: Any
    ) -> Iterator[AIMessageChunk]:
        """Yield the answer of the chosen model in chunks."""
        with node_of(config):  # left before the caller continues
            first = self._begin(kwargs)
        with first as begun:
            yield from super().stream(input, config, stop=stop, **_with(kwargs, begun))

    async def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, *, stop: list[str] | None = None, **kwargs: Any
    ) -> AsyncIterator[AIMessageChunk]:
        """Yield the answer of the chosen model in chunks."""
        with node_of(config):
            first = await self._abegin(kwargs)
        async with (
            first as begun,
            aclosing(super().astream(input, config, stop=stop, **_with(kwargs, begun))) as chunks,  # type: ignore[type-var]
        ):
            async for chunk in chunks:
                yield chunk

    def _begin(self, options: Mapping[str, Any]) -> _Begun:
        adapter, how = self._place(0, options)
        return _Begun(ChatCall.begin(adapter, self.stage, **how))

    async def _abegin(self, options: Mapping[str, Any]) -> _Begun:
        adapter, how = self._place(0, options)
        return _Begun(await ChatCall.abegin(adapter, self.stage, **how))

    def invoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, *, stop: list[str] | None = None, **kwargs: Any
    ) -> AIMessage:
        """Return the answer of the chosen model."""
        with node_of(config):
            return super().invoke(input, config, stop=stop, **kwargs)

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, *, stop: list[str] | None = None, **kwargs: Any
    ) -> AIMessage:
        """Return the answer of the chosen model."""
        with node_of(config):
            return await super().ainvoke(input, config, stop=stop, **kwargs)

    async def agenerate(self, messages: list[list[BaseMessage]], *args: Any, **kwargs: Any) -> LLMResult:
        """Return the answers to the prompts, like :meth:`generate`, without blocking the event loop.

        If the profiler has ended the run at this call, the profiler's exception is raised, not the error into which LangChain
        converts it.
        """
        try:
            if len(messages) != 1 or BEGUN in kwargs:
                return await super().agenerate(messages, *args, **kwargs)
            async with await self._abegin(kwargs) as begun:
                return await super().agenerate(messages, *args, **_with(kwargs, begun))
        except Exception:  # of the provider, or of the application; it is raised again
            halted = halted_here()
            if halted is not None:
                raise halted from None
            raise

    def _attempt(self, number: int, messages: list[BaseMessage], options: Mapping[str, Any]) -> Attempt:
        options = dict(options)
        begun = _taken(options, number)
        if begun is None:
            adapter, how = self._place(number, options)
            begun = ChatCall.begin(adapter, self.stage, **how)
        return _Call(self, begun, options, is_last=number == self.max_retries)

    async def _aattempt(self, number: int, messages: list[BaseMessage], options: Mapping[str, Any]) -> Attempt:
        options = dict(options)
        begun = _taken(options, number)
        if begun is None:
            adapter, how = self._place(number, options)
            begun = await ChatCall.abegin(adapter, self.stage, **how)
        return _Call(self, begun, options, is_last=number == self.max_retries)

    def _place(self, attempt: int, options: Mapping[str, Any]) -> tuple[GraphAdapter, InvokeOptions]:
        """Return the adapter of the ``vine`` object that made this model, and the options for one invocation.

        ``attempt`` is the number of attempts that the call has made before. Only the last attempt (number ``max_retries``) may
        fall back to another model within its invocation.
        """
        given = {"max_tokens": self.max_tokens, "timeout_s": self.timeout}
        return self.vine.adapter, {
            "default": self.default,
            "objective": self.objective,
            "limits": {name: value for name, value in given.items() if value is not None},
            "falls_back": attempt == self.max_retries,
            "tools": getattr(options.get("tools"), "given", None),
            "own": self.own,
        }


class _Begun:
    """The first invocation that a call of the chat model makes; it begins before LangChain's callbacks are notified.

    If a callback raises, the invocation counts as failed. If a cache answers, the invocation costs nothing.

    Attributes:
        call: the invocation.
        is_taken: whether the first attempt uses ``call``. The attempt then records the end of ``call``, and this object does
            not.
    """

    __slots__ = ("call", "is_taken")

    def __init__(self, call: ChatCall) -> None:
        self.call, self.is_taken = call, False

    def names(self) -> LangSmithParams:
        """Return the chosen model's provider and name; empty if unknown, because a trace must not fail a call."""
        nothing: LangSmithParams = {}

        def stated() -> LangSmithParams:
            found = self.call.scope.answering._get_ls_params()
            return {"ls_provider": found["ls_provider"], "ls_model_name": found["ls_model_name"]}

        return answered(stated, nothing)

    def __enter__(self) -> _Begun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not self.is_taken:  # without an error a cache has answered
            self.call.__exit__(kind, error, trace)

    async def __aenter__(self) -> _Begun:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if not self.is_taken:
            await self.call.__aexit__(kind, error, trace)


def _with(options: dict[str, Any], begun: _Begun) -> dict[str, Any]:
    return {**options, BEGUN: begun}


def _taken(options: dict[str, Any], number: int) -> ChatCall | None:
    """Remove from ``options`` the invocation that was begun in advance (:class:`_Begun`), and return it for the first attempt.

    ``number`` is the number of earlier attempts. If it is 0, the invocation is also marked as used. Later attempts, and
    calls without such an invocation, get None.
    """
    begun: _Begun | None = options.pop(BEGUN, None)
    if begun is None or number:
        return None
    begun.is_taken = True
    return begun.call


class _Call(Attempt):
    """One attempt of a call, which is one invocation.

    After a retryable error another attempt follows, unless this one is the last that is allowed (``is_last``) or has streamed a
    part of its answer.
    """

    __slots__ = ("_call", "_is_last", "scope")

    def __init__(self, owner: VineChatModel, call: ChatCall, options: Mapping[str, Any], *, is_last: bool) -> None:
        self._is_last = is_last
        self._call, self.scope = call, call.scope
        try:
            super().__init__(self.scope.model, options if owner.own is None else {**options, OWN_MODEL: owner.own})
        except BaseException as error:
            self.scope.failed(error)
            raise
        if owner.temperature is not None:
            self.options.setdefault("temperature", owner.temperature)
        if self.options["stop"] is None:
            self.options["stop"] = owner.stop

    def saw(self, generation: ChatGeneration) -> None:
        if not self.is_begun:
            name_model(generation, self.model)
        self.is_begun = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        try:
            return self._ends(error)
        finally:
            self.scope.settle()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        try:
            return self._ends(error)
        finally:
            await self.scope.asettle()

    def _ends(self, error: BaseException | None) -> bool:
        self._call.close(error)
        failed = failed_call(error)
        may_repeat = failed is not None and failed.kind in REPEATABLE
        return may_repeat and not (self._is_last or self.is_begun)


class VineInterface(GraphInterface):
    """The object that an application calls ``vine``. It wraps nodes and edges, and makes chat models."""

    def chat_model(self, stage: str | None = None, **settings: Any) -> VineChatModel:
        """Return a LangChain chat model whose every call is an invocation of ``stage``, on the model that the plan chooses.

        It may be made at module level, before the graph, and used in chains, tools, ``bind_tools`` and
        ``with_structured_output``. While the graph is profiled, the profiler makes the model's calls.

        Args:
            stage: name of the stage; by default the calling node's stage, so that one object serves all nodes.
            **settings: fields of :class:`~vinelm.VineChatModel`, such as ``default``, ``temperature`` and ``max_tokens``.

        Raises:
            ConfigError: the catalog lacks the default model.
        """
        return VineChatModel(vine=self, stage=stage, **settings)

    def around(self, model: Any, stage: str | None = None, *, price: Any = None) -> Any:
        """Return a chat model that replaces the application's own model ``model``. Without a plan, the application's model
        runs.

        The application's model is called unchanged, with all its settings, callbacks, tags, cache and rate limiter. If a plan
        chooses another model of the catalog, the settings that both models have apply to it, too. In a model with
        ``bind_tools``, ``with_fallbacks``, ``with_retry`` or ``with_config``, or a chain, the models inside are wrapped.

        A client of the openai SDK becomes a client whose every ``chat.completions.create`` is an invocation of the stage.
        Without a plan, the model that the call names runs, with the client's key, address, time limit and headers. An
        ``OpenAI`` of LlamaIndex is copied, and the copy gets such clients.

        Args:
            model: a LangChain chat model, or a runnable built from it; a name such as ``"openai:gpt-5"``, as for
                ``init_chat_model``; an ``OpenAI`` or ``AsyncOpenAI`` of the openai SDK; or an ``OpenAI`` of LlamaIndex.
            stage: name of the stage; by default the stage of the calling node.
            price: dollars per million tokens of a model that neither the catalog nor the list of prices knows: ``{"input": ...,
                "output": ..., "source": ..., "as_of": ...}``.

        Raises:
            ConfigError: ``model`` contains no chat model, or the price of its chat model is not known.
        """
        if makes_client(type(model)):
            made = chats_of(model)
            chat_of = cache(lambda name: self.around(made(name), stage, price=price))
            return openai_client(self, chat_of, stage, is_async=type(model).__name__ == "AsyncOpenAI")
        if makes_client_holder(type(model)):
            return with_clients(model, lambda client: self.around(client, stage, price=price))
        if getattr(type(model), CHAT_MARK, False):  # VineLM's own already
            return model
        if isinstance(model, str):  # where an agent takes the name of a model
            from langchain.chat_models import init_chat_model

            model = init_chat_model(model)

        def wrap(chat: BaseChatModel) -> BaseChatModel:
            if isinstance(chat, VineChatModel):  # inside of what was made of it
                return chat
            models: Any = self.adapter.models
            entry = entry_of_chat(chat, models.catalog.entries, price)
            models.add(entry, chat)
            own = OwnModel.of(chat, models.catalog[entry.name])
            return VineChatModel(vine=self, stage=stage, default=entry.name, own=own, **told_of(chat))

        return wrapped(model, Wrap(self, stage, wrap))

    def openai_client(self, stage: str | None = None, *, is_async: bool = False, **settings: Any) -> Any:
        """Return an ``OpenAI`` client of the openai SDK whose every ``chat.completions.create`` is an invocation of ``stage``.

        The plan's model replaces the ``model`` of a call. Every other parameter is passed to the plan's model. Parameters that
        this model lacks raise an error, and so do endpoints other than chat completions. Streams arrive in chunks. Failures are
        raised as the SDK's exceptions.

        Args:
            stage: name of the stage; by default the stage of the calling node.
            is_async: whether to return an ``AsyncOpenAI``.
            **settings: fields of :class:`~vinelm.VineChatModel`, such as ``default``, ``temperature`` and ``max_tokens``.

        Raises:
            ConfigError: the openai SDK is not installed, or the catalog lacks the default model.
        """
        chat = self.chat_model(stage, **settings)
        return openai_client(self, lambda _: chat, stage, is_async=is_async)
