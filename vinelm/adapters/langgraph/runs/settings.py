"""The settings of an adapter and the stages, routes and tools that the application has wrapped so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from langgraph.graph import END

from vinelm.adapters.langgraph.runs.run_context import RunContext
from vinelm.adapters.tools.tool_box import ToolBox
from vinelm.backends.remote.call_cache import CachedCalls, CallCache
from vinelm.backends.remote.equal_calls import EqualCalls
from vinelm.catalog import Catalog
from vinelm.policies import OnError
from vinelm.requests.names import RunLabel, label_of
from vinelm.requests.protocols import CallGuard, ChatModelSource
from vinelm.signals import Signals
from vinelm.signals.kind import Kind
from vinelm.telemetry import ObserverGroup
from vinelm.template import Template


class AdapterSettings:
    """The settings that every part of an adapter reads.

    Attributes:
        models: makes the chat models.
        template: the workflow's shape, bound to the catalog; None if it is not known.
        on_error: what to do if VineLM itself fails while a graph runs.
        signals: the workflow's signals.
        kind: returns the request's type; None if no types are declared.
        observers: notified of decisions and invocations.
        tools: the tools that the application declared.
        tells_config: whether a run's context is given LangGraph's ``configurable``. Must be set before the first run.
        conversation_id, tenant: keys of that ``configurable``, or functions of it, that give a run's conversation and tenant.
        account_of: returns the account, shared between requests, that must authorize a new run's calls together with its
            policy's guard. None, or a result of None: there is no account. Must be set before the first run.
        has_contexts, has_caps: see :class:`~vinelm.adapters.langgraph.runs.run_context.KnowsCaps`.
        declared: the stages wrapped so far, each with the default model that the application declared, or None.
        optional: the stages that may be skipped. For a judge, the value is the state's key that holds its verdict; otherwise
            None.
        deterministic: the stages whose equal calls share an answer at any temperature.
        caches: the stages whose served calls are looked up in a cache.
        priorities: for each stage, the number added to its calls' priority.
        agains, ends: the places to which the wrapped edges lead if the request continues (``agains``) or if the policy ends it
            (``ends``).
        has_finish: whether the application asked for the node that returns an earlier answer.
        returns_earlier: whether a request that the policy ends can return an earlier answer than the last one. It can if
            answers are declared, the finish node was requested, and wherever the policy can end a request, a node follows
            instead of END.
    """

    def __init__(
        self,
        models: ChatModelSource,
        template: Template | None,
        on_error: OnError,
        signals: Signals | None,
        kind: Kind | None = None,
    ) -> None:
        self.models = models
        self.template = None if template is None else template.bind(tuple(models.catalog))
        self.on_error: OnError = on_error
        self.signals, self.kind = signals or Signals(), kind
        self.observers = ObserverGroup()
        self.tools = ToolBox(self.observers, on_error)
        self.tells_config = self.has_contexts = self.has_caps = False
        self.conversation_id: RunLabel = "thread_id"
        self.tenant: RunLabel = "tenant"
        self.account_of: Callable[[RunContext], CallGuard | None] | None = None
        self.declared: dict[str, str | None] = {}
        self.optional: dict[str, str | None] = {}
        self.deterministic: set[str] = set()
        self.caches: dict[str, EqualCalls] = {}
        self.priorities: dict[str, float] = {}
        self.agains: list[str] = []
        self.ends: set[str] = set()
        self.has_finish = self.returns_earlier = False

    @property
    def catalog(self) -> Catalog:
        """The models that stages may run on."""
        return self.models.catalog

    def cache(self, stage: str, cache: CallCache) -> None:
        """Register the cache in which a stage's served calls are looked up.

        Stages that share a cache also share the answers of calls in progress.
        """
        others = (one for one in self.caches.values() if one.kept is cache)
        self.caches[stage] = next(others, None) or EqualCalls(cache, self.deterministic)

    def cached_calls(self, stage: str, context: RunContext) -> CachedCalls | None:
        """Return the object that looks up the calls of an invocation in the cache of ``stage``; None without a cache."""
        equal = self.caches.get(stage)
        return None if equal is None else CachedCalls(equal, label_of(self.tenant, context.configurable))

    @property
    def hit_rates(self) -> dict[tuple[str, str], float]:
        """The share of calls answered from the stages' caches, in [0, 1), keyed by (stage, model). Pairs with few calls are
        left out.
        """
        found: dict[tuple[str, str], float] = {}
        for stage, equal in self.caches.items():
            if isinstance(equal.kept, CallCache):
                found |= {where: rate for where, rate in equal.kept.rates.items() if where[0] == stage}
        return found

    def note_exits(self, again: Iterable[str] = (), end: str | None = None) -> None:
        """Record where a conditional edge leads: to the places ``again``, or to ``end`` if the policy ends the request there.

        Without ``end``, record only that the application uses the node ``vine.finish``.
        """
        if end is None:
            self.has_finish = True
        else:
            self.agains += again
            self.ends.add(end)
        self.returns_earlier = bool(self.signals.answer) and self.has_finish and bool(self.ends) and END not in self.ends
