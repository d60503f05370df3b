import dataclasses
import itertools

import numpy as np
import pytest
from kit.tables import random_table
from science.recorded_table import RecordedTable

from vinelm.errors import VineLMError
from vinelm.trie.annotated_trie import AnnotatedTrie


@pytest.mark.parametrize("stop", ["oracle", "workflow"])
@pytest.mark.parametrize("seed", range(4))
def test_path_metrics_of_exact_annotations_are_the_means_of_the_table(stop, seed):
    """The sums of docs/mathematics.md, over exact conditionals, give what following each path shows."""
    table = random_table(seed, n_requests=40, n_models=3, depth=3, stop=stop)
    annotated = table.annotate()
    nodes = np.arange(1, len(table.trie))
    np.testing.assert_allclose(annotated.accuracy[nodes], table.answer_success[:, nodes].mean(axis=0), atol=1e-12)
    spent = table.cost_usd * table.reached
    for node in nodes:
        path = table.trie.path(int(node))
        assert annotated.path_cost_usd[node] == pytest.approx(spent[:, path].sum(axis=1).mean() + table.cost_usd[:, 0].mean())
        assert annotated.reach[node] == pytest.approx(table.reached[:, node].mean())


def test_latency_is_not_discounted_and_full_cost_neither():
    annotated = random_table(1, n_requests=20, n_models=2, depth=3).annotate()
    for node in range(len(annotated.trie)):
        path = [0, *annotated.trie.path(node)]
        assert annotated.path_latency_s[node] == pytest.approx(annotated.latency_s[path].sum())
        assert annotated.full_cost_usd[node] == pytest.approx(annotated.cost_usd[path].sum())
        assert annotated.path_latency_var[node] == pytest.approx(annotated.latency_var[path].sum())


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_quantiles_of_a_path_know_that_a_long_request_is_long_everywhere(level):
    """Against the quantiles of log-normal invocations whose size is the request's, 20,000 requests."""
    rng = np.random.default_rng(0)
    annotated = random_table(3, n_requests=5, n_models=2, depth=4).annotate()
    size = rng.lognormal(-0.125, 0.5, (20_000, 1))
    seconds = size * rng.lognormal(-0.045, 0.3, (20_000, 4))
    own, common = np.exp(0.25 + 0.09) - 1.0, np.exp(0.25) - 1.0
    ones, zero = np.ones(len(annotated.trie)), np.zeros(len(annotated.trie))
    ones[0] = 0.0
    known = dataclasses.replace(
        annotated, latency_s=ones, latency_var=own * ones, latency_size_var=common * ones, cost_usd=ones, cost_var=own * ones
    )
    true = np.quantile(seconds.cumsum(axis=1), level, axis=0)
    for depth, expected in enumerate(true, start=1):
        end = int(annotated.trie.levels[depth][0])
        assert known.path_latency_quantile(level)[end] == pytest.approx(expected, rel=0.03)
    deepest = int(annotated.trie.levels[4][0])
    unaware = known.full_cost_quantile(level)[deepest]
    assert abs(unaware / true[-1] - 1.0) > 0.06
    assert known.latency_quantile(level)[1] == pytest.approx(np.quantile(seconds[:, 0], level), rel=0.03)
    assert known.path_latency_quantile(level)[0] == 0.0
    assert dataclasses.replace(known, latency_s=zero).latency_quantile(level)[1] == 0.0


def test_oracle_stop_is_the_papers_recursion_and_monotone():
    annotated = random_table(2, n_requests=50, n_models=3, depth=3, stop="oracle").annotate()
    trie = annotated.trie
    for node in range(1, len(trie)):
        up = int(trie.parent[node])
        base = annotated.accuracy[up] if up else 0.0
        reach = annotated.reach[node]
        assert reach == pytest.approx(1.0 - base)
        assert annotated.accuracy[node] == pytest.approx(base + (1.0 - base) * annotated.success[node] if reach else base)
        assert annotated.accuracy[node] >= base - 1e-12


def test_shapes_and_nan_are_refused():
    good = random_table(0, n_requests=5, n_models=2, depth=2).annotate()
    arrays = {
        name: getattr(good, name)
        for name in ("success", "stop", "stop_success", "cost_usd", "cost_var", "latency_s", "latency_var")
    }
    with pytest.raises(VineLMError, match="shape"):
        AnnotatedTrie(good.trie, good.template, good.catalog, **arrays | {"stop": np.zeros(3)})
    with pytest.raises(VineLMError, match="not finite"):
        AnnotatedTrie(good.trie, good.template, good.catalog, **arrays | {"cost_usd": np.full(len(good.trie), np.nan)})


def test_engines_are_shared_by_models_that_name_the_same():
    annotated = random_table(0, n_requests=5, n_models=3, depth=2).annotate()
    assert annotated.engines == ("east", "west")
    assert annotated.engine[0] == -1
    for node in range(1, len(annotated.trie)):
        model = annotated.trie.prefix(node)[-1]
        assert annotated.engines[annotated.engine[node]] == annotated.catalog[model].engine


def test_costs_of_exhaustive_and_naive_profiling():
    table = random_table(3, n_requests=10, n_models=2, depth=3, stop="oracle")
    naive = 0.0
    for r, path in itertools.product(range(10), np.flatnonzero(table.trie.is_leaf)):
        for node in table.trie.path(int(path)):
            naive += table.cost_usd[r, node]
            if table.ended[r, node]:
                break
    assert table.naive_cost_usd == pytest.approx(naive)
    assert table.exhaustive_cost_usd < naive


def test_rows_and_observations_are_cells_of_the_table():
    table = random_table(4, n_requests=6, n_models=2, depth=2)
    part = table.rows([4, 1])
    assert part.request_ids == (table.request_ids[4], table.request_ids[1])
    row = part.observation(0, 3)
    assert row.request_id == table.request_ids[4]
    assert row.prefix == table.trie.prefix(3)
    assert row.success == bool(table.success[4, 3])


def test_independent_answers_repeat_at_every_depth():
    base = random_table(5, n_requests=6, n_models=3, depth=3)
    rng = np.random.default_rng(0)
    success, stopped = rng.random((2, 6, 3)) < 0.5
    cost, latency = rng.random((2, 6, 3))
    table = RecordedTable.from_answers(
        base.template, base.catalog, base.request_ids, success=success, stopped=stopped, cost_usd=cost, latency_s=latency
    )
    for node in range(1, len(table.trie)):
        model = table.trie.models.index(table.trie.prefix(node)[-1])
        assert (table.success[:, node] == success[:, model]).all()
        assert (table.cost_usd[:, node] == cost[:, model]).all()
    assert not table.success[:, 0].any()
    assert table.cost_usd[:, 0].sum() == 0


def test_a_failed_invocation_ends_its_request_without_an_answer():
    table = random_table(6, n_requests=8, n_models=2, depth=2, stop="oracle")
    failed = np.zeros_like(table.success)
    failed[0, 1] = True
    success = table.success & ~failed
    broken = dataclasses.replace(table, success=success, failed=failed)
    assert not broken.reached[0, 2]
    row = broken.observation(0, 1)
    assert (row.failure, row.success, row.stopped) == ("unknown", None, None)
    assert row.ended("oracle")
    assert broken.rows([0]).ended[0, 1]
    annotated = broken.annotate()
    assert annotated.stop[1] > annotated.stop_success[1]
