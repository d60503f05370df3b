"""The planner's result: where to end, which model runs next, and why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from vinelm.controller.planning.frontier import Frontier
from vinelm.controller.planning.metric import COST_CAP, FLOOR, LATENCY_CAP, UNITS, Metric
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.controller.planning.subtree import Choice, SubtreeView
from vinelm.io.frames import html_table
from vinelm.plans.promise import Z90, Promise
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

EFFORT = {FLOOR: "highest accuracy instead", LATENCY_CAP: "least time instead", COST_CAP: "least cost instead"}


@dataclass  # not frozen: setting the fields of a frozen object takes as long as the rest of a plan
class Decision:
    """The plan for a request at one moment: run ``next_model`` now and, if nothing changes, end at ``target``. Do not modify.

    Everything beyond the fields is computed when first read.

    Attributes:
        node: Where the request is.
        target: The node to end at.
        next_model: None if the request should end at ``node``.
        relaxed: Bounds that no path meets and that were relaxed, the binding one first; empty if the plan meets them all.
        metrics: The planner's path metrics.
        request: The question.
        frontier: The ends that the target was chosen from; None for the whole subtree.
    """

    node: int
    target: int
    next_model: str | None
    relaxed: tuple[str, ...]
    metrics: PathMetrics = field(compare=False, repr=False)
    request: PlanRequest = field(compare=False, repr=False)
    frontier: Frontier | None = field(compare=False, repr=False)

    @property
    def annotated(self) -> AnnotatedTrie:
        """The trie."""
        return self.metrics.annotated

    @cached_property
    def view(self) -> SubtreeView:
        """The whole subtree below ``node`` with the quantities that the objective compares."""
        return SubtreeView(self.metrics, self.request)

    @cached_property
    def _target_view(self) -> SubtreeView:
        """The node and the target alone: item 1 is the target."""
        return SubtreeView(self.metrics, self.request, np.array([self.target]))

    @property
    def stop(self) -> bool:
        """True if the request should end at ``node``."""
        return self.next_model is None

    @property
    def is_feasible(self) -> bool:
        """True if the plan meets every bound of the objective."""
        return not self.relaxed

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The models from the root to ``target``."""
        return self.metrics.trie.prefix(self.target)

    @property
    def ends(self) -> list[int]:
        """The nodes at which the plan may end."""
        return [self.target]

    @property
    def reached(self) -> FloatArray:
        """P(a request of the plan runs the invocation of each node of the trie), from the root on; shape (n + 1,)."""
        found, path = np.zeros(len(self.metrics.trie)), self.metrics.trie.path(self.target)
        found[path] = self.annotated.reach[path]
        return found

    @property
    def words(self) -> str:
        """The plan from the root in one line: ``generate a, repair b``, or ``a, up to 3 invocations`` on one model."""
        edges = list(self.metrics.trie.edges(self.target))
        if len(edges) > 1 and len({model for _, model in edges}) == 1:
            return f"{edges[0][1]}, up to {len(edges)} invocations"
        return ", ".join(f"{stage} {model}" for stage, model in edges) or "no invocation"

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The plan from the root as a tree of JSON types: stage, model (None: the end), probability, and the steps after it."""
        found: list[dict[str, Any]] = []
        trie = self.metrics.trie
        # From the end, so that each step holds those after it.
        for node, (stage, model) in reversed(list(zip(trie.path(self.target), trie.edges(self.target), strict=True))):
            comes = 1.0 - float(self.annotated.stop[trie.parent[node]])
            found = [{"stage": stage, "model": model, "probability": comes, "steps": found}]
        return found

    @property
    def accuracy(self) -> float:
        """Expected accuracy of ending at ``target``: the estimate itself, also if the objective sets ``confidence``."""
        return float(self.metrics.annotated.accuracy[self.target])

    @property
    def path_cost_usd(self) -> float:
        """Expected dollars from the root, discounted by early stops."""
        return float(self.metrics.mean(Metric.COST)[self.target])

    @property
    def path_latency_s(self) -> float:
        """Expected seconds from the root at zero load, for a request that runs the whole path."""
        return float(self.metrics.mean(Metric.LATENCY)[self.target])

    @property
    def expected_latency_s(self) -> float:
        """Expected seconds from the root at zero load; here those of the whole path."""
        return self.path_latency_s

    @property
    def standard_error(self) -> float | None:
        """Standard error of the accuracy; None where the trie has none."""
        errors = self.annotated.accuracy_se
        return None if errors is None else float(errors[self.target])

    @property
    def cost_error_usd(self) -> float | None:
        """Standard error of the expected dollars, as if all ends of the plan erred alike; None where the trie has none."""
        errors = self.annotated.cost_se
        return None if errors is None else float(sum(errors[node] for node in self.ends))

    @cached_property
    def remaining_cost_usd(self) -> float:
        """Expected dollars below ``node`` for a request that runs the whole path."""
        full_cost = self.metrics.mean(Metric.FULL_COST)
        return float(full_cost[self.target] - full_cost[self.node])

    @cached_property
    def remaining_latency_s(self) -> float:
        """Expected seconds below ``node`` for a request that runs the whole path, under the load of the plan."""
        return float(self._target_view.remaining_s[1])

    @property
    def mean_rest_s(self) -> float:
        """The same at zero load, and without any margin; NaN where it is not known."""
        seconds = self.metrics.mean(Metric.LATENCY)
        return float(seconds[self.target] - seconds[self.node])

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """90 % intervals of ``accuracy``, ``path_cost_usd`` and ``path_latency_s``, if the trie has standard errors.

        That of ``accuracy`` is the interval of :attr:`promise`: it allows for the plan having been chosen as the best of many.
        """
        annotated = self.metrics.annotated
        found = {} if self.promise.interval is None else {"accuracy": self.promise.interval}
        for name, error in (("path_cost_usd", annotated.cost_se), ("path_latency_s", annotated.latency_se)):
            if error is not None and np.isfinite(error[self.target]):
                middle, reach = getattr(self, name), Z90 * float(error[self.target])
                found[name] = (max(middle - reach, 0.0), middle + reach)
        return found

    @cached_property
    def promise(self) -> Promise:
        """The accuracy to expect from serving the plan: the estimate less the optimism of having chosen it, and its interval.

        A choice among given ``candidates`` gets no correction: the optimism was measured for a choice among all paths.
        """
        found = Promise.of(self.metrics.annotated, self.target)
        if self.request.candidates is None:
            return found
        return replace(found, optimism=None, advantage_optimism=None)

    @cached_property
    def slack(self) -> dict[str, float]:
        """The unused part of each bound at ``target``, in seconds, dollars or as a fraction; negative if it is violated."""
        view = self._target_view
        sign = dict.fromkeys(view.bounds, -1.0) | {FLOOR: 1.0}
        return {bound: sign[bound] * float(view.values(bound)[1] - view.limit(bound)) for bound in view.bounds}

    @cached_property
    def binding(self) -> str | None:
        """The binding constraint; None if no bound changes the plan.

        It is the bound that no path meets, or else the one without which another end would be better (of several such bounds
        the one with the least slack relative to its value).
        """
        if self.relaxed:
            return self.relaxed[0]
        view = self.view if self.frontier is None else self.frontier.view(self.metrics, self.request)
        better = [b for b in view.bounds if view.node(view.first_of(view.feasible(without=(b,)), view.order)) != self.target]
        return min(better, key=lambda bound: self.slack[bound] / (getattr(view.objective, bound) or 1.0), default=None)

    @cached_property
    def runner_up(self) -> Choice | None:
        """The best end that begins with another next model (or with ending now); None if there is none. It may relax bounds."""
        view, trie = self.view, self.metrics.trie
        others = view.allowed.copy()
        if self.stop:
            others[0] = False
        else:
            child = next(at for at in trie.children(self.node) if at <= self.target < trie.end[at])
            others[child - self.node : int(trie.end[child]) - self.node] = False
        return view.among(others).choose()

    @cached_property
    def reason(self) -> str:
        """One line that says what the plan is and which bound is binding."""
        path = " → ".join(self.path[len(self.metrics.trie.prefix(self.node)) :])
        plan = "end here" if self.stop else f"plan {path}"
        text = f"{plan}: accuracy {self.accuracy:.3f}, ${self.path_cost_usd:.4g} in total"
        text += f", {self.remaining_latency_s:.3g} s remaining"
        if self.relaxed:
            return f"{text}; no path meets {self._short()}: {EFFORT[self.relaxed[0]]}"
        if self.binding:
            return f"{text}; limited by {self.binding} ({self.slack[self.binding]:.3g}{UNITS[self.binding]} to spare)"
        return f"{text}; no bound is binding"

    def _short(self) -> str:
        return " with ".join(f"{bound} = {getattr(self.request.objective, bound):g}{UNITS[bound]}" for bound in self.relaxed)

    def _repr_html_(self) -> str:
        """The plan, its expected metrics and the slack of each bound as a table, for notebooks."""
        rows = [
            ("plan", self.words),
            ("accuracy", f"{self.accuracy:.1%}"),
            ("cost per request", f"${self.path_cost_usd:.4g}"),
            (self._latency_name, f"{self.path_latency_s:.3g} s" if self.metrics.annotated.knows_latency else "-"),
            *((f"slack of {bound}", f"{left:.4g}{UNITS[bound]}") for bound, left in self.slack.items()),
            ("meets the bounds", "yes" if self.is_feasible else f"no: {', '.join(self.relaxed)} relaxed"),
        ]
        return html_table(f"Decision: {self.request.objective}", ("", "value"), rows)

    _latency_name: ClassVar[str] = "latency at zero load"

    def to_dict(self) -> dict[str, Any]:
        """Return the plan, its expected values and its reason as JSON types; seconds are None if the trie has no latencies."""
        return {
            "node": self.node,
            "target": self.target,
            "next_model": self.next_model,
            **self._figures(),
            **self.facts(),
        }

    def facts(self) -> dict[str, Any]:
        """Return the plan alone as JSON types."""
        return {"plan": list(self.path), "stages": [list(edge) for edge in self.metrics.trie.edges(self.target)]}

    def _figures(self) -> dict[str, Any]:
        knows_latency = self.metrics.annotated.knows_latency
        return {
            "is_feasible": self.is_feasible,
            "accuracy": self.accuracy,
            "path_cost_usd": self.path_cost_usd,
            "path_latency_s": self.path_latency_s if knows_latency else None,
            "remaining_cost_usd": self.remaining_cost_usd,
            "remaining_latency_s": self.remaining_latency_s if knows_latency else None,
            "binding": self.binding,
            "slack": dict(self.slack),
            "reason": self.reason,
        }
