"""Predictions of two estimates of the same rows: with and without request types, with short and longer memory."""

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
"""Budgets for whose plans the two estimates are compared."""
_BOTH_WAYS = 2.0
"""A promise takes off half of what a curve says: all of what the longer memory shows, which need not be all that there is."""


def merging_optimism(annotated: AnnotatedTrie, rows: Sequence[Observation]) -> SelectionOptimism | None:
    """Return by how much plans promise too much because histories are merged that agree in their last choice only.

    Rates of a node with ``memory=1`` are means over all that may have come before. Where the order of the models matters, a
    plan leads there by one way, and it is chosen for looking good on average. With ``memory=2`` nothing of that is left in
    ``scripts/bench_merging.py``.

    Args:
        annotated: The estimate.
        rows: The rows that it was estimated from.

    Returns:
        The curve over the dollars of plans; None where no loop has ``memory=1``.
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
    """Return by how much more plans by the kind of the request promise than plans without it, a fraction of the requests.

    It is the mean over the plans by kind along their range of dollars, each against the plan without kinds that promises to
    spend as much, over what requests show where that was estimated. What choosing adds is taken off on both sides.

    Args:
        by_kind: Of a template of kinds, with its evidence; over what requests show where that was estimated.
        without: Of the same rows without kinds, with its own.
    """
    rival, gains = Planner(without.signals or without), list[float]()
    for plan in GraphPlans(by_kind.signals or by_kind).along_budgets():
        equal = Objective(maximize="accuracy", max_cost_usd=plan.path_cost_usd * (1.0 + 1e-9))
        try:
            gains.append(plan.promise.accuracy - rival.mixed(equal).promise.accuracy)
        except InfeasibleError:  # the plan by kind costs a little less than anything that is the same for all kinds
            continue
    return float(np.mean(gains)) if gains else 0.0
