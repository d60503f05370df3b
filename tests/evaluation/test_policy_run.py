import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vinelm.evaluation import PolicyRun, mean_interval, pareto_frontier
from vinelm.evaluation.policy_run import resample_weights
from vinelm.objective import Objective


def make_run(success, cost=0.01, latency=1.0, policy="VineLM", plan="a") -> PolicyRun:
    n = len(success)
    return PolicyRun(
        policy=policy,
        plan=plan,
        success=np.array(success, bool),
        cost_usd=np.full(n, cost) if np.isscalar(cost) else np.array(cost, float),
        latency_s=np.full(n, latency) if np.isscalar(latency) else np.array(latency, float),
    )


def test_worth_counts_only_answers_in_time_under_a_latency_cap():
    run = make_run([1, 1, 0, 0], latency=[1.0, 9.0, 1.0, 9.0])
    assert run.utility(Objective(maximize="accuracy")).tolist() == [1, 1, 0, 0]
    assert run.utility(Objective(maximize="accuracy", max_latency_s=5)).tolist() == [1, 0, 0, 0]
    assert run.late(5) == 0.5
    assert run.late(None) == 0.0


def test_worth_of_cost_and_latency_is_negative_spend():
    run = make_run([1, 0], cost=[0.1, 0.3], latency=[2.0, 4.0])
    assert run.utility(Objective(minimize="cost")).tolist() == [-0.1, -0.3]
    assert run.utility(Objective(minimize="latency")).tolist() == [-2.0, -4.0]


def test_the_interval_agrees_with_the_normal_one_on_many_requests():
    rng = np.random.default_rng(3)
    values = rng.random(2000) < 0.3
    found = mean_interval(values, resample_weights(2000, 0))
    half = 1.96 * np.sqrt(values.mean() * (1 - values.mean()) / 2000)
    assert found.value == values.mean()
    assert found.high - found.value == pytest.approx(half, rel=0.1)
    assert found.value - found.low == pytest.approx(half, rel=0.1)


def test_the_bootstrap_is_paired():
    rng = np.random.default_rng(1)
    base = rng.random(300)
    weights = resample_weights(300, 0)
    difference = mean_interval((base + 0.01) - base, weights)
    assert difference.low > 0  # the spread of `base` cancels
    assert difference.low == pytest.approx(0.01)


def test_resampling_is_reproducible():
    assert np.array_equal(resample_weights(10, 7), resample_weights(10, 7))
    assert not np.array_equal(resample_weights(10, 7), resample_weights(10, 8))


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=12))
def test_pareto_keeps_exactly_the_undominated_points(points):
    kept = {points[i] for i in pareto_frontier(points)}
    undominated = {p for p in points if not any((q[0] <= p[0] and q[1] >= p[1]) and q != p for q in points)}
    assert kept == undominated
    assert len(pareto_frontier(points)) == len(kept)
