"""Halves that judge each other's plans: joined runs, common bounds, and how often a gain is claimed where there is none."""

from dataclasses import replace

import numpy as np
import pytest
from null_worlds import World, verdict_of

from vinelm.evaluation import PolicyRun, SweepPolicy
from vinelm.evaluation.verdicts.cross_fitting import common_objectives, crossed_policy, joined_runs
from vinelm.objective import Objective


def run_of(success, plan="a", expected=0.5, cost=0.01) -> PolicyRun:
    n = len(success)
    return PolicyRun(
        policy="VineLM", plan=plan, success=np.array(success, bool), cost_usd=np.full(n, cost), latency_s=np.ones(n),
        expected_accuracy=expected,
    )  # fmt: skip


def test_joined_runs_hold_every_request_once_and_weigh_the_estimates():
    joined = joined_runs([run_of([1, 0, 1], "a", 0.6), run_of([0], "b", 0.2, cost=0.05)])
    assert joined.success.tolist() == [True, False, True, False]
    assert joined.cost_usd.tolist() == [0.01, 0.01, 0.01, 0.05]
    assert joined.expected_accuracy == pytest.approx(0.5)
    assert joined.plan == "a; or b"
    assert joined_runs([run_of([1]), run_of([0])]).plan == "a"
    assert joined_runs([run_of([1]), run_of([0], expected=None)]).expected_accuracy is None


def test_a_crossed_policy_asks_each_part_once_and_has_no_run_where_a_part_has_none():
    asked = []

    def part(name, floor):
        def run(objective):
            asked.append(name)
            return None if objective.max_cost_usd < floor else run_of([1, 0])

        return SweepPolicy("VineLM", "vinelm", run)

    crossed = crossed_policy([part("one", 0.1), part("other", 0.2)])
    tight, loose = (Objective(maximize="accuracy", max_cost_usd=cap) for cap in (0.15, 0.3))
    assert crossed.run(tight) is None
    for _ in range(2):
        assert len(crossed.run(loose)) == 4
    assert asked == ["one", "other"] * 2


def test_common_bounds_are_the_loosest():
    one = (Objective(maximize="accuracy", max_cost_usd=0.1), Objective(minimize="cost", min_accuracy=0.7))
    other = (Objective(maximize="accuracy", max_cost_usd=0.2), Objective(minimize="cost", min_accuracy=0.6))
    assert common_objectives([one, other]) == (other[0], other[1])
    capped = (Objective(maximize="accuracy", max_latency_s=3.0),)
    assert common_objectives([capped, (replace(capped[0], max_latency_s=4.0),)])[0].max_latency_s == 4.0


@pytest.mark.parametrize("kind", ["alike", "one-wins"])
def test_a_gain_is_rarely_claimed_where_there_is_none(kind):
    worlds = 60
    claims = sum(verdict_of(World(kind, seed)).is_gain for seed in range(worlds))
    assert claims <= 7  # P(more | 5 %) = 0.8 %; the long test measures the share


def test_a_gain_of_twelve_points_is_seen():
    claims = [verdict_of(World("gain", seed)).is_gain for seed in range(12)]
    assert sum(claims) >= 9


@pytest.mark.long
@pytest.mark.parametrize("kind", ["alike", "one-wins"])
def test_a_gain_is_claimed_in_at_most_five_percent_of_worlds_without_one(kind):
    worlds = 2000
    claims = sum(verdict_of(World(kind, seed)).is_gain for seed in range(1000, 1000 + worlds))
    assert claims / worlds <= 0.05


@pytest.mark.long
def test_two_halves_and_the_sweep_see_more_than_three_bounds_on_one_half():
    worlds = range(200)
    both = sum(verdict_of(World("small gain", seed)).is_gain for seed in worlds)
    one = sum(verdict_of(World("small gain", seed), crosses=False).is_gain for seed in worlds)
    assert both > 1.3 * one
