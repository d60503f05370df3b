"""The chat model of the offline backends, which simulate or replay answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import ToolCall, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from vinelm.backends.base import BoundChatModel, bound_instance
from vinelm.catalog import Model
from vinelm.clock import WallClock
from vinelm.errors import CallError, ConfigError
from vinelm.requests.protocols import CallContext, CallPermit
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Usage


class AnswerSource(Protocol):
    """The source of an offline chat model's answers."""

    def answer(self, model: Model, call: CallContext, prompt_chars: int) -> tuple[str, Usage]:
        """Return the answer's text and its usage, without waiting for the latency or reporting the usage.

        ``prompt_chars`` is the length of the prompt in characters. ``usage.failure`` is set if the call fails.
        """


def request_of(call: CallContext, provider: str) -> Request:
    """Return the call's request. Raise :class:`ConfigError`, which names the ``provider``, if the call has none."""
    if call.request is None:
        raise ConfigError(f"stage {call.stage!r}: the {provider} backend answers from the request's row: pass request=")
    return call.request


@dataclass(frozen=True, slots=True)
class _Binding:
    """What an offline chat model needs to answer one call: the source of its answers, the model, and the call's context.

    The binding is left out of the chat model's ``repr``. A ``repr`` may appear in traces, which must not contain the request's
    labels.
    """

    source: AnswerSource
    model: Model
    call: CallContext


class OfflineChatModel(BoundChatModel):
    """A LangChain chat model whose answers come from an :class:`AnswerSource`.

    A call advances the request's clock by its latency, or waits that long if the clock is real. Of the prompt only the length
    matters. Reports exactly one :class:`Usage` per call, even if the call fails (:class:`CallError`) or its stream is
    abandoned.
    """

    @classmethod
    def bound(cls, source: AnswerSource, model: Model, call: CallContext) -> Self:
        """Return a chat model for one execution of a step, whose context is ``call``.

        The chat model gets its answers from ``source``, as the answers of ``model``.
        """
        return bound_instance(cls, _Binding(source, model, call))

    @property
    def _llm_type(self) -> str:
        return "vinelm-offline"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with _OfflineCall(self, messages, kwargs) as call:
            self.binding.call.clock.sleep(call.usage.latency_s)
        return _result(*call.said, call.usage)

    def said(self, messages: Sequence[BaseMessage]) -> str:
        """Answer a prompt and return the answer's text, like ``invoke`` but without LangChain's callbacks and tracing."""
        with _OfflineCall(self, messages, {}) as call:
            self.binding.call.clock.sleep(call.usage.latency_s)
        return call.said[0]

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with _OfflineCall(self, messages, kwargs) as call:
            await self._pass_time(call.usage.latency_s)
        return _result(*call.said, call.usage)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with _OfflineCall(self, messages, kwargs) as call:
            for delay_s, chunk in call.chunks():
                self.binding.call.clock.sleep(delay_s)
                if chunk is not None:
                    yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        with _OfflineCall(self, messages, kwargs) as call:
            for delay_s, chunk in call.chunks():
                await self._pass_time(delay_s)
                if chunk is not None:
                    yield chunk

    def _answer(self, messages: Sequence[BaseMessage]) -> tuple[str, Usage, CallPermit | None]:
        """Return the answer's text, its usage, and the permit with which the guard (the object that enforces budgets) allows
        the call.

        The permit is None if the call has no guard. The guard reserves the exact cost, since an offline call's cost is known in
        advance.
        """
        bound: _Binding = self.binding
        text, usage = bound.source.answer(bound.model, bound.call, sum(map(_chars, messages)))
        guard = bound.call.guard
        return text, usage, None if guard is None else guard.authorize(usage.cost_usd)

    def _said(self, text: str, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> tuple[str, list[ToolCall]]:
        """Return the text and the tool calls of the next message.

        If tools are bound (``options["tools"]``), the answer ``text`` may be a script of tool calls; see :func:`next_step`.
        """
        return next_step(text, messages) if options.get("tools") else (text, [])

    async def _pass_time(self, seconds: float) -> None:
        clock = self.binding.call.clock
        if isinstance(clock, WallClock):
            await asyncio.sleep(seconds)  # the thread also serves other requests
        else:
            clock.sleep(seconds)


class _OfflineCall:
    """One offline call, as a context manager. At its end it reports the call's usage and settles its permit, exactly once.

    Leaving the block raises :class:`CallError` if the usage names a failure.

    Attributes:
        said: the answer's text and tool calls.
        usage: the call's usage, known from the beginning.
    """

    __slots__ = ("_context", "_messages", "_options", "_permit", "said", "usage")

    def __init__(self, model: OfflineChatModel, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> None:
        self._context: CallContext = model.binding.call
        self._messages, self._options = messages, options
        if self._context.on_prompt is not None:
            self._context.on_prompt(messages, options.get("tools") or ())
        text, self.usage, self._permit = model._answer(messages)
        try:
            self.said = model._said(text, messages, options)
        except BaseException:
            if self._permit is not None:
                self._permit.close()
            raise

    def chunks(self) -> Iterator[tuple[float, ChatGenerationChunk | None]]:
        """Yield (seconds to wait, chunk) of the streamed answer; a failed call yields nothing."""
        return iter([(self.usage.latency_s, None)]) if self.usage.failure else _chunks(*self.said, self.usage)

    def __enter__(self) -> _OfflineCall:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        usage, context = self.usage, self._context
        if error is not None and not usage.failure:
            usage = replace(usage, finish_reason=None)
        if self._permit is not None:
            self._permit.settle(usage)
        context.on_usage(usage)
        if context.on_exchange is not None:
            answer = AIMessage(self.said[0], tool_calls=self.said[1], response_metadata={"finish_reason": usage.finish_reason})
            context.on_exchange(self._messages, None if usage.failure else answer, self._options)
        if usage.failure is not None and error is None:
            raise CallError(f"{usage.model}: call failed: {usage.failure}", kind=usage.failure, cost_usd=usage.cost_usd)


def _chars(message: BaseMessage) -> int:
    content = message.content
    return len(content) if isinstance(content, str) else len(message.text)


def _usage_metadata(usage: Usage) -> UsageMetadata:
    tokens_in, tokens_out = usage.tokens_in or 0, usage.tokens_out or 0
    counts: UsageMetadata = {"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
    if usage.tokens_cached is not None:
        counts["input_token_details"] = {"cache_read": usage.tokens_cached}
    return counts


def _result(text: str, calls: list[ToolCall], usage: Usage) -> ChatResult:
    message = AIMessage(
        content=text,
        tool_calls=calls,
        usage_metadata=_usage_metadata(usage),
        response_metadata={"model_name": usage.model, "finish_reason": usage.finish_reason},
    )
    return ChatResult.model_construct(generations=[ChatGeneration(message=message)], llm_output=None)


def _chunks(text: str, calls: list[ToolCall], usage: Usage) -> Iterator[tuple[float, ChatGenerationChunk | None]]:
    """Yield (seconds to wait, chunk) for each word of the text. The first word comes after ``ttft_s`` seconds, the others
    evenly spaced until ``latency_s``.
    """
    words = [word + " " for word in text.split(" ")]
    words[-1] = words[-1][:-1]
    first_s = usage.latency_s if usage.ttft_s is None else min(usage.ttft_s, usage.latency_s)
    step_s = (usage.latency_s - first_s) / max(len(words) - 1, 1)
    for index, word in enumerate(words):
        message = AIMessageChunk(content=word)
        if index == len(words) - 1:
            message.tool_call_chunks = [
                tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=i)
                for i, call in enumerate(calls)
            ]
            message.tool_calls = calls
            message.usage_metadata = _usage_metadata(usage)
            message.response_metadata = {"model_name": usage.model, "finish_reason": usage.finish_reason}
            message.chunk_position = "last"
        yield first_s if index == 0 else step_s, ChatGenerationChunk(message=message)


# -- tool use: an answer is a script of tool calls, and each invocation makes the next one -----------------------
# {"calls": [{"name": ..., "args": {...}}, ...], "answer": "..."}: the next call is the first that was not made since the last
# human message; after all calls comes the answer. Used only if tools are bound.


def next_step(text: str, messages: Sequence[BaseMessage]) -> tuple[str, list[ToolCall]]:
    """Return the text and the tool calls of the model's next message.

    ``text`` may be a JSON script of tool calls and a final answer. Then the message is the first of these calls that was not
    made since the last human message, or the final answer once all were made. Any other ``text`` is returned without tool
    calls.
    """
    script = _script(text)
    if script is None:
        return text, []
    made = calls_since_human(messages)
    for call in script["calls"]:
        if not any(one["name"] == call["name"] and one["args"] == call["args"] for one in made):
            return "", [ToolCall(name=call["name"], args=call["args"], id=f"call-{len(made)}", type="tool_call")]
    return str(script["answer"]), []


def said_chars(text: str) -> int:
    """Return the number of characters billed for an answer. For a script of tool calls, which takes several messages, return
    the mean number per message.
    """
    script = _script(text)
    return len(text) if script is None else len(text) // (len(script["calls"]) + 1)


def _script(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    is_script = isinstance(found, dict) and set(found) == {"calls", "answer"} and isinstance(found["calls"], list)
    return found if is_script and all({"name", "args"} <= set(call) for call in found["calls"]) else None


def calls_since_human(messages: Sequence[BaseMessage]) -> list[ToolCall]:
    """Return the tool calls since the last human message, in order."""
    made: list[ToolCall] = []
    for message in messages:
        if isinstance(message, HumanMessage):
            made = []
        elif isinstance(message, AIMessage):
            made.extend(message.tool_calls)
    return made
