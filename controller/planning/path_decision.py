"""The planner's result on a trie without branches: the node to end at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from vinelm.controller.planning.decision import EFFORT, Alternative, BoundUse, Decision, spare
from vinelm.controller.planning.frontier import Frontier
from vinelm.controller.planning.metric import COST_CAP, FLOOR, LATENCY_CAP, UNITS, Metric
from vinelm.controller.planning.subtree import SubtreeView
from vinelm.plans.expected import Errors, Figures
from vinelm.plans.promise import Z90, Promise
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

_GAPS = {FLOOR: "{:.3g} below the accuracy floor", LATENCY_CAP: "{:.3g} s over the cap", COST_CAP: "${:.3g} over the cap"}


@dataclass
class PathDecision(Decision):
    """A plan that ends at a single node: run ``next_model`` now and, if nothing changes, end at ``target``.

    Attributes:
        frontier: The frontier from which the target was chosen; None if it was chosen from the whole subtree.
    """

    frontier: Frontier | None = field(compare=False, repr=False)

    noun = "path"
    latency_words = "if every invocation runs"
    alternatives_shown = ("next_model", "accuracy", "path_cost_usd", "remaining_s", "why", "plan")
    alternatives_words = "Cost: expected dollars of the whole request. Remaining: seconds if every invocation of the plan runs."
    _latency_name = "latency at zero load"
    _tie_words = "equally good; the chosen one comes first"

    @cached_property
    def view(self) -> SubtreeView:
        """The whole subtree below ``node``, with the quantities by which the objective compares its nodes."""
        return SubtreeView(self.metrics, self.request)

    @cached_property
    def _target_view(self) -> SubtreeView:
        """A view of only two nodes: the request's node (item 0) and the target (item 1)."""
        return SubtreeView(self.metrics, self.request, np.array([self.target]))

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
        """The probability that a request on this plan makes each node's call, from the root on; shape (nodes,)."""
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
        """The plan from the root as a tree of JSON types.

        Each step has stage, model (None at the end), probability and the next steps.
        """
        found: list[dict[str, Any]] = []
        trie = self.metrics.trie
        # From the end, so that each step contains those after it.
        for node, (stage, model) in reversed(list(zip(trie.path(self.target), trie.edges(self.target), strict=True))):
            comes = 1.0 - float(self.annotated.stop[trie.parent[node]])
            found = [{"stage": stage, "model": model, "probability": comes, "steps": found}]
        return found

    @cached_property
    def figures(self) -> Figures:
        """The expected accuracy, cost and latency from the root.

        The cost is the mean over requests, some of which stop early. The latency is that of a request that runs the whole path.
        """
        at = self.target
        seconds = float(self.metrics.mean(Metric.LATENCY)[at])
        return Figures(float(self.annotated.accuracy[at]), float(self.metrics.mean(Metric.COST)[at]), seconds, seconds)

    @property
    def errors(self) -> Errors:
        """The standard errors of the path's accuracy and cost."""
        known = self.annotated.accuracy_se, self.annotated.cost_se
        accuracy, cost_usd = (None if errors is None else float(errors[self.target]) for errors in known)
        return Errors(accuracy, cost_usd)

    @cached_property
    def remaining_cost_usd(self) -> float:
        """The expected cost, in dollars, of the calls after ``node`` for a request that runs the plan's whole path."""
        full_cost = self.metrics.mean(Metric.FULL_COST)
        return float(full_cost[self.target] - full_cost[self.node])

    @cached_property
    def remaining_latency_s(self) -> float:
        """The expected latency, in seconds, of the calls after ``node`` for a request that runs the plan's whole path.

        It includes the delay by load.
        """
        return float(self._target_view.remaining_s[1])

    @property
    def mean_rest_s(self) -> float:
        """The expected latency, in seconds, of the calls after ``node`` at zero load, without a safety margin."""
        seconds = self.metrics.mean(Metric.LATENCY)
        return float(seconds[self.target] - seconds[self.node])

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """90 % intervals (low, high), keyed by ``accuracy``, ``path_cost_usd`` and ``path_latency_s``.

        A key is missing if its standard error is unknown. The interval of ``accuracy`` comes from :attr:`promise`, which is
        corrected for selecting the best of many plans.
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
        """The predicted accuracy of the plan, with its interval.

        The estimate of a plan that was chosen as the best of many is too high on average; the expected bias is subtracted.
        Nothing is subtracted for a choice among given ``candidates``, since the bias was measured for choices among all paths.
        """
        found = Promise.of(self.metrics.annotated, self.target)
        if self.request.candidates is None:
            return found
        return replace(found, optimism=None, advantage_optimism=None)

    @cached_property
    def slack(self) -> dict[str, float]:
        """The part of each bound that is unused at the plan's end, by the bound's name; negative if the bound is violated.

        The unit is seconds, dollars or, for the accuracy floor, a fraction.
        """
        view = self._target_view
        left = {bound: spare(view.limit(bound), float(view.values(bound)[1])) for bound in view.bounds}
        return {bound: -amount if bound == FLOOR else amount for bound, amount in left.items()}

    @property
    def bounds(self) -> list[BoundUse]:
        """The use of each bound of the objective: the part used before ``node``, and the part needed from there to the end."""
        view = self._target_view
        return [BoundUse(b, None if b == FLOOR else view.used(b), float(view.values(b)[1])) for b in view.bounds]

    @cached_property
    def binding(self) -> str | None:
        """The name of the bound that decides which plan is chosen; None if no bound changes the choice.

        This is a bound that no path meets or, if all are met, a bound without which another plan would be chosen. Of several
        such bounds, it is the one with the smallest unused part, relative to its value.
        """
        if self.relaxed:
            return self.relaxed[0]
        view = self.view if self.frontier is None else self.frontier.view(self.metrics, self.request)
        better = [b for b in view.bounds if view.node(view.first_of(view.feasible(without=(b,)), view.order)) != self.target]
        return min(better, key=lambda bound: self.slack[bound] / (getattr(view.objective, bound) or 1.0), default=None)

    @cached_property
    def reason(self) -> str:
        """One line of text with the plan, its figures and the bound that decides the choice (see :attr:`binding`)."""
        path = " → ".join(self.path[len(self.metrics.trie.prefix(self.node)) :])
        plan = "end here" if self.stop else f"plan {path}"
        text = f"{plan}: accuracy {self.accuracy:.3f}, ${self.path_cost_usd:.4g} in total"
        text += f", {self.remaining_latency_s:.3g} s remaining"
        if self.relaxed:
            return f"{text}; no path meets {self._short()}: {EFFORT[self.relaxed[0]]}"
        if self.binding:
            return f"{text}; limited by {self.binding} ({self.slack[self.binding]:.3g}{UNITS[self.binding]} to spare)"
        return f"{text}; no bound is binding"

    @property
    def sentences(self) -> str:
        """The reason for the choice as full sentences, with the interval of the accuracy."""
        found, text = self.intervals.get("accuracy"), super().sentences
        if found is not None:
            promised = f"Promised accuracy: {100 * self.promise.accuracy:.1f} %. "
            text = f"{promised}Accuracy interval (90 %): {100 * found[0]:.1f} % to {100 * found[1]:.1f} %. {text}"
        return text

    def _short(self) -> str:
        return " with ".join(f"{bound} = {getattr(self.request.objective, bound):g}{UNITS[bound]}" for bound in self.relaxed)

    @property
    def _now(self) -> dict[str, Any]:
        return {"target": self.target, **super()._now}

    def facts(self) -> dict[str, Any]:
        """Return the plan as JSON types: its models (``plan``), and stage and model of each step (``stages``)."""
        return {"plan": list(self.path), "stages": [list(edge) for edge in self.metrics.trie.edges(self.target)]}

    def goes_on(self, node: int, stage: str) -> bool:
        """Return True unless ``node`` is the target, where the plan ends. ``stage`` is ignored."""
        return node != self.target

    def next_for(self, stage: str | None) -> str | None:
        """Return the model to run next; None if the request should end. ``stage`` is ignored, since only one can come."""
        return self.next_model

    def lines(self, limit: int | None = None) -> list[str]:
        """Return the plan in a single line, whatever the ``limit``."""
        return [self.words]

    @property
    def shown(self) -> tuple[str, ...]:
        """The models of the plan, from the root to ``target``."""
        return self.path

    @property
    def ahead(self) -> tuple[float, float, float]:
        """Expected accuracy, cost in dollars and latency in seconds from ``node`` on, for a request that continues."""
        return (0.0, 0.0, 0.0) if self.stop else ahead_along(self.annotated, self.target)[self.metrics.trie.depth[self.node]]

    def candidates(self) -> dict[str, Any]:
        """Return the alternatives as JSON types (``candidates``), and what the request has used of each bound (``used``)."""
        return {
            "used": {bound: self.view.used(bound) for bound in self.view.bounds},
            "candidates": [found.to_dict() for found in self.alternatives()],
        }

    def alternatives(self) -> list[Alternative]:
        """Return the possible decisions at ``node``: to end now, if allowed, and each possible next model in trie order."""
        view, trie = self.view, self.metrics.trie
        spans: list[tuple[str | None, int, int]] = [(None, self.node, self.node + 1)]
        spans += [(trie.models[int(trie.model[c])], c, int(trie.end[c])) for c in trie.children(self.node)]
        found = []
        for model, start, end in spans:
            among = np.zeros_like(view.allowed)
            among[start - self.node : end - self.node] = view.allowed[start - self.node : end - self.node]
            choice = view.among(among).choose()
            if choice is not None:
                is_chosen = start <= self.target < end
                target = self.target if is_chosen else choice.target
                found.append(self._alternative(model, target, not choice.relaxed, is_chosen))
        return found

    def explain(self) -> str:
        """Return as text the unused part of each bound, and the reason why each alternative was not chosen."""
        view = self.view
        lines = [self.reason]
        for bound in view.bounds:
            whole = getattr(view.objective, bound)
            lines.append(f"  {bound} {whole:g}: {self.slack[bound]:+.4g} to spare, {view.used(bound):.4g} used so far")
        for found in self.alternatives():
            name = "(end here)" if found.next_model is None else found.next_model
            mark = "->" if found.is_chosen else "  "
            figures = f"accuracy {found.accuracy:.3f}  ${found.path_cost_usd:.4g}  {found.remaining_s:.3g} s"
            lines.append(f"{mark} {name:20} {figures}  {found.why}".rstrip())
        return "\n".join(lines)

    def _alternative(self, model: str | None, target: int, is_feasible: bool, is_chosen: bool) -> Alternative:
        view, at = self.view, target - self.node
        trie = self.metrics.trie
        return Alternative(
            stage=next(iter(trie.arms(self.node)), None),
            next_model=model,
            plan=trie.prefix(target),
            accuracy=float(self.metrics.annotated.accuracy[target]),
            path_cost_usd=float(view.column(Metric.COST)[at]),
            remaining_s=float(view.remaining_s[at]),
            is_feasible=is_feasible,
            is_chosen=is_chosen,
            why="" if is_chosen else self._why_not(at),
        )

    def _why_not(self, at: int) -> str:
        """Return in words why an alternative was not chosen.

        The reason is the bounds that it violates or, if it violates none, the first quantity in which the chosen plan is
        better. ``at`` is the index in :attr:`view` of the node where the alternative ends.
        """
        view = self.view
        missed = [bound for bound in view.bounds if not view.meets(bound)[at]]
        if missed and not (self.relaxed and set(missed) <= set(self.relaxed)):
            gaps = ((b, abs(float(view.values(b)[at] - view.limit(b)))) for b in missed)
            return ", ".join(_GAPS[bound].format(gap) for bound, gap in gaps)
        chosen = self.target - self.node
        quantities = [
            ("less accurate by {:.3g}", -view.column(Metric.ACCURACY)),
            ("${:.3g} more expensive", view.column(Metric.COST)),
            ("{:.3g} s slower", view.remaining_s),
        ]
        first = {"accuracy": 0, "cost": 1, "latency": 2}[view.objective.target]
        for words, values in [quantities[first], *quantities]:
            gap = float(values[at] - values[chosen])
            if gap > 0:
                return words.format(gap)
        return self._tie_words


class ChanceDecision(PathDecision):
    """A plan chosen by a stochastic program that takes the probability of a late answer into account (``risk="dp"``)."""

    _tie_words = "riskier"

    @property
    def sentences(self) -> str:
        """The reason for the choice as full sentences.

        The last sentence says that the other sentences compare mean times, but the choice took random times into account.
        """
        return (
            f"{super().sentences}\n"
            "The stochastic program made the choice; the reasons above compare the steps by their mean times."
        )


def ahead_along(annotated: AnnotatedTrie, target: int) -> list[tuple[float, float, float]]:
    """Return the expected accuracy, dollars and seconds of the rest of the path to ``target``, for each of its calls.

    The list has one tuple (accuracy, cost in dollars, latency in seconds) per call, the first call first. A call's tuple covers
    this call and the calls after it. The figures are computed backwards from the end: a request at the parent of node u spends
    ``cost_usd[u]`` and ends at u with probability ``stop[u]``.
    """
    nodes = annotated.trie.path(target)
    found = [(float(annotated.success[target]), float(annotated.cost_usd[target]), float(annotated.latency_s[target]))]
    for node in reversed(nodes[:-1]):
        goes_on, (success, cost_usd, latency_s) = 1.0 - float(annotated.stop[node]), found[-1]
        found.append(
            (
                float(annotated.stop_success[node]) + goes_on * success,
                float(annotated.cost_usd[node]) + goes_on * cost_usd,
                float(annotated.latency_s[node]) + goes_on * latency_s,
            )
        )
    return found[::-1]
