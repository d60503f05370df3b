"""Plans over tries whose histories are merged, as `vinelm plan` and `vinelm report` compare them."""

from dataclasses import replace

import numpy as np
import pytest
from kit.templates import agent
from kit.tries import random_merged

from vinelm.evaluation.plans.graph_plans import GraphPlans
from vinelm.objective import Objective
from vinelm.plans.static_plans import StaticPlans


def merged(seed):
    """An agent's trie with the standard errors and the number of requests that an estimate has."""
    annotated = random_merged(agent(2, 4, memory=1), seed)
    errors = np.random.default_rng(seed).uniform(0.01, 0.2, len(annotated.trie))
    errors[0] = np.nan
    return replace(annotated, accuracy_se=errors, meta={**annotated.meta, "requests": 120})


@pytest.mark.parametrize("seed", range(4))
def test_static_plans_have_the_accuracy_and_a_bound_of_the_error_of_the_estimate(seed):
    annotated = merged(seed)
    plans = GraphPlans(annotated)
    known = StaticPlans.of(annotated)
    for role in ("static", "single"):
        found = plans.fixed(Objective(maximize="accuracy"), role)
        assert found.accuracy == pytest.approx(known.accuracy.max())
        same = np.isclose(known.accuracy, found.accuracy) & np.isclose(known.cost_usd, found.path_cost_usd)
        assert same.any()
        assert found.plan.standard_error <= known.error[same].max() + 1e-12  # which is the bound
        assert found.plan.standard_error < 1.0


def test_they_are_compared_and_span_a_frontier():
    plans = GraphPlans(merged(0))
    vinelm, static, single = plans.compare(Objective(maximize="accuracy", confidence=0.9))
    assert vinelm.decision.accuracy > 0.0
    assert static.decision.accuracy >= single.decision.accuracy - 1e-12
    assert vinelm.plan
    found = plans.frontier_range()
    assert 0.0 < found.cheapest_usd <= found.dearest_usd
