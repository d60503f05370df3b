"""A LangChain chat model that runs each call on the model that the policy chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Any, ClassVar, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult, LLMResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field, field_validator

from vinelm.adapters.calls.fallback_model import REPEATABLE
from vinelm.adapters.calls.streamed_answer import achunks, chunks
from vinelm.adapters.calls.tool_binding import aimed, bind_lazily, structured_chain
from vinelm.adapters.calls.traced_model import name_model
from vinelm.adapters.langgraph import GraphAdapter
from vinelm.adapters.langgraph.adapter import AdapterHolder
from vinelm.adapters.langgraph.chat_call import ChatCall, ChatOptions, halted_here, node_of
from vinelm.errors import CallError
from vinelm.objective import Objective


class VineChatModel(BaseChatModel):
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
        adapter = cast("AdapterHolder", self.vine).adapter
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

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        """The parameters in LangChain's traces until the answer names the chosen model."""
        params = super()._get_ls_params(stop=stop or self.stop, **kwargs)
        params["ls_provider"] = "vinelm"
        params.setdefault("ls_model_name", self.stage or "vinelm")
        return params

    # -- bindings -------------------------------------------------------------------------------------------

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return this model with tools; they are converted for the chosen model when it runs."""
        return bind_lazily(self, tools, tool_choice, kwargs)

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Return a runnable that gives instances of ``schema``.

        The other arguments (``method``, ``strict``) go to the chosen model's own method; every form of answer is parsed.
        """
        return structured_chain(self, schema, include_raw=include_raw, options=kwargs)

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

    # -- one call --------------------------------------------------------------------------------

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        for attempt in range(self.max_retries + 1):
            with self._call(attempt, stop, kwargs) as call:
                if call.model.rate_limiter:
                    call.model.rate_limiter.acquire(blocking=True)
                result = call.model._generate(messages, run_manager=run_manager, **call.options)
                name_model(result.generations[0], call.model)
                return result
        raise AssertionError("unreachable")

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        for attempt in range(self.max_retries + 1):
            async with await self._acall(attempt, stop, kwargs) as call:
                if call.model.rate_limiter:
                    await call.model.rate_limiter.aacquire(blocking=True)
                result = await call.model._agenerate(messages, run_manager=run_manager, **call.options)
                name_model(result.generations[0], call.model)
                return result
        raise AssertionError("unreachable")

    async def agenerate(self, messages: list[list[BaseMessage]], *args: Any, **kwargs: Any) -> LLMResult:
        """As LangChain's, which takes an exception for a result where it is no ``Exception``."""
        try:
            return await super().agenerate(messages, *args, **kwargs)
        except Exception:
            halted = halted_here()
            if halted is not None:
                raise halted from None
            raise

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for attempt in range(self.max_retries + 1):
            with (
                self._call(attempt, stop, kwargs) as call,
                closing(chunks(call.model, messages, call.options)) as answer,
            ):
                for chunk in answer:
                    if not call.is_begun:
                        call.is_begun = True
                        name_model(chunk, call.model)
                    yield chunk
                return

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for attempt in range(self.max_retries + 1):
            async with await self._acall(attempt, stop, kwargs) as call:
                async with aclosing(achunks(call.model, messages, call.options)) as answer:
                    async for chunk in answer:
                        if not call.is_begun:
                            call.is_begun = True
                            name_model(chunk, call.model)
                        yield chunk
                return

    def _call(self, attempt: int, stop: list[str] | None, options: Mapping[str, Any]) -> _Call:
        """Begin an attempt; the first is number 0."""
        adapter, how = self._place(attempt)
        return _Call(self, ChatCall.begin(adapter, self.stage, **how), stop, options, is_last=attempt == self.max_retries)

    async def _acall(self, attempt: int, stop: list[str] | None, options: Mapping[str, Any]) -> _Call:
        """As :meth:`_call`, without blocking the event loop."""
        adapter, how = self._place(attempt)
        begun = await ChatCall.abegin(adapter, self.stage, **how)
        return _Call(self, begun, stop, options, is_last=attempt == self.max_retries)

    def _place(self, attempt: int) -> tuple[GraphAdapter, ChatOptions]:
        """The adapter of the object that made this model, and what it is told of a call."""
        given = {"max_tokens": self.max_tokens, "timeout_s": self.timeout}
        return cast("AdapterHolder", self.vine).adapter, {
            "default": self.default,
            "objective": self.objective,
            "limits": {name: value for name, value in given.items() if value is not None},
            "falls_back": attempt == self.max_retries,
        }


class _Call:
    """One invocation: the model chosen for it, the options in that model's form.

    A context manager, for ``with`` and ``async with``: suppresses an error after which another invocation may succeed, unless
    it is the last or has streamed.
    """

    __slots__ = ("_call", "_is_last", "_raises", "is_begun", "model", "options", "scope")

    def __init__(
        self, owner: VineChatModel, call: ChatCall, stop: list[str] | None, options: Mapping[str, Any], *, is_last: bool
    ) -> None:
        self._is_last, self.is_begun = is_last, False
        self._raises = cast("AdapterHolder", owner.vine).adapter.on_error == "raise"
        self._call, self.scope = call, call.scope
        try:
            self.model, self.options = aimed(self.scope.model, options)
        except BaseException as error:
            self.scope.failed(error)
            raise
        if owner.temperature is not None:
            self.options.setdefault("temperature", owner.temperature)
        self.options["stop"] = owner.stop if stop is None else stop

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        try:
            return self._ends(error)
        finally:
            self.scope.settle()

    async def __aenter__(self) -> _Call:
        return self

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
