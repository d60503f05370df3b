"""A LangChain chat model that runs each call on the model that the policy chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, Field, field_validator

from vinelm.adapters.calls.delegating_model import Attempt, DelegatingChatModel, name_model
from vinelm.adapters.calls.fallback_model import REPEATABLE
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.adapters.langgraph.adapter import GraphInterface
from vinelm.adapters.langgraph.chat_call import ChatCall, ChatOptions, halted_here, node_of
from vinelm.backends.structured_output import TAKES_FORMAT
from vinelm.errors import CallError
from vinelm.objective import Objective


class VineChatModel(DelegatingChatModel):
    """For code that only holds a model object: each call is an invocation of ``stage``, on the model that the policy chooses.

    Without ``stage`` it is the stage of the node that calls it. Calls inside one run of a graph, or inside one
    ``with vine.request(...)``, are the invocations of one request, in order; calls under way at once share a place in its path.
    Any other call is a request of its own, for ``objective`` if one is given. In the nodes of a root graph the path is in the
    graph's own channel where it has one (a wrapped stage or a ``VineMiddleware`` brings it), else this process keeps it for the
    graph's thread. The ``VineLM`` that made a run's context plans it, and the profiler what it runs, whichever made the model.

    ``temperature``, ``stop``, ``max_tokens`` and ``timeout`` (seconds) hold for whichever model is chosen. After a failed call
    up to ``max_retries`` further invocations are made; the policy is asked again and may choose another model. Spends money.
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
    """Off: a cache would answer with an earlier choice of model."""

    @field_validator("objective", mode="before")
    @classmethod
    def _from_json(cls, value: Any) -> Any:
        return Objective.from_dict(value) if isinstance(value, Mapping) else value

    def model_post_init(self, context: Any, /) -> None:
        """Declare the stage; :class:`~vinelm.errors.ConfigError` for an unknown default model."""
        adapter: GraphAdapter = self.vine.adapter
        if self.stage is None:
            adapter.declare_unnamed()
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
        """The provider's name of the default model, by which LangChain's agents know that it takes a schema as it is.

        None where the stage has a model that takes none.
        """
        adapter: GraphAdapter = self.vine.adapter
        default = adapter.catalog[self.default or adapter.default_model(self.stage or "")]
        allowed = (adapter.catalog[name] for name in adapter.defaults.allowed_models(self.stage or ""))
        return default.model_id if all(model.provider in TAKES_FORMAT for model in (default, *allowed)) else None

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        """The parameters in LangChain's traces until the answer names the chosen model."""
        params = super()._get_ls_params(stop=stop or self.stop, **kwargs)
        params["ls_provider"] = "vinelm"
        params.setdefault("ls_model_name", self.stage or "vinelm")
        return params

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
        """As LangChain's, which takes an exception for a result where it is no ``Exception``."""
        try:
            return await super().agenerate(messages, *args, **kwargs)
        except Exception:
            halted = halted_here()
            if halted is not None:
                raise halted from None
            raise

    def _attempt(self, number: int, messages: list[BaseMessage], options: Mapping[str, Any]) -> Attempt:
        adapter, how = self._place(number)
        return _Call(self, ChatCall.begin(adapter, self.stage, **how), options, is_last=number == self.max_retries)

    async def _aattempt(self, number: int, messages: list[BaseMessage], options: Mapping[str, Any]) -> Attempt:
        adapter, how = self._place(number)
        begun = await ChatCall.abegin(adapter, self.stage, **how)
        return _Call(self, begun, options, is_last=number == self.max_retries)

    def _place(self, attempt: int) -> tuple[GraphAdapter, ChatOptions]:
        """The adapter of the object that made this model, and what it is told of a call."""
        given = {"max_tokens": self.max_tokens, "timeout_s": self.timeout}
        return self.vine.adapter, {
            "default": self.default,
            "objective": self.objective,
            "limits": {name: value for name, value in given.items() if value is not None},
            "falls_back": attempt == self.max_retries,
        }


class _Call(Attempt):
    """One invocation. The next one is made after an error that it may not meet, unless this is the last or has streamed."""

    __slots__ = ("_call", "_is_last", "_raises", "scope")

    def __init__(self, owner: VineChatModel, call: ChatCall, options: Mapping[str, Any], *, is_last: bool) -> None:
        self._is_last = is_last
        self._raises = owner.vine.adapter.on_error == "raise"
        self._call, self.scope = call, call.scope
        try:
            super().__init__(self.scope.model, options)
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
        if error is None or isinstance(error, GeneratorExit):  # the caller of a stream has seen enough
            self.scope.done()
            try:
                self._call.done()
            except Exception as failed:
                if self._raises:
                    raise
                self.scope.note_failure("the path", failed)
            return False
        self.scope.failed(error)
        may_repeat = isinstance(error, CallError) and error.kind in REPEATABLE
        return may_repeat and not (self._is_last or self.is_begun)


class VineInterface(GraphInterface):
    """What an application knows as ``vine``: it wraps nodes and edges, and makes chat models."""

    def chat_model(self, stage: str | None = None, **settings: Any) -> VineChatModel:
        """Return a LangChain chat model whose every call is an invocation of ``stage``, on the model that the plan chooses.

        It may be made at module level, before the graph, and stand in chains, tools, ``bind_tools`` and
        ``with_structured_output``. When the graph is profiled, the profiler takes charge of its calls.

        Args:
            stage: name of the stage; by default that of the node that makes the call, so that one object serves all nodes.
            **settings: fields of :class:`~vinelm.VineChatModel`, such as ``default``, ``temperature`` and ``max_tokens``.

        Raises:
            ConfigError: the catalog lacks the default model.
        """
        return VineChatModel(vine=self, stage=stage, **settings)
