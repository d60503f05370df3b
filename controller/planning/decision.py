"""What the planner answers: where to end, which model comes next, and why. Everything but the answer is computed when read."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from vinelm.controller.planning.frontier import Frontier
from vinelm.controller.planning.path_metrics import PathMetrics
from vinelm.controller.planning.plan_request import PlanRequest
from vinelm.controller.planning.subtree import COST_CAP, FLOOR, LATENCY_CAP, Choice, SubtreeView
from vinelm.io import html_table

INTERVAL_Z = 1.6448536269514722
"""Intervals are two-sided at 90 %."""

_UNIT = {FLOOR: "", LATENCY_CAP: " s", COST_CAP: " USD"}


@dataclass(frozen=True, init=False)
class Decision:
    """The plan of one moment: run ``next_model`` now and, if nothing changes, end at ``target``.

    ``next_model`` is None where the request should end at ``node``. ``relaxed`` names the bounds that no path meets and that
    gave way, the binding one first; empty where the plan meets them all. ``frontier`` holds the ends it was chosen from, None
    where that was the whole subtree.
    """

    node: int
    target: int
    next_model: str | None
    relaxed: tuple[str, ...]
    known: PathMetrics = field(compare=False, repr=False)
    query: PlanRequest = field(compare=False, repr=False)
    frontier: Frontier | None = field(compare=False, repr=False)

    def __init__(
        self,
        known: PathMetrics,
        query: PlanRequest,
        target: int,
        next_model: str | None,
        relaxed: tuple[str, ...] = (),
        *,
        frontier: Frontier | None,
    ) -> None:
        # the generated one sets a frozen object's fields one by one, at half the price of the whole plan
        self.__dict__.update(
            node=query.node, target=target, next_model=next_model, relaxed=relaxed, known=known, query=query, frontier=frontier
        )

    @cached_property
    def view(self) -> SubtreeView:
        """The subtree as the objective saw it."""
        return SubtreeView(self.known, self.query)

    @cached_property
    def _ends(self) -> SubtreeView:
        """The node and the target alone: what is asked of these two need not measure a large subtree."""
        return SubtreeView(self.known, self.query, np.array([self.target]))

    @property
    def stop(self) -> bool:
        """The request should end here."""
        return self.next_model is None

    @property
    def is_feasible(self) -> bool:
        """The plan meets every bound of the objective."""
        return not self.relaxed

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The models from the root to ``target``."""
        return self.known.trie.prefix(self.target)

    @property
    def accuracy(self) -> float:
        """Expected accuracy of ending at ``target``: the estimate, also where the plan was made against a lower bound."""
        return float(self.known.annotated.accuracy[self.target])

    @property
    def path_cost_usd(self) -> float:
        """Expected dollars from the root, early stops discounted."""
        return float(self.known.cost_usd[self.target])

    @property
    def path_latency_s(self) -> float:
        """Expected seconds from the root at zero load, for a request that goes all the way."""
        return float(self.known.latency_s[self.target])

    @cached_property
    def remaining_cost_usd(self) -> float:
        """Dollars still to come for a request that goes all the way: K(v) - K(u)."""
        return float(self.known.full_cost_usd[self.target] - self.known.full_cost_usd[self.node])

    @cached_property
    def remaining_latency_s(self) -> float:
        """Seconds still to come for a request that goes all the way, under the load the plan was made for."""
        return float(self._ends.live_s[1])

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """90 % intervals of ``accuracy``, ``path_cost_usd`` and ``path_latency_s``, where the trie has standard errors."""
        annotated = self.known.annotated
        found = {}
        for name, error in (
            ("accuracy", annotated.accuracy_se),
            ("path_cost_usd", annotated.cost_se),
            ("path_latency_s", annotated.latency_se),
        ):
            if error is not None and np.isfinite(error[self.target]):
                middle, reach = getattr(self, name), INTERVAL_Z * float(error[self.target])
                found[name] = (max(middle - reach, 0.0), min(middle + reach, 1.0) if name == "accuracy" else middle + reach)
        return found

    @cached_property
    def slack(self) -> dict[str, float]:
        """What each bound leaves unused at ``target``, in its unit; negative where it gave way."""
        view = self._ends
        sign = dict.fromkeys(view.bounds, -1.0) | {FLOOR: 1.0}
        return {bound: sign[bound] * float(view.values(bound)[1] - view.limit(bound)) for bound in view.bounds}

    @cached_property
    def binding(self) -> str | None:
        """The bound that no path meets; else the one without which another end would be better (with more than one such,
        the bound with least slack for its size); None where no bound costs anything.
        """
        if self.relaxed:
            return self.relaxed[0]
        view = self.view if self.frontier is None else self.frontier.view(self.known, self.query)
        better = [b for b in view.bounds if view.node(view.first_of(view.feasible(without=(b,)), view.order)) != self.target]
        return min(better, key=lambda bound: self.slack[bound] / (getattr(view.objective, bound) or 1.0), default=None)

    @cached_property
    def runner_up(self) -> Choice | None:
        """The best end that begins with another next step; None where there is none. Its bounds may have to give way too."""
        view, trie = self.view, self.known.trie
        others = view.allowed.copy()
        if self.stop:
            others[0] = False
        else:
            child = next(at for at in trie.children(self.node) if at <= self.target < trie.end[at])
            others[child - self.node : int(trie.end[child]) - self.node] = False
        return view.among(others).choose()

    @cached_property
    def reason(self) -> str:
        """One line for a person."""
        path = " → ".join(self.path[len(self.known.trie.prefix(self.node)) :])
        plan = "end here" if self.stop else f"plan {path}"
        text = f"{plan}: accuracy {self.accuracy:.3f}, ${self.path_cost_usd:.4g} in all, {self.remaining_latency_s:.3g} s to go"
        if self.relaxed:
            return f"{text}; no path meets {self._short()}: {_EFFORT[self.relaxed[0]]}"
        if self.binding:
            return f"{text}; {self.binding} decides, {self.slack[self.binding]:.3g}{_UNIT[self.binding]} left"
        return f"{text}; no bound stands in the way"

    def _short(self) -> str:
        return " with ".join(f"{bound} = {getattr(self.query.objective, bound):g}{_UNIT[bound]}" for bound in self.relaxed)

    def _repr_html_(self) -> str:
        """The plan, its expected metrics and the slack of each bound as a table, for notebooks."""
        steps = list(self.known.trie.edges(self.target))
        rows = [
            ("plan", " > ".join(f"{stage}: {model}" for stage, model in steps) or "end here"),
            ("accuracy", f"{self.accuracy:.1%}"),
            ("cost per request", f"${self.path_cost_usd:.4g}"),
            ("latency at zero load", f"{self.path_latency_s:.3g} s" if self.known.annotated.knows_latency else "-"),
            *((f"slack of {bound}", f"{left:.4g}{_UNIT[bound]}") for bound, left in self.slack.items()),
            ("meets the bounds", "yes" if self.is_feasible else f"no: {', '.join(self.relaxed)} relaxed"),
        ]
        return html_table(f"Decision: {self.query.objective}", ("", "value"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: the plan, its expectations and its reason. Seconds are None where the trie knows no latency."""
        knows_latency = self.known.annotated.knows_latency
        return {
            "node": self.node,
            "target": self.target,
            "plan": list(self.path),
            "next_model": self.next_model,
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


_EFFORT = {FLOOR: "highest accuracy instead", LATENCY_CAP: "least time instead", COST_CAP: "least cost instead"}
