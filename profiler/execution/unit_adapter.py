"""The adapter of a profiled graph: charges each model call to the job's budget and applies the rate limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from vinelm.adapters.langchain.chat_model import VineInterface
from vinelm.adapters.langgraph import GraphAdapter, RunContext
from vinelm.backends.prompt_text import prompt_parts
from vinelm.backends.resolver import ModelResolver
from vinelm.catalog import Catalog
from vinelm.errors import WorkflowError
from vinelm.profiler.execution.job import UnitBudget
from vinelm.prompts.shape import Shape, shape_of
from vinelm.prompts.stored import packed
from vinelm.requests.protocols import Backend, CallContext, PricesCalls
from vinelm.rows.observation import Usage
from vinelm.template import Template

UNIT_BUDGET: ContextVar[UnitBudget | None] = ContextVar("vinelm_unit_budget", default=None)
"""The budget of the job that runs in this context; None if money is not counted."""


class ReplayedCalls(Protocol):
    """The interface by which a replayed job answers its model calls; see :mod:`vinelm.profiler.execution.replayed`."""

    def chat_model(self, call: CallContext, make: Callable[[], BaseChatModel]) -> BaseChatModel:
        """Return the chat model of one invocation; ``make`` returns the real model."""


class UnitPrompts:
    """Collects hashes of the prompts of a job's calls, in the order of the calls. Threads of one job may share it.

    Args:
        key: the store's secret for these hashes; see :func:`~vinelm.prompts.shape.shape_of`.
    """

    def __init__(self, key: bytes) -> None:
        self._key, self._shapes = key, list[Shape]()

    def see(self, messages: Sequence[BaseMessage], tools: Sequence[Any]) -> None:
        """Add the hashes of one prompt, which consists of messages and tools; its text is not stored."""
        self._shapes.append(shape_of(prompt_parts(messages, tools), self._key))

    def packed(self) -> bytes:
        """Return the collected hashes of the prompts of all calls as bytes; empty if no call was made."""
        return packed(self._shapes, self._key) if self._shapes else b""


UNIT_PROMPTS: ContextVar[UnitPrompts | None] = ContextVar("vinelm_unit_prompts", default=None)
"""Collects the prompts of the unit that runs in this context; None if no row is made."""

UNIT_CALLS: ContextVar[ReplayedCalls | None] = ContextVar("vinelm_unit_calls", default=None)
"""The recorded and the real calls of the replayed unit that runs in this context."""


class UnitModels(ModelResolver):
    """The chat models of profiled jobs.

    If the backend can price a call in advance, the job's budget is checked before the call; otherwise the call is charged at
    its end.
    """

    def chat_model(self, name: str, call: CallContext, limits: Mapping[str, Any] | None = None) -> BaseChatModel:
        """Return the chat model of the catalog entry ``name``, set up to charge the job's budget and to hash prompts.

        ``limits`` has fields of the entry to replace, such as ``max_tokens``.
        """
        calls = UNIT_CALLS.get()
        if calls is None:
            return self._charged(name, call, limits)
        return calls.chat_model(call, lambda: self._charged(name, call, limits))

    def _charged(self, name: str, call: CallContext, limits: Mapping[str, Any] | None) -> BaseChatModel:
        budget, prompts = UNIT_BUDGET.get(), UNIT_PROMPTS.get()
        if prompts is not None:
            call = replace(call, on_prompt=prompts.see)
        if budget is not None and isinstance(self.backend_of(name), PricesCalls):
            call = replace(call, guard=budget)
        elif budget is not None:
            call = replace(call, on_usage=_charging(budget, call.on_usage))
        return super().chat_model(name, call, limits)


class UnitAdapter(VineInterface):
    """The object that a profiled workflow's ``build(vine)`` receives.

    In a profile, a request that ends early always returns its latest answer, not an earlier one.
    """

    def __init__(self, catalog: Catalog, backends: Mapping[str, Backend], *, template: Template | None) -> None:
        self.models = UnitModels(catalog, backends)
        self.adapter = GraphAdapter(self.models, template=template, new_policy=_refuse)

    @property
    def ends(self) -> frozenset[str]:
        """The nodes to which the routes of ``vine.route`` lead when a loop ends."""
        return frozenset(self.adapter.ends)

    def route(self, fn: Callable[..., Any], **settings: Any) -> Callable[..., Any]:
        """Return a conditional edge; see :meth:`VineInterface.route`.

        If ``to`` is not given, the limit ``times`` is ignored: in a profile only the template limits how often a loop repeats.
        """
        if settings.get("to") is None:
            settings.pop("times", None)
        return super().route(fn, **settings)


def _refuse(context: RunContext) -> None:
    """Raise, because a model call outside of a job cannot be charged to any job; ``context`` is ignored."""
    raise WorkflowError(
        "a model was asked for outside of the profiled run (in a graph or thread of the application's own): "
        "its calls would be in no row, so make them in a node of the workflow's graph"
    )


def _charging(budget: UnitBudget, on_usage: Callable[[Usage], None]) -> Callable[[Usage], None]:
    def both(usage: Usage) -> None:
        on_usage(usage)
        budget.charge(usage)

    return both
