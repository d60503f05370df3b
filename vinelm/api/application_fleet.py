"""Connects an application's requests with the fleet: the processes that share load, rate limits and budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from vinelm.adapters.langgraph import RunContext
from vinelm.adapters.langgraph.runs.run_context import CARRY_IT, is_carried
from vinelm.backends.limits.rate_limits import EngineRateLimiter
from vinelm.backends.registry import engine_limiters_of, replica_gates_of
from vinelm.backends.resolver import ModelResolver
from vinelm.catalog import Catalog, ReplicaGroup
from vinelm.controller import Planner
from vinelm.controller.fleet.joined.fleet import Fleet
from vinelm.controller.fleet.joined.session_rows import SessionRows
from vinelm.errors import CallRefused, VineLMError
from vinelm.foreign_code import answered
from vinelm.objective import Objective
from vinelm.requests.names import label_of
from vinelm.requests.protocols import CallGuard


class ApplicationFleet:
    """The connection of one application to its fleet. Thread-safe.

    Args:
        fleet: this process's member of the fleet.
        models: makes the chat models, whose rate limits are shared with the other processes.

    Attributes:
        conversation_id, tenant: the keys or functions that give a run's conversation and tenant, from the fleet's settings.
    """

    def __init__(self, fleet: Fleet, models: ModelResolver) -> None:
        self.fleet = fleet
        self._summed: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {})
        self._has_shared = False
        self._models, self.conversation_id, self.tenant = models, fleet.config.conversation_id, fleet.config.tenant

    def others(self) -> Mapping[str, int]:
        """Return the number of calls that the other processes have in progress, by engine (model endpoint). A replica group
        counts the calls on all its replicas.
        """
        found = self.fleet.others()
        seen, summed = self._summed
        if seen is not found:  # it is replaced four times a second
            total = dict(found)
            for group in self._models.catalog.models:
                if isinstance(group, ReplicaGroup):
                    total[group.engine] = sum(found.get(engine, 0) for engine in (group.engine, *_engines(group)))
            self._summed, summed = (found, total), total
        return summed

    def rows(self, planner: Planner, objective: Objective, configurable: Mapping[str, Any] | None) -> SessionRows:
        """Return the object with which the session of a new request reports the request's model calls to the fleet.

        ``configurable`` is LangGraph's ``config["configurable"]`` of the request's run; the conversation and the tenant are
        read from it.
        """
        self._share_limits()
        return self.fleet.rows(
            planner,
            conversation=label_of(self.conversation_id, configurable),
            tenant=label_of(self.tenant, configurable),
            deadline_s=objective.max_latency_s,
        )

    def account_of(self, context: RunContext) -> CallGuard | None:
        """Return the account that must authorize a run's calls: that of the run's tenant; None if the tenant has no cap.

        Raises:
            CallRefused: in a thread without the request's context, since the tenant is then unknown.
        """
        answered(self._share_limits, None)  # concerns rate limits, not money
        tenant = label_of(self.tenant, context.configurable)
        if not tenant and context.owner.adapter is None and not is_carried():
            raise CallRefused(
                f"a call is refused: this thread was not told its request, and tenants have caps on their days: {CARRY_IT}; a "
                "graph that is a request of its own names its tenant"
            )
        return self.fleet.account(tenant)

    def _share_limits(self) -> None:
        """Share the rate limits of all backends with the other processes, once, at the first request."""
        if self._has_shared:
            return
        with suppress(VineLMError):  # the first call reports a backend that cannot be made
            catalog, backends = self._models.catalog, self._models.backends
            limiters = engine_limiters_of(catalog, backends)
            groups = {entry.engine: entry.group or entry.engine for entry in catalog.entries}
            self.fleet.steer(replica_gates_of(backends), groups, _facts(catalog, limiters))
            self.fleet.share_limits(limiters)
            self._has_shared = True


def _facts(catalog: Catalog, limiters: Mapping[str, EngineRateLimiter]) -> dict[str, dict[str, object]]:
    """Return the settings that should be equal in all processes of a fleet: each model's prices and each engine's rate limits,
    without addresses and keys.

    The keys are names such as ``model 'gpt'`` and ``limits of 'gpu'``.
    """
    entries = {
        f"model {entry.name!r}": {
            "model": f"{entry.provider}/{entry.model_id}",
            "engine": entry.engine,
            "group": entry.group,
            "input price": entry.price.input,
            "output price": entry.price.output,
            "max_tokens": entry.max_tokens,
        }
        for entry in catalog.entries
    }
    limits = {f"limits of {engine!r}": limiter.limits.model_dump() for engine, limiter in limiters.items()}
    return {**entries, **limits}


def _engines(group: ReplicaGroup) -> Iterator[str]:
    return (replica.engine for replica in group.replicas)
