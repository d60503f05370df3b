"""Plans over a trie of paths (sequences of models): each plan is a path, and the best plans form a Pareto frontier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import inf
from typing import Any, Literal

import numpy as np

from vinelm.controller import Decision
from vinelm.controller.planning.mixture import Hull
from vinelm.errors import InfeasibleError
from vinelm.evaluation.off_policy.planned_steps import Locate
from vinelm.evaluation.off_policy.steps import PathSteps
from vinelm.evaluation.plans.plans import CarriedPlan, FrontierRange, PlanFrontier, Plans, Role, thinned
from vinelm.objective import Objective
from vinelm.plans.promise import Z90, single_model_paths
from vinelm.template.steps import SKIP
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray


def pareto_frontier(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the indices of the undominated (cost, value) points, by rising cost.

    A point is dominated if another point costs no more and has at least its value. Of several equal points, only the
    first is returned.
    """
    order = sorted(range(len(points)), key=lambda i: (points[i][0], -points[i][1]))
    kept: list[int] = []
    best = -inf
    for index in order:
        if points[index][1] > best:
            kept.append(index)
            best = points[index][1]
    return kept


def frontier_nodes(annotated: AnnotatedTrie, amount: Literal["cost", "latency"]) -> list[int]:
    """Return the nodes whose paths form the Pareto frontier of estimated accuracy and expected ``amount``, by rising
    amount. Only nodes at which a request may return its answer are considered.
    """
    nodes = np.flatnonzero(annotated.trie.answerable)
    amounts = annotated.path_cost_usd if amount == "cost" else annotated.path_latency_s
    return [int(nodes[i]) for i in pareto_frontier([(float(amounts[n]), float(annotated.accuracy[n])) for n in nodes])]


class PathPlans(Plans[Decision]):
    """The plans over a trie of paths: every path for VineLM, paths with one model per stage for static plans (VineLM
    paper §5.1), and paths with one model for single models.
    """

    def fixed(self, objective: Objective, role: Role) -> Decision | None:
        """Return the best static plan for the role ``static``, or the best single model for ``single``; see
        :meth:`Plans.fixed`.
        """
        try:
            found = self._among(self._single if role == "single" else self._static, objective)
        except InfeasibleError:
            return None
        return found if found.is_feasible else None

    def single_models(self) -> Iterator[tuple[str, Decision]]:
        """Yield the plan of each single model; see :meth:`Plans.single_models`."""
        whole = self._single & (self.trie.depth == self.trie.max_depth) & self.planner.metrics.endings
        for index, model in enumerate(self.trie.models):
            nodes = np.flatnonzero(whole & (self.trie.model == index))
            if len(nodes) and model != SKIP:
                yield model, self._to(int(nodes[0]))

    def fixed_hull(self, objective: Objective, role: Role) -> Hull | None:
        """Return the convex hull of (cost, accuracy) over the fixed plans; see :meth:`Plans.fixed_hull`."""
        return self.planner.hull_among(self._static if role == "static" else self._single, objective)

    def settings(self, plan: Decision) -> dict[str, Any]:
        """Return the arguments with which a :class:`~vinelm.policies.StaticPolicy` follows a plan; see
        :meth:`Plans.settings`.
        """
        return {"path": plan.path}

    def having(self, settings: dict[str, Any]) -> Decision | None:
        """Return the plan with these settings; see :meth:`Plans.having`. The result is also None if no answer may be
        returned at the plan's last node.
        """
        try:
            return self._to(self.trie.node(settings.get("path", ())))
        except (KeyError, InfeasibleError):
            return None

    @staticmethod
    def steps(plan: Decision, locate: Locate) -> PathSteps:
        """Return the policy that runs the plan's models in turn; see :meth:`Plans.steps`. ``locate`` is not needed."""
        return PathSteps(plan.annotated, plan.target)

    def frontier_range(self) -> FrontierRange:
        """Return the ends of the frontiers of accuracy over cost and of accuracy over latency; see
        :meth:`Plans.frontier_range`.
        """
        annotated = self.annotated
        by_cost, by_latency = frontier_nodes(annotated, "cost"), frontier_nodes(annotated, "latency")
        cost, latency = annotated.path_cost_usd, annotated.path_latency_s
        ends = (float(cost[by_cost[0]]), float(cost[by_cost[-1]]), float(annotated.accuracy[by_cost[0]]))
        return FrontierRange(*ends, float(latency[by_latency[0]]), float(latency[by_latency[-1]]))

    def frontier(self, most: int) -> PlanFrontier:
        """Return at most ``most`` plans, evenly spaced along the frontier of accuracy over cost; see
        :meth:`Plans.frontier`.

        The 90th percentiles of cost and latency, which the result states for each plan, assume that every call of the
        path runs and no server is busy.
        """
        nodes = frontier_nodes(self.annotated, "cost")  # thousands in a large trie, so rows are made only for those shown
        return PlanFrontier([self._row(node) for node in thinned(nodes, most)], len(nodes), self._to(nodes[-1]))

    def _row(self, node: int) -> dict[str, Any]:
        annotated = self.annotated
        error, knows_latency = annotated.accuracy_se, annotated.knows_latency
        return {
            "path": list(annotated.trie.prefix(node)),
            "accuracy": float(annotated.accuracy[node]),
            "accuracy_half_width90": None if error is None else float(Z90 * error[node]),
            "cost_usd": float(annotated.path_cost_usd[node]),
            "latency_s": float(annotated.path_latency_s[node]) if knows_latency else None,
            "latency_p90_s": float(annotated.path_latency_quantile(0.9)[node]) if knows_latency else None,
            "full_cost_p90_usd": float(annotated.full_cost_quantile(0.9)[node]),
            "observations": None if annotated.count is None else int(annotated.count[node]),
        }

    def carried(self, old: Decision, now: Decision) -> CarriedPlan | None:
        """Return this trie's predictions for ``old``, a plan made on another trie, and whether ``old`` equals ``now``.

        See :meth:`Plans.carried`.
        """
        try:
            node = self.trie.node(old.path)
        except KeyError:
            return None
        annotated = self.annotated
        error = None if annotated.accuracy_se is None else float(annotated.accuracy_se[node])
        return CarriedPlan(float(annotated.accuracy[node]), float(annotated.path_cost_usd[node]), error, node == now.target)

    def _among(self, candidates: BoolArray, objective: Objective) -> Decision:
        return self.planner.plan(objective, candidates=candidates, elapsed_s=float(self.annotated.latency_s[0]))

    def _to(self, node: int) -> Decision:
        # Without a bound the only candidate is the plan itself, whatever it costs.
        return self._among(np.arange(len(self.trie)) == node, Objective(maximize="accuracy"))

    @cached_property
    def _static(self) -> BoolArray:
        return workflow_level_nodes(self.annotated)

    @cached_property
    def _single(self) -> BoolArray:
        return single_model_paths(self.trie)


def workflow_level_nodes(annotated: AnnotatedTrie) -> BoolArray:
    """Return a mask of the nodes whose paths have one model per stage: plans that only choose models and a number of
    calls (VineLM paper §5.1). The mask is False at nodes at which no answer may be returned.

    For example, a workflow with a "generate" stage and then up to two calls of a "repair" stage has 136 such paths
    among 8 models: 8 of one call, 64 of two and 64 of three.

    Returns:
        A mask with one element for each node of the trie, the root first.
    """
    trie = annotated.trie
    uniform = np.ones(len(trie), np.bool_)
    model_of = np.full((len(trie), len(trie.stages)), -1, np.int16)  # the model of each stage so far, -1 for none yet
    for level in trie.levels[1:]:
        up = trie.parent[level]
        model_of[level] = model_of[up]
        before = model_of[level, trie.stage[level]]
        uniform[level] = uniform[up] & ((before == -1) | (before == trie.model[level]))
        model_of[level, trie.stage[level]] = trie.model[level]
    return uniform & trie.answerable
