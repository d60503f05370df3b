"""The chat model of a replayed job: it answers earlier calls from the record, and makes and records new calls."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage, message_chunk_to_message
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from vinelm.adapters.calls.delegating_model import Attempt
from vinelm.adapters.calls.fallback_model import FallbackModel
from vinelm.adapters.calls.structured import Structured
from vinelm.adapters.calls.tool_binding import STRUCTURED, BoundTools
from vinelm.errors import CallError
from vinelm.foreign_code import answered
from vinelm.profiler.execution.replayed.policy import ReplayPolicy
from vinelm.profiler.execution.replayed.record import DIGEST_SIZE, RecordedCall
from vinelm.requests.protocols import CallContext


class UnitCalls:
    """Makes the chat models of a replayed job. Implements :class:`~vinelm.profiler.execution.unit_adapter.ReplayedCalls`."""

    def __init__(self, policy: ReplayPolicy) -> None:
        self._policy = policy

    def chat_model(self, call: CallContext, make: Callable[[], BaseChatModel]) -> BaseChatModel:
        """Return a chat model that replays the recorded answers of one invocation; ``make`` makes the model for new calls."""
        model = copy(_PROTOTYPE)
        model.__dict__["binding"] = _ReplayedInvocation(self._policy, len(call.prefix) - 1, make)
        return model


@dataclass(slots=True)
class _ReplayedInvocation:
    """An invocation of a replayed model. Implements :class:`~vinelm.adapters.calls.fallback_model.Attempts`.

    ``number`` is the invocation's index in the path, from 0. ``make`` makes the real chat model, kept in ``_made``.
    """

    policy: ReplayPolicy
    number: int
    make: Callable[[], BaseChatModel]
    _made: list[BaseChatModel] = field(default_factory=list)

    @property
    def answering(self) -> BaseChatModel:
        """The real chat model, which answers new calls. It is created on first use, since recorded answers need no model."""
        if not self._made:
            self._made.append(self.make())
        return self._made[0]

    def fall_back(self, model: BaseChatModel, error: CallError) -> bool:
        """Return False, because a profile must measure the chosen model, not a fallback."""
        return False

    def recorded(self, messages: list[BaseMessage], options: Mapping[str, Any]) -> tuple[AIMessage | None, str]:
        """Return the recorded answer to a prompt, and the prompt's digest.

        The answer is None if the invocation is not in the record, so that the call must be made.

        Raises:
            CallError: the recorded call failed.
        """
        digest = prompt_digest(messages, options)
        if not self.policy.is_recorded(self.number):
            return None, digest
        call = self.policy.recorded_call(self.number, digest)
        if call.answer is None:
            kind, detail = call.failure or ("unknown", "")
            raise CallError(detail, kind=cast("Any", kind))
        # A copy: the application may change its message, and the record is read again for a repeated prompt.
        return call.answer.model_copy(deep=True), digest


class _Recorded(Attempt):
    """Returns a recorded answer instead of making a call."""

    __slots__ = ()

    def __init__(self, answer: AIMessage, options: Mapping[str, Any]) -> None:
        self.is_begun, self.model, self.options = False, _RecordedAnswer(answer=answer), dict(options)


class _RecordedAnswer(BaseChatModel):
    """A chat model that always returns the same recorded answer."""

    answer: AIMessage

    @property
    def _llm_type(self) -> str:
        return "vinelm-recorded"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.answer)])

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return self._generate(messages)


class _Bought(Attempt):
    """Calls the real model and records the result, whether it succeeds or fails."""

    __slots__ = ("_buying", "_call", "_chunks", "_policy")

    def __init__(self, invocation: _ReplayedInvocation, digest: str, options: Mapping[str, Any]) -> None:
        self._policy, self._call = invocation.policy, RecordedCall(digest, None)
        self._chunks: ChatGenerationChunk | None = None
        self._buying = self._policy.buying()
        self._buying.__enter__()
        try:
            super().__init__(invocation.answering, options)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise

    def saw(self, generation: ChatGeneration) -> None:
        if isinstance(generation, ChatGenerationChunk):
            self._chunks = generation if self._chunks is None else self._chunks + generation
            self._call.answer = cast("AIMessage", message_chunk_to_message(cast("AIMessageChunk", self._chunks.message)))
        else:  # a copy: the application may change its answer, and LangChain gives it an id
            self._call.answer = cast("AIMessage", generation.message).model_copy(deep=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, CallError):
            self._call.failure = (error.kind, str(error))
        elif isinstance(error, Exception):
            self._call.failure = ("unknown", type(error).__name__)
        # Recorded before it ends: the record may be written as soon as no call is in flight.
        self._policy.add_call(self._call)
        self._buying.__exit__(kind, error, trace)


class ReplayedModel(FallbackModel):
    """Calls the chosen model, which spends money, or returns its recorded answer."""

    def _attempt(self, number: int, messages: list[BaseMessage], options: Mapping[str, Any]) -> Attempt:
        answer, digest = self.binding.recorded(messages, options)
        return _Bought(self.binding, digest, options) if answer is None else _Recorded(answer, options)


_PROTOTYPE = ReplayedModel.model_construct(binding=None)
_PROTOTYPE._serialized  # noqa: B018 - LangChain computes it on first use and stores it with the fields


_IDS = frozenset({"id", "tool_use_id", "call_id", "tool_call_id", "index"})
"""Keys of content blocks that an application or a provider may renumber in each run; they say nothing about the prompt."""


def prompt_digest(messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> str:
    """Return two digests of a call's input in one text: of the whole input, and of the input without times of day.

    The input is its roles, contents, tool calls, tools, output schema and stop words. What may differ between runs is left out:
    ids of messages and tool calls, and usage and metadata of earlier answers.

    Args:
        messages: the prompt.
        options: the arguments of the call or of ``bind``.
    """
    asked = {name: _plain_option(value) for name, value in options.items() if value is not None and name in _COMPARED}
    text = json.dumps([_plain_messages(messages), asked], sort_keys=True, default=str)
    return "".join(hashlib.sha256(one.encode()).hexdigest()[:DIGEST_SIZE] for one in (text, _TIME_OF_DAY.sub("", text)))


_TIME_OF_DAY = re.compile(r"(?<!\d)\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?(?!\d)")
"""The time in a prompt that says when it was written; such a prompt is another one in each run."""
_COMPARED = frozenset({"tools", "tool_choice", "stop", STRUCTURED})


def _plain_messages(messages: Sequence[BaseMessage]) -> list[Any]:
    order: dict[str, int] = {}  # tool calls by position, since their ids may be new
    plain = []
    for message in messages:
        item: list[Any] = [message.type, message.name, _without_ids(message.content)]
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                order.setdefault(str(call["id"]), len(order))
            item.append([[call["name"], call["args"]] for call in message.tool_calls])
        elif isinstance(message, ToolMessage):
            item += [order.get(message.tool_call_id), message.status]
        plain.append(item)
    return plain


def _without_ids(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _without_ids(inner) for key, inner in value.items() if key not in _IDS}
    if isinstance(value, (list, tuple)):
        return [_without_ids(inner) for inner in value]
    return value


def _plain_option(value: Any) -> Any:
    if isinstance(value, BoundTools):
        choice = {name: inner for name, inner in value.options.items() if name == "tool_choice"}
        return [[_plain_tool(tool) for tool in value.given], choice]
    if isinstance(value, Structured):
        return _plain_tool(value.schema)
    return value


def _plain_tool(tool: Any) -> Any:
    own = tool if isinstance(tool, Mapping) else getattr(tool, "__name__", type(tool).__name__)  # in the provider's format
    return answered(lambda: convert_to_openai_tool(tool), own)
