import pytest
from kit.stores import made_store

import vinelm
from vinelm.evaluation.off_policy.intervals import served_scores
from vinelm.evaluation.off_policy.scores import Scores
from vinelm.verdicts.store_comparison import compare_store

PRICES = {"small": 0.001, "large": 0.01}


def judged(path):
    trie = vinelm.estimate(path, check=False)
    return compare_store(path, trie)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Every row of 300 requests, so that what is judged is what happened."""
    path = tmp_path_factory.mktemp("judged") / "s.db"
    return judged(made_store(path, {"small": 0.6, "large": 0.8}, PRICES, requests=300, walks=12))


def test_every_bound_has_its_sweep(found):
    assert [sweep.bound for sweep in found.sweeps] == ["max_cost_usd", "min_accuracy", "max_latency_s"]
    for sweep in found.sweeps:
        assert {"paths", "static", "single"} <= set(sweep.points)
        assert len({len(points) for points in sweep.points.values()}) == 1
        bounds = [getattr(point.objective, sweep.bound) for point in sweep.points["paths"]]
        assert bounds == sorted(bounds)
        assert len(bounds) > 2


def test_estimates_lie_in_their_intervals_and_bands(found):
    for sweep in found.sweeps:
        for points in sweep.points.values():
            for one in points:
                assert one.policy.accuracy.is_identified
                assert one.band[0] <= one.policy.accuracy.value <= one.band[1]
                assert 0.0 <= one.band[0] < one.band[1] <= 1.0


def test_late_answers_are_counted(found):
    points = found.sweep("max_latency_s").points["single"]
    assert all(0.0 <= one.violations <= 1.0 for one in points)
    assert points[0].violations > points[-1].violations
    for one in points:
        assert one.latency_s[0] < one.latency_s[1]


def test_the_sweep_is_the_evaluations(found):
    own = found.sweep("max_cost_usd").points["paths"]
    assert [one.objective for one in own] == list(found.evaluation.objectives)
    assert [one.policy.accuracy.value for one in own] == [
        one.policy("paths").accuracy.value for one in found.evaluation.by_budget
    ]


def test_what_cannot_be_judged_is_no_error(tmp_path):
    one = judged(made_store(tmp_path / "s.db", {"only": 0.7}, {"only": 0.01}, requests=40, depth=1))
    assert one.evaluation is None
    assert one.sweeps == ()
    assert "runs on one model" in one.why_not


@pytest.mark.long
def test_signals_are_compared_with_paths(tmp_path):
    path = made_store(tmp_path / "s.db", {"small": 0.6, "large": 0.8}, PRICES, requests=120, walks=8, has_answers=True)
    known = judged(path)
    assert "signals" in known.sweep("max_cost_usd").points
    assert "vote" in known.sweep("max_cost_usd").points
    gain = known.signals_gain
    assert gain.is_identified
    assert gain.low <= gain.value <= gain.high


def test_without_answers_signals_are_worth_nothing_known(found):
    assert found.signals_gain is None


def test_in_a_mean_over_a_sweep_only_the_bounds_that_differ_are_uncertain():
    one = served_scores([1.0, 0.0] * 20, [0.0] * 40, [0.0] * 40)
    other = served_scores([0.0, 1.0] * 20, [0.0] * 40, [0.0] * 40)
    assert Scores.mean([one, other]).share_unlike(Scores.mean([one, one])) == 0.5
    assert one.share_unlike(one) == 0.0
    assert one.share_unlike(other) == 1.0
