"""The loop: right cells, once each, in the same order whatever happens; money never past its cap."""

import os
import signal
from dataclasses import replace
from functools import partial

import pytest
from kit.toys.profiling import ToyBackend, catalog_for, cost_of, expected, new_store, reachable, toy
from kit.toys.rounds import TwoRounds

from vinelm.errors import ConfigError, DatasetError, StoreError
from vinelm.profiler import Look, ProfileLimits, ProfileSettings, profile
from vinelm.profiler.sampling.runs import run_of
from vinelm.traces import ObservationStore


def run(store, workflow, backend=None, **settings):
    return profile(workflow, catalog_for(workflow), {"test": backend or ToyBackend()}, store, ProfileSettings(**settings))


def rows_of(tmp_path, workflow, name="store.db", **settings):
    with new_store(tmp_path / name, workflow) as store:
        run(store, workflow, **settings)
        return store.observations()


@pytest.mark.parametrize("stop", ["oracle", "workflow"])
@pytest.mark.parametrize("sampler", ["exhaustive", "cascade"])
def test_without_a_cap_every_reached_cell_is_run_once(tmp_path, stop, sampler):
    workflow, backend = toy(stop=stop), ToyBackend()
    told = []
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, backend, sampler=sampler, on_progress=told.append)
        rows = store.observations()
    cells = list(reachable(workflow))
    assert sorted(backend.calls) == sorted(cells)
    if sampler == "exhaustive":
        assert backend.calls == cells
    for row in rows:
        wanted = expected(row.request_id, row.prefix)
        assert {name: getattr(row, name) for name in wanted} == wanted
    total = sum(cost_of(*cell) for cell in cells)
    assert result.stopped_by == "complete"
    assert (result.coverage, result.executed, sum(result.counts)) == (1.0, len(cells), len(cells))
    assert result.spent_usd == pytest.approx(total)
    assert result.exhaustive_usd == pytest.approx(total)
    assert result.committed_usd == pytest.approx(total)
    assert [one.executed for one in told] == list(range(1, len(cells) + 1))


def test_the_same_seed_buys_the_same_rows_and_another_seed_others(tmp_path):
    workflow = toy(n_requests=20)
    first = rows_of(tmp_path, workflow, "a.db", coverage=0.3, seed=1)
    assert first == rows_of(tmp_path, workflow, "b.db", coverage=0.3, seed=1)
    assert first != rows_of(tmp_path, workflow, "c.db", coverage=0.3, seed=2)


def test_a_larger_coverage_begins_with_the_smaller_where_both_are_steps_of_one_profile(tmp_path):
    workflow = toy(n_requests=20)
    small = rows_of(tmp_path, workflow, "a.db", whole=ProfileLimits(coverage=0.5), coverage=0.1)
    large = rows_of(tmp_path, workflow, "b.db", coverage=0.5)
    assert 0 < len(small) < len(large)
    assert large[: len(small)] == small


def test_a_step_ends_where_its_rows_are_to_be_looked_at_and_the_profile_goes_on_from_there(tmp_path):
    workflow = toy(n_requests=20)
    large = rows_of(tmp_path, workflow, "b.db", coverage=0.5)
    dollars = [sum(row.cost_usd for row in large[: n + 1]) for n in range(len(large))]
    looks = {
        "coverage": Look(0.1),
        "dollars": Look(1.0, usd=dollars[6] - 1e-9),  # reached with the seventh row
        "rows": Look(1e-9, usd=0.0, least_rows=11),
    }
    for name, look in looks.items():
        told = []
        with new_store(tmp_path / f"{name}.db", workflow) as store:
            result = run(store, workflow, coverage=0.5, look=look, on_progress=told.append)
            assert result.stopped_by == "look"
            assert store.observations() == large[: len(store)]
            assert (told[-1].target, told[-1].look_usd) == (look.coverage, look.usd if name == "dollars" else None)
            at = len(store)
            assert run(store, workflow, coverage=0.5).stopped_by == "coverage"
        assert at == {"dollars": 7, "rows": 11}.get(name, at) < len(large)


def test_a_step_ends_with_the_row_that_completes_the_runs_that_it_waits_for(tmp_path):
    workflow = toy(n_requests=8)
    path = (workflow.template.first_stages[0].models[0],) * workflow.template.depth
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, coverage=1.0, look=Look(1.0, lacking=(path,)))
        rows = store.observations()

    def complete(rows):
        cells = {(row.request_id, row.prefix): row for row in rows}
        return sum(run_of(cells, workflow.template, request.id, path)[1] for request in workflow.requests)

    assert result.stopped_by == "look"
    assert (complete(rows), complete(rows[:-1])) == (8, 7)


def test_coverage_stops_at_the_first_row_that_reaches_it(tmp_path):
    workflow = toy(n_requests=30)
    told = []
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, coverage=0.4, on_progress=told.append)
    assert result.stopped_by == "coverage"
    assert result.coverage >= 0.4
    assert all(one.coverage < 0.4 for one in told[:-1])


def test_a_budget_is_kept_and_the_capped_run_is_a_prefix(tmp_path):
    """Of the same whole: by its limits the sampler takes its shares of the dollars."""
    workflow = toy(n_requests=10)
    whole = rows_of(tmp_path, workflow, "whole.db", coverage=0.9)
    costs = [row.cost_usd for row in whole]
    for cap in (0.0, 0.004, 0.01):
        with new_store(tmp_path / f"{cap}.db", workflow) as store:
            result = run(store, workflow, whole=ProfileLimits(coverage=0.9), coverage=0.9, budget_usd=cap)
            rows = store.observations()
            assert result.stopped_by == "budget"
            assert "is left" in result.message
            assert store.committed_usd() == pytest.approx(result.spent_usd)
        assert rows == whole[: len(rows)]
        assert sum(costs[: len(rows)]) <= cap
    assert len(rows) > 1


def test_a_budget_of_calls(tmp_path):
    workflow = toy(n_requests=10)
    whole = rows_of(tmp_path, workflow, "whole.db", coverage=0.9)
    with new_store(tmp_path / "s.db", workflow) as store:
        for n in (3, 3, 7):
            result = run(store, workflow, whole=ProfileLimits(coverage=0.9), coverage=0.9, budget_calls=n)
            assert (result.stopped_by, len(store)) == ("budget", n)
        assert store.observations() == whole[:7]
        run(store, workflow, coverage=0.9)
        assert store.observations() == whole


def test_running_again_buys_nothing(tmp_path):
    workflow = toy(n_requests=10)
    with new_store(tmp_path / "s.db", workflow) as store:
        first = run(store, workflow, coverage=0.3)
        again = run(store, workflow, coverage=0.3)
    assert again == replace(first, executed=0)


def test_ctrl_c_ends_in_good_order_and_resumes(tmp_path):
    workflow = toy(n_requests=10)
    whole = rows_of(tmp_path, workflow, "whole.db", coverage=0.6)

    def interrupt_once(request_id, prefix):
        if len(backend.calls) == 9:
            raise KeyboardInterrupt

    backend = ToyBackend(before=interrupt_once)
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, backend, coverage=0.6)
        assert (result.stopped_by, result.executed) == ("interrupted", 8)
        assert store.observations() == whole[:8]
        assert result.committed_usd > result.spent_usd  # the call may have been billed
        assert store.abandon_open() == 0
        run(store, workflow, backend, coverage=0.6)
        assert store.observations() == whole


CHILD = """
import os, signal, sys
from kit.toys.profiling import *
from vinelm.profiler import ProfileSettings
from vinelm.profiler.runner import profile
path, where, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
left = [n]
def die(*_):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
workflow = toy(n_requests=10)
backend = ToyBackend(before=die if where == "in the call" else None)
store = new_store(path, workflow)
if where == "before the commit":
    from sqlalchemy import event
    seen = lambda conn, cursor, statement, *_: "INTO observations" in statement and die()
    event.listen(store._database._engine, "after_cursor_execute", seen)
profile(workflow, catalog_for(workflow), {"test": backend}, store,
        ProfileSettings(coverage=0.6, on_progress=die if where == "after the row" else None))
"""


def test_kill_9_at_any_point_and_resume_gives_the_undisturbed_store(tmp_path, python):
    workflow = toy(n_requests=10)
    whole = rows_of(tmp_path, workflow, "whole.db", coverage=0.6)
    killed = tmp_path / "killed.db"
    for where, n in (("in the call", 7), ("before the commit", 5), ("after the row", 6)):
        with python.start(CHILD, str(killed), where, str(n)) as child:
            assert child.wait() == -signal.SIGKILL
    with new_store(killed, workflow) as store:
        before = store.observations()
        assert before == whole[: 6 + 4 + 6]
        result = run(store, workflow, coverage=0.6)
        assert result.abandoned == 1  # the last kill's next unit was reserved already; the others were closed by later runs
        assert store.observations() == whole
        with new_store(tmp_path / "whole.db", workflow) as undisturbed:
            for row in whole:
                mine = store.checkpoint(row.request_id, row.prefix)
                assert mine == undisturbed.checkpoint(row.request_id, row.prefix)
        lost = store.committed_usd() - result.spent_usd
    assert lost > 0  # two calls died in flight, charged at their bound


def test_failed_calls_are_rows_and_end_their_request(tmp_path):
    workflow = toy(n_requests=8)

    def fail_some(request_id, prefix):
        return "server" if prefix[-1] == "m1" and int(request_id[1:]) % 2 else None

    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, ToyBackend(before=fail_some), sampler="exhaustive")
        rows = store.observations()
    failed = {(row.request_id, row.prefix) for row in rows if row.failure}
    assert result.stopped_by == "complete"
    assert result.failures == {"server": len(failed)}
    assert ("q1", ("m1",)) in failed
    assert not [row for row in rows if (row.request_id, row.prefix[:-1]) in failed]
    assert all(row.cost_usd > 0 for row in rows if row.failure)


def test_a_refused_key_stops_at_once_and_names_its_variable(tmp_path):
    workflow = toy()
    catalog = catalog_for(workflow)
    secret = type(catalog)(model.model_copy(update={"api_key_env": "TOY_KEY"}) for model in catalog.models)
    backends = {"test": ToyBackend(before=lambda *_: "auth")}
    from vinelm.profiler.execution.fingerprint import store_identity

    with ObservationStore.create(tmp_path / "s.db", store_identity(workflow, secret, backends)) as store:
        with pytest.raises(ConfigError, match="environment variable TOY_KEY"):
            profile(workflow, secret, backends, store)
        assert len(store) == 0
        assert store.abandon_open() == 0


def test_a_store_of_another_workflow_is_refused_before_anything_is_spent(tmp_path):
    workflow, backend = toy(), ToyBackend()
    with new_store(tmp_path / "s.db", workflow) as store:
        for other, words in ((toy(name="other"), "belongs to the workflow 'toy'"),):
            with pytest.raises(StoreError, match=words):
                run(store, other, backend)
        real = ToyBackend()
        real.is_simulated = False
        with pytest.raises(StoreError, match="not of real"):
            run(store, workflow, real)
        assert len(store) == 0
    assert backend.calls == []


def test_one_run_at_a_time(tmp_path):
    workflow, backend = toy(), ToyBackend()
    with new_store(tmp_path / "s.db", workflow) as store, new_store(tmp_path / "s.db", workflow) as other:
        entry = store.reserve("q0", ("m0",), 1.0)
        with store.exclusive(), pytest.raises(StoreError, match=rf"another run is writing to it \(pid {os.getpid()} on "):
            run(other, workflow, backend)
        assert backend.calls == []
        store.settle(entry, 0.0)  # nobody took it for abandoned
        assert run(other, workflow, backend).abandoned == 0


def test_only_the_requests_asked_for_are_run(tmp_path):
    workflow, backend = toy(n_requests=6), ToyBackend()
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, backend, requests=workflow.requests[:2])
        assert {request_id for request_id, _ in backend.calls} == {"q0", "q1"}
        assert result.stopped_by == "complete"
        assert store.request_ids() == ["q0", "q1"]
        more = run(store, workflow, backend, requests=workflow.requests[:3])
        assert {row.request_id for row in store.observations()} == {"q0", "q1", "q2"}
        assert more.coverage == 1.0


def test_a_sampler_of_ones_own_works_in_rounds_and_sees_what_was_paid(tmp_path):
    workflow = toy(n_requests=3, stop="oracle")

    sampler = TwoRounds()
    shown = sampler.shown
    with new_store(tmp_path / "s.db", workflow) as store:
        result = run(store, workflow, sampler=sampler)
        assert result.stopped_by == "sampler"
        first = [("q0", ("m0",)), ("q1", ("m1",))]
        assert shown[0] == []
        assert shown[1] == first
        assert shown[2][:2] == first
        run(store, workflow, sampler=sampler)
        assert shown[3:] == shown[:3]  # a second run goes through the same, and pays nothing


def test_rows_without_their_checkpoint_are_executed_again_to_be_extended(tmp_path):
    workflow, backend = toy(n_requests=1, stop="oracle"), ToyBackend()
    donor = rows_of(tmp_path, workflow, "donor.db")
    broken = next(row for row in donor if not row.success and row.depth == 1)
    with new_store(tmp_path / "s.db", workflow) as store:
        store.add(broken)
        result = run(store, workflow, backend)
        rows = store.observations()
    assert {(row.request_id, row.prefix): row for row in rows} == {(row.request_id, row.prefix): row for row in donor}
    again = backend.calls.count((broken.request_id, broken.prefix))
    assert again == sum(row.prefix[:-1] == broken.prefix for row in rows)
    paid = sum(row.cost_usd for row in rows if row != broken) + again * broken.cost_usd
    assert result.committed_usd == pytest.approx(paid)


@pytest.mark.parametrize(
    ("settings", "kind", "words"),
    [
        ({"coverage": 0.0}, ConfigError, "coverage is 0.0"),
        ({"coverage": 1.5}, ConfigError, "coverage is 1.5"),
        ({"sampler": "random"}, ConfigError, "unknown sampler 'random': use deciding, priced, cascade or exhaustive"),
        ({"budget_usd": -1.0}, ConfigError, "budget is -1.0"),
        ({"budget_usd": float("nan")}, ConfigError, "budget is nan"),
        ({"budget_calls": -1}, ConfigError, "budget is -1 calls"),
        ({"requests": []}, DatasetError, "no request"),
    ],
)
def test_settings_that_make_no_sense(tmp_path, settings, kind, words):
    workflow = toy()
    with new_store(tmp_path / "s.db", workflow) as store, pytest.raises(kind, match=words) as caught:
        partial(run, store, workflow)(**settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limits", [{"coverage": 0.0}, {"budget_usd": float("inf")}, {"budget_calls": -1}], ids=str)
def test_limits_check_themselves(limits):
    with pytest.raises(ConfigError) as caught:
        ProfileLimits(**limits)
    assert caught.value.code == f"{next(iter(limits)).replace('_', '-')}-range"
