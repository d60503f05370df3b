from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vinelm.estimator import ObservationTable
from vinelm.estimator.cost_latency import MeanEstimate, estimate_amount, zero_load_s
from vinelm.estimator.prompt_cache import edge_types
from vinelm.trie.annotated_trie import lognormal_quantile


def bought(
    made: Any, seed: int, *, share: float, models: int = 4, requests: int = 200
) -> tuple[Any, ObservationTable, np.ndarray]:
    """A table whose amounts have a structure, a share of its reached cells, and which cells those are."""
    rng = np.random.default_rng(seed)
    table = made.table(seed, models=models, requests=requests)
    size, speed = rng.lognormal(0.0, 0.4, (requests, 1)), rng.uniform(0.5, 4.0, models)
    latency = size * rng.lognormal(-0.045, 0.3, table.success.shape) * speed[np.maximum(table.trie.model, 0)]
    table = replace(table, latency_s=latency)
    cells = cells_of(table, table.reached & (rng.random(table.success.shape) < share))
    return table, cells, np.asarray(speed)


def cells_of(table: Any, chosen: np.ndarray, in_flight: np.ndarray | None = None) -> ObservationTable:
    chosen[:, 0] = False
    cells: ObservationTable = table.cells(chosen, in_flight)
    return cells


class EqualSizes:
    """Outcomes say nothing of sizes: every node is predicted for a request of mean size."""

    unseen = None

    def __init__(self, cells: ObservationTable) -> None:
        self._cells = cells

    def expected(self, slope: float) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(self._cells.n_requests), np.zeros(self._cells.n_requests)

    def reaching(self, slope: float, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(len(self._cells.trie)), np.zeros(len(self._cells.trie))


def amount_of(cells: ObservationTable, values: np.ndarray, edges: np.ndarray | None = None) -> MeanEstimate:
    edges = np.zeros(len(cells.trie), np.int64) if edges is None else edges
    return estimate_amount(cells, values, edges=edges, by_outcome=EqualSizes(cells))


def relative_error(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.abs(found[1:] / true[1:] - 1.0).mean())


def test_sharing_beats_the_nodes_own_means(made: Any) -> None:
    table, cells, _ = bought(made, 0, share=0.05)
    exact = table.annotate().latency_s
    found = amount_of(cells, cells.latency_s).mean
    seen = cells.count > 0
    own = np.bincount(cells.node, cells.latency_s, len(seen))[seen] / cells.count[seen]
    assert relative_error(found[seen], exact[seen]) < 0.5 * relative_error(own, exact[seen])


def test_a_warm_engine_is_learned_and_holds_for_nodes_never_seen(made: Any) -> None:
    gains = []
    for seed in range(3):
        table, _, _ = bought(made, seed, share=1.0)
        engine = np.array([-1, 0, 1, 0, 1], np.int16)[table.trie.model + 1]
        edges = edge_types(table.trie, engine)
        table = replace(table, latency_s=table.latency_s * np.where(edges == 2, 0.6, 1.0))
        cells = cells_of(table, table.reached & (np.random.default_rng(seed).random(table.success.shape) < 0.05))
        exact = table.annotate().latency_s
        with_edges = amount_of(cells, cells.latency_s, edges=edges).mean
        gains.append(relative_error(with_edges, exact) / relative_error(amount_of(cells, cells.latency_s).mean, exact))
    assert np.mean(gains) < 0.8


def test_an_engine_that_does_not_matter_costs_next_to_nothing(made: Any) -> None:
    table, cells, _ = bought(made, 4, share=0.05)
    edges = edge_types(table.trie, np.array([-1, 0, 1, 0, 1], np.int16)[table.trie.model + 1])
    exact = table.annotate().latency_s
    plain, with_edges = (amount_of(cells, cells.latency_s, edges=e).mean for e in (None, edges))
    assert relative_error(with_edges, exact) < 1.1 * relative_error(plain, exact)


def test_edges_say_whether_the_engine_before_is_the_same(made: Any) -> None:
    trie = made.table(0, models=3).trie
    edges = edge_types(trie, np.array([-1, 0, 1, 0], np.int16)[trie.model + 1])
    assert [edges[trie.node(p)] for p in (("a",), ("a", "c"), ("a", "b"), ("a", "b", "b"))] == [0, 2, 1, 2]


def test_latency_is_annotated_at_zero_load(made: Any) -> None:
    table, _, _ = bought(made, 1, share=1.0)
    rng = np.random.default_rng(7)
    in_flight = rng.integers(0, 8, table.success.shape).astype(float)
    engine = np.where(table.trie.model >= 0, table.trie.model % 2, -1).astype(np.int16)
    slope = np.array([0.15, 0.0])[np.maximum(engine, 0)]
    loaded = replace(table, latency_s=table.latency_s * (1.0 + slope * in_flight))
    cells = cells_of(loaded, loaded.reached & (rng.random(table.success.shape) < 0.2), in_flight)
    exact = table.annotate().latency_s
    corrected = amount_of(cells, zero_load_s(cells, engine)).mean
    naive = amount_of(cells, cells.latency_s).mean
    assert relative_error(naive, exact) > 0.2
    assert relative_error(corrected, exact) < 0.1
    free = engine[cells.node] == 1
    np.testing.assert_array_equal(zero_load_s(cells, engine)[free], cells.latency_s[free])


def test_idle_engines_change_nothing(made: Any) -> None:
    _, cells, _ = bought(made, 2, share=0.1)
    np.testing.assert_array_equal(zero_load_s(cells, np.zeros(len(cells.trie), np.int16)), cells.latency_s)


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_quantiles_of_nodes_are_those_of_the_requests(made: Any, level: float) -> None:
    table, cells, _ = bought(made, 3, share=0.1, requests=400)
    amount = amount_of(cells, cells.latency_s)
    found = lognormal_quantile(amount.mean, amount.var, level)
    true = np.quantile(table.latency_s, level, axis=0)
    assert relative_error(found, true) < 0.15
    assert lognormal_quantile(np.zeros(1), np.zeros(1), level)[0] == 0.0


def test_standard_errors_shrink_with_the_rows(made: Any) -> None:
    widths = []
    for share in (0.02, 0.1, 0.5):
        cells = bought(made, 5, share=share)[1]
        amount = amount_of(cells, cells.latency_s)
        widths.append(float((amount.mean_var[1:] / amount.mean[1:] ** 2).mean()))
    assert widths == sorted(widths, reverse=True)


def test_the_size_of_a_request_is_told_from_the_noise(made: Any) -> None:
    """Sizes have the variance exp(0.16) - 1, noise on top exp(0.09) - 1."""
    _, cells, _ = bought(made, 6, share=0.3, requests=400)
    amount = amount_of(cells, cells.latency_s)
    relative = amount.size_var[1:] / amount.mean[1:] ** 2
    assert abs(relative.mean() / np.expm1(0.16) - 1.0) < 0.25
    assert np.all(amount.size_var <= amount.var)


def test_sizes_learned_from_few_rows_do_not_make_the_mean_too_low(made: Any) -> None:
    off = []
    for seed in range(6):
        table, cells, _ = bought(made, seed, share=0.04, requests=300)
        exact = table.annotate().latency_s
        off.append(float((amount_of(cells, cells.latency_s).mean[1:] / exact[1:] - 1.0).mean()))
    assert abs(np.mean(off)) < 0.03


def test_few_rows_are_believed_less_than_their_scatter_says(made: Any) -> None:
    """The error that is reported for a dozen rows, on average over seeds, is no smaller than the one that is made."""
    made_, reported = [], []
    for seed in range(12):
        table, cells, _ = bought(made, seed, share=0.02, models=2, requests=60)
        exact, amount = table.annotate().latency_s, amount_of(cells, cells.latency_s)
        error = np.sqrt(amount.mean_var + amount.along**2 + amount.mean**2 * amount.shared)
        made_.append(float(np.mean((amount.mean[1:3] / exact[1:3] - 1.0) ** 2)))
        reported.append(float(np.mean((error[1:3] / amount.mean[1:3]) ** 2)))
    assert np.mean(reported) > np.mean(made_)


def test_seconds_come_from_the_rows_that_have_them(made: Any) -> None:
    """Rows of calls in batches have none: the others decide, and some requests have no row with seconds at all."""
    from vinelm.estimator.base import cost_and_latency
    from vinelm.estimator.sizes_by_outcome import SizesByStops

    table, cells, _ = bought(made, 3, share=0.2)
    timed = np.random.default_rng(0).random(cells.n_requests)[cells.request] < 0.5
    partly = replace(cells, latency_s=np.where(timed, cells.latency_s, np.nan))
    none = replace(cells, latency_s=np.full(len(cells), np.nan))
    whole, some, no = (cost_and_latency(one, table.catalog, SizesByStops(one)) for one in (cells, partly, none))
    assert np.array_equal(whole[0].mean, some[0].mean)  # dollars are those of all rows
    assert np.isfinite(some[1].mean).all()
    assert np.isfinite(some[1].mean_var).all()
    reached = cells.count > 5
    assert np.abs(some[1].mean[reached] / whole[1].mean[reached] - 1.0).mean() < 0.15
    assert some[1].mean_var[reached].mean() > whole[1].mean_var[reached].mean()
    assert not no[1].mean.any()
