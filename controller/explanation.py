"""Why the planner chose one model and not another."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.controller.planning.decision import Decision
from vinelm.controller.planning.metric import COST_CAP, FLOOR, LATENCY_CAP, Metric
from vinelm.controller.planning.subtree import SubtreeView

_GAPS = {FLOOR: "{:.3g} below the accuracy floor", LATENCY_CAP: "{:.3g} s over the cap", COST_CAP: "${:.3g} over the cap"}


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best plan that begins with ``next_model``.

    Attributes:
        next_model: None for ending the request now.
        plan: The models from the root to the plan's end.
        accuracy: Expected accuracy of ending there.
        path_cost_usd: Expected dollars from the root.
        remaining_s: Expected seconds below the request's node, load included.
        is_feasible: Whether the plan meets every bound.
        is_chosen: Whether it is the decision's plan.
        why: Why it was not chosen; empty for the chosen one.
    """

    next_model: str | None
    plan: tuple[str, ...]
    accuracy: float
    path_cost_usd: float
    remaining_s: float
    is_feasible: bool
    is_chosen: bool
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return asdict(self) | {"plan": list(self.plan)}


def alternatives(decision: Decision) -> list[Alternative]:
    """List ending the request now, if that is allowed, then every next model in trie order, each with its best plan."""
    if isinstance(decision, ContingentDecision):
        return _contingent(decision)
    view, trie = decision.view, decision.metrics.trie
    spans: list[tuple[str | None, int, int]] = [(None, decision.node, decision.node + 1)]
    spans += [(trie.models[int(trie.model[c])], c, int(trie.end[c])) for c in trie.children(decision.node)]
    found = []
    for model, start, end in spans:
        among = np.zeros_like(view.allowed)
        among[start - decision.node : end - decision.node] = view.allowed[start - decision.node : end - decision.node]
        choice = view.among(among).choose()
        if choice is not None:
            is_chosen = start <= decision.target < end
            target = decision.target if is_chosen else choice.target
            found.append(_alternative(decision, model, target, not choice.relaxed, is_chosen))
    return found


def explain(decision: Decision) -> str:
    """Describe the decision as text: what each bound leaves, and one line per alternative that says why it was not chosen."""
    if isinstance(decision, ContingentDecision):
        return decision.explain()
    view = decision.view
    lines = [decision.reason]
    for bound in view.bounds:
        whole = getattr(view.objective, bound)
        lines.append(f"  {bound} {whole:g}: {decision.slack[bound]:+.4g} to spare, {view.used(bound):.4g} used so far")
    for found in alternatives(decision):
        name = "(end here)" if found.next_model is None else found.next_model
        mark = "->" if found.is_chosen else "  "
        figures = f"accuracy {found.accuracy:.3f}  ${found.path_cost_usd:.4g}  {found.remaining_s:.3g} s"
        lines.append(f"{mark} {name:20} {figures}  {found.why}".rstrip())
    return "\n".join(lines)


def _contingent(decision: ContingentDecision) -> list[Alternative]:
    """For each arm, ending the request if that is allowed, then every next model with its best plan."""
    prefix = decision.metrics.trie.prefix(decision.node)
    return [
        Alternative(
            next_model=option.model,
            plan=prefix if option.model is None else (*prefix, option.model),
            accuracy=option.accuracy,
            path_cost_usd=option.cost_usd,
            remaining_s=option.latency_s,
            is_feasible=option.lost == 0.0,
            is_chosen=option.is_chosen,
            why=option.why,
        )
        for option in decision.alternatives()
    ]


def _alternative(decision: Decision, model: str | None, target: int, is_feasible: bool, is_chosen: bool) -> Alternative:
    view, at = decision.view, target - decision.node
    return Alternative(
        next_model=model,
        plan=decision.metrics.trie.prefix(target),
        accuracy=float(decision.metrics.annotated.accuracy[target]),
        path_cost_usd=float(view.column(Metric.COST)[at]),
        remaining_s=float(view.remaining_s[at]),
        is_feasible=is_feasible,
        is_chosen=is_chosen,
        why="" if is_chosen else _why_not(decision, view, at),
    )


def _why_not(decision: Decision, view: SubtreeView, at: int) -> str:
    """The bounds that this plan violates, or else the first quantity in which the chosen plan is better."""
    missed = [bound for bound in view.bounds if not view.meets(bound)[at]]
    if missed and not (decision.relaxed and set(missed) <= set(decision.relaxed)):
        gaps = ((b, abs(float(view.values(b)[at] - view.limit(b)))) for b in missed)
        return ", ".join(_GAPS[bound].format(gap) for bound, gap in gaps)
    chosen = decision.target - decision.node
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
    return "equally good; the chosen one comes first" if decision.request.objective.risk != "dp" else "riskier"
