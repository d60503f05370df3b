"""The optimism of choosing the best of many estimates, and what it does to the refusal of an estimate."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit.oracles.contingent_checks import plan_at, small_branching
from kit.stores import made_store

from vinelm.api.estimation import estimate_store
from vinelm.controller import Planner
from vinelm.errors import EvidenceError
from vinelm.estimator import ObservationTable, make_estimator
from vinelm.estimator.signals.optimism import FitMasses, chosen, worth
from vinelm.estimator.validation.checks import ValidationReport, selection_optimism, validate_estimate
from vinelm.objective import Objective
from vinelm.plans.promise import Promise, SelectionOptimism


def alike(made: Any, seed: int, *, models: int = 4, requests: int = 120) -> Any:
    """A table in which every path has the same accuracy at each depth: whatever looks best owes it to chance."""
    table = made.table(seed, models=models, requests=requests, stop="workflow")
    return replace(table, success=np.random.default_rng(seed).random(table.success.shape) < 0.3)


def validated(table: Any, rows: Any, name: str = "latent") -> tuple[Any, ValidationReport]:
    cells = ObservationTable.from_observations(rows, table.template, table.trie)
    fitted = make_estimator(name).fit_cells(cells, table.template, table.catalog).annotated_  # type: ignore[attr-defined]
    return fitted, validate_estimate(cells, table.template, table.catalog, fitted)


def test_what_is_chosen_by_chance_is_promised_for_less(made: Any) -> None:
    """Raw means promise far too much for the best of 84 equal paths; the correction takes a good part of it off."""
    before, after = [], []
    for seed in range(4):
        table = alike(made, seed)
        fitted, report = validated(table, made.sampled_rows(table, seed, 150), "cascade")
        assert report.selection is not None
        best = int(np.argmax(np.where(fitted.trie.answerable, fitted.accuracy, -1.0)))
        evidence = {"selection": report.selection.to_dict()}
        promise = Promise.of(replace(fitted, meta={**fitted.meta, "evidence": evidence}), best)
        before.append(promise.estimate - 0.3)
        after.append(promise.accuracy - 0.3)
    assert np.mean(before) > 0.2
    assert abs(np.mean(after)) < 0.75 * np.mean(before)


def test_two_equal_halves_show_no_optimism(made: Any) -> None:
    table = made.table(0, models=3, requests=60)
    fitted, _ = validated(table, made.all_rows(table))
    curve, mean = selection_optimism([(fitted, fitted)], fitted)
    assert mean == 0.0
    assert set(curve.accuracy) == set(curve.advantage) == {0.0}
    assert list(curve.cost_usd) == sorted(curve.cost_usd)
    assert curve.cost_usd[-1] == fitted.path_cost_usd.max()


def test_the_curve_compares_each_choice_with_the_other_half(made: Any) -> None:
    """One path is raised in one half only: that half chooses it where it can pay for it, the other tells what it is worth."""
    table = made.table(1, models=2, requests=80)
    fitted, _ = validated(table, made.all_rows(table))
    top = int(np.argmax(fitted.path_cost_usd))
    stop = np.zeros(len(fitted.trie))
    flat = replace(fitted, stop=stop, stop_success=stop, success=np.where(np.arange(len(fitted.trie)) > 0, 0.5, 0.0))
    raised = flat.success.copy()
    raised[top] = 0.9
    curve, mean = selection_optimism([(replace(flat, success=raised), flat)], flat)
    assert mean == pytest.approx(0.02)  # under one of ten caps, in one of two directions
    assert curve.accuracy[-1] == pytest.approx(0.1)  # half of 0.4 at the last cap, smoothed with its neighbour
    assert curve.accuracy[0] == 0.0


def test_paths_that_cost_nothing_have_a_curve(made: Any) -> None:
    table = made.table(2, models=2, requests=40)
    table = replace(table, cost_usd=np.zeros_like(table.cost_usd))
    _, report = validated(table, made.all_rows(table))
    assert report.selection is not None
    assert np.isfinite(report.selection.accuracy_at(0.0))


def test_optimism_is_a_part_of_what_is_refused(made: Any) -> None:
    """Standard errors alone would have passed: with +18.4 points of optimism, `estimate` exited with 0."""
    table = made.table(3, models=3, requests=200)
    _, report = validated(table, made.sampled_rows(table, 0, 400))
    fitted, _ = validated(table, made.sampled_rows(table, 0, 400))
    best = int(np.argmax(np.where(fitted.trie.answerable, fitted.accuracy, -1.0)))
    assert report.selection is not None
    assert report.best_half_width > 1.6448 * fitted.accuracy_se[best]
    allowed = float(1.645 * fitted.accuracy_se[best])
    with pytest.raises(EvidenceError):
        report.require(allowed, spent_usd=1.0, everything_usd=100.0)


def test_large_optimism_is_warned_of_with_what_to_do(made: Any) -> None:
    table = alike(made, 0, models=8)
    _, report = validated(table, made.sampled_rows(table, 0, 60))
    large = replace(report, selection=SelectionOptimism(cost_usd=(1.0,), accuracy=(0.3,), advantage=(0.3,)))
    assert large.to_dict()["selection"]["accuracy"] == [0.3]
    from vinelm.estimator.validation.checks import _optimism_warnings

    promise = Promise(estimate=0.7, standard_error=0.1, optimism=0.2, advantage=0, advantage_optimism=None, reference=None)
    (line,) = _optimism_warnings(promise)
    assert "60 % is promised instead of 70 %" in line
    assert "four times as many rows" in line
    assert _optimism_warnings(replace(promise, optimism=0.15)) == ()


@pytest.mark.parametrize("number", range(12))
def test_a_half_chooses_the_best_contingent_plan_and_the_other_says_what_it_is_worth(number: int) -> None:
    annotated = small_branching(random.Random(f"halves:{number}"))
    doubtful = {name: getattr(annotated, name) / 2 for name in ("success", "stop_success", "arm_success")}
    own, other = (FitMasses.of_tries([fit]) for fit in (annotated, replace(annotated, **doubtful)))
    root_usd = float(annotated.cost_usd[0])
    for price in (1 / 8, 1 / 4, 1.0, 2.0):
        best, choice = plan_at(annotated, price), chosen(own, price)
        (promised,), (usd,) = worth(own, choice)
        assert promised - price * usd == pytest.approx(best.accuracy - price * (best.cost_usd - root_usd))
        assert [found.item() for found in worth(other, choice)] == pytest.approx([promised / 2, usd])


def test_the_best_model_of_each_kind_is_promised_for_less(tmp_path: Path) -> None:
    """All models are alike at all kinds: who looks best at some kind owes it to chance, and the half that chose says so."""
    alike = dict.fromkeys(("code", "facts", "mail", "mathematics"), dict.fromkeys(("a", "b", "c", "d", "e"), 0.5))
    prices = dict.fromkeys(alike["code"], 0.001)
    before, after = [], []
    for seed in range(3):
        path = made_store(tmp_path / f"{seed}.db", alike["code"], prices, requests=120, depth=1, kinds=alike, seed=seed)
        found = estimate_store(path, estimator="latent", checked=True)
        promise = Planner(found).plan(Objective(maximize="accuracy")).promise
        before.append(promise.estimate - 0.5)
        after.append(promise.accuracy - 0.5)
    assert np.mean(before) > 0.03
    assert abs(np.mean(after)) < 0.65 * np.mean(before)
