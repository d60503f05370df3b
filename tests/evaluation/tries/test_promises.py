"""Promises of plans over merged histories, where the order of the models matters and where it does not."""

from dataclasses import replace

import numpy as np
import pytest
from simulated_agent import AgentTruth

from vinelm.controller import Planner
from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.estimator import make_estimator
from vinelm.evaluation.tries.promises import merging_optimism
from vinelm.objective import Objective
from vinelm.plans.promise import SelectionOptimism
from vinelm.trie.annotated_trie import AnnotatedTrie


def estimated(truth: AgentTruth, memory: int, seed: int) -> tuple[AnnotatedTrie, SelectionOptimism | None]:
    rows = truth.profile(300, 600, seed)
    found = make_estimator().fit(rows, truth.template(memory=memory), truth.catalog).annotated_
    return found, merging_optimism(found, rows)


def models_of(steps: list) -> tuple[str, ...]:
    """The models of a plan over one loop, until it ends the request."""
    first = steps[0] if steps else {"model": None}
    return () if first["model"] is None else (first["model"], *models_of(first["steps"]))


def promised_too_much(truth: AgentTruth, found: AnnotatedTrie, curve: SelectionOptimism) -> tuple[float, float]:
    """By how much the most accurate plan is promised too much, without the curve and with it."""
    checked = replace(found, meta={**found.meta, "evidence": {"selection": curve.to_dict()}})
    decision = Planner(checked).plan(Objective(maximize="accuracy"))
    assert isinstance(decision, ContingentDecision)
    path = tuple(found.trie.models.index(name) for name in models_of(decision.plan.to_dict()["steps"]))
    true = truth.path_accuracy(path)[0]
    return decision.promise.estimate - true, decision.promise.accuracy - true


def test_where_order_matters_a_longer_memory_takes_off_what_the_last_choice_hides() -> None:
    off = []
    for seed in (201, 202, 203):
        truth = AgentTruth(3, 6, 1.0, seed)
        found, curve = estimated(truth, 1, seed)
        assert curve is not None
        off.append(promised_too_much(truth, found, curve))
    before, after = np.mean(off, axis=0)
    assert before > 0.06
    assert abs(after) < before / 2


def test_a_longer_memory_needs_no_such_curve() -> None:
    assert estimated(AgentTruth(3, 4, 1.0, 5), 2, 5)[1] is None


def test_of_two_curves_the_higher_one_counts() -> None:
    one = SelectionOptimism(cost_usd=(1.0, 4.0), accuracy=(0.1, 0.3), advantage=(0.0, 0.2))
    other = SelectionOptimism(cost_usd=(2.0,), accuracy=(0.25,), advantage=())
    both = one.or_more(other)
    assert both.cost_usd == (1.0, 2.0, 4.0)
    assert both.accuracy == pytest.approx((0.25, 0.25, 0.3))
    assert both.advantage == pytest.approx((0.0, 0.1, 0.2))
    assert one.or_more(None) is one
