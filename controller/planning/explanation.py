"""Why this model and not another: every next step of a decision with the best plan behind it, and what spoke against it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vinelm.controller.planning.decision import Decision
from vinelm.controller.planning.subtree import COST_CAP, FLOOR, LATENCY_CAP, SubtreeView

_GAPS = {FLOOR: "{:.3g} below the accuracy floor", LATENCY_CAP: "{:.3g} s over the cap", COST_CAP: "${:.3g} over the cap"}


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best plan that begins with ``next_model`` (None: ending at once). ``why`` is empty for the chosen one.

    ``accuracy`` and the dollars are those of DESIGN §4 from the root; ``remaining_s`` is what is still to come, load included.
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
        """Plain JSON types."""
        return asdict(self) | {"plan": list(self.plan)}


def alternatives(decision: Decision) -> list[Alternative]:
    """Ending at once where that is possible, then every next model in trie order, each with the best plan behind it."""
    view, trie = decision.view, decision.known.trie
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
    """The decision and its alternatives as text: budget left, one line for each next step, why it lost."""
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


def _alternative(decision: Decision, model: str | None, target: int, is_feasible: bool, is_chosen: bool) -> Alternative:
    view, at = decision.view, target - decision.node
    return Alternative(
        next_model=model,
        plan=decision.known.trie.prefix(target),
        accuracy=float(decision.known.annotated.accuracy[target]),
        path_cost_usd=float(view.cost_usd[at]),
        remaining_s=float(view.live_s[at]),
        is_feasible=is_feasible,
        is_chosen=is_chosen,
        why="" if is_chosen else _why_not(decision, view, at),
    )


def _why_not(decision: Decision, view: SubtreeView, at: int) -> str:
    """What the chosen plan has that this one lacks: a bound that it meets, or the first quantity in which it is better."""
    missed = [bound for bound in view.bounds if not view.meets(bound)[at]]
    if missed and not (decision.relaxed and set(missed) <= set(decision.relaxed)):
        gaps = ((b, abs(float(view.values(b)[at] - view.limit(b)))) for b in missed)
        return ", ".join(_GAPS[bound].format(gap) for bound, gap in gaps)
    chosen = decision.target - decision.node
    quantities = [
        ("less accurate by {:.3g}", -view.accuracy),
        ("${:.3g} dearer", view.cost_usd),
        ("{:.3g} s slower", view.live_s),
    ]
    first = {"accuracy": 0, "cost": 1, "latency": 2}[view.objective.target]
    for words, values in [quantities[first], *quantities]:
        gap = float(values[at] - values[chosen])
        if gap > 0:
            return words.format(gap)
    return "as good; the other comes first" if decision.query.objective.risk != "dp" else "riskier"
