"""A graph that branches is profiled like a chain: right cells, once each, in the same order whatever happens."""

import pytest
from branching_toy import BranchingBackend, branching, cost_of, new_store, reachable
from profiling_toy import catalog_for

from vinelm.profiler import ExecutionConfig, profile


def run(store, workflow, backend=None, **settings):
    return profile(workflow, catalog_for(workflow), {"test": backend or BranchingBackend()}, store, **settings)


def rows_of(tmp_path, workflow, name="store.db", **settings):
    with new_store(tmp_path / name, workflow) as store:
        run(store, workflow, **settings)
        return store.observations()


@pytest.mark.parametrize("sampler", ["exhaustive", "cascade"])
def test_without_a_cap_every_reached_cell_is_run_once(tmp_path, sampler):
    workflow, backend = branching(), BranchingBackend()
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, backend, sampler=sampler)
        rows = store.observations()
    wanted = list(reachable(workflow))
    cells = [(row["request_id"], row["prefix"]) for row in wanted]
    assert {row["arm"] for row in wanted} == {"search", "grade", "write", None}
    assert sorted(backend.calls) == sorted(cells)
    if sampler == "exhaustive":
        assert backend.calls == cells
    by_cell = {(row["request_id"], row["prefix"]): row for row in wanted}
    for row in rows:
        expected = by_cell[row.request_id, row.prefix]
        assert {name: getattr(row, name) for name in expected} == expected
    assert result.stopped_by == "complete"
    assert result.coverage == 1.0
    total = sum(cost_of(*cell) for cell in cells)
    assert result.spent_usd == pytest.approx(total)
    assert result.exhaustive_usd == pytest.approx(total)


@pytest.mark.parametrize("coverage", [0.3, 1.0])
@pytest.mark.parametrize("sampler", ["exhaustive", "cascade"])
def test_any_number_of_workers_buys_the_same_rows(tmp_path, sampler, coverage):
    workflow = branching(n_requests=12)
    one = rows_of(tmp_path, workflow, "one.db", sampler=sampler, coverage=coverage)
    place = ExecutionConfig(isolation="thread", workers=4)
    many = rows_of(tmp_path, workflow, "many.db", sampler=sampler, coverage=coverage, execution=place)
    assert {(row.request_id, row.prefix): row for row in many} == {(row.request_id, row.prefix): row for row in one}


def test_a_budget_is_kept_and_the_capped_run_is_a_prefix(tmp_path):
    workflow = branching(n_requests=10)
    whole = rows_of(tmp_path, workflow, "whole.db", coverage=0.9)
    for cap in (0.0, 0.004, 0.01):
        with new_store(tmp_path / f"{cap}.db", workflow) as store:
            result = run(store, workflow, coverage=0.9, budget_usd=cap)
            rows = store.observations()
            assert result.stopped_by == "budget"
            assert store.committed_usd() == pytest.approx(result.spent_usd)
        assert rows == whole[: len(rows)]
        assert sum(row.cost_usd for row in rows) <= cap
    assert len(rows) > 1


def test_the_same_seed_buys_the_same_rows_and_another_seed_others(tmp_path):
    workflow = branching(n_requests=20)
    first = rows_of(tmp_path, workflow, "a.db", coverage=0.3, seed=1)
    assert first == rows_of(tmp_path, workflow, "b.db", coverage=0.3, seed=1)
    assert first != rows_of(tmp_path, workflow, "c.db", coverage=0.3, seed=2)
