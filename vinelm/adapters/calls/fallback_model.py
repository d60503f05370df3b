"""The chat model that a stage receives where another model may answer after a failure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Any, Protocol

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from pydantic import Field

from vinelm.adapters.calls.streamed_answer import achunks, chunks
from vinelm.adapters.calls.tool_binding import aimed, bind_lazily, structured_chain
from vinelm.adapters.calls.traced_model import name_model
from vinelm.errors import CallError

REPEATABLE = ("rate_limit", "timeout", "server", "empty", "truncated", "malformed")
"""Kinds of failure after which another call, perhaps of another model, may succeed."""


class Attempts(Protocol):
    """The attempts of one invocation, one model after the other."""

    answering: BaseChatModel
    """The chat model of the present attempt."""

    def fall_back(self, model: BaseChatModel, error: CallError) -> bool:
        """Go on with another model after ``model`` has failed; False if the error is to be raised."""


class FallbackModel(BaseChatModel):
    """Calls the chosen model, and the next best one where that fails in a way that another may not.

    An ordinary chat model: what the chosen one has besides (``model_name``, ...) is found on this one, too. Tools and schemas
    are converted for the model that answers. A stream goes over to another model only before its first chunk. Spends money.
    """

    binding: Any = Field(default=None, exclude=True, repr=False)
    """The :class:`Attempts`."""

    @property
    def _llm_type(self) -> str:
        chosen: BaseChatModel = self.binding.answering
        return chosen._llm_type

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        chosen: BaseChatModel = self.binding.answering
        return chosen._identifying_params

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        chosen: BaseChatModel = self.binding.answering
        return chosen._get_ls_params(stop=stop, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return what only the chosen model has."""
        if name.startswith("__") or name == "binding":
            raise AttributeError(name)
        return getattr(self.binding.answering, name)

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return this model with tools."""
        return bind_lazily(self, tools, tool_choice, kwargs)

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Return a runnable that gives instances of ``schema``, as the chosen model's own method would."""
        if type(self.binding.answering).with_structured_output is BaseChatModel.with_structured_output:
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)
        return structured_chain(self, schema, include_raw=include_raw, options=kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        first: BaseChatModel = self.binding.answering
        while True:
            chosen: BaseChatModel = self.binding.answering
            model, options = aimed(chosen, kwargs)
            try:
                if model.rate_limiter:
                    model.rate_limiter.acquire(blocking=True)
                result = model._generate(messages, stop=stop, run_manager=run_manager, **options)
                if chosen is not first:
                    name_model(result.generations[0], chosen)
                return result
            except CallError as error:
                if not self.binding.fall_back(chosen, error):
                    raise

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        first: BaseChatModel = self.binding.answering
        while True:
            chosen: BaseChatModel = self.binding.answering
            model, options = aimed(chosen, kwargs)
            try:
                if model.rate_limiter:
                    await model.rate_limiter.aacquire(blocking=True)
                result = await model._agenerate(messages, stop=stop, run_manager=run_manager, **options)
                if chosen is not first:
                    name_model(result.generations[0], chosen)
                return result
            except CallError as error:
                if not self.binding.fall_back(chosen, error):
                    raise

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        is_begun = False
        first: BaseChatModel = self.binding.answering
        while True:
            chosen: BaseChatModel = self.binding.answering
            try:
                model, options = aimed(chosen, kwargs)
                with closing(chunks(model, messages, {"stop": stop, **options})) as answer:
                    for chunk in answer:
                        if chosen is not first and not is_begun:
                            name_model(chunk, chosen)
                        is_begun = True
                        yield chunk
                return
            except CallError as error:
                if is_begun or not self.binding.fall_back(chosen, error):
                    raise

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        is_begun = False
        first: BaseChatModel = self.binding.answering
        while True:
            chosen: BaseChatModel = self.binding.answering
            try:
                model, options = aimed(chosen, kwargs)
                async with aclosing(achunks(model, messages, {"stop": stop, **options})) as answer:
                    async for chunk in answer:
                        if chosen is not first and not is_begun:
                            name_model(chunk, chosen)
                        is_begun = True
                        yield chunk
                return
            except CallError as error:
                if is_begun or not self.binding.fall_back(chosen, error):
                    raise
