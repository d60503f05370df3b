"""Shares of plans under bounds on mean dollars and seconds: none of all deterministic plans are better."""

from dataclasses import replace

import numpy as np
import pytest
from kit.oracles.mixtures_of_plans import KINDS, plans_of, small_tries
from kit.tries import routed_trie
from scipy.optimize import linprog

from vinelm.batches.plan_shares import PlanShares
from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.objective import Objective

BEST = Objective(maximize="accuracy")


def mean(shares, name):
    return sum(share * getattr(plan, name) for share, plan in shares)


@pytest.mark.parametrize("kind", KINDS)
def test_no_shares_of_deterministic_plans_are_better(kind):
    solved = 0
    for rng, planner, plans in small_tries(kind, 6):
        annotated = planner.annotated
        accuracy, usd = np.array(plans).T
        seconds = np.array(plans_of(replace(annotated, cost_usd=annotated.latency_s)))[:, 1]
        floor = float(rng.choice(accuracy)) * 0.9
        found = {
            objective: PlanShares(planner, objective) for objective in (BEST, Objective(minimize="cost", min_accuracy=floor))
        }
        for _ in range(3):
            budget, time = (float(rng.choice(values) * rng.uniform(0.9, 1.3)) for values in (usd, seconds))
            rows, limits, one = [usd, seconds], [budget, time], np.ones((1, len(usd)))
            best = linprog(-accuracy, A_ub=rows, b_ub=limits, A_eq=one, b_eq=[1.0])
            cheapest = linprog(usd, A_ub=[*rows, -accuracy], b_ub=[*limits, -floor], A_eq=one, b_eq=[1.0])
            for objective, expected, name in zip(found, (best, cheapest), ("accuracy", "usd"), strict=True):
                if expected.status == 2:  # nothing meets the bounds
                    continue
                shares = found[objective].within(budget, time)
                assert sum(share for share, _ in shares) == pytest.approx(1.0)
                assert mean(shares, "usd") <= budget * (1 + 1e-6)
                assert mean(shares, "seconds") <= time * (1 + 1e-6)
                assert mean(shares, name) == pytest.approx(abs(expected.fun), abs=1e-4)
                solved += 1
    assert solved > 10


def test_the_value_is_concave_in_both_bounds():
    found = PlanShares(Planner(routed_trie(3, 3)), BEST)
    for bounds in ([(usd, 5.0) for usd in np.linspace(0.003, 0.02, 9)], [(0.02, time) for time in np.linspace(3.0, 6.0, 9)]):
        value = [mean(found.within(*(float(bound) for bound in pair)), "accuracy") for pair in bounds]
        assert (np.diff(value) >= -1e-9).all()
        assert (np.diff(value, 2) <= 1e-6).all()
        assert value[-1] > value[0] + 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_within_dollars_alone_it_is_the_linear_program_as_well(kind):
    for rng, planner, plans in small_tries(kind, 6, seed=3):
        accuracy, usd = np.array(plans).T
        budget = float(rng.choice(usd) * rng.uniform(1.0, 1.3))
        best = linprog(-accuracy, A_ub=[usd], b_ub=[budget], A_eq=np.ones((1, len(usd))), b_eq=[1.0])
        shares = PlanShares(planner, BEST).within(budget, None)
        assert mean(shares, "accuracy") == pytest.approx(-best.fun, abs=1e-4)
        assert mean(shares, "usd") <= budget * (1 + 1e-6)
        if planner.annotated.knows_latency:
            by_program = PlanShares(planner, BEST).within(budget, 1e9)
            assert mean(by_program, "accuracy") == pytest.approx(mean(shares, "accuracy"), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_that_nothing_meets_are_both_missed_by_as_small_a_part_as_can_be(kind):
    """Within both, the requests that can be answered are 1 / (1 + part) of all."""
    missed = 0
    for rng, planner, plans in small_tries(kind, 6, seed=5):
        annotated = planner.annotated
        _, usd = np.array(plans).T
        seconds = np.array(plans_of(replace(annotated, cost_usd=annotated.latency_s)))[:, 1]
        if not usd.min() > 0.0 < seconds.min():
            continue
        for _ in range(3):
            budget, time = (float(values.min() * rng.uniform(0.8, 1.2)) for values in (usd, seconds))
            # x: the shares of all plans and the part by which they miss the bounds.
            rows = np.array([[*usd / budget, -1.0], [*seconds / time, -1.0]])
            least = linprog([0.0] * len(usd) + [1.0], A_ub=rows, b_ub=[1.0, 1.0], A_eq=[[1.0] * len(usd) + [0.0]], b_eq=[1.0])
            shares = PlanShares(planner, BEST).within(budget, time)
            part = max(mean(shares, "usd") / budget, mean(shares, "seconds") / time) - 1.0
            assert max(part, 0.0) == pytest.approx(least.fun, abs=1e-3)
            missed += least.fun > 0.01
    assert missed > 5


def test_bounds_of_nothing_lead_to_the_cheapest_and_the_quickest_plan():
    trie = routed_trie(3, 3)
    found = PlanShares(Planner(trie), BEST)
    cheapest = Planner(trie).plan(Objective(minimize="cost"))
    assert mean(found.within(0.0, None), "usd") == pytest.approx(cheapest.path_cost_usd)
    quickest = mean(found.within(None, 0.0), "seconds")
    assert quickest == pytest.approx(min(seconds for _, seconds in plans_of(replace(trie, cost_usd=trie.latency_s))))


def test_few_planners_are_kept():
    found = PlanShares(Planner(routed_trie(3, 3)), BEST)
    for seconds in np.linspace(2.0, 8.0, 60):
        found.within(0.02, float(seconds))
    assert len(found._planners) <= 8
    assert len(found._plans) < 30


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        (Objective(maximize="accuracy", max_cost_usd=1.0), "common budget"),
        (Objective(minimize="latency"), "maximize accuracy or minimize cost"),
        (Objective(maximize="accuracy", max_latency_s=9.0, risk="dp"), "leave it out"),
        (Objective(minimize="cost", min_accuracy=0.5, mix=False), "mix=False has no effect"),
    ],
)
def test_objectives_of_single_requests_are_refused_in_one_line(objective, words):
    with pytest.raises(ConfigError, match=words) as error:
        PlanShares(Planner(routed_trie(3, 3)), objective)
    assert "\n" not in str(error.value)


def test_a_deadline_needs_seconds():
    trie = routed_trie(3, 3)
    with pytest.raises(ConfigError, match="knows no seconds"):
        PlanShares(Planner(replace(trie, latency_s=np.zeros(len(trie.trie)))), BEST).within(1.0, 1.0)
