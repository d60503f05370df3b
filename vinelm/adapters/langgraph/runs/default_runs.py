"""Runs on default models: where nothing is planned, and where VineLM itself has failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from langgraph.runtime import Runtime, get_runtime

from vinelm.adapters.langgraph.graph_run import GraphRun
from vinelm.adapters.langgraph.invocation import InvocationScope
from vinelm.adapters.langgraph.run_context import RunContext, carried_by
from vinelm.clock import VirtualClock
from vinelm.errors import InfeasibleError
from vinelm.objective import Objective
from vinelm.policies import BoundGuard, DefaultPolicy, OnError
from vinelm.protocols import ChatModelSource, Policy
from vinelm.telemetry import ObserverGroup
from vinelm.template import Template


class DefaultHost(Protocol):
    """What default runs need of their adapter."""

    @property
    def models(self) -> ChatModelSource:
        """Makes the chat models."""

    @property
    def template(self) -> Template | None:
        """The workflow's shape; None if it is not known."""

    @property
    def on_error(self) -> OnError:
        """What follows a failure of VineLM itself."""


class DefaultRuns:
    """Makes the policy of each run, and what stands in for a part of VineLM that has failed.

    Args:
        host: the adapter.
        declared: the wrapped stages, each with the default model that the application declared, or None; grows.
        new_policy: returns the policy of a new run whose context has none; None, or a result of None, stands for the defaults.
        enforces: whether policies change what runs. If so and ``fallback``, runs without a policy fall back.
        fallback: whether another model of the stage answers after a failed call.
    """

    def __init__(
        self,
        host: DefaultHost,
        declared: Mapping[str, str | None],
        new_policy: Callable[[RunContext], Policy | None] | None,
        *,
        enforces: bool,
        fallback: bool,
    ) -> None:
        self._host, self._declared, self._new_policy, self._enforces = host, declared, new_policy, enforces
        self._fallbacks = self.allowed_models if fallback and enforces else None

    def default_model(self, stage: str) -> str:
        """Return the model that the application declared, else the template's default, else the catalog's first."""
        declared, template = self._declared.get(stage), self._host.template
        if declared is not None:
            return declared
        if template is not None and any(known.name == stage for known in template.stages):
            return template.stage(stage).default_model
        return next(iter(self._host.models.catalog))

    def allowed_models(self, stage: str) -> list[str]:
        """Return the models of the catalog that the stage may run on: those of the template, or all where it has no say."""
        allowed, template = None, self._host.template
        if template is not None:
            allowed = next((known.models for known in template.stages if known.name == stage), None)
        return [model for model in self._host.models.catalog if allowed is None or model in allowed]

    def any_default(self, stage: str) -> str:
        """Return the stage's default model; whatever fails, one of the catalog."""
        catalog = self._host.models.catalog
        try:
            model = self.default_model(stage)
            if model in catalog:
                return model
        except Exception:
            model = self._declared.get(stage) or ""
        return model if model in catalog else next(iter(catalog))

    def policy_of(self, context: RunContext) -> Policy:
        """Return the policy of a new run."""
        try:
            policy = context.policy
            if policy is None and self._new_policy is not None:
                policy = self._new_policy(context)
            if policy is None:
                objective = context.objective
                return DefaultPolicy(
                    self.default_model,
                    fallbacks=self._fallbacks,
                    max_latency_s=None if objective is None else objective.max_latency_s,
                    max_cost_usd=None if objective is None else objective.max_cost_usd,
                    started_at=context.started_at,
                    on_error=self._host.on_error,
                    clock=self._host.models.new_clock(),
                    template=self._host.template,
                    request=context.request,
                )
            return policy
        except InfeasibleError:
            raise
        except Exception as error:
            return self._stand_in(error, "the session", context.objective)

    # -- where VineLM itself has failed --------------------------------------------------------------------------

    def default_run(self, error: Exception, stage: str, prefix: tuple[str, ...], runtime: Runtime[Any] | None) -> GraphRun:
        """Return a run for one invocation, apart from the request's own, which is not known: under a cap it makes no call.

        Raises the error where that was asked for.
        """
        objective = None
        with suppress(Exception):
            objective = carried_by(None if runtime is None else runtime.context).objective
        policy = self._stand_in(error, f"stage {stage!r}" if stage else "the run", objective)
        if policy.guard is not None:
            policy.guard = BoundGuard(None, None, lambda what, error: None)
        return GraphRun(None, policy, RunContext(), default=self.any_default)

    def default_scope(
        self, error: Exception, stage: str, prefix: tuple[str, ...], run: GraphRun | None, runtime: Runtime[Any]
    ) -> InvocationScope:
        """Return the invocation on the default model, without observers, since one of them may be what failed.

        Raises the error where that was asked for.
        """
        if self._host.on_error == "raise":
            raise error
        if run is None:
            run = self.default_run(error, stage, prefix, runtime)
        model = self.any_default(stage)
        run.note_failure(f"stage {stage!r}", error, prefix, stage, model)
        run.path, run.stages = (*prefix, model), ()
        return InvocationScope(self._host.models, ObserverGroup(), run, stage, run.path)

    def _stand_in(self, error: Exception, what: str, objective: Objective | None) -> DefaultPolicy:
        """A policy of default models that does nothing else; under a cap per request it counts calls at their upper bounds."""
        if self._host.on_error == "raise":
            raise error
        policy = DefaultPolicy(self.any_default, on_error="default", clock=VirtualClock(), template=self._host.template)
        with suppress(Exception):
            policy.clock = self._host.models.new_clock()
            policy.started_at = policy.clock.now()
        if objective is not None and objective.cost_budget == "per_request" and self._enforces:
            policy.guard = BoundGuard(None, objective.max_cost_usd, lambda what, error: None)
        policy.note_failure(what, error, (), None, None)
        return policy


def current_runtime() -> Runtime[Any] | None:
    """Return LangGraph's runtime of the surrounding node; None outside of a graph."""
    try:
        return get_runtime()
    except (RuntimeError, KeyError):
        return None


__all__ = ["DefaultRuns", "current_runtime"]
