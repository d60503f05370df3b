import builtins
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinelm.errors import InputError
from vinelm.estimator import ObservationTable, make_estimator
from vinelm.estimator.baselines.column_means import Entries, low_rank


def cells_of(made: Any, table: Any, runs: int = 20) -> ObservationTable:
    return ObservationTable.from_observations(made.sampled_rows(table, 0, runs), table.template, table.trie)


@given(seed=st.integers(0, 50))
@settings(max_examples=10, deadline=None)
def test_average_is_the_mean_of_the_executed_entries(made: Any, seed: int) -> None:
    table = made.table(seed)
    rows = made.sampled_rows(table, seed, 30)
    fitted = make_estimator("average").fit(rows, table.template, table.catalog).annotated_
    for node in range(1, len(table.trie)):
        entries = [row.success for row in rows if row.prefix == table.trie.prefix(node)]
        if entries and fitted.reach[node] > 0:
            assert fitted.accuracy[node] == pytest.approx(np.mean(entries), abs=1e-6)


def test_fill_in_marks_every_extension_of_a_success_and_nothing_else(made: Any) -> None:
    table = made.table(1)
    cells = cells_of(made, table)
    filled, plain = Entries.of(cells, fill_in=True), Entries.of(cells, fill_in=False)
    for request, name in enumerate(cells.request_ids):
        row = table.request_ids.index(name)
        for node in range(1, len(table.trie)):
            above = table.trie.path(int(table.trie.parent[node]))
            solved = any(plain.values[request, a] == 1.0 for a in above)
            expected = 1.0 if solved else plain.values[request, node]
            np.testing.assert_equal(filled.values[request, node], expected)
            if not np.isnan(expected) and not solved:
                assert expected == table.success[row, node]


@pytest.mark.parametrize("name", ["prefix-average", "prefix-impute"])
def test_a_fully_known_table_gives_exact_column_means(made: Any, name: str) -> None:
    table = made.table(2)
    fitted = make_estimator(name).fit(made.all_rows(table), table.template, table.catalog).annotated_
    np.testing.assert_allclose(fitted.accuracy[1:], table.annotate().accuracy[1:], atol=1e-6)


def test_prefix_average_overstates_and_average_understates_deep_paths(made: Any) -> None:
    """The bias that the paper's figure 8 and table 1 show."""
    table = made.table(3, models=3, requests=300)
    rows, deepest = made.sampled_rows(table, 0, 600), table.trie.levels[-1]
    truth = table.annotate().accuracy[deepest]
    signed = {
        name: float((make_estimator(name).fit(rows, table.template, table.catalog).annotated_.accuracy[deepest] - truth).mean())
        for name in ("average", "prefix-average")
    }
    assert signed["average"] < -0.1
    assert signed["prefix-average"] > 0.02


def test_low_rank_is_the_best_approximation() -> None:
    table = np.random.default_rng(0).random((7, 5))
    u, s, v = np.linalg.svd(table, full_matrices=False)
    expected = (u[:, :2] * s[:2]) @ v[:2]
    np.testing.assert_allclose(low_rank(table, 2), expected, atol=1e-9)
    np.testing.assert_allclose(low_rank(table.T, 2), expected.T, atol=1e-9)


@pytest.mark.parametrize("name", ["prefix-average", "prefix-impute", "prefix-xgboost"])
def test_fill_in_is_refused_under_the_workflows_stop(made: Any, name: str) -> None:
    table = made.table(0, stop="workflow")
    with pytest.raises(InputError, match="needs the oracle stop"):
        make_estimator(name).fit(made.all_rows(table), table.template, table.catalog)


def test_a_missing_xgboost_says_what_to_install(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "xgboost":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    table = made.table(0)
    with pytest.raises(InputError, match=r"vinelm\[xgboost\]"):
        make_estimator("prefix-xgboost").fit(made.all_rows(table), table.template, table.catalog)


def test_boosting_beats_the_plain_fill_in_average(made: Any) -> None:
    pytest.importorskip("xgboost")
    table = made.table(3, models=3, requests=300)
    rows, truth = made.sampled_rows(table, 0, 600), table.annotate().accuracy[1:]
    error = {
        name: float(
            np.abs(make_estimator(name).fit(rows, table.template, table.catalog).annotated_.accuracy[1:] - truth).mean()
        )
        for name in ("prefix-xgboost", "prefix-average")
    }
    assert error["prefix-xgboost"] < error["prefix-average"]
