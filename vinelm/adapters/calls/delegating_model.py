"""A chat model that passes each call to another model, chosen when the call begins, with fallback after a failure."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from functools import cache, partial
from importlib.util import find_spec
from itertools import count
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from vinelm.adapters.calls.tool_binding import PARALLEL, aimed, bind_lazily, structured_chain
from vinelm.backends.remote.meter import chunk_of
from vinelm.foreign_code import answered

RESOLVED = "lc_gateway_metadata"
"""Key of an answer's ``generation_info`` with the provider and name of the model that answered, as LangChain's gateways state
them. LangSmith shows these for the run. LangChain removes the key from the message that callers see.
"""


class Attempt:
    """One call of a chosen model, as a context manager for ``with`` and ``async with``.

    This class lets errors in the block pass. A subclass suppresses such an error if another attempt may succeed.

    Attributes:
        model: the chat model to call.
        options: the options of the call, in that model's format.
        is_begun: whether the caller has received a part of the answer.
    """

    __slots__ = ("is_begun", "model", "options")

    def __init__(self, model: BaseChatModel, options: Mapping[str, Any]) -> None:
        self.is_begun = False
        self.model, self.options = aimed(model, options)

    def saw(self, generation: ChatGeneration) -> None:
        """Record that ``generation``, an answer or a chunk of it, is about to be handed to the caller."""
        self.is_begun = True

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool | None:
        return None

    async def __aenter__(self) -> Attempt:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool | None:
        return self.__exit__(kind, error, trace)


class DelegatingChatModel(BaseChatModel):
    """A chat model that passes each call to another model, and tries further models after failures, until one answers. Tools
    and schemas are converted for each called model.
    """

    @abstractmethod
    def _attempt(self, number: int, messages: list[BaseMessage], options: Mapping[str, Any]) -> Attempt:
        """Return a new :class:`Attempt` at answering ``messages``, which holds the chat model to call.

        Args:
            number: the number of the attempt, counted from 0.
            messages: the prompt.
            options: the options of the call, not yet converted to the called model's format.
        """

    async def _aattempt(self, number: int, messages: list[BaseMessage], options: Mapping[str, Any]) -> Attempt:
        """Return a new attempt, like :meth:`_attempt`, without blocking the event loop."""
        return self._attempt(number, messages, options)

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        strict: bool | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return this model with tools; the tools are converted for the chosen model at each call.

        The parameters are named as in ``ChatOpenAI``, since libraries inspect the signature before they pass arguments.
        """
        given = {"tool_choice": tool_choice, "strict": strict, PARALLEL: parallel_tool_calls}
        return bind_lazily(self, tools, {**{name: one for name, one in given.items() if one is not None}, **kwargs})

    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Return a runnable that yields instances of ``schema``.

        The other arguments (``method``, ``strict``) are passed to the chosen model's ``with_structured_output``. An instance is
        parsed from a tool call, from JSON text, or from an object that the model's client has parsed. With ``include_raw`` the
        runnable yields a dict that also has the raw answer.
        """
        return structured_chain(self, schema, include_raw=include_raw, options=kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        for number in count():
            with self._attempt(number, messages, {**kwargs, "stop": stop}) as attempt:
                if attempt.model.rate_limiter:
                    attempt.model.rate_limiter.acquire(blocking=True)
                result = attempt.model._generate(messages, run_manager=run_manager, **attempt.options)
                attempt.saw(result.generations[0])
                return result
        raise AssertionError("unreachable")

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        for number in count():
            async with await self._aattempt(number, messages, {**kwargs, "stop": stop}) as attempt:
                if attempt.model.rate_limiter:
                    await attempt.model.rate_limiter.aacquire(blocking=True)
                result = await attempt.model._agenerate(messages, run_manager=run_manager, **attempt.options)
                attempt.saw(result.generations[0])
                return result
        raise AssertionError("unreachable")

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for number in count():
            with (
                self._attempt(number, messages, {**kwargs, "stop": stop}) as attempt,
                closing(chunks(attempt.model, messages, attempt.options)) as answer,
            ):
                for chunk in answer:
                    attempt.saw(chunk)
                    yield chunk
                return

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for number in count():
            async with await self._aattempt(number, messages, {**kwargs, "stop": stop}) as attempt:
                async with aclosing(achunks(attempt.model, messages, attempt.options)) as answer:
                    async for chunk in answer:
                        attempt.saw(chunk)
                        yield chunk
                return


def chunks(model: BaseChatModel, messages: list[BaseMessage], options: Mapping[str, Any]) -> Generator[ChatGenerationChunk]:
    """Call ``model`` and yield its answer in chunks; a model that does not stream yields a single chunk."""
    if model.rate_limiter:
        model.rate_limiter.acquire(blocking=True)
    if _streams(model, options, asynchronously=False):
        yield from model._stream(messages, **options)
    else:
        yield chunk_of(model._generate(messages, **options))


async def achunks(
    model: BaseChatModel, messages: list[BaseMessage], options: Mapping[str, Any]
) -> AsyncGenerator[ChatGenerationChunk]:
    """Yield the answer in chunks, like :func:`chunks`, without blocking the event loop."""
    if model.rate_limiter:
        await model.rate_limiter.aacquire(blocking=True)
    if _streams(model, options, asynchronously=True):
        async for chunk in model._astream(messages, **options):
            yield chunk
    else:
        yield chunk_of(await model._agenerate(messages, **options))


def _streams(model: BaseChatModel, options: Mapping[str, Any], *, asynchronously: bool) -> bool:
    kind, off = type(model), model.disable_streaming
    is_native = kind._stream is not BaseChatModel._stream or (asynchronously and kind._astream is not BaseChatModel._astream)
    return is_native and off is not True and not (off == "tool_calling" and options.get("tools"))


# -- in traces ---------------------------------------------------------------------------------------------------


def name_model(generation: ChatGeneration, model: BaseChatModel) -> None:
    """Write the model's provider and name into its answer, or into the answer's first chunk, unless they are set.

    LangChain's tracing reads the two. Does nothing with LangChain versions that do not read them, because there they would
    appear in the caller's messages. Never raises, since an error in tracing must not fail a call that was answered.
    """
    answered(partial(_write_name, generation, model), None)


def _write_name(generation: ChatGeneration, model: BaseChatModel) -> None:
    if not _is_read() or RESOLVED in (generation.generation_info or {}):
        return
    facts = model._get_ls_params()
    resolved = {"provider": facts.get("ls_provider"), "model": facts.get("ls_model_name")}
    generation.generation_info = {**(generation.generation_info or {}), RESOLVED: resolved}


@cache
def _is_read() -> bool:
    return find_spec("langchain_core.utils._gateway") is not None
