"""Plans followed row by row do what sessions and replays do, and expect what the planner expects."""

import numpy as np
import pytest
from kit.tables import random_table
from kit.templates import agent
from kit.tries import random_merged
from kit.worlds.answers import World, path_trie
from science.replay import replay

from vinelm.controller import Planner
from vinelm.estimator import estimate_signals
from vinelm.evaluation.off_policy.buying import BoughtRows
from vinelm.evaluation.off_policy.planned_steps import ContingentSteps, ReplannedSteps, along_outcomes, along_stages
from vinelm.evaluation.off_policy.scores import scored
from vinelm.objective import Objective
from vinelm.rows.observation import Observation
from vinelm.trie.annotated_trie import whole_paths


@pytest.fixture(scope="module")
def signals():
    """A plan over what requests show, and every row of 40 requests."""
    world = World.draw(np.random.default_rng(1), 40)
    every = [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
    annotated = path_trie()
    rows = list(world.rows(lambda request: every))
    return world, annotated, estimate_signals(annotated, rows, fits=2), rows


@pytest.mark.parametrize("cap", [3.0, 9.0])
def test_a_plan_over_signals_is_followed_as_a_session_follows_it(signals, cap):
    world, annotated, trie, rows = signals
    planner = Planner(trie)
    decision = planner.plan(Objective(maximize="accuracy", max_cost_usd=cap))
    steps = ContingentSteps(decision.plan, along_outcomes(planner))
    bought = BoughtRows.of([f"q{i:05d}" for i in range(len(world))], rows, annotated.template)
    found = scored(steps, bought)
    differs = np.abs(found.success - world.follow(trie, decision.plan)[:, 0]) > 1e-6
    assert differs.sum() <= 1  # after an outcome that no row showed, a session returns the last answer, the world another one
    assert (found.weight == 1.0).all()
    assert steps.rest(()).success == pytest.approx(decision.accuracy)
    assert steps.rest(()).cost_usd == pytest.approx(decision.path_cost_usd)


def test_expectations_below_a_row_average_to_the_one_above_it(signals):
    """What a plan expects at the root is what comes of its first outcomes."""
    _, _, trie, _ = signals
    planner = Planner(trie)
    plan = planner.plan(Objective(maximize="accuracy")).plan
    steps = ContingentSteps(plan, along_outcomes(planner))
    outcomes = trie.outcomes
    node = trie.trie.child(0, plan.next_model(0, trie.trie.stages[0]), trie.trie.stages[0])
    total = 0.0
    for place in np.flatnonzero(outcomes.node == node):
        arm = int(outcomes.arm[place])
        if arm < 0 or plan.next_model(node, trie.trie.stages[arm]) is None:
            total += float(outcomes.right[place])
            continue
        from vinelm.evaluation.off_policy.planned_steps import TriePosition

        total += float(outcomes.chance[place]) * steps._below(TriePosition(node, trie.trie.stages[arm])).accuracy
    assert total == pytest.approx(steps.rest(()).success, abs=1e-6)


def test_a_plan_that_is_made_again_is_that_of_a_replay():
    table = random_table(3, n_requests=30, n_models=2, depth=3)
    annotated = table.annotate()
    planner = Planner(annotated)
    rows = [table.observation(r, n) for r in range(30) for n in range(1, len(table.trie)) if table.reached[r, n]]
    bought = BoughtRows.of(table.request_ids, rows, table.template)
    objective = Objective(maximize="accuracy", max_latency_s=float(annotated.path_latency_s.max()) * 0.6)
    table.latency_s[:, 0] = annotated.latency_s[0]  # no row tells what came before the first invocation
    found, exact = (
        scored(ReplannedSteps(planner, (objective,), along_stages(planner)), bought),
        replay(table, planner, objective),
    )
    assert found.success == pytest.approx(exact.success.astype(float))
    assert found.latency_s == pytest.approx(exact.latency_s - annotated.latency_s[0])


@pytest.mark.parametrize("way", [ContingentSteps, ReplannedSteps])
def test_a_plan_over_merged_loops_is_followed_past_its_first_invocation(way):
    """No stage branches there, so that rows do not say which stage came next."""
    planner, objective = Planner(whole_paths(random_merged(agent(2, 2, memory=1), 0))), Objective(maximize="accuracy")
    locate = along_stages(planner)
    decision = planner.plan(objective)
    steps = ContingentSteps(decision.plan, locate) if way is ContingentSteps else ReplannedSteps(planner, (objective,), locate)
    seen, models = (), []
    while (model := steps.step(seen).model) is not None:
        models.append(model)
        row = Observation(
            request_id="q", prefix=tuple(models), stage="agent", success=False, stopped=False, cost_usd=0.0, latency_s=0.0
        )
        assert row.arm is None
        seen = (*seen, row)
    assert models[0] == decision.plan.next_model(0, "agent")
    assert models[1:] == [decision.plan.next_model(planner.trie.child(0, models[0]), "agent")]
    assert locate(seen).has_ended
    assert steps.rest(()).success == pytest.approx(decision.accuracy)
