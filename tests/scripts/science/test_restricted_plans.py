"""Plans of restricted policies."""

import pytest
from kit.tables import random_table
from science.restricted_plans import best_single_model, best_workflow_level

from vinelm.controller import Planner
from vinelm.objective import Objective


@pytest.mark.parametrize("seed", range(5))
def test_the_wider_the_space_the_better_the_plan(seed):
    planner = Planner(random_table(seed, n_requests=80, n_models=3, depth=3).annotate())
    objective = Objective(maximize="accuracy", max_cost_usd=0.008)

    def accuracy(path):
        return planner.annotated.accuracy[planner.trie.node(path)]

    single, static = accuracy(best_single_model(planner, objective)), accuracy(best_workflow_level(planner, objective))
    assert single <= static <= planner.plan(objective).accuracy
