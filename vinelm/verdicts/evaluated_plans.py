"""Compares policies by serving the same held-out requests under each of them, within one budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from vinelm.api import VineLM
from vinelm.catalog import Catalog
from vinelm.errors import BudgetExhausted, ConfigError, EvidenceError
from vinelm.evaluation.comparison.comparison import served_verdict
from vinelm.evaluation.comparison.cross_fit import estimated_policy
from vinelm.evaluation.comparison.fit import ChosenPolicy, PolicyName, code_of, ends_early
from vinelm.evaluation.comparison.result import Evaluation
from vinelm.evaluation.off_policy.intervals import served_scores
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.objective import Objective
from vinelm.plans.assignment import Assignment
from vinelm.requests.protocols import Backend, CallGuard
from vinelm.requests.workflow import Request, Workflow
from vinelm.running.hosts import Server
from vinelm.running.serving_record import ServingRecord, ServingTask
from vinelm.traces import StoreIdentity
from vinelm.traces.served.served_requests import ServedRequest
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.verdicts.verification import PLAN, HeldOut, ServingRun
from vinelm.verdicts.verification_result import MOST_FAILED

Serve = Callable[[Request, CallGuard], ServedRequest]


@dataclass(frozen=True)
class EvaluatedPlans:
    """The plans of one trie for one objective, ready to be served on held-out requests.

    Args:
        run: The workflow and its application.
        policies: The policies to serve, with their predicted accuracy and cost. Policies with the same fixed plan are served
            once.
        ways: For each policy, the function that serves a request under it.
        objective: The objective of the plans.
        vines: The ``VineLM`` objects that create the policies.
    """

    run: ServingRun
    policies: Mapping[PolicyName, ChosenPolicy]
    ways: Mapping[PolicyName, Serve]
    objective: Objective
    vines: tuple[VineLM, ...]

    @classmethod
    def of(
        cls,
        workflow: Workflow,
        trie: AnnotatedTrie,
        catalog: Catalog,
        backends: Mapping[str, Backend],
        *,
        objective: Objective,
    ) -> EvaluatedPlans:
        """Make the plans for the objective, prepare the application to serve them, and return both in one object.

        Raises:
            ConfigError: As for :func:`~vinelm.verify`; also if no fixed plan or no single model meets the objective's limits.
            InfeasibleError: No path meets the objective's limits.
        """

        def prepared(signals: bool) -> ServingRun:
            return ServingRun.of(workflow, trie, catalog, backends, objective=objective, signals=signals)

        run = prepared(signals=False)
        policies: dict[PolicyName, ChosenPolicy] = {"paths": _chosen(run.decision)}
        ways: dict[PolicyName, Serve] = {"paths": partial(_by_plan, run)}
        vines = [run.vine]
        if trie.signals is not None and run.workflow.agree is not None:
            over_signals = prepared(signals=True)
            policies["signals"], ways["signals"] = _chosen(over_signals.decision), partial(_by_plan, over_signals)
            vines.append(over_signals.vine)
        plans = plans_over(trie)
        for role in ("static", "single"):
            plan = plans.mixed_fixed(objective, role)
            if plan is None:
                raise ConfigError(f"no {role} plan meets {objective}: there is nothing to compare with; loosen the bounds")
            policies[role] = _chosen(plan)
            ways[role] = lambda request, guard, plan=plan: run.serve_along(  # type: ignore[misc]
                partial(plans.policy, Assignment(plan.parts).of(request.id)), request, guard
            )
        return cls(run, policies, ways, objective, tuple(vines))

    @property
    def workflow(self) -> Workflow:
        """The workflow that the requests belong to."""
        return self.run.workflow

    def serve(self, request: Request, plan: PolicyName, guard: CallGuard) -> ServedRequest:
        """Serve one request under the policy called ``plan``; ``guard`` authorizes the cost of each call."""
        return self.ways[plan](request, guard)

    @property
    def _distinct(self) -> dict[PolicyName, ChosenPolicy]:
        """The policies to serve, keyed by name; of several policies with the same fixed plan, only one is included."""
        by_words = {("plan" if name in ("static", "single") else name, one.words): name for name, one in self.policies.items()}
        return {name: self.policies[name] for name in self.policies if name in by_words.values()}

    def tasks(self, server: Server, requests: Sequence[Request]) -> list[ServingTask]:
        """Return tasks with which ``server`` serves every request under every policy."""
        return [
            ServingTask(name, request.id, partial(server.serve, request, name))
            for request in requests
            for name in self._distinct
        ]

    def identity(self, asked: HeldOut) -> StoreIdentity:
        """Return the identity of this evaluation: all inputs that affect its results. ``asked`` has the requests and their
        workflow.
        """
        return asked.identity(self.objective, self.run.annotated, **{name: one.words for name, one in self._distinct.items()})

    def evaluation(self, record: ServingRecord, asked: HeldOut, max_loss: float) -> Evaluation:
        """Return the evaluation of the served requests. A request counts only if all policies have served it.

        Args:
            record: The served requests.
            asked: The requests that should have been served.
            max_loss: Accuracy that a cheaper plan may lose, a fraction.

        Raises:
            BudgetExhausted: The budget ended before every policy had served two requests.
            EvidenceError: Too many requests failed.
        """
        served = {request.id: [record.served.get((name, request.id)) for name in self._distinct] for request in asked.requests}
        whole = [request for request, found in served.items() if all(found)]
        if len(whole) < 2:
            raise BudgetExhausted(f"the budget is reached after {len(whole)} requests that every policy has served: raise it")
        scores = {}
        for name in self.policies:
            as_served = next(other for other in self._distinct if self._is_alike(name, other))
            own = [record.served[as_served, request] for request in whole]
            scores[name] = [
                served_scores(
                    [r.success and self._is_in_time(r) for r in own], [r.cost_usd for r in own], [r.latency_s for r in own]
                )
            ]
        target = self.objective.target
        failures = Counter(
            f"{row.failure}: {row.detail}" if row.detail else str(row.failure) for row in record.served.values() if row.failure
        )
        if sum(failures.values()) > MOST_FAILED * len(record.served):
            reasons = "; ".join(f"{number} times {reason}" for reason, number in failures.most_common(3))
            raise EvidenceError(
                f"{sum(failures.values())} of {len(record.served)} served requests failed ({reasons}): that is no verdict on"
                " plans; mend the application, and serve again with another log",
                code="requests-failed",
            )
        verdict = served_verdict(
            self.policies,
            {name: of for name, (of,) in scores.items()},
            self.objective,
            max_loss=max_loss, seed=asked.source["seed"], spent_usd=record.spent_usd,
        )  # fmt: skip
        return Evaluation(
            verdict=verdict,
            objectives=(self.objective,),
            policies=tuple(
                estimated_policy(name, (self.policies[name].words,), self.policies[name].promised_accuracy, scores, target)
                for name in sorted(self.policies, key=list(_ORDER).index)
            ),
            requests=len(whole),
            rows=0,
            spent_usd=record.spent_usd,
            is_served=True,
            is_complete=len(whole) == len(asked.requests),
            is_simulated=asked.is_simulated,
            stop=self.run.annotated.template.stop,
        )

    def _is_alike(self, name: PolicyName, other: PolicyName) -> bool:
        fixed = ("static", "single")
        return name == other or (name in fixed and other in fixed and self.policies[name].words == self.policies[other].words)

    def _is_in_time(self, row: ServedRequest) -> bool:
        return self.objective.max_latency_s is None or row.latency_s <= self.objective.max_latency_s


_ORDER: tuple[PolicyName, ...] = ("signals", "paths", "static", "single")


def _chosen(plan: Any) -> ChosenPolicy:
    """Return a plan, with its predictions, as a :class:`ChosenPolicy`, which can be compared with other policies."""
    return ChosenPolicy(
        parts=(), words=plan.words, promised_accuracy=plan.accuracy, promised_cost_usd=plan.path_cost_usd, code=code_of(plan),
        ends_early=ends_early(plan),
    )  # fmt: skip


def _by_plan(run: ServingRun, request: Request, guard: CallGuard) -> ServedRequest:
    return run.serve(request, PLAN, guard)
