"""One labelled request through the real graph, scored: how a policy is judged where it will run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vinelm.adapters.langgraph import GraphAdapter, build_graph
from vinelm.api import VineLM
from vinelm.clock import Clock
from vinelm.errors import CallError, ConfigError, FailureKind, InfeasibleError, VineLMError
from vinelm.evaluation.policy_plans import NAMES, Plans, path_text
from vinelm.evaluation.policy_run import PolicyRun
from vinelm.evaluation.verdict import PolicyComparison
from vinelm.objective import Objective
from vinelm.policies import RecordingPolicy, StaticPolicy
from vinelm.protocols import Backend
from vinelm.workflow import Request, Workflow


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What one request showed. ``latency_s`` is by the policy's clock (virtual for virtual backends), ``cost_usd`` of all
    calls, failed ones included. A failed request has its ``failure`` kind and no success. ``decisions`` is the policy's trace.
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
    policy: RecordingPolicy | None = None,
) -> Served:
    """Invoke the compiled ``app`` on the request and score its answer. Spends money with real models.

    Without ``policy`` the request gets a session of ``vine`` (a :class:`VineLM` with a trie) for ``objective``. A policy serves
    one request: make a new one for each. Errors of the caller's input are raised; a failed call or an exception of the
    application's own code makes the request a failure.
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
    except Exception as error:  # the application's own; its text may hold a prompt
        failure, detail = "tool", type(error).__name__
    prefix = max((done.prefix for done in policy.invocations), key=len, default=())
    return Served(
        request_id=request.id,
        success=failure is None and bool(workflow.score(request, state)),
        cost_usd=policy.spent_usd,
        latency_s=max(policy.clock.now() - policy.started_at, 0.0),
        prefix=prefix,
        decisions=tuple(policy.trace()),
        failure=failure,
        detail=detail,
    )


def judge_of(workflow: Workflow, request: Request) -> Any:
    """Whether the answer in a state is right for that request: what the oracle stop asks."""
    return lambda state: bool(workflow.score(request, state))


def _session(workflow: Workflow, vine: GraphAdapter | VineLM, request: Request, objective: Objective | None) -> RecordingPolicy:
    if not isinstance(vine, VineLM) or objective is None:
        raise ConfigError("serve needs a policy, or a VineLM with a trie and an objective")
    clock: Clock = vine.new_clock()
    return vine.session(objective, request=request, judge=judge_of(workflow, request), clock=clock)


Done = Callable[[int, int], None]


@dataclass
class Service:
    """The application on a set of requests; each fixed path is served once. Calls the models: spends money with real ones."""

    workflow: Workflow
    plans: Plans
    backends: Mapping[str, Backend]
    requests: Sequence[Request]
    _fixed: dict[int, tuple[Served, ...]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        annotated = self.plans.annotated
        self.vine = VineLM(annotated.catalog, self.backends, template=annotated.template, trie=annotated)
        self.app = build_graph(self.workflow, self.vine)

    def contests(self, objectives: Sequence[Objective], on_done: Done) -> list[PolicyComparison]:
        """VineLM, its rivals and every single model under each objective. ``on_done(done, total)`` counts requests.

        :class:`InfeasibleError` where a policy has no plan that meets an objective's bounds.
        """
        fixed = {
            node for objective in objectives for node in (self._node(objective, "static"), self._node(objective, "single"))
        }
        fixed |= {node for _, node in self.plans.throughout()}
        total, done = len(self.requests) * (len(objectives) + len(fixed)), 0

        def count() -> None:
            nonlocal done
            done += 1
            on_done(done, total)

        for node in sorted(fixed):
            self._fixed[node] = tuple(self._along(node, request, count) for request in self.requests)
        return [self._contest(objective, count) for objective in objectives]

    def _contest(self, objective: Objective, count: Callable[[], None]) -> PolicyComparison:
        static, single = self._node(objective, "static"), self._node(objective, "single")
        own = []
        for request in self.requests:
            own.append(serve(self.workflow, self.vine, self.app, request, objective))
            count()
        return PolicyComparison(
            objective=objective,
            vinelm=self._run(own, NAMES["vinelm"], self._node(objective, "vinelm")),
            static=self._run(self._fixed[static], NAMES["static"], static),
            single=self._run(self._fixed[single], NAMES["single"], single),
            model=self.plans.model_at(single),
            others=tuple(self._run(self._fixed[node], model, node) for model, node in self.plans.throughout()),
        )

    def _node(self, objective: Objective, role: str) -> int:
        node = self.plans.node(objective, role)  # type: ignore[arg-type]
        if node is None:
            raise InfeasibleError(f"no {NAMES[role]} meets {objective}: loosen its bounds")  # type: ignore[index]
        return node

    def _along(self, node: int, request: Request, count: Callable[[], None]) -> Served:
        policy = StaticPolicy(
            self.plans.annotated.template,
            self.plans.trie.prefix(node),
            clock=self.vine.new_clock(),
            request=request,
            judge=judge_of(self.workflow, request),
        )
        served = serve(self.workflow, self.vine, self.app, request, None, policy=policy)
        count()
        return served

    def _run(self, served: Sequence[Served], policy: str, node: int) -> PolicyRun:
        return PolicyRun(
            policy=policy,
            plan=path_text(self.plans.trie, node),
            success=np.array([one.success for one in served], np.bool_),
            cost_usd=np.array([one.cost_usd for one in served]),
            latency_s=np.array([one.latency_s for one in served]),
            expected_accuracy=float(self.plans.annotated.accuracy[node]),
        )
