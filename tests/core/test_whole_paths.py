import random

import pytest
from kit.oracles.random_cases import random_annotated

from vinelm.controller import Planner
from vinelm.errors import InfeasibleError
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import whole_paths


@pytest.mark.parametrize("seed", range(40))
def test_plans_are_those_that_may_end_at_leaves_only(seed):
    rng = random.Random(seed)
    annotated = random_annotated(rng)
    objective = Objective(maximize="accuracy", max_latency_s=rng.uniform(0.1, 10), max_cost_usd=rng.uniform(0.001, 1))
    node = rng.randrange(len(annotated.trie))
    plans = []
    for planner, candidates in (
        (Planner(whole_paths(annotated)), None),
        (Planner(annotated), annotated.trie.answerable & annotated.trie.is_leaf),
    ):
        try:
            decision = planner.plan(objective, node=node, candidates=candidates)
        except InfeasibleError:
            plans.append(None)
        else:
            plans.append((decision.target, decision.next_model, decision.relaxed))
    assert plans[0] == plans[1]
