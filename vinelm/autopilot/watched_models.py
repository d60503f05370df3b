"""The chat models of a service under an autopilot: calls of the current model are recorded, and proven plans run instead."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage

from vinelm.autopilot.cascade import CascadeModel, PlanCall
from vinelm.autopilot.state import Part, StepState
from vinelm.backends.base import bound_instance
from vinelm.clock import Clock
from vinelm.foreign_code import answered
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.chat import answer_of, format_of, messages_of, settings_of, tools_of
from vinelm.replay.same import Message
from vinelm.requests.protocols import CallContext, ChatModelSource
from vinelm.rows.observation import Usage
from vinelm.traces.served import piloted

BY_PROMPT = "prompt:"
"""Prefix of the name of a stage that is distinguished by its prompts only."""


def step_key(stage: str) -> str:
    """Return the key under which the records of a stage are stored; :func:`~vinelm.replay.steps.step_of` gives the stage's
    calls the same key.
    """
    return stage if stage.startswith(BY_PROMPT) else f"name:{stage}"


class Watches(Protocol):
    """An object that records calls and knows which plans serve. Its methods never wait for the store, and only raise errors of
    the owner's functions.
    """

    def state_of(self, step: str) -> StepState | None:
        """Return the step's current state; None for an unknown step."""

    def part_of(self, state: StepState, key: str) -> Part:
        """Return "plan" if a request runs the newest proven plan, "below" for the plan proven before it, "today" for the
        current model. ``key`` is the request's name.
        """

    def recorded(self, call: LoggedCall) -> None:
        """Record a call of the current model."""

    def counted(self, step: str, key: str, outcome: str, usd: float, seconds: float | None = None) -> None:
        """Count a call's outcome, cost in dollars and seconds.

        Args:
            step: The key of the call's step.
            key: The request's name.
            outcome: The letter in :mod:`vinelm.traces.served.piloted` that states who answered.
            usd: The cost in dollars.
            seconds: The seconds; None if the call was not assigned to a plan at random, so that its cost is not compared
                between plans.
        """

    def is_same(self, one: Message, other: Message) -> bool:
        """Return whether two answers count as the same; errors of the owner's comparison function pass through."""

    def passes(self, messages: Any, answer: Message) -> bool:
        """Return whether the application's check accepts an answer; errors of the check pass through."""


class WatchedModels:
    """Wraps a :class:`~vinelm.requests.protocols.ChatModelSource`: records calls of the current model, or runs proven plans.

    Args:
        models: Makes the chat models.
        watch: Records the calls, and knows which plans serve.
    """

    def __init__(self, models: ChatModelSource, watch: Watches) -> None:
        self._models, self._watch = models, watch

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the wrapped source, for a name that this class lacks."""
        return getattr(self._models, name)

    @property
    def catalog(self) -> Any:
        """The catalog of the models for which this source can make chat models."""
        return self._models.catalog

    @property
    def is_virtual_time(self) -> bool:
        """Whether the chat models' latencies are simulated: they advance the request's virtual clock and take no real time."""
        return self._models.is_virtual_time

    def new_clock(self) -> Clock:
        """Return the clock of a new run."""
        return self._models.new_clock()

    def chat_model(self, name: str, call: CallContext, limits: Mapping[str, Any] | None = None) -> BaseChatModel:
        """Return the chat model of an invocation: the plan's if the request was assigned to it, otherwise the current model's.

        Calls of the current model are recorded. ``limits`` replaces fields of the entry, such as ``max_tokens``.
        """
        # A fault of our own is not paid for by a request: the application's own model answers.
        todays: CallContext | CascadeModel = call
        found = answered(lambda: self._chosen(name, call, limits), todays)
        return self._models.chat_model(name, found, limits) if isinstance(found, CallContext) else found

    def _chosen(self, name: str, call: CallContext, limits: Mapping[str, Any] | None) -> CallContext | CascadeModel:
        """Return the chat model of the plan that runs instead of the model ``name``; without a plan, return a context.

        The caller makes the chat model of ``name`` with this context, which is ``call``, extended to record the call if needed.
        """
        watch, step = self._watch, step_key(call.stage)
        state = watch.state_of(step)
        if state is not None and name != state.today:
            return call
        part: Part = "today" if state is None else watch.part_of(state, call.key)
        plan = None if state is None else state.plan_of(part)
        if plan is None or not all(model in self.catalog for model in plan.models):
            return call if state is not None and not (state.wants_units or state.plan) else self._watched(call, step)
        spent: list[Usage] = []

        def used(usage: Usage) -> None:
            spent.append(usage)
            call.on_usage(usage)

        def ended(is_todays: bool) -> None:
            outcome = piloted.BELOW if part == "below" else piloted.ESCALATED if is_todays else piloted.PLAN
            usd, seconds = sum(one.cost_usd for one in spent), sum(one.latency_s for one in spent)
            spent.clear()  # a stage may call its model again
            answered(lambda: watch.counted(step, call.key, outcome, usd, seconds), None)

        inner = replace(call, on_usage=used)

        def make(model: str) -> BaseChatModel:
            return self._models.chat_model(model, inner, limits)

        plan_call = PlanCall(plan, name, make=make, is_same=watch.is_same, passes=watch.passes, ended=ended)
        return bound_instance(CascadeModel, plan_call)

    def _watched(self, call: CallContext, step: str) -> CallContext:
        """Return the context of a call, extended so that the call is recorded with its prompt, answer and cost."""
        watch, heard = self._watch, call.on_exchange
        usages: list[Usage] = []

        def used(usage: Usage) -> None:
            usages.append(usage)
            call.on_usage(usage)

        def exchanged(messages: Sequence[BaseMessage], answer: AIMessage | None, asked: Mapping[str, Any]) -> None:
            if heard is not None:
                heard(messages, answer, asked)
            usage = usages[-1] if usages else None
            if usage is None or usage.failure is not None or answer is None:
                return
            answered(lambda: watch.counted(step, call.key, piloted.TODAY, usage.cost_usd, usage.latency_s), None)
            answered(lambda: watch.recorded(_logged(call, messages, answer, asked, usage)), None)

        return replace(call, on_usage=used, on_exchange=exchanged)


def _logged(
    call: CallContext, messages: Sequence[BaseMessage], answer: AIMessage, asked: Mapping[str, Any], usage: Usage
) -> LoggedCall:
    return LoggedCall(
        request=call.key,
        conversation=call.conversation,
        call=uuid4().hex,
        step="" if call.stage.startswith(BY_PROMPT) else call.stage,
        model=call.prefix[-1],
        messages=messages_of([message.model_dump() for message in messages]),
        answer=answer_of(answer.model_dump()),
        tools=tools_of(asked.get("tools")),
        response_format=format_of(asked),
        settings=settings_of(asked),
        started_at=time.time(),
        seconds=usage.latency_s,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cost_usd=usage.cost_usd,
    )
