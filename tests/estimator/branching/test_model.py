"""What the estimators learn of arms: who decided matters, wrong arms make answers wrong, intervals hold their promise."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from science.recorded_table import RecordedTable

from vinelm.estimator import ESTIMATORS, ObservationTable, make_estimator
from vinelm.estimator.arms import arms_of
from vinelm.estimator.latent.em import LatentFit, fit_latent
from vinelm.estimator.latent.estimator import LatentEstimator
from vinelm.estimator.latent.prediction import predict_rates
from vinelm.estimator.latent.standard_errors import gradients, questions
from vinelm.estimator.validation.checks import validate_estimate
from vinelm.plans.promise import contingent_standard_error
from vinelm.plans.static_plans import StaticPlans
from vinelm.trie import Trie
from vinelm.vinefile import load_trie, save_trie

pytestmark = pytest.mark.long

GOOD, POOR = 0.9, 0.5
"""How often router `a` and router `b` take the right arm."""


def routed(made: Any, seed: int, requests: int) -> RecordedTable:
    """Requests that belong to search or to mathematics; on the wrong arm one answer in ten is right, else four in five."""
    table = made.branching(seed, requests=requests)
    trie, rng = table.trie, np.random.default_rng(seed)
    at = {name: trie.stages.index(name) for name in trie.stages}
    belongs = np.where(rng.random(requests) < 0.5, at["search"], at["math"])
    other = at["search"] + at["math"] - belongs
    arm, success = table.arm.copy(), np.zeros_like(table.success)
    for node in range(1, len(trie)):
        stage, path = trie.stages[trie.stage[node]], trie.path(node)
        if stage == "router":
            skill = GOOD if trie.models[trie.model[node]] == "a" else POOR
            arm[:, node] = np.where(rng.random(requests) < skill, belongs, other)
        elif trie.answerable[node]:
            is_right_arm = trie.stage[path[1]] == belongs
            success[:, node] = rng.random(requests) < np.where(is_right_arm, 0.8, 0.1)
            arm[:, node] = [-1 if trie.is_leaf[node] else trie.stage[trie.children(node)[0]]] * requests
    return replace(table, arm=arm, success=success, stopped=np.zeros_like(table.stopped))


def test_the_model_that_decides_changes_the_arm_and_the_answers_behind_it(made: Any) -> None:
    table = routed(made, 0, 900)
    fitted = LatentEstimator().fit(made.sampled_rows(table, 0, 1200), table.template, table.catalog).annotated_
    trie, exact = fitted.trie, table.annotate()
    assert fitted.arm is not None
    plans, truth = StaticPlans.of(fitted), StaticPlans.of(exact)
    router = trie.stages.index("router")
    by_a, by_b = (plans.accuracy[plans.is_whole][plans.models[:, router] == model].mean() for model in (0, 1))
    assert by_a == pytest.approx(0.1 + 0.7 * GOOD, abs=0.05)
    assert by_b == pytest.approx(0.1 + 0.7 * POOR, abs=0.05)
    assert np.abs(plans.accuracy - truth.accuracy).mean() < 0.05
    np.testing.assert_allclose(fitted.arm[trie.depth == 2], exact.arm[trie.depth == 2], atol=0.05)  # type: ignore[index]


def test_intervals_of_arms_and_plans_cover_the_truth_and_narrow_with_more_rows(made: Any) -> None:
    """Coverage over several samples of rows; 90 % intervals of few rows may be wider than needed, not narrower."""
    arms_in, plans_in, widths = [], [], []
    for seed in range(4):
        table = routed(made, seed, 400)
        exact, truth = table.annotate(), None
        for runs in (100, 600):
            fitted = LatentEstimator().fit(made.sampled_rows(table, seed, runs), table.template, table.catalog).annotated_
            assert fitted.arm_se is not None
            plans, truth = StaticPlans.of(fitted), truth or StaticPlans.of(exact)
            decided = fitted.trie.depth == 2
            arms_in.append(np.abs(fitted.arm - exact.arm)[decided] <= 1.645 * fitted.arm_se[decided])
            plans_in.append(np.abs(plans.accuracy - truth.accuracy) <= 1.645 * plans.error)
            widths.append((fitted.arm_se[decided].mean(), plans.error.mean()))
    assert np.mean(arms_in) > 0.85
    assert np.mean(plans_in) > 0.85
    few, many = np.mean(widths[0::2], axis=0), np.mean(widths[1::2], axis=0)
    assert np.all(many < few)


@pytest.mark.parametrize("shape", ["router", "corrective", "entry"])
def test_the_intervals_gradient_is_the_derivative_of_the_masses(made: Any, shape: str) -> None:
    """Below nodes that nobody was sent to, against small steps of the coefficients of each question."""
    table = made.branching(3, shape=shape, requests=60)
    rows_of_a = [row for row in made.all_rows(table) if row.prefix[0] == "a"]
    cells = ObservationTable.from_observations(rows_of_a, table.template, table.trie)
    top = [node for node in table.trie.children(0) if table.trie.prefix(node) == ("b",)]
    blind = np.concatenate([np.arange(node, table.trie.end[node]) for node in top])
    fit = fit_latent(cells, n_points=1, iterations=15)

    def masses(now: LatentFit) -> tuple[np.ndarray, Any, Any]:
        done = predict_rates(cells, now)
        rates, arms = done.rates, done.arm_rates
        annotated = replace(
            table.annotate(), success=rates.success, stop=rates.stop, stop_success=rates.stop_success, arm=arms.arm,
            arm_success=arms.arm_success,
        )  # fmt: skip
        return annotated.accuracy, annotated, done

    base, annotated, predicted = masses(fit)
    names = ["right", "stop_if_right", "stop_if_wrong", "arms"]
    for name, question in zip(names, questions(fit, predicted, annotated), strict=True):
        regression = question.regression
        regression.covariance = np.eye(len(regression.coefficients))  # gradients by the coefficients themselves
        found = np.zeros((len(table.trie), len(regression.coefficients)))
        for moves in gradients(table.trie, question, predicted):
            found[moves.nodes] = moves.of_accuracy(base[moves.nodes], question.ended)
        n_effects = regression.features.design.shape[1]
        for at in range(0, n_effects, 3):
            regression.coefficients[at] += 1e-5
            moved = fit
            if name != "arms":
                possible = table.trie.answerable[:, None] if name == "right" else 1.0
                stepped = {name: regression.probabilities() * possible}
                moved = replace(fit, probabilities=replace(fit.probabilities, **stepped))
            after = masses(moved)[0]
            regression.coefficients[at] -= 1e-5
            np.testing.assert_allclose((after - base)[blind] / 1e-5, found[blind, at], atol=1e-4, err_msg=f"{name} {at}")


def plan_by_walking(annotated: Any, models: dict[str, str]) -> tuple[float, float]:
    """Accuracy and dollars of a fixed plan, by recursion over the arms."""

    def value(node: int) -> tuple[float, float]:
        arms = annotated.trie.arms(node)
        if not arms:
            return float(annotated.success[node]), float(annotated.cost_usd[node])
        accuracy, cost = float(annotated.stop_success[node]), float(annotated.cost_usd[node])
        for stage in arms:
            child = annotated.trie.child(node, models[stage], stage)
            below = value(child)
            accuracy += float(annotated.arm[child]) * below[0]
            cost += float(annotated.arm[child]) * below[1]
        return accuracy, cost

    return value(0)


@pytest.mark.parametrize("shape", ["router", "corrective", "entry"])
def test_fixed_plans_are_worth_what_walking_their_arms_gives(made: Any, shape: str) -> None:
    exact = made.branching(5, shape=shape).annotate()
    plans = StaticPlans.of(exact)
    assert len(plans.models) == 2 ** len(exact.trie.stages)
    for i, models in zip(np.flatnonzero(plans.is_whole), plans.models, strict=True):
        chosen = {stage: exact.trie.models[model] for stage, model in zip(exact.trie.stages, models, strict=True)}
        assert (plans.accuracy[i], plans.cost_usd[i]) == pytest.approx(plan_by_walking(exact, chosen))
    assert np.isnan(plans.error).all()
    assert (plans.runs_one_model & plans.is_whole).sum() == 2


def test_a_plans_error_lies_between_independent_and_equal_errors_of_its_ends(made: Any) -> None:
    table = made.branching(1, requests=150)
    fitted = LatentEstimator().fit(made.sampled_rows(table, 0, 150), table.template, table.catalog).annotated_
    ends = np.flatnonzero(fitted.trie.is_leaf)[:6]
    assert fitted.accuracy_se is not None
    found = contingent_standard_error(fitted, ends, float(fitted.accuracy[ends].sum()))
    assert found is not None
    assert found < fitted.accuracy_se[ends].sum()
    assert found > 0.5 * float(np.sqrt((fitted.accuracy_se[ends] ** 2).sum()))
    assert contingent_standard_error(replace(fitted, accuracy_se=None), ends, 0.5) is None


@pytest.mark.parametrize(
    "name", [name for name in ESTIMATORS if name not in {"prefix-xgboost", "prefix-impute", "prefix-average"}]
)
def test_every_estimator_annotates_a_branching_trie(made: Any, name: str) -> None:
    table = made.branching(2, requests=100)
    fitted = make_estimator(name).fit(made.sampled_rows(table, 0, 200), table.template, table.catalog).annotated_
    assert fitted.arm is not None
    arms = arms_of(fitted.trie)
    first = np.unique(arms.of_node[1:], return_index=True)[1] + 1
    inner = np.flatnonzero(arms.count)
    np.testing.assert_allclose(
        np.bincount(arms.source, fitted.arm[first], len(fitted.trie))[inner], (1.0 - fitted.stop)[inner], atol=1e-12
    )
    off = StaticPlans.of(fitted).accuracy - StaticPlans.of(table.annotate()).accuracy
    assert np.abs(off).mean() < 0.2


def test_validation_judges_fixed_plans(made: Any) -> None:
    table = routed(made, 4, 200)
    rows = made.sampled_rows(table, 0, 300)
    estimator = LatentEstimator().fit(rows, table.template, table.catalog)
    cells = ObservationTable.from_observations(rows, table.template, estimator.annotated_.trie)
    found = validate_estimate(cells, table.template, table.catalog, estimator.annotated_)
    plans = StaticPlans.of(estimator.annotated_)
    assert found.best_accuracy == pytest.approx(plans.accuracy.max())
    assert 0.0 < found.best_promised <= found.best_accuracy
    assert 0.0 < found.best_half_width < 0.5
    assert found.selection is not None
    assert {each.estimator for each in found.disagreements} == {"latent without difficulty", "cascade"}


def test_a_template_whose_branch_leaves_one_stage_has_arms_all_the_same(made: Any) -> None:
    """`Branch({"more": ..., "no": END})`: the trie is a chain, the template is not linear."""
    from vinelm.rows.observation import Observation
    from vinelm.template import END, Branch, Stage, Template

    catalog = made.catalog("a", "b")
    template = Template((Stage("draft"), Branch({"more": (Stage("polish"),), "no": END}))).bind(tuple(catalog))
    assert Trie.from_template(template).is_linear
    rows = [
        Observation(request_id=f"q{i}", prefix=("a",), stage="draft", success=i % 4 == 0, stopped=i % 2 == 0, cost_usd=1.0,
                    latency_s=1.0, arm=None if i % 2 == 0 else "polish")
        for i in range(40)
    ]  # fmt: skip
    for name in ("latent", "cascade"):
        fitted = make_estimator(name).fit(rows, template, catalog).annotated_
        assert fitted.arm is not None
        assert fitted.arm[fitted.trie.node(("a", "b"))] == pytest.approx(0.5, abs=1e-6)


def test_a_file_keeps_the_arms_and_their_errors(made: Any, tmp_path: Path) -> None:
    table = made.branching(6, requests=60)
    fitted = LatentEstimator().fit(made.sampled_rows(table, 0, 80), table.template, table.catalog).annotated_
    save_trie(tmp_path / "a.vine", fitted)
    found = load_trie(tmp_path / "a.vine")
    for name in ("arm", "arm_success", "arm_se", "accuracy_se"):
        np.testing.assert_array_equal(getattr(found, name), getattr(fitted, name))
