"""The planner's result for an objective whose traffic is split between two plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np

from vinelm.controller.planning.decision import Alternative, Decision, spare
from vinelm.controller.planning.metric import COST_CAP, FLOOR, UNITS
from vinelm.objective import Objective
from vinelm.plans.expected import Errors, Figures, mean_of
from vinelm.plans.promise import Promise
from vinelm.trie.arrays import FloatArray


@dataclass
class MixedDecision(Decision):
    """A traffic split: a share of the requests follows one plan, the rest another, so that their average meets the bound.

    Expected figures are the means of both plans, weighted by the share. ``next_model`` belongs to the plan that more
    requests follow; :meth:`Objective.drawn` assigns each request to one of the plans.

    Attributes:
        low: The cheaper plan.
        high: The more expensive plan.
        share: The share of requests that follow ``high``, in (0, 1).
    """

    low: Decision = field(compare=False, repr=False)
    high: Decision = field(compare=False, repr=False)
    share: float

    noun = "plan"
    latency_words = "of the longest way through either plan"
    alternatives_shown = ("stage", "next_model", "accuracy", "path_cost_usd", "why")
    alternatives_words = "The two plans that requests are divided between, each with its alternatives."
    _latency_name = "longest history"

    @classmethod
    def of(cls, low: Decision, high: Decision, share: float, objective: Objective) -> MixedDecision:
        """Return the traffic split between two plans from the root, made for the bounds of ``objective``."""
        usual = high if share >= 0.5 else low
        request = usual.request._replace(objective=objective)
        return cls(0, 0, usual.next_model, usual.relaxed, usual.metrics, request, low, high, share)

    @property
    def parts(self) -> tuple[tuple[float, Decision], ...]:
        """The two plans, each with its share of the requests; the plan that more requests follow comes first."""
        both = ((1.0 - self.share, self.low), (self.share, self.high))
        return both if self.share < 0.5 else both[::-1]

    @cached_property
    def figures(self) -> Figures:
        """The means of both plans' figures, weighted by their shares of the requests."""
        return super().figures

    @cached_property
    def errors(self) -> Errors:
        """The standard errors of the weighted means in :attr:`figures`."""
        return super().errors

    @property
    def remaining_cost_usd(self) -> float:
        """The expected dollars of the calls after ``node``: the mean of both plans' costs, weighted by their shares."""
        return self._mean(lambda plan: plan.remaining_cost_usd)

    @property
    def remaining_latency_s(self) -> float:
        """The expected seconds of the calls after ``node``: the mean of both plans' latencies, weighted by their shares."""
        return self._mean(lambda plan: plan.remaining_latency_s)

    @property
    def mean_rest_s(self) -> float:
        """The expected seconds of the calls after ``node`` at zero load: the mean of both plans' latencies, weighted by their
        shares.
        """
        return self._mean(lambda plan: plan.mean_rest_s)

    @property
    def ahead(self) -> tuple[float, float, float]:
        """Expected accuracy, dollars and seconds of the calls after ``node``: means of both plans, weighted by their shares."""
        success, cost_usd, latency_s = np.sum([share * np.array(plan.ahead) for share, plan in self.parts], axis=0).tolist()
        return success, cost_usd, latency_s

    @property
    def reached(self) -> FloatArray:
        """The probability that a request runs each node's call, whichever plan it follows; shape (nodes,)."""
        return np.asarray(np.sum([share * plan.reached for share, plan in self.parts], axis=0))

    @cached_property
    def promise(self) -> Promise:
        """The predicted accuracy, with its interval, of the traffic split.

        It is the mean of both plans' predictions, each weighted by the share of requests that the plan gets.
        """
        promises = [(share, plan.promise) for share, plan in self.parts]
        return replace(
            promises[0][1],
            estimate=self.accuracy,
            standard_error=self.standard_error,
            optimism=mean_of(promises, lambda one: one.optimism),
            advantage=mean_of(promises, lambda one: one.advantage) or 0.0,
            advantage_optimism=mean_of(promises, lambda one: one.advantage_optimism),
        )

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """90 % intervals (low, high) of the expected figures, by name.

        The interval of the cost is the weighted mean of both plans' intervals.
        """
        costs = [(share, plan.intervals.get("path_cost_usd")) for share, plan in self.parts]
        low, high = mean_of(costs, lambda cost: cost and cost[0]), mean_of(costs, lambda cost: cost and cost[1])
        return super().intervals | ({} if low is None or high is None else {"path_cost_usd": (low, high)})

    @property
    def ends(self) -> list[int]:
        """The nodes at which one of the two plans may end; see :attr:`Decision.ends`."""
        return sorted({*self.low.ends, *self.high.ends})

    @property
    def path(self) -> tuple[str, ...]:
        """The models with which both plans begin; see :attr:`Decision.path`."""
        pairs = zip(self.low.path, self.high.path, strict=False)
        return tuple(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps of both plans, each plan with its share of the requests; see :attr:`Decision.steps`."""
        return [
            {**step, "probability": share * float(step["probability"])} for share, plan in self.parts for step in plan.steps
        ]

    def goes_on(self, node: int, stage: str) -> bool:
        """Return whether at least one of the two plans runs a model if the application continues from ``node`` to ``stage``."""
        return any(plan.goes_on(node, stage) for _, plan in self.parts)

    def next_for(self, stage: str | None) -> str | None:
        """Return the next model of the plan that more requests follow; see :meth:`Decision.next_for`."""
        return self.parts[0][1].next_for(stage)

    def lines(self, limit: int | None = None) -> list[str]:
        """Return both plans as indented trees, each below a line with its share of the requests.

        ``limit`` is the approximate number of lines in total; None for all lines.
        """
        most = None if limit is None else max(limit // 2 - 1, 1)
        found: list[str] = []
        for share, plan in self.parts:
            figures = f"accuracy {plan.accuracy:.3f}, ${plan.path_cost_usd:.4g}"
            below = plan.lines(most) if len(plan.lines(2)) > 1 else [plan.words]
            found += [f"{share:.0%} of requests ({figures}):", *(f"  {line}" for line in below)]
        return found

    @cached_property
    def slack(self) -> dict[str, float]:
        """The unused part of each bound, by the bound's name: seconds, dollars or a fraction; negative if violated.

        For a per-request bound, this is the smaller of both plans' unused parts. The bound for which traffic is split has slack
        0.
        """
        objective = self.request.objective
        found: dict[str, float] = {}
        if objective.min_accuracy is not None:
            # Under ``confidence`` the floor applies to lower bounds: a mixture made for it meets it, whatever the estimate has
            # to spare.
            found[FLOOR] = 0.0 if self.binding == FLOOR else self.accuracy - objective.min_accuracy
        for bound in self.low.slack:
            if bound in self.high.slack and bound not in (FLOOR, self._mean_cap):
                found[bound] = min(self.low.slack[bound], self.high.slack[bound])
        if objective.max_cost_usd is not None and self._mean_cap is not None:
            found[COST_CAP] = spare(objective.max_cost_usd, self.path_cost_usd)
        return found

    @property
    def binding(self) -> str:
        """The name of the bound for which traffic is split; see :attr:`Decision.binding`."""
        return COST_CAP if self.request.objective.target == "accuracy" else FLOOR

    @property
    def reason(self) -> str:
        """One line with the share of the more expensive plan, the expected figures, and the bound that the split meets."""
        limit = getattr(self.request.objective, self.binding)
        text = f"{self.share:.0%} of the requests follow the dearer of two plans: accuracy {self.accuracy:.3f}, "
        text += f"${self.path_cost_usd:.4g} on average"
        if self.metrics.annotated.knows_latency:
            text += f", at most {self.path_latency_s:.3g} s"
        return f"{text}; so {self.binding} = {limit:g}{UNITS[self.binding]} is met exactly"

    def alternatives(self) -> list[Alternative]:
        """Return the alternatives of each plan in turn; see :meth:`Decision.alternatives`."""
        return [found for _, plan in self.parts for found in plan.alternatives()]

    def candidates(self) -> dict[str, Any]:
        """Return a dictionary whose key ``plans`` holds each plan's share and alternatives, as JSON types.

        See :meth:`Decision.candidates`.
        """
        return {"plans": [{"share": share, **plan.candidates()} for share, plan in self.parts]}

    def explain(self) -> str:
        """Return as text the reason for the split, and for each plan why it was chosen."""
        parts = [f"{share:.0%} of requests, {plan.words}:\n{plan.explain()}" for share, plan in self.parts]
        return "\n".join((self.reason, *parts))

    def facts(self) -> dict[str, Any]:
        """Return a dictionary whose key ``mixed_plans`` holds both plans as JSON types.

        Each plan has its share of the requests, its accuracy and its cost in dollars.
        """
        return {
            "mixed_plans": [
                {"share": share, "accuracy": plan.accuracy, "path_cost_usd": plan.path_cost_usd, **plan.facts()}
                for share, plan in self.parts
            ]
        }

    @property
    def _mean_cap(self) -> str | None:
        """The name of the cost cap if it bounds an average over requests, otherwise None."""
        objective = self.request.objective
        return COST_CAP if objective.max_cost_usd is not None and objective.cost_budget == "population" else None

    def _mean(self, figure: Callable[[Decision], float]) -> float:
        return sum(share * figure(plan) for share, plan in self.parts)
