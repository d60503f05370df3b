"""Complete rows give exact means, whatever the shape of the template; sums of arms hold for any rows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinelm.estimator import make_estimator
from vinelm.estimator.arms import arms_of
from vinelm.estimator.latent.estimator import LatentEstimator
from vinelm.trie.annotated_trie import AnnotatedTrie

SHAPES = ("router", "corrective", "entry")


def assert_sums_hold(fitted: AnnotatedTrie) -> None:
    """The arms of a node share what goes on, and what goes on right; the siblings of an arm agree to the last bit."""
    assert fitted.arm is not None
    assert fitted.arm_success is not None
    arms = arms_of(fitted.trie)
    first = np.unique(arms.of_node[1:], return_index=True)[1] + 1
    inner = np.flatnonzero(arms.count)
    total = np.bincount(arms.source, fitted.arm[first], len(fitted.trie))
    right = np.bincount(arms.source, fitted.arm_success[first], len(fitted.trie))
    np.testing.assert_allclose(total[inner], 1.0 - fitted.stop[inner], atol=1e-12)
    np.testing.assert_allclose(right[inner], (fitted.success - fitted.stop_success)[inner], atol=1e-12)
    assert np.all((fitted.arm >= 0) & (fitted.arm <= 1))
    assert np.all((fitted.arm_success >= 0) & (fitted.arm_success <= fitted.arm))
    for values in (fitted.arm, fitted.arm_success, *([] if fitted.arm_se is None else [fitted.arm_se])):
        np.testing.assert_array_equal(values[1:], values[first][arms.of_node[1:]])


@pytest.mark.parametrize("is_graded", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_points", [1, pytest.param(5, marks=pytest.mark.long)])
@given(seed=st.integers(0, 100))
@settings(max_examples=3, deadline=None)
def test_full_observation_gives_exact_means(made: Any, shape: str, n_points: int, is_graded: bool, seed: int) -> None:
    table = made.branching(seed, shape=shape, is_graded=is_graded)
    estimator = LatentEstimator(n_points=n_points, min_requests=0)
    fitted = estimator.fit(made.all_rows(table), table.template, table.catalog).annotated_
    exact = table.annotate()
    seen = table.reached.any(axis=0)
    for name in ("success", "stop", "stop_success", "arm", "arm_success", "cost_usd", "latency_s"):
        here = seen if not name.startswith("arm") else seen[np.maximum(table.trie.parent, 0)]
        found, wanted = getattr(fitted, name)[here], getattr(exact, name)[here]
        np.testing.assert_allclose(found[1:], wanted[1:], atol=1e-6, err_msg=name)
    np.testing.assert_allclose(fitted.reach, exact.reach, atol=1e-6)
    assert_sums_hold(fitted)


@pytest.mark.parametrize("name", ["latent", "cascade", "cascade-svd"])
@given(seed=st.integers(0, 300), runs=st.integers(1, 80), shape=st.sampled_from(SHAPES), is_graded=st.booleans())
@settings(max_examples=8, deadline=None)
def test_sums_hold_for_any_rows(made: Any, name: str, seed: int, runs: int, shape: str, is_graded: bool) -> None:
    table = made.branching(seed, shape=shape, models=3, is_graded=is_graded, requests=120)
    rows = made.sampled_rows(table, seed, runs)
    fitted = make_estimator(name).fit(rows, table.template, table.catalog).annotated_
    assert_sums_hold(fitted)
    for error in (fitted.accuracy_se, fitted.cost_se, fitted.latency_se, fitted.arm_se):
        assert error is None or np.all(np.isfinite(error) & (error >= 0))
    assert np.all((fitted.accuracy >= 0) & (fitted.accuracy <= 1 + 1e-9))


FIGURES = {
    ("oracle", "latent"): (26.781521229346176, 110.03820351095591, 155.64886307114466, 2.2441626878635375),
    ("oracle", "cascade-svd"): (26.93876351456858, 110.06885350385029, 155.546233988087, None),
    ("workflow", "latent"): (18.330370794678807, 103.84479746082914, 157.62742824418717, 2.3099506816825794),
    ("workflow", "cascade-svd"): (17.999742712574154, 103.59552357147643, 157.66110169546357, None),
}
"""Sums over the nodes of accuracy, dollars, seconds and standard errors, from the version before templates could branch."""


@pytest.mark.parametrize(("stop", "name"), FIGURES)
def test_a_linear_template_is_estimated_as_before(made: Any, stop: str, name: str) -> None:
    table = made.table(7, models=3, depth=3, requests=130, stop=stop)
    fitted = make_estimator(name).fit(made.sampled_rows(table, 7, 300), table.template, table.catalog).annotated_
    assert fitted.arm is None
    assert fitted.arm_success is None
    assert fitted.arm_se is None
    found = [fitted.accuracy, fitted.path_cost_usd, fitted.path_latency_s, fitted.accuracy_se]
    for values, wanted in zip(found, FIGURES[stop, name], strict=True):
        assert (None if values is None else float(values.sum())) == (
            wanted if wanted is None else pytest.approx(wanted, rel=1e-9)
        )
