"""Compares predictions of two estimates from the same rows: with and without request types, with short and long memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vinelm.controller import Planner
from vinelm.errors import InfeasibleError
from vinelm.estimator import make_estimator
from vinelm.evaluation.plans.graph_plans import GraphPlans
from vinelm.objective import Objective
from vinelm.plans.promise import SelectionOptimism
from vinelm.rows.observation import Observation
from vinelm.template.steps import remembering
from vinelm.trie.annotated_trie import AnnotatedTrie

BUDGETS = 8
"""Number of budgets for whose plans the two estimates are compared."""
_BOTH_WAYS = 2.0
"""The measured excess is multiplied by this: predictions are reduced by half of the curve, and the longer memory may not show
the whole effect.
"""


def merging_optimism(annotated: AnnotatedTrie, rows: Sequence[Observation]) -> SelectionOptimism | None:
    """Return by how much predictions are too high because merged histories agree only in their last choice.

    With ``memory=1`` the rates of a node are means over all histories before it. If the order of models matters, a plan
    reaches the node by one of these histories, but is chosen for their good average. With ``memory=2`` this effect
    disappears in ``scripts/bench_merging.py``.

    Args:
        annotated: The estimate.
        rows: The rows that it was estimated from.

    Returns:
        The excess in accuracy as a curve over the cost of plans; None if the template has no loop with ``memory=1``.
    """
    template = replace(annotated.template, steps=remembering(annotated.template.steps, 2, instead_of=1))
    if template == annotated.template:
        return None
    longer = make_estimator(str(annotated.meta["estimator"])).fit(rows, template, annotated.catalog).annotated_
    plans, judge = GraphPlans(annotated), GraphPlans(longer)
    own = judge.decision(Objective(maximize="accuracy"))
    found = plans.along_budgets(BUDGETS)
    carried = [judge.carried(plan, own) for plan in found]
    gaps = [plan.accuracy - there.accuracy if there else 0.0 for plan, there in zip(found, carried, strict=True)]
    return SelectionOptimism.measured(np.array([plan.path_cost_usd for plan in found]), _BOTH_WAYS * np.array(gaps))


def promised_gain(by_kind: AnnotatedTrie, without: AnnotatedTrie) -> float:
    """Return the predicted accuracy of plans by request type minus that of plans without types, as a fraction.

    It is the mean over plans by type along their range of costs. Each is compared with the plan without types of the
    same predicted cost, over signals if a trie over signals was estimated. Both predictions are corrected for having
    been chosen as the best of many.

    Args:
        by_kind: A trie with types and with its evidence. If it has a trie over signals, the plans over signals are
            compared.
        without: A trie of the same recorded results without types, with its evidence.
    """
    baseline, gains = Planner(without.signals or without), list[float]()
    for plan in GraphPlans(by_kind.signals or by_kind).along_budgets():
        equal = Objective(maximize="accuracy", max_cost_usd=plan.path_cost_usd * (1.0 + 1e-9))
        try:
            gains.append(plan.promise.accuracy - baseline.mixed(equal).promise.accuracy)
        except InfeasibleError:  # the plan by kind costs a little less than any plan without kinds
            continue
    return float(np.mean(gains)) if gains else 0.0
