"""What is estimated from rows of a known model of answers: outcomes, calibration, and the error of a plan."""

import numpy as np
import pytest
from kit.worlds.answers import World, path_trie

from vinelm.controller import Planner
from vinelm.estimator.signals.answer_model import OWN, USUAL, Labelings, fit_answers
from vinelm.estimator.signals.answers import AnswerTable
from vinelm.estimator.signals.build import estimate_signals
from vinelm.estimator.signals.course import Course
from vinelm.objective import Objective
from vinelm.signals import Outcome

ORDERS = ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 0))
BUDGETS_USD = (2.0, 5.0, 10.0)


@pytest.fixture(scope="module")
def held_out():
    return World.draw(np.random.default_rng(999), 5000)


@pytest.fixture(scope="module")
def estimated():
    world = World.draw(np.random.default_rng(0), 600)
    return estimate_signals(path_trie(), world.rows(lambda request: ORDERS), fits=4)


def best_plan(signals, budget):
    return Planner(signals).plan(Objective(maximize="accuracy", max_cost_usd=budget)).plan


def expected_calibration_error(served):
    """Of the shares promised at the ends, in ten bins."""
    right, promised = served.T
    bins = np.digitize(promised, np.linspace(0.1, 0.9, 9))
    gaps = np.bincount(bins, right - promised, 10)
    return float(np.abs(gaps).sum() / len(right))


def seen_and_right(signals, world, depth):
    """For the outcomes after the first ``depth`` invocations: how often they come, and come with a right returned answer."""
    trie, outcomes = signals.trie, signals.outcomes
    counts = np.zeros((2, len(outcomes.node)))

    def go(request, node, asked):
        for child in trie.children(node):
            m = int(trie.model[child])
            if trie.parent[child] and outcomes_arm[node] != trie.stage[child]:
                continue
            models = [*asked, m]
            kinds = world.classes(request, models)
            shown = Outcome("odd" if world.odd[request, m] else None, None if kinds[-1] < 0 else kinds[-1])
            place, is_exact = outcomes.seen(child, shown, passed=bool(world.passed[request, m]))
            if is_exact:
                counts[0, place] += 1
                kind = int(outcomes.returned[place])
                counts[1, place] += kind in kinds and world.right[request, models[kinds.index(kind)]]
            if len(models) < depth and outcomes.arm[place] >= 0:
                outcomes_arm[child] = outcomes.arm[place]
                go(request, child, models)

    for request in range(len(world)):
        outcomes_arm = {}
        go(request, 0, [])
    return counts / len(world)


def test_outcomes_come_as_often_as_estimated(estimated, held_out):
    outcomes, depth = estimated.outcomes, estimated.trie.depth
    part = World(held_out.types[:2500], held_out.passed[:2500], held_out.odd[:2500])
    came, right = seen_and_right(estimated, part, 2)
    reach = estimated.reach[outcomes.node]
    shallow = depth[outcomes.node] <= 2
    assert np.abs(came - reach * outcomes.chance)[shallow].max() < 0.06
    assert np.abs(right - reach * outcomes.right)[shallow].max() < 0.06
    for node in np.flatnonzero(depth == 1):
        mine = outcomes.node == node
        assert right[mine].sum() == pytest.approx(estimated.success[node], abs=0.04)


def test_promises_at_the_ends_are_calibrated(estimated, held_out):
    for budget in BUDGETS_USD:
        plan = best_plan(estimated, budget)
        served = held_out.follow(estimated, plan)
        assert expected_calibration_error(served) < 0.06
        assert plan.accuracy == pytest.approx(served[:, 0].mean(), abs=0.06)


@pytest.mark.long
@pytest.mark.parametrize("orders", [ORDERS[:1], ORDERS[:3], ORDERS])
def test_dense_rows_of_2000_requests_are_calibrated_within_4_points(orders):
    """Measured: at most 1.7 points. Rows of other paths and repeated answers must not make the model too sure of itself."""
    world, population = World.draw(np.random.default_rng(0), 2000), World.draw(np.random.default_rng(1), 20_000)
    signals = estimate_signals(path_trie(), world.rows(lambda request: orders))
    for budget in (1.5, *BUDGETS_USD):
        plan = best_plan(signals, budget)
        served = population.follow(signals, plan)
        assert expected_calibration_error(served) <= 0.04
        assert plan.accuracy == pytest.approx(served[:, 0].mean(), abs=0.03)


@pytest.mark.long
def test_the_error_of_a_plan_covers_nine_tenths(held_out):
    """Measured over 30 profiles of 150 requests and three budgets: 90 % of the 90 % intervals hold what is achieved.

    Those of the promise 93 %: it is 0.1 points too high on the mean, the estimate that the plan was chosen by 0.7.
    """
    inside, promised, gaps = [], [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        world = World.draw(rng, 150)
        orders = [tuple(rng.permutation(3).tolist()) for _ in range(len(world))]
        signals = estimate_signals(path_trie(), world.rows(lambda request, orders=orders: [orders[request]]))
        for budget in BUDGETS_USD:
            decision = Planner(signals).plan(Objective(maximize="accuracy", max_cost_usd=budget))
            plan, promise = decision.plan, decision.promise
            achieved = held_out.follow(signals, plan)[:, 0].mean()
            inside.append(abs(plan.accuracy - achieved) <= 1.645 * plan.standard_error)
            promised.append(abs(promise.accuracy - achieved) <= promise.half_width)
            gaps.append((plan.accuracy - achieved, promise.accuracy - achieved))
    assert 0.82 <= np.mean(inside) <= 0.98
    assert 0.85 <= np.mean(promised) <= 0.99
    estimated, corrected = np.mean(gaps, axis=0)
    assert abs(corrected) < estimated


def test_one_model_that_repeats_itself_shares_its_mistake_with_nobody():
    """Its answer on two paths, and again after itself, is one answer: it may be a mistake of its own."""
    alone = [
        row for row in World.draw(np.random.default_rng(3), 200).rows(lambda request: [(0, 0), (1, 0)]) if row.model == "m0"
    ]
    table = AnswerTable.of(alone, Course.chain(("generate", "repair", "repair")))
    labelings = Labelings.of(table)
    of_type = labelings.counts.reshape(len(labelings.counts), len(table.contexts), 6).sum(axis=1)
    wrong = [r for r in range(len(table.requests)) if (table.kind[(table.request == r) & (table.right < 1)] >= 0).any()]
    assert wrong
    for request in wrong:
        types = of_type[labelings.pattern == labelings.pattern_of[request]]
        assert (types[:, OWN] > 0).any()
        assert (types[:, USUAL] > 0).any()


def test_repeated_answers_are_no_evidence():
    world = World.draw(np.random.default_rng(4), 200)
    once, again = (AnswerTable.of(world.rows(lambda _, p=paths: p), Course.chain(("generate", "repair", "repair")))
                   for paths in ([(0, 1)], [(0, 1), (0, 0, 0)]))  # fmt: skip
    assert again.is_repeat.sum() == sum(again.contexts[c].is_again for c in again.context) == 2 * 200
    assert again.evidence[~again.is_repeat].sum() >= once.evidence.sum()
    one, other = fit_answers(once), fit_answers(again)
    c, d = (fit.contexts.index(once.contexts[once.context[0]]) for fit in (one, other))
    assert other.same_again[[context.is_again for context in other.contexts]].min() > 0.95
    np.testing.assert_allclose(np.exp(other.log_types[d]), np.exp(one.log_types[c]), atol=0.05)
