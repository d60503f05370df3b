import json
import random

import pytest
from kit.oracles.brute_force import brute_force
from kit.oracles.random_cases import random_annotated, random_question

from vinelm.clock import VirtualClock
from vinelm.controller import Planner, Session
from vinelm.objective import Objective


@pytest.mark.parametrize("seed", range(30))
def test_every_next_step_is_shown_with_its_best_plan_and_why_it_lost(seed):
    rng = random.Random(seed)
    annotated = random_annotated(rng)
    planner = Planner(annotated)
    for _ in range(8):
        objective, asked = random_question(rng, annotated)
        if brute_force(annotated, objective, **asked) is None:
            continue
        decision = planner.plan(objective, **asked)
        found = decision.alternatives()
        chosen = [option for option in found if option.is_chosen]
        assert [option.next_model for option in chosen] == [decision.next_model]
        assert chosen[0].plan == decision.path
        for option in found:
            assert (option.why == "") == option.is_chosen
            if option.is_feasible and objective.target == "accuracy" and decision.is_feasible and objective.confidence is None:
                assert option.accuracy <= decision.accuracy
            if " the cap" in option.why or (" floor" in option.why and decision.is_feasible):
                assert not option.is_feasible
        json.dumps([option.to_dict() for option in found])
        assert decision.explain().startswith(decision.reason)


def test_a_session_tells_its_whole_story():
    from kit.tables import random_table

    planner = Planner(random_table(3, n_requests=60, n_models=3, depth=3).annotate())
    session = Session(planner, Objective(maximize="accuracy", max_latency_s=4.0), clock=VirtualClock())
    model = session.next_model("generate", ())
    session.next_model("repair", (model, "m0", "m0", "m0"))
    story = session.explain()
    assert f"[start] generate: {model}" in story
    assert f"-> {model}" in story
    assert "not planned for" in story
    assert "max_latency_s 4" in story
