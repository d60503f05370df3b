"""Without checkpoints: one row per cell, every path paid in full, the ratio that the table's reach and costs give."""

import random
import threading
import time

import pytest
from profiling_toy import ToyBackend, catalog_for, cost_of, new_store, reachable, toy

from vinelm.errors import ConfigError
from vinelm.profiler import ExecutionConfig, profile


def run(store, workflow, backend=None, **settings):
    backends = {"test": backend or ToyBackend()}
    settings = {"sampler": "exhaustive", "checkpoints": False} | settings
    return profile(workflow, catalog_for(workflow), backends, store, **settings)


def naive_cells(workflow):
    """Every cell of every leaf path, as often as it is paid: once per leaf path that goes through it or would."""
    template = workflow.template
    width = len(template.models)
    for request_id, prefix in reachable(workflow):
        yield from [(request_id, prefix)] * width ** (template.depth - len(prefix))


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("stop", ["workflow", "oracle"])
def test_every_leaf_path_is_paid_in_full(tmp_path, stop, workers):
    workflow, backend = toy(stop=stop), ToyBackend()
    execution = ExecutionConfig(isolation="thread", workers=workers)
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, backend, execution=execution)
        cells = {(row.request_id, row.prefix) for row in store.observations()}
    assert sorted(backend.calls) == sorted(naive_cells(workflow))
    assert cells == set(reachable(workflow))
    assert result.stopped_by == "complete"
    assert result.committed_usd == pytest.approx(sum(cost_of(*cell) for cell in naive_cells(workflow)))
    assert result.naive_usd == pytest.approx(result.committed_usd)
    assert result.spent_usd == pytest.approx(sum(cost_of(*cell) for cell in cells))


def test_it_goes_on_where_it_was(tmp_path):
    workflow = toy()
    first, second = ToyBackend(), ToyBackend()
    whole = sum(cost_of(*cell) for cell in naive_cells(workflow))
    with new_store(tmp_path / "s.db", workflow) as store:
        stopped = run(store, workflow, first, budget_usd=whole / 2)
        assert stopped.stopped_by == "budget"
        assert stopped.committed_usd <= whole / 2
        result = run(store, workflow, second)
    again = len(first.calls) + len(second.calls) - len(list(naive_cells(workflow)))
    assert 0 <= again < workflow.template.depth  # the path that was cut short
    assert result.stopped_by == "complete"


@pytest.mark.parametrize("cap", [{"budget_usd": 0.02}, {"budget_usd": 0.1}, {"budget_calls": 61}], ids=str)
def test_a_cap_cuts_the_same_path_short_with_any_number_of_workers(tmp_path, cap):
    """Units take random times, so that paths end in any order."""
    workflow, rng, bought = toy(n_requests=20), random.Random(1), []
    for workers in (1, 4):
        backend = ToyBackend(before=lambda *_: time.sleep(rng.random() * 0.003))
        with new_store(tmp_path / f"{workers}.db", workflow) as store:
            result = run(store, workflow, backend, execution=ExecutionConfig(isolation="thread", workers=workers), **cap)
            rows = sorted(store.observations(), key=lambda row: (row.request_id, row.prefix))
        assert result.stopped_by == "budget"
        bought.append((sorted(backend.calls), rows, pytest.approx(result.committed_usd)))
    assert bought[0] == bought[1]


def test_far_from_a_cap_paths_run_side_by_side(tmp_path):
    workflow, meet = toy(), threading.Barrier(3, timeout=20)
    backend = ToyBackend(before=lambda *_: len(backend.calls) <= 3 and meet.wait() and None)
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, backend, execution=ExecutionConfig(isolation="thread", workers=3), budget_usd=5.0)
    assert result.stopped_by == "complete"


def test_only_the_exhaustive_sampler_can(tmp_path):
    workflow = toy()
    with new_store(tmp_path / "s.db", workflow) as store:
        for settings in ({"sampler": "cascade"}, {"coverage": 0.5}):
            with pytest.raises(ConfigError, match='use sampler="exhaustive", and no coverage'):
                run(store, workflow, **settings)
