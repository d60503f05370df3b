"""The chat model of a replayed unit: it answers recorded calls from the record, and records the calls that it buys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from vinelm.adapters.calls.fallback_model import FallbackModel
from vinelm.adapters.calls.tool_binding import whole_chunk
from vinelm.errors import CallError
from vinelm.profiler.execution.replayed.policy import ReplayPolicy
from vinelm.profiler.execution.replayed.prompts import prompt_digest
from vinelm.profiler.execution.replayed.record import RecordedCall
from vinelm.requests.protocols import CallContext


class UnitCalls:
    """Answers the calls of one replayed unit; a :class:`~vinelm.profiler.execution.unit_adapter.ReplayedCalls`."""

    def __init__(self, policy: ReplayPolicy) -> None:
        self._policy = policy

    def chat_model(self, call: CallContext, make: Callable[[], BaseChatModel]) -> BaseChatModel:
        """Return the chat model of one invocation."""
        model = copy(_PROTOTYPE)
        model.__dict__["binding"] = _ReplayedInvocation(self._policy, len(call.prefix) - 1, make)
        return model


@dataclass(slots=True)
class _ReplayedInvocation:
    """The invocation of a chat model; the :class:`~vinelm.adapters.calls.fallback_model.Attempts` of its base class."""

    policy: ReplayPolicy
    number: int
    make: Callable[[], BaseChatModel]
    _made: list[BaseChatModel] = field(default_factory=list)

    @property
    def answering(self) -> BaseChatModel:
        """The real chat model, made when it is first needed: a recorded answer needs none."""
        if not self._made:
            self._made.append(self.make())
        return self._made[0]

    def fall_back(self, model: BaseChatModel, error: CallError) -> bool:
        """A profile measures the model that it asked for."""
        return False

    def recorded(self, messages: list[BaseMessage], options: Mapping[str, Any]) -> tuple[AIMessage | None, str]:
        """The recorded answer to a prompt, None where the call is to be made; and the prompt's digest."""
        digest = prompt_digest(messages, options)
        if not self.policy.is_recorded(self.number):
            return None, digest
        call = self.policy.recorded_call(self.number, digest)
        if call.answer is None:
            kind, detail = call.failure or ("unknown", "")
            raise CallError(detail, kind=cast("Any", kind))
        return call.answer.model_copy(deep=True), digest

    @contextmanager
    def bought(self, digest: str) -> Iterator[RecordedCall]:
        """Record the call that is made in the block."""
        call = RecordedCall(digest, None)
        with self.policy.buying():
            try:
                yield call
            except CallError as error:
                call.failure = (error.kind, str(error))
                raise
            except Exception as error:
                call.failure = ("unknown", type(error).__name__)
                raise
            finally:
                self.policy.add_call(call)


class ReplayedModel(FallbackModel):
    """Calls the chosen model, or returns what it returned when the request was run before. Spends money in the first case."""

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer, digest = self.binding.recorded(messages, {**kwargs, "stop": stop})
        if answer is not None:
            return _result(answer)
        with self.binding.bought(digest) as call:
            result = super()._generate(messages, stop=stop, run_manager=run_manager, **kwargs)
            call.answer = _kept(result)
        return result

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        answer, digest = self.binding.recorded(messages, {**kwargs, "stop": stop})
        if answer is not None:
            return _result(answer)
        with self.binding.bought(digest) as call:
            result = await super()._agenerate(messages, stop=stop, run_manager=run_manager, **kwargs)
            call.answer = _kept(result)
        return result

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer, digest = self.binding.recorded(messages, {**kwargs, "stop": stop})
        if answer is not None:
            yield whole_chunk(_result(answer))
            return
        with self.binding.bought(digest) as call:
            merged: ChatGenerationChunk | None = None
            for chunk in super()._stream(messages, stop=stop, run_manager=run_manager, **kwargs):
                merged = chunk if merged is None else merged + chunk
                call.answer = _merged(merged)
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer, digest = self.binding.recorded(messages, {**kwargs, "stop": stop})
        if answer is not None:
            yield whole_chunk(_result(answer))
            return
        with self.binding.bought(digest) as call:
            merged: ChatGenerationChunk | None = None
            async for chunk in super()._astream(messages, stop=stop, run_manager=run_manager, **kwargs):
                merged = chunk if merged is None else merged + chunk
                call.answer = _merged(merged)
                yield chunk


_PROTOTYPE = ReplayedModel.model_construct(binding=None)
_PROTOTYPE._serialized  # noqa: B018 - LangChain computes it on first use and stores it with the fields


def _result(answer: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=answer)])


def _kept(result: ChatResult) -> AIMessage:
    """A copy of the answer: the application may change its own, and LangChain gives it an id."""
    return cast("AIMessage", result.generations[0].message).model_copy(deep=True)


def _merged(chunk: ChatGenerationChunk) -> AIMessage:
    return cast("AIMessage", message_chunk_to_message(cast("AIMessageChunk", chunk.message)))


__all__ = ["ReplayedModel", "UnitCalls"]
