"""Figure 9: what plans over a sparse annotation promise and what they achieve, for both objectives, at 2 % coverage.

Left in the paper: the highest accuracy under a cap on dollars. Right: the lowest dollars that reach an accuracy. A plan is
chosen by the estimated annotation and judged by the complete table. The ground truth is the plan over that table itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from reproduce_parts.estimation import Fits

from vinelm.controller import Planner
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

POINTS = 15
TRUTH = "ground truth"
OVER, MISS = 1.05, 0.01
"""A cap counts as overspent by more than 5 %, a floor as missed by more than one point."""


def figure_9(fits: Sequence[Fits]) -> dict[str, Any]:
    """Case to objective to {bounds, lines: estimator to points, summary: estimator to figures}; means over seeds."""
    return {one.case.name: _case(one) for one in fits}


def _case(fits: Fits) -> dict[str, Any]:
    truth = fits.case.table.annotate()
    usd = truth.path_cost_usd[truth.trie.answerable]
    best_usd = float(truth.path_cost_usd[int(truth.accuracy.argmax())])
    low, high = float(np.quantile(truth.accuracy[truth.trie.answerable], 0.05)), float(truth.accuracy.max())
    bounds = {
        "max_accuracy": np.geomspace(float(usd.min()) * 1.2, max(best_usd, float(usd.min()) * 2), POINTS),
        "min_cost": np.linspace(low, high - 0.005, POINTS),
    }
    fitted = {TRUTH: [truth], **fits.at_2_percent}
    return {
        objective: {
            "bounds": values.tolist(),
            "lines": {name: _line(truth, tries, objective, values) for name, tries in fitted.items()},
            "summary": {name: _summary(truth, tries, objective, values) for name, tries in fitted.items()},
        }
        for objective, values in bounds.items()
    }


def _chosen(annotated: AnnotatedTrie, objective: str, bounds: FloatArray) -> list[int | None]:
    """The node that is planned for each bound; None where no path is estimated to meet it."""
    planner = Planner(annotated)
    found: list[int | None] = []
    for bound in bounds.tolist():
        is_cap = objective == "max_accuracy"
        asked = Objective(maximize="accuracy", max_cost_usd=bound) if is_cap else Objective(minimize="cost", min_accuracy=bound)
        decision = planner.plan(asked)
        found.append(decision.target if decision.is_feasible else None)
    return found


def _line(truth: AnnotatedTrie, tries: Sequence[AnnotatedTrie], objective: str, bounds: FloatArray) -> list[dict[str, Any]]:
    """Per bound: promised and achieved accuracy and dollars, means over the seeds in which a path was found."""
    chosen = [_chosen(one, objective, bounds) for one in tries]
    points = []
    for i, bound in enumerate(bounds.tolist()):
        found = [(one, nodes[i]) for one, nodes in zip(tries, chosen, strict=True) if nodes[i] is not None]
        points.append(
            {
                "bound": bound,
                "seeds_with_a_plan": len(found),
                "promised_accuracy": _mean([one.accuracy[node] for one, node in found]),
                "achieved_accuracy": _mean([truth.accuracy[node] for _, node in found]),
                "promised_usd": _mean([one.path_cost_usd[node] for one, node in found]),
                "achieved_usd": _mean([truth.path_cost_usd[node] for _, node in found]),
            }
        )
    return points


def _summary(truth: AnnotatedTrie, tries: Sequence[AnnotatedTrie], objective: str, bounds: FloatArray) -> dict[str, Any]:
    """Under caps: accuracy below the best, and the share of the plans that overspend. Over floors: the share of the plans that
    miss theirs, and dollars over the least. With both, the share of the bounds for which a path was found.
    """
    least, plans = _chosen(truth, objective, bounds), []
    for one in tries:
        for bound, node, best in zip(bounds.tolist(), _chosen(one, objective, bounds), least, strict=True):
            if node is not None and best is not None:
                plans.append((bound, float(truth.accuracy[node]), float(truth.path_cost_usd[node]), best))
    shared = {"plans_found": len(plans) / (len(bounds) * len(tries))}
    if objective == "max_accuracy":
        return shared | {
            "accuracy_below_best": _mean([float(truth.accuracy[best]) - a for _, a, _, best in plans]),
            "overspent": _mean([usd > OVER * bound for bound, _, usd, _ in plans]),
            "spent_over_cap": _mean([usd / bound for bound, _, usd, _ in plans]),
        }
    return shared | {
        "missed": _mean([a < bound - MISS for bound, a, _, _ in plans]),
        "usd_over_least": _mean([usd / float(truth.path_cost_usd[best]) - 1.0 for _, _, usd, best in plans]),
    }


def _mean(values: Sequence[Any]) -> float | None:
    return float(np.mean(values)) if len(values) else None
