from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vinelm.errors import EvidenceError
from vinelm.estimator import ObservationTable, make_estimator
from vinelm.estimator.validation.checks import ValidationReport, _held_out_error, validate_estimate
from vinelm.template import Loop, Stage, Template


def gathered(table: Any, rows: Any, name: str = "latent", seed: int = 0) -> ValidationReport:
    cells = ObservationTable.from_observations(rows, table.template, table.trie)
    fitted = make_estimator(name).fit_cells(cells, table.template, table.catalog).annotated_
    return validate_estimate(cells, table.template, table.catalog, fitted, seed=seed)


@pytest.mark.parametrize("name", ["latent", "cascade"])
@pytest.mark.parametrize("stop", ["oracle", "workflow"])
def test_every_figure_is_finite_and_plain_json(made: Any, name: str, stop: str) -> None:
    import json

    table = made.table(0, models=3, requests=120, stop=stop)
    found = gathered(table, made.sampled_rows(table, 0, 200), name)
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert json.loads(text)["requests"] == found.requests
    assert [check.depth for check in found.depths] == [1, 2, 3]
    assert sum(check.rows for check in found.depths) == found.observations
    assert found.optimism is not None
    assert 0.0 <= found.best_accuracy <= 1.0


def test_the_same_rows_in_another_order_give_the_same_evidence(made: Any) -> None:
    table = made.table(1, models=2, requests=60)
    rows = made.sampled_rows(table, 0, 90)
    assert gathered(table, rows) == gathered(table, rows[::-1])


def test_held_out_error_takes_the_sampling_noise_out(made: Any) -> None:
    """Against rates that are off by a known amount, and against the true ones."""
    rng = np.random.default_rng(0)
    table = made.table(0, models=2, depth=2, requests=1500)
    table = replace(table, success=rng.random(table.success.shape) < 0.4)
    cells = ObservationTable.from_observations(made.all_rows(table), table.template, table.trie)
    fitted = make_estimator("cascade").fit_cells(cells, table.template, table.catalog).annotated_
    inner = np.arange(len(table.trie)) > 0
    off = replace(fitted, success=np.where(inner, 0.5, 0.0))
    true = replace(fitted, success=np.where(inner, 0.4, 0.0))
    assert _held_out_error([(off, cells)])[0] == pytest.approx(0.1, abs=0.02)
    assert _held_out_error([(true, cells)])[0] == pytest.approx(0.0, abs=0.02)


def test_picking_the_best_of_many_is_optimistic_where_nothing_differs(made: Any) -> None:
    """Every path is alike, so that whatever looks best owes it to chance; raw means promise far too much."""
    found = []
    for seed in range(2):
        table = made.table(seed, models=4, requests=120)
        table = replace(table, success=np.random.default_rng(seed).random(table.success.shape) < 0.3)
        rows = made.sampled_rows(table, seed, 150)
        found.append([gathered(table, rows, name).optimism for name in ("cascade", "latent")])
    cascade, latent = np.mean(np.array(found, float), axis=0)
    assert cascade > 0.1
    assert abs(latent) < 0.5 * cascade


def test_thin_evidence_is_refused_with_what_would_settle_it(made: Any) -> None:
    table = made.table(3, models=3, requests=60)
    found = gathered(table, made.sampled_rows(table, 0, 20))
    assert found.best_half_width > 0.1
    times = (found.best_half_width / 0.1) ** 2
    with pytest.raises(EvidenceError, match=r"about \$.* more of profiling") as caught:
        found.require(0.1, spent_usd=2.0, everything_usd=1e6)
    said = float(str(caught.value).split("$")[1].split()[0])
    assert said == pytest.approx(2.0 * (times - 1.0), rel=0.06)
    assert "\n" not in str(caught.value)
    with pytest.raises(EvidenceError, match=r"would not suffice.*label about"):
        found.require(0.1, spent_usd=2.0, everything_usd=2.1)
    for spent_usd in (2.1, 2.4):  # it said: "running everything ($0 more) would not suffice"
        with pytest.raises(EvidenceError, match="paths of these requests together show no more: label about") as caught:
            found.require(0.1, spent_usd=spent_usd, everything_usd=2.1)
        assert "running everything" not in str(caught.value)
    with pytest.raises(EvidenceError, match="times as many rows"):
        found.require(0.1, spent_usd=0.0, everything_usd=0.0)
    found.require(1.0, spent_usd=2.0, everything_usd=10.0)


def test_a_handful_of_requests_is_refused_however_alike_they_are(made: Any) -> None:
    table = made.table(0, requests=4)
    table = replace(table, success=np.ones_like(table.success))
    found = gathered(table, made.all_rows(table))
    with pytest.raises(EvidenceError, match="4 requests"):
        found.require(0.5, spent_usd=1.0, everything_usd=1.0)


def test_plenty_of_evidence_passes(made: Any) -> None:
    table = made.table(0, models=2, requests=250)
    gathered(table, made.all_rows(table)).require(0.1, spent_usd=1.0, everything_usd=1.0)


def test_a_depth_without_rows_and_many_failures_are_named(made: Any) -> None:
    table = made.table(2, models=2, requests=40)
    rows = [row for row in made.all_rows(table) if row.depth == 1]
    failed = [replace(row, success=None, stopped=None, failure="timeout") for row in rows[:20]]
    found = gathered(table, failed + rows[20:])
    assert any("no observation at depth 2" in warning for warning in found.warnings)
    assert not any("depth 3" in warning for warning in found.warnings)
    assert any("failed calls" in warning for warning in found.warnings)


def test_one_request_alone_has_no_other_half(made: Any) -> None:
    table = made.table(0, requests=1)
    found = gathered(table, made.all_rows(table))
    assert found.optimism is None
    assert found.held_out_error is None
    assert found.depths == ()


@pytest.mark.parametrize(
    ("steps", "stop", "words"),
    [
        ((Stage("generate"), Loop((Stage("repair"),), 2)), "oracle", None),
        ((Loop((Stage("solve"),), 3),), "oracle", None),
        ((Stage("plan", answerable=False), Stage("solve")), "oracle", "'plan' produces no answer"),
        ((Stage("plan"), Stage("solve")), "oracle", "plan -> solve form a chain"),
        ((Stage("plan"), Stage("solve")), "workflow", None),
    ],
)
def test_an_oracle_stop_over_a_chain_of_tasks_is_warned_of(steps: Any, stop: Any, words: str | None) -> None:
    found = Template(steps, stop).rule.warnings(steps)
    assert [words in warning for warning in found] == ([True] if words else []) if words else found == ()


def test_some_requests_only(made: Any) -> None:
    table = made.table(4, requests=12)
    rows = made.all_rows(table)
    cells = ObservationTable.from_observations(rows, table.template, table.trie)
    keep = np.arange(12) % 3 == 0
    part = cells.of_requests(keep)
    names = {name for name, is_kept in zip(cells.request_ids, keep, strict=True) if is_kept}
    again = ObservationTable.from_observations([row for row in rows if row.request_id in names], table.template, table.trie)
    assert part.request_ids == again.request_ids
    for name in ("request", "node", "stop", "right", "cost_usd", "latency_s", "in_flight"):
        np.testing.assert_array_equal(getattr(part, name), getattr(again, name))
