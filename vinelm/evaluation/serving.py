"""Serving for evaluation: labelled requests answered by the LangGraph application under a policy, and scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from vinelm.adapters.langgraph import GraphAdapter, build_graph
from vinelm.api import VineLM
from vinelm.clock import Clock
from vinelm.errors import CallError, ConfigError, FailureKind, InfeasibleError, VineLMError
from vinelm.evaluation.contingent.plans import ContingentPlans
from vinelm.evaluation.policy_plans import NAMES, FixedPlan, PlanFigures, Plans
from vinelm.evaluation.policy_run import PolicyRun
from vinelm.evaluation.verdicts.verdict import PolicyComparison
from vinelm.objective import Objective
from vinelm.policies import Policy
from vinelm.protocols import Backend
from vinelm.workflow import Request, Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """The result of one served request.

    Attributes:
        request_id: The request.
        success: Whether the answer is right; False for a failed request.
        cost_usd: Dollars of all calls, failed ones included.
        latency_s: Seconds by the policy's clock, which is virtual for simulated and recorded backends.
        prefix: The models that ran, in order.
        decisions: The policy's trace.
        failure: Kind of the failure; None if the application returned.
        detail: The failure's message.
    """

    request_id: str
    success: bool
    cost_usd: float
    latency_s: float
    prefix: tuple[str, ...]
    decisions: tuple[dict[str, Any], ...] = ()
    failure: FailureKind | None = None
    detail: str | None = None


def serve(
    workflow: Workflow,
    vine: GraphAdapter | VineLM,
    app: Any,
    request: Request,
    objective: Objective | None,
    *,
    policy: Policy | None = None,
    traced: bool = True,
) -> ServedRequest:
    """Invoke the compiled application on one request and score its answer. Spends money with real models.

    A failed call, or an exception in the application's own code, makes the request a failure; it is not raised.

    Args:
        workflow: The workflow, for the graph's input and the scorer.
        vine: The adapter that the application was built with.
        app: The compiled LangGraph application.
        request: The labelled request.
        objective: The objective of a new session; requires ``vine`` to be a :class:`VineLM` with a trie.
        policy: A policy to use instead of a session. It serves one request only.
        traced: Whether to keep the policy's decisions.

    Raises:
        VineLMError: The configuration or the request is invalid.
    """
    if policy is None:
        policy = _session(workflow, vine, request, objective)
    context = vine.context(objective, policy=policy, request=request)
    state: Any = None
    failure: FailureKind | None = None
    detail = None
    try:
        state = app.invoke(workflow.graph_input(request), context=context)
    except CallError as error:
        failure, detail = error.kind, str(error)
    except VineLMError:
        raise
    except Exception as error:  # raised by the application's own code; its text may contain a prompt
        failure, detail = "tool", type(error).__name__
    prefix = max((done.prefix for done in policy.invocations), key=len, default=())
    return ServedRequest(
        request_id=request.id,
        success=failure is None and bool(workflow.score(request, state)),
        cost_usd=policy.spent_usd,
        latency_s=max(policy.clock.now() - policy.started_at, 0.0),
        prefix=prefix,
        decisions=tuple(policy.trace()) if traced else (),
        failure=failure,
        detail=detail,
    )


def judge_of(workflow: Workflow, request: Request) -> Any:
    """Return a function from graph state to whether its answer is right for this request, as the oracle stop needs it."""
    return lambda state: bool(workflow.score(request, state))


def _session(workflow: Workflow, vine: GraphAdapter | VineLM, request: Request, objective: Objective | None) -> Policy:
    if not isinstance(vine, VineLM) or objective is None:
        raise ConfigError("serve needs a policy, or a VineLM with a trie and an objective")
    clock: Clock = vine.new_clock()
    return vine.session(objective, request=request, judge=judge_of(workflow, request), clock=clock)


Done = Callable[[int, int], None]


@dataclass
class HeldOutServing:
    """Serves a set of requests through the application under each policy. Spends money with real models.

    Each fixed plan is served once, whatever the number of objectives that chose it. VineLM serves the plans that ``plans``
    make: over paths. With ``by_signals`` it serves plans over what requests show, which the trie must have.
    """

    workflow: Workflow
    plans: Plans | ContingentPlans
    backends: Mapping[str, Backend]
    requests: Sequence[Request]
    by_signals: bool = False
    _fixed: dict[FixedPlan, tuple[ServedRequest, ...]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        annotated = self.plans.annotated
        self.vine = VineLM(
            annotated.catalog,
            self.backends,
            template=annotated.template,
            trie=annotated if self.by_signals else replace(annotated, signals=None),
            fallback=False,
            labelled=True,
            signals=self.workflow.signals,
        )
        self.app = build_graph(self.workflow, self.vine)

    def compare(self, objectives: Sequence[Objective], on_done: Done) -> list[PolicyComparison]:
        """Serve every request under VineLM, the best static plan and every single model, for each objective.

        Args:
            objectives: The objectives to plan for.
            on_done: Called as ``on_done(done, total)`` after each served request.

        Raises:
            InfeasibleError: A policy has no plan that meets the bounds of an objective.
        """
        fixed = dict.fromkeys(self._plan(objective, role) for objective in objectives for role in ("static", "single"))
        fixed |= dict.fromkeys(plan for _, plan in self.plans.single_models())
        total, done = len(self.requests) * (len(objectives) + len(fixed)), 0

        def count() -> None:
            nonlocal done
            done += 1
            on_done(done, total)

        for plan in fixed:
            self._fixed[plan] = tuple(self._serve_along(plan, request, count) for request in self.requests)
        return [self._comparison(objective, count) for objective in objectives]

    def planned(self, objective: Objective, count: Callable[[], None]) -> PolicyRun:
        """Serve every request under VineLM's plans for an objective; ``count`` is called after each."""
        own = []
        for request in self.requests:
            own.append(serve(self.workflow, self.vine, self.app, request, objective, traced=False))
            count()
        signals = self.plans.annotated.signals
        plans = ContingentPlans(signals) if self.by_signals and signals is not None else self.plans
        decision = plans.decision(objective)
        return self._run(own, NAMES["vinelm"], plans.plan_text(decision), decision)

    def _comparison(self, objective: Objective, count: Callable[[], None]) -> PolicyComparison:
        static, single = self._plan(objective, "static"), self._plan(objective, "single")
        return PolicyComparison(
            objective=objective,
            vinelm=self.planned(objective, count),
            static=self._run(self._fixed[static], NAMES["static"], static.text, static),
            single=self._run(self._fixed[single], NAMES["single"], single.text, single),
            model=self.plans.model_of(single),  # type: ignore[arg-type]
            others=tuple(self._run(self._fixed[plan], model, plan.text, plan) for model, plan in self.plans.single_models()),
        )

    def _plan(self, objective: Objective, role: Literal["static", "single"]) -> FixedPlan:
        found = self.plans.fixed(objective, role)
        if found is None:
            raise InfeasibleError(f"no {NAMES[role]} meets {objective}: loosen its bounds")
        return found

    def _serve_along(self, plan: FixedPlan, request: Request, count: Callable[[], None]) -> ServedRequest:
        policy = plan.policy(clock=self.vine.new_clock(), request=request, judge=judge_of(self.workflow, request))
        served = serve(self.workflow, self.vine, self.app, request, None, policy=policy, traced=False)
        count()
        return served

    def _run(self, served: Sequence[ServedRequest], policy: str, text: str, figures: PlanFigures) -> PolicyRun:
        return PolicyRun(
            policy=policy,
            plan=text,
            success=np.array([one.success for one in served], np.bool_),
            cost_usd=np.array([one.cost_usd for one in served]),
            latency_s=np.array([one.latency_s for one in served]),
            expected_accuracy=figures.accuracy,
        )
