from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinelm.errors import ConfigError
from vinelm.estimator import ObservationTable
from vinelm.estimator.latent.em import LatentFit, fit_latent
from vinelm.estimator.latent.estimator import LatentEstimator
from vinelm.estimator.latent.features import FeatureMatrix
from vinelm.estimator.latent.logistic_regression import Regression
from vinelm.estimator.latent.prediction import predict_rates
from vinelm.estimator.latent.standard_errors import gradients, questions
from vinelm.template import StopRule


def latent(**settings_: Any) -> LatentEstimator:
    return LatentEstimator(**({"min_requests": 0} | settings_))


@pytest.mark.parametrize("stop", ["oracle", "workflow"])
@pytest.mark.parametrize("n_points", [1, 5])
@given(seed=st.integers(0, 100))
@settings(max_examples=3, deadline=None)
def test_full_observation_gives_exact_means(made: Any, stop: StopRule, n_points: int, seed: int) -> None:
    table = made.table(seed, stop=stop)
    fitted = latent(n_points=n_points).fit(made.all_rows(table), table.template, table.catalog).annotated_
    exact = table.annotate()
    np.testing.assert_allclose(fitted.accuracy[1:], exact.accuracy[1:], atol=1e-6)
    np.testing.assert_allclose(fitted.path_cost_usd, exact.path_cost_usd, rtol=1e-6)
    seen = table.reached.any(axis=0)
    np.testing.assert_allclose(fitted.latency_s[seen][1:], exact.latency_s[seen][1:], rtol=1e-6)


@given(seed=st.integers(0, 200), runs=st.integers(1, 60))
@settings(max_examples=5, deadline=None)
def test_oracle_accuracy_never_falls_along_a_path_and_rates_are_probabilities(made: Any, seed: int, runs: int) -> None:
    table = made.table(seed, models=3)
    fitted = latent().fit(made.sampled_rows(table, seed, runs), table.template, table.catalog).annotated_
    for rate in (fitted.success, fitted.stop, fitted.stop_success):
        assert np.all((rate >= 0) & (rate <= 1))
    assert np.all(np.diff(fitted.accuracy[[0, 1, 2, 3]]) >= -1e-9)
    assert np.all(fitted.accuracy[1:] >= fitted.accuracy[fitted.trie.parent[1:]] - 1e-9)
    for error in (fitted.accuracy_se, fitted.cost_se, fitted.latency_se):
        assert error is not None
        assert np.all(np.isfinite(error) & (error >= 0))


def test_it_is_closer_to_the_truth_than_raw_means_where_rows_are_few(made: Any) -> None:
    gains = []
    for seed in range(4):
        table = made.table(seed, models=4, requests=300)
        rows, truth = made.sampled_rows(table, seed, 250), table.annotate().accuracy
        fitted = LatentEstimator().fit(rows, table.template, table.catalog).annotated_
        from vinelm.estimator.baselines.cascade import CascadeEstimator

        raw = CascadeEstimator().fit(rows, table.template, table.catalog).annotated_
        gains.append(np.abs(fitted.accuracy - truth).mean() / np.abs(raw.accuracy - truth).mean())
    assert np.mean(gains) < 0.7


def test_more_rows_narrow_the_intervals_on_average(made: Any) -> None:
    table = made.table(1, models=3, requests=200)
    widths = []
    for runs in (100, 400, 1600):
        fitted = LatentEstimator().fit(made.sampled_rows(table, 0, runs), table.template, table.catalog).annotated_
        assert fitted.accuracy_se is not None
        widths.append(float(fitted.accuracy_se[1:].mean()))
    assert widths == sorted(widths, reverse=True)


def test_a_node_without_rows_is_predicted_and_less_certain(made: Any) -> None:
    table = made.table(2, models=3, requests=150)
    rows = [row for row in made.sampled_rows(table, 0, 600) if row.prefix[:2] != ("b", "c")]
    fitted = LatentEstimator().fit(rows, table.template, table.catalog).annotated_
    assert fitted.accuracy_se is not None
    assert fitted.count is not None
    blind, seen = fitted.trie.node(("b", "c")), fitted.trie.node(("b", "a"))
    assert fitted.count[blind] == 0 < fitted.count[seen]
    assert fitted.accuracy_se[blind] > fitted.accuracy_se[seen]


def test_few_requests_go_without_the_latent_trait(made: Any) -> None:
    table = made.table(0, requests=150)
    rows = made.all_rows(table)
    assert LatentEstimator().fit(rows, table.template, table.catalog).annotated_.meta["latent"] is True
    few = [row for row in rows if int(row.request_id[1:]) < 99]
    assert LatentEstimator().fit(few, table.template, table.catalog).annotated_.meta["latent"] is False


def test_the_posterior_ranks_requests_by_their_ease(made: Any) -> None:
    table = made.table(0, models=3, requests=120)
    table.success[:60], table.success[60:] = False, True  # half never solved, half solved at once
    cells = ObservationTable.from_observations(made.all_rows(table), table.template, table.trie)
    fit = fit_latent(cells, n_points=7, iterations=25)
    ease = fit.posterior @ fit.grid
    hard = np.array([int(name[1:]) < 60 for name in cells.request_ids])
    assert ease[hard].max() < ease[~hard].min()


def test_newton_finds_the_penalised_maximum(made: Any) -> None:
    """Against a plain optimiser on the same objective."""
    from scipy.optimize import minimize

    table = made.table(5, models=2, requests=40)
    cells = ObservationTable.from_observations(made.all_rows(table), table.template, table.trie)
    features = FeatureMatrix.of(table.trie)
    regression = Regression.start(features, np.zeros(1))
    rows, starts = np.unique(cells.node, return_index=True)
    yes = np.add.reduceat(cells.stop.astype(float), starts)
    asked = np.add.reduceat(np.ones(len(cells)), starts)
    for _ in range(30):
        regression.step(
            replace(features, design=features.design[rows], slope=features.slope[rows]), yes[:, None], asked[:, None]
        )
    design = np.hstack([features.design[rows].toarray(), 0 * features.slope[rows].toarray()])

    def loss(beta: np.ndarray) -> float:
        eta = design @ beta
        penalty = 0.5 * np.sum((beta - regression.prior_mean) ** 2 / regression.variance[regression.group])
        return float(np.sum(asked * np.logaddexp(0, eta) - yes * eta) + penalty)

    best = minimize(loss, regression.prior_mean, method="BFGS")
    assert loss(regression.coefficients) <= best.fun + 1e-6


def test_design_rows_say_what_was_asked_before(made: Any) -> None:
    table = made.table(0, models=2)
    features, trie = FeatureMatrix.of(table.trie), table.trie
    row = features.design[[trie.node(("a", "b", "b"))]].toarray()[0]
    active = [features.groups[g] for g in features.group[row > 0]]
    assert sorted(active) == sorted(
        ["level", "depth", "model", "role", "turn", "previous", "earlier", "earlier", "legacy", "legacy", "self", "again"]
    )
    assert features.design[[0]].nnz == 0


def judged(made: Any, seed: int, *, accepts_right: float, accepts_wrong: float, requests: int = 400) -> Any:
    """A table whose workflow stops as a check says that sees only whether the answer is right."""
    table = made.table(seed, models=3, requests=requests, stop="workflow")
    rng = np.random.default_rng(seed)
    stopped = np.where(table.success, accepts_right, accepts_wrong) > rng.random(table.success.shape)
    return replace(table, stopped=stopped)


def test_a_check_is_learned_as_one_judge_of_answers(made: Any) -> None:
    table = judged(made, 0, accepts_right=0.9, accepts_wrong=0.4)
    cells = ObservationTable.from_observations(made.sampled_rows(table, 0, 1500), table.template, table.trie)
    probabilities = fit_latent(cells, n_points=7, iterations=25).probabilities
    assert np.abs(probabilities.stop_if_right[1:].mean(axis=1) - 0.9).mean() < 0.05
    assert np.abs(probabilities.stop_if_wrong[1:].mean(axis=1) - 0.4).mean() < 0.05


def test_accepted_is_never_read_as_right(made: Any) -> None:
    """No bias under a check that accepts two wrong answers in five."""
    off = []
    for seed in range(4):
        table = judged(made, seed, accepts_right=0.9, accepts_wrong=0.4)
        fitted = LatentEstimator().fit(made.sampled_rows(table, seed, 400), table.template, table.catalog).annotated_
        off.append(float((fitted.accuracy - table.annotate().accuracy)[1:].mean()))
    assert abs(np.mean(off)) < 0.03


def test_rows_without_a_label_still_tell_of_the_stop(made: Any) -> None:
    table = judged(made, 1, accepts_right=0.9, accepts_wrong=0.1)
    rows = made.sampled_rows(table, 1, 500)
    half = [replace(row, success=None) if i % 2 else row for i, row in enumerate(rows)]
    labelled = [row for i, row in enumerate(rows) if not i % 2]
    exact = table.annotate()

    def error(given: list[Any]) -> float:
        fitted = LatentEstimator().fit(given, table.template, table.catalog).annotated_
        return float(np.abs(fitted.stop - exact.stop)[1:].mean())

    assert error(half) < error(labelled)


def test_the_intervals_gradient_is_the_derivative_of_the_path_accuracies(made: Any) -> None:
    """Below a node that nobody was sent to, against small steps of every coefficient of each question."""
    table = judged(made, 2, accepts_right=0.8, accepts_wrong=0.3, requests=60)
    rows = [row for row in made.all_rows(table) if row.prefix[0] == "a"]
    cells = ObservationTable.from_observations(rows, table.template, table.trie)
    fit = fit_latent(cells, n_points=1, iterations=15)
    part = table.trie.subtree(table.trie.node(("b",)))

    def accuracy(now: LatentFit) -> tuple[np.ndarray, Any, Any]:
        done = predict_rates(cells, now)
        rates = done.rates
        annotated = replace(table.annotate(), success=rates.success, stop=rates.stop, stop_success=rates.stop_success)
        return annotated.accuracy, annotated, done

    base, annotated, done = accuracy(fit)
    names = ("right", "stop_if_right", "stop_if_wrong")
    for name, question in zip(names, questions(fit, done, annotated), strict=True):
        regression = question.regression
        regression.covariance = np.eye(len(regression.coefficients))  # gradients by the coefficients themselves
        (moves,) = [each for each in gradients(table.trie, question, done) if each.nodes == part]
        found = moves.of_accuracy(base[part], question.ended)
        for at in range(regression.features.design.shape[1]):
            regression.coefficients[at] += 1e-5
            moved = replace(fit, probabilities=replace(fit.probabilities, **{name: regression.probabilities()}))
            regression.coefficients[at] -= 1e-5
            np.testing.assert_allclose((accuracy(moved)[0] - base)[part] / 1e-5, found[:, at], atol=2e-3)


@pytest.mark.parametrize("bad", [{"n_points": 0}, {"iterations": 0}, {"min_requests": -1}])
def test_settings_out_of_range_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="latent"):
        LatentEstimator(**bad)
