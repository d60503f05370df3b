"""The control of a profiled graph: every call of a model goes through the unit's purse and the run's rate limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from langchain_core.language_models import BaseChatModel

from vinelm.adapters.langgraph import GraphAdapter, RunContext
from vinelm.errors import WorkflowError
from vinelm.profiler.budget.unit_budget import UnitBudget
from vinelm.protocols import CallContext, Policy, PricesCalls, RateLimiter

PURSE: ContextVar[UnitBudget | None] = ContextVar("vinelm_purse", default=None)
"""The money of the unit that is run in this context; None where nobody counts."""


class UnitAdapter(GraphAdapter):
    """Backends that can price a call ask the purse before it, of the others it hears after.

    ``gates`` are the rate limits by model where they are not this process's own. ``ends`` are where the graph's routes lead
    when their loop is over.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gates: Mapping[str, RateLimiter] = MappingProxyType({})
        self.ends: set[str] = set()

    def route(self, fn: Callable[..., Any], *, again: str, end: str) -> Callable[..., Any]:
        """See :class:`GraphAdapter`."""
        self.ends.add(end)
        return super().route(fn, again=again, end=end)

    def chat_model(self, name: str, call: CallContext) -> BaseChatModel:
        """See :class:`GraphAdapter`."""
        return super().chat_model(name, self._watched(name, call))

    def limited_chat_model(self, name: str, call: CallContext, limits: Mapping[str, Any]) -> BaseChatModel:
        """See :class:`GraphAdapter`: for a ``VineChatModel`` that has limits of its own."""
        return super().limited_chat_model(name, self._watched(name, call), limits)

    def policy_for(self, context: RunContext) -> Policy:
        """The unit's; :class:`WorkflowError` for a call that no unit would pay for."""
        if context.policy is None:
            raise WorkflowError(
                "a model was asked for outside of the profiled run (in a graph or thread of the application's own): "
                "its calls would be in no row, so make them in a node of the workflow's graph"
            )
        return super().policy_for(context)

    def _watched(self, name: str, call: CallContext) -> CallContext:
        gate, purse = self.gates.get(name), PURSE.get()
        if gate is not None:
            call = replace(call, gate=gate)
        if purse is None:
            return call
        if isinstance(self.backend_of(name), PricesCalls):
            return replace(call, guard=purse)
        on_usage, paid = call.on_usage, purse.paid

        def both(usage: Any) -> None:
            on_usage(usage)
            paid(usage)

        return replace(call, on_usage=both)
