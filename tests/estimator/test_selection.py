"""The optimism of choosing the best of many estimates, and what it does to the refusal of an estimate."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vinelm.errors import EvidenceError
from vinelm.estimator import ObservationTable, make_estimator
from vinelm.estimator.validation.checks import ValidationReport, selection_optimism, validate_estimate
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
