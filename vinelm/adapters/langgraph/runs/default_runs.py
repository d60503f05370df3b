"""Runs that use default models, for unplanned requests and after internal failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from vinelm.adapters.langgraph.runs.graph_run import GraphRun
from vinelm.adapters.langgraph.runs.invocation import InvocationScope
from vinelm.adapters.langgraph.runs.run_context import AMBIENT, RunContext, carried_by, may_be_capped
from vinelm.adapters.langgraph.runs.settings import AdapterSettings
from vinelm.clock import Clock, VirtualClock
from vinelm.foreign_code import answered
from vinelm.money.bound_guard import BoundGuard
from vinelm.money.spend_guard import SpendGuard
from vinelm.objective import Objective
from vinelm.policies import DefaultPolicy
from vinelm.telemetry import ObserverGroup

_OWN: ContextVar[tuple[str, str] | None] = ContextVar("vinelm_own_default", default=None)
"""The stage of the call in progress and the default model of the object that makes it, since two graphs may have stages of one
name.
"""

T = TypeVar("T")
INTERNAL = "__pregel_"
"""Prefix of the keys in ``configurable`` that LangGraph uses internally."""


class DefaultRuns:
    """Makes the policies of runs without a plan, and replaces runs and policies after a failure inside VineLM.

    Attributes:
        enforces: see the arguments.

    Args:
        enforces: whether policies change which models run, and caps apply. Runs without a policy fall back only if ``enforces``
            and ``fallback`` are both true.
        fallback: whether another model of the stage answers after a failed call.
    """

    def __init__(self, settings: AdapterSettings, *, enforces: bool, fallback: bool) -> None:
        self._settings, self.enforces = settings, enforces
        self._fallbacks = self.allowed_models if fallback and enforces else None

    def default_model(self, stage: str) -> str:
        """Return the stage's default model: the one set by :meth:`asked`, else the application's, else the template's, else the
        catalog's first model.
        """
        declared, template, own = self._settings.declared.get(stage), self._settings.template, _OWN.get()
        if own is not None and own[0] == stage and own[1] in self._settings.catalog:
            return own[1]
        if declared is not None:
            return declared
        if template is not None and any(known.name == stage for known in template.stages):
            return template.stage(stage).default_model
        return next(iter(self._settings.models.catalog))

    @contextmanager
    def asked(self, stage: str, default: str | None) -> Iterator[None]:
        """Inside the block, make ``default`` the default model of ``stage``; if it is None, the declared default applies."""
        token = _OWN.set(None if default is None else (stage, default))
        try:
            yield
        finally:
            _OWN.reset(token)

    def allowed_models(self, stage: str) -> list[str]:
        """Return the models that the template allows for a stage; all models of the catalog if the template does not limit
        them.
        """
        allowed, template = None, self._settings.template
        if template is not None:
            allowed = next((known.models for known in template.stages if known.name == stage), None)
        return [model for model in self._settings.models.catalog if allowed is None or model in allowed]

    def any_default(self, stage: str) -> str:
        """Return the stage's default model; if it cannot be found or the catalog lacks it, a model of the catalog."""
        catalog = self._settings.models.catalog
        model = answered(lambda: self.default_model(stage), self._settings.declared.get(stage) or "")
        return model if model in catalog else next(iter(catalog))

    def policy(self, context: RunContext, clock: Clock | None = None) -> DefaultPolicy:
        """Return the policy of a run without a plan, which still enforces a cap on the cost of each request.

        ``clock`` is the policy's clock; None makes a new one, virtual if the models' latencies are virtual.
        """
        objective = context.objective
        is_capped = self.enforces and objective is not None and objective.cost_budget == "per_request"
        cap_usd = None if objective is None else objective.max_cost_usd
        return DefaultPolicy(
            self.default_model,
            fallbacks=self._fallbacks,
            max_latency_s=None if objective is None else objective.max_latency_s,
            max_cost_usd=cap_usd,
            guard=SpendGuard(cap_usd) if is_capped and cap_usd is not None else None,
            started_at=context.started_at,
            on_error=self._settings.on_error,
            clock=clock or self._settings.models.new_clock(),
            template=self._settings.template,
            request=context.request,
        )

    # -- after VineLM itself has failed ---------------------------------------------------------------------------

    def default_run(
        self,
        error: Exception,
        stage: str,
        config: RunnableConfig | None,
        runtime: Runtime[Any] | None,
        objective: Objective | None,
    ) -> GraphRun:
        """Return a run for a single invocation, for use after VineLM itself has failed to find the request's own run.

        If the request has a cap, or may have one, the run refuses every call. If several requests share a cap, their shared
        account must also authorize the call.

        Args:
            error: the failure; raised instead if ``on_error`` is "raise".
            stage: name of the stage; "" if unknown.
            config: LangGraph's config at the call, if known.
            runtime: LangGraph's runtime at the call, if known.
            objective: used if the call's context has no objective.
        """
        if self._settings.on_error == "raise":
            raise error
        ask = self._settings.account_of
        carried = answered(lambda: _carried(runtime), None)
        seen = None if ask is None else config
        context = None if carried is None else answered(lambda: _context(carried, objective, seen), None)
        policy = self.stand_in(
            error, f"stage {stage!r}" if stage else "the run", None if context is None else context.objective
        )
        # What the request may still spend is not known here. So if there is a cap, or there may be one, no call is made: a
        # default model that runs past a cap would be worse than a request that fails.
        is_capped = policy.guard is not None or (
            context is not None and context.policy is not None and context.policy.guard is not None
        )
        if self._settings.has_caps and carried is not None:
            is_capped = is_capped or answered(lambda: may_be_capped(carried, self._settings), True)
        if is_capped or (context is None and self.enforces):
            policy.guard = BoundGuard(None, None, lambda what, error: None)
        account_of = None if ask is None or context is None else partial(ask, context)
        return GraphRun(None, policy, RunContext(), default=self.any_default, account_of=account_of)

    def default_scope(  # noqa: PLR0917 - what was known when it failed
        self,
        error: Exception,
        stage: str,
        prefix: tuple[str, ...],
        run: GraphRun | None,
        config: RunnableConfig | None,
        runtime: Runtime[Any] | None,
        objective: Objective | None = None,
    ) -> InvocationScope:
        """Return an invocation on the default model, without observers, since an observer may have caused the failure.

        ``prefix`` has the models of the request's path before the invocation. If ``run`` is None, :meth:`default_run` makes
        one. Raises ``error`` if failures are configured to be raised.
        """
        if self._settings.on_error == "raise":
            raise error
        if run is None:
            run = self.default_run(error, stage, config, runtime, objective)
        else:
            run.abandon(prefix)
        model = self.any_default(stage)
        run.note_failure(f"stage {stage!r}", error, prefix, stage, model)
        run.path, run.stages = (*prefix, model), ()
        return InvocationScope(self._settings.models, ObserverGroup(), run, stage, run.path)

    def stand_in(self, error: Exception, what: str, objective: Objective | None) -> DefaultPolicy:
        """Return a policy that only chooses default models, used in place of a part of VineLM that has failed.

        If ``objective`` caps the cost of each request, every call counts at its maximum cost.

        Args:
            error: the failure; raised instead if ``on_error`` is "raise".
            what: names the part that failed, for the trace.
            objective: the request's objective; None if unknown.
        """
        if self._settings.on_error == "raise":
            raise error
        policy = DefaultPolicy(self.any_default, on_error="default", clock=VirtualClock(), template=self._settings.template)
        policy.clock = answered(self._settings.models.new_clock, policy.clock)
        policy.started_at = answered(policy.clock.now, policy.started_at)
        if objective is not None and objective.cost_budget == "per_request" and self.enforces:
            policy.guard = BoundGuard(None, objective.max_cost_usd, lambda what, error: None)
        policy.note_failure(what, error, (), None, None)
        return policy


def _carried(runtime: Runtime[Any] | None) -> RunContext | None:
    """Return VineLM's settings in the context around a call for which no run was found; without any, a context with default
    values.
    """
    carried = AMBIENT.get() if runtime is None or runtime.context is None else runtime.context
    return carried if isinstance(carried, RunContext) else carried_by(carried)


def _context(carried: RunContext, objective: Objective | None, config: RunnableConfig | None) -> RunContext:
    """Return a run context for a call whose run was not found.

    It has the fields of ``carried`` that caps and shared accounts need. ``objective`` is used if ``carried`` has none. Without
    ``config`` the result has no ``configurable``.
    """
    return RunContext(
        objective=carried.objective or objective,
        policy=carried.policy,
        configurable=None if config is None else told_configurable(config),
        owner=carried.owner,
    )


def told_configurable(config: RunnableConfig) -> dict[str, Any]:
    """Return the ``configurable`` that the caller passed, without LangGraph's own keys, which refer to the run and would form a
    cycle.
    """
    given = config.get("configurable") or {}
    return {key: one for key, one in given.items() if not key.startswith(INTERNAL)}
