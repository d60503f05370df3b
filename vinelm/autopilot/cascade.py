"""The chat model of a step that runs a proven plan: calls its models in order, and the current model if they do not decide."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, closing
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import Field

from vinelm.adapters.calls.delegating_model import Attempt, DelegatingChatModel, achunks, chunks, name_model
from vinelm.backends.remote.meter import chunk_of
from vinelm.errors import CallError, InputError
from vinelm.foreign_code import answered
from vinelm.replay.formats.chat import answer_of
from vinelm.replay.plans import AnswerPlan, PlanStep
from vinelm.replay.same import Message, message_of

FAILURES = (CallError, InputError, NotImplementedError)
"""Failures after which today's model answers: a failed call, and a call that the model does not accept."""


class PlanCall:
    """The settings of a :class:`CascadeModel`: the plan, and how its models are made and compared.

    Attributes:
        answered_by: The catalog name of the model whose answer the caller got; "" before an answer.

    Args:
        plan: The plan, which states the models to call.
        today: The catalog name of the current model.
        make: Takes a catalog name, and makes this model's chat model for this invocation.
        is_same: Returns whether two answers are the same.
        passes: Returns whether the application accepts an answer to a prompt; None if no plan uses this check.
        ended: Called when a call has been answered; the argument is True if the current model had to answer it.
    """

    def __init__(
        self,
        plan: AnswerPlan,
        today: str,
        *,
        make: Callable[[str], BaseChatModel],
        is_same: Callable[[Message, Message], bool],
        passes: Callable[[Any, Message], bool] | None,
        ended: Callable[[bool], None],
    ) -> None:
        self.plan, self.today, self.make = plan, today, make
        self._is_same, self._passes, self._ended = is_same, passes, ended
        self.answered_by = ""

    def deciding(self, messages: list[BaseMessage]) -> Deciding:
        """Return the object that decides, step by step, which models answer one call with these messages."""
        return Deciding(self, messages)

    def begin(self, model: str) -> None:
        """Record that the caller gets the answer of ``model``."""
        self.answered_by = model

    def end(self) -> None:
        """Record that the call has been answered and paid for, even if its stream ended early."""
        self._ended(self.answered_by == self.today)


class Deciding:
    """The state of one call that runs a plan: the answers of the plan's models so far, which determine the next step."""

    def __init__(self, call: PlanCall, messages: list[BaseMessage]) -> None:
        self._call, self._prompt = call, messages
        self.results: dict[str, ChatResult | None] = {}

    def next(self) -> PlanStep:
        """Return the plan's next step, which follows from the answers so far. If answers cannot be compared, the current model
        answers next.
        """
        has_answered = {model: result is not None for model, result in self.results.items()}
        # The owner's comparison may raise, and the request must go on.
        return answered(lambda: self._call.plan.step(has_answered, self._agree, self._accepts), PlanStep("today"))

    def _agree(self, one: str, other: str) -> bool:
        return self._call._is_same(self._said(one), self._said(other))

    def _accepts(self, model: str) -> bool:
        passes = self._call._passes
        return passes is not None and bool(passes([one.model_dump() for one in self._prompt], self._said(model)))

    def _said(self, model: str) -> Message:
        result = self.results[model]
        assert result is not None
        return message_of(answer_of(result.generations[0].message.model_dump()) or {})


class CascadeModel(DelegatingChatModel):
    """A chat model that answers each call with the models of a proven plan. Tools and schemas are converted for each called
    model. Spends money.

    The current model answers if the plan's models fail, disagree or do not pass the check. A plan of one model streams its
    answer; a plan of several models returns a complete answer.
    """

    binding: Any = Field(default=None, exclude=True, repr=False)
    """The :class:`PlanCall`."""

    @property
    def _llm_type(self) -> str:
        return "vinelm-plan"

    @property
    def answered_by(self) -> str:
        """The catalog name of the model whose answer the last caller got; "" before an answer."""
        call: PlanCall = self.binding
        return call.answered_by

    @property
    def todays(self) -> BaseChatModel:
        """The current model as a chat model, for a form of call that a plan of several models does not support."""
        call: PlanCall = self.binding
        return call.make(call.today)

    def _attempt(self, number: int, messages: list[BaseMessage], options: Mapping[str, Any]) -> Attempt:
        call: PlanCall = self.binding
        return Attempt(call.make(call.today), options)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call: PlanCall = self.binding
        deciding, options = call.deciding(messages), {**kwargs, "stop": stop}
        while (step := deciding.next()).what == "ask":
            try:
                deciding.results[step.model] = self._asked(step.model, messages, options)
            except FAILURES:
                deciding.results[step.model] = None
        result = deciding.results.get(step.model) or self._asked(call.today, messages, options)
        return self._taken(step, result)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call: PlanCall = self.binding
        deciding, options = call.deciding(messages), {**kwargs, "stop": stop}
        while (step := deciding.next()).what == "ask":
            try:
                deciding.results[step.model] = await self._aasked(step.model, messages, options)
            except FAILURES:
                deciding.results[step.model] = None
        result = deciding.results.get(step.model) or await self._aasked(call.today, messages, options)
        return self._taken(step, result)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call: PlanCall = self.binding
        options = {**kwargs, "stop": stop}
        if call.plan.kind != "alone":
            yield chunk_of(self._generate(messages, stop, **kwargs))
            return
        for model in (*call.plan.models, call.today):
            is_begun = False
            try:
                attempt = Attempt(call.make(model), options)
                with closing(chunks(attempt.model, messages, attempt.options)) as answer:
                    for chunk in answer:
                        if not is_begun:
                            self._begun(model, chunk, attempt.model)
                        is_begun = True
                        yield chunk
                return
            except FAILURES:
                if is_begun or model == call.today:
                    raise
            finally:
                if is_begun:
                    call.end()

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        call: PlanCall = self.binding
        options = {**kwargs, "stop": stop}
        if call.plan.kind != "alone":
            yield chunk_of(await self._agenerate(messages, stop, **kwargs))
            return
        for model in (*call.plan.models, call.today):
            is_begun = False
            try:
                attempt = Attempt(call.make(model), options)
                async with aclosing(achunks(attempt.model, messages, attempt.options)) as answer:
                    async for chunk in answer:
                        if not is_begun:
                            self._begun(model, chunk, attempt.model)
                        is_begun = True
                        yield chunk
                return
            except FAILURES:
                if is_begun or model == call.today:
                    raise
            finally:
                if is_begun:
                    call.end()

    def _asked(self, model: str, messages: list[BaseMessage], options: Mapping[str, Any]) -> ChatResult:
        call: PlanCall = self.binding
        attempt = Attempt(call.make(model), options)
        result = attempt.model._generate(messages, **attempt.options)
        name_model(result.generations[0], attempt.model)
        return result

    async def _aasked(self, model: str, messages: list[BaseMessage], options: Mapping[str, Any]) -> ChatResult:
        call: PlanCall = self.binding
        attempt = Attempt(call.make(model), options)
        result = await attempt.model._agenerate(messages, **attempt.options)
        name_model(result.generations[0], attempt.model)
        return result

    def _taken(self, step: PlanStep, result: ChatResult) -> ChatResult:
        call: PlanCall = self.binding
        call.begin(step.model if step.what == "take" else call.today)
        call.end()
        return result

    def _begun(self, model: str, chunk: ChatGenerationChunk, chat: BaseChatModel) -> None:
        call: PlanCall = self.binding
        name_model(chunk, chat)
        call.begin(model)
