"""Coverage: exact when everything is run, close before, for any template."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.tables import random_table

from vinelm.profiler import CascadeSampler, coverage_of
from vinelm.profiler.scheduling.coverage import Coverage


def rows_reached(table):
    return [
        table.observation(r, node)
        for r in range(len(table.request_ids))
        for node in range(1, len(table.trie))
        if table.reached[r, node]
    ]


@given(
    seed=st.integers(0, 10_000),
    n_requests=st.integers(1, 6),
    n_models=st.integers(1, 3),
    depth=st.integers(2, 4),
    stop=st.sampled_from(["oracle", "workflow"]),
)
def test_it_is_exact_once_everything_is_run(seed, n_requests, n_models, depth, stop):
    table = random_table(seed, n_requests=n_requests, n_models=n_models, depth=depth, stop=stop)
    account = Coverage(table.template, n_requests)
    assert account.fraction == 0.0
    for row in rows_reached(table):
        assert not account.is_complete
        assert account.fraction < 1.0
        account.add(row)
    assert account.is_complete
    assert account.fraction == 1.0
    assert account.exhaustive_usd() == pytest.approx(table.exhaustive_cost_usd)
    assert account.naive_usd() == pytest.approx(table.naive_cost_usd)
    counts = [int(table.reached[:, level].sum()) for level in table.trie.levels[1:]]
    assert account.counts_per_depth == tuple(counts)


def sampled(table, seed, share):
    """Rows of a cascade profile that really covers ``share``."""
    sampler = CascadeSampler(table.template, table.request_ids, seed)
    rows, spent = {}, 0.0
    for request_id, path, *_ in sampler.propose(0, ()):
        r = table.request_ids.index(request_id)
        for k in range(1, len(path) + 1):
            node = table.trie.node(path[:k])
            if (r, node) not in rows:
                rows[r, node] = table.observation(r, node)
                spent += table.cost_usd[r, node]
                if spent >= share * table.exhaustive_cost_usd:
                    return list(rows.values())
            if table.ended[r, node]:
                break
    raise AssertionError("endless")


@pytest.mark.parametrize("stop", ["oracle", "workflow"])
def test_the_estimated_denominator_is_close_at_a_few_percent(stop):
    table = random_table(3, n_requests=400, n_models=4, depth=3, stop=stop)
    ratios = []
    for seed in range(8):
        account = coverage_of(sampled(table, seed, 0.05), table.template, 400)
        ratios.append([account.fraction / 0.05, account.naive_usd() / table.naive_cost_usd])
    assert np.all(np.abs(np.mean(ratios, axis=0) - 1) < 0.05)
    assert np.all(np.abs(np.array(ratios) - 1) < 0.25)


def test_dear_models_never_run_do_not_make_it_infinite_or_zero():
    table = random_table(1, n_requests=50, n_models=3, depth=2)
    account = Coverage(table.template, 50)
    account.add(table.observation(0, table.trie.node(("m0",))))
    assert 0.0 < account.fraction < 0.05
    assert np.isfinite(account.naive_usd())


def test_models_that_a_stage_does_not_allow_count_for_nothing():
    from vinelm.rows.observation import Observation
    from vinelm.template import Stage, Template

    template = Template((Stage("plan", ("a",)), Stage("solve", ("b", "c"))), "workflow")
    account = Coverage(template, 1)
    row = {"request_id": "q", "success": False, "stopped": False, "latency_s": 0.0}
    account.add(Observation(prefix=("a",), stage="plan", cost_usd=1.0, **row))
    assert not account.is_complete
    account.add(Observation(prefix=("a", "b"), stage="solve", cost_usd=2.0, **row))
    account.add(Observation(prefix=("a", "c"), stage="solve", cost_usd=4.0, **row))
    assert account.is_complete
    assert account.exhaustive_usd() == 7.0
    assert account.naive_usd() == 8.0


def test_free_models_are_covered_by_the_cell():
    table = random_table(2, n_requests=40, n_models=2, depth=2)
    table.cost_usd[:] = 0.0
    account = Coverage(table.template, 40)
    rows = rows_reached(table)
    fractions = []
    for row in rows:
        account.add(row)
        fractions.append(account.fraction)
    assert 0.0 < fractions[0] < 0.05
    assert fractions[len(rows) // 2] == pytest.approx(0.5, abs=0.1)
    assert fractions[-1] == 1.0
    assert account.exhaustive_usd() == 0.0
