"""Held-out requests through the real LangGraph application, under VineLM and under plans frozen in advance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vinelm.adapters.langgraph import build_graph
from vinelm.api.application import VineLM
from vinelm.errors import InfeasibleError
from vinelm.evaluation.baselines import StaticPolicy
from vinelm.evaluation.policy_plans import NAMES, Plans, path_text
from vinelm.evaluation.policy_run import PolicyRun
from vinelm.evaluation.serving import Served, judge_of, serve
from vinelm.evaluation.verdict import Contest
from vinelm.objective import Objective
from vinelm.protocols import Backend
from vinelm.workflow import Request, Workflow

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

    def contests(self, objectives: Sequence[Objective], on_done: Done) -> list[Contest]:
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

    def _contest(self, objective: Objective, count: Callable[[], None]) -> Contest:
        static, single = self._node(objective, "static"), self._node(objective, "single")
        own = []
        for request in self.requests:
            own.append(serve(self.workflow, self.vine, self.app, request, objective))
            count()
        return Contest(
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
