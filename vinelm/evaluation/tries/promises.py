"""Compares accuracies predicted by two estimates from the same rows: without and with request types or longer memory."""

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
    """Return how much too high the predicted accuracies of plans are because the trie merges histories.

    A loop of the template with ``memory=1`` remembers only the last call. So a node stands for all histories (sequences
    of calls) that end with the same call, and its rates are means over them. A plan reaches the node by only one of these
    histories, which may do worse than the mean. The excess is measured by evaluating the plans on a trie with
    ``memory=2``, which is estimated from the same rows.

    Args:
        annotated: The estimate.
        rows: The rows that it was estimated from.

    Returns:
        Twice the measured excess in accuracy, as a curve over the cost of plans; None if the template has no loop with
        ``memory=1``.
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

    The result is a mean over the best plans with types for several budgets. Each of them is compared with the most
    accurate plan without types that costs no more. Plans without such a counterpart are ignored; the result is 0 if none
    is left. If a trie over signals was estimated, its plans are used. Both predictions are corrected for the bias of
    choosing the best of many plans.

    Args:
        by_kind: A trie with request types, with its validation report.
        without: A trie without types, estimated from the same recorded results, with its validation report.
    """
    baseline, gains = Planner(without.signals or without), list[float]()
    for plan in GraphPlans(by_kind.signals or by_kind).along_budgets():
        equal = Objective(maximize="accuracy", max_cost_usd=plan.path_cost_usd * (1.0 + 1e-9))
        try:
            gains.append(plan.promise.accuracy - baseline.mixed(equal).promise.accuracy)
        except InfeasibleError:  # the plan by kind costs a little less than any plan without kinds
            continue
    return float(np.mean(gains)) if gains else 0.0
