"""Static plans where histories are merged: those within a bound of each request, against the longest way followed by hand."""

import numpy as np
import pytest
from kit.templates import agent
from kit.tries import random_merged

from vinelm.evaluation.plans.graph_plans import GraphPlans
from vinelm.objective import Objective


@pytest.mark.parametrize("seed", range(3))
def test_a_static_plan_keeps_the_deadline_of_each_request(seed):
    annotated = random_merged(agent(2, 3, memory=1), seed)
    plans = GraphPlans(annotated)
    free = plans.fixed(Objective(maximize="accuracy"), "static")
    for share in np.linspace(0.3, 1.2, 10):
        cap = float(share * free.path_latency_s)
        found = plans.fixed(Objective(maximize="accuracy", max_latency_s=cap), "static")
        if found is not None:
            assert found.path_latency_s <= cap * (1 + 1e-9)
    assert plans.fixed(Objective(maximize="accuracy", max_latency_s=1e-6), "static") is None
    patient = plans.fixed(Objective(maximize="accuracy", max_latency_s=cap, risk="dp"), "static")
    assert patient == plans.fixed(Objective(maximize="accuracy", max_latency_s=cap), "static")
