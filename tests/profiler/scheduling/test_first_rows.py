"""A run stops by itself when all first rows of a stage fail alike: the workflow is at fault, not a model."""

import os
import re
from dataclasses import replace

import pytest
from kit.toys.profiling import State, ToyBackend, catalog_for, cost_of, generate, new_store, repair, toy

from vinelm.profiler import ExecutionConfig, ProfileSettings, profile
from vinelm.profiler.scheduling.observed_cells import BROKEN_AFTER, FirstRows
from vinelm.rows.observation import Observation

BROKEN = "TOY_BROKEN_STAGE"
"""Names the stage whose environment is broken: its code stays the same, so that its rows could be kept."""


def broken_generate(state: State, model) -> State:
    out = generate(state, model)
    return {**out, **({} if os.environ.get(BROKEN) != "generate" else {}["nowhere"])}


def broken_repair(state: State, model) -> State:
    out = repair(state, model)
    return {**out, **({} if os.environ.get(BROKEN) != "repair" else {}["nowhere"])}


def build_with(vine):
    from kit.toys.profiling import check, finished
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", broken_generate))
    graph.add_node("repair", vine.stage("repair", broken_repair))
    graph.add_node("check", check)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "check")
    graph.add_edge("repair", "check")
    graph.add_conditional_edges("check", vine.route(finished, again="repair", end=END), ["repair", END])
    return graph


def run(path, workflow, backend=None, **settings):
    notes = []
    with new_store(path, workflow) as store:
        result = profile(
            workflow, catalog_for(workflow), {"test": backend or ToyBackend()}, store, ProfileSettings(on_note=notes.append,
            sampler=settings.pop("sampler", "exhaustive"), **settings),
        )  # fmt: skip
        return result, store.observations(), store.committed_usd(), notes


@pytest.fixture(params=["generate", "repair"])
def broken_stage(request, monkeypatch):
    monkeypatch.setenv(BROKEN, request.param)
    return request.param


@pytest.fixture
def broken_first_stage(monkeypatch):
    monkeypatch.setenv(BROKEN, "generate")


def by_cell(rows):
    return sorted((replace(row, in_flight=0) for row in rows), key=lambda row: (row.request_id, row.prefix))


@pytest.mark.usefixtures("broken_first_stage")
@pytest.mark.parametrize("workers", [1, 3, 16])
@pytest.mark.parametrize("caps", [{}, {"coverage": 0.9}, {"budget_usd": 1.0}], ids=str)
def test_a_broken_first_stage_stops_the_run_at_the_same_rows(tmp_path, workers, caps):
    execution = ExecutionConfig(isolation="thread", workers=workers)
    result, rows, paid, _ = run(tmp_path / "s.db", toy(n_requests=20, build=build_with), execution=execution, **caps)
    assert (result.stopped_by, result.executed) == ("broken", BROKEN_AFTER)
    assert {row.request_id for row in rows} == {"q0", "q1", "q2", "q3"}
    assert paid == pytest.approx(sum(row.cost_usd for row in rows))
    words = r"stage 'generate' is broken: all of its first 8 rows .* \(tool: KeyError at test_first_rows.py:\d+\), .*"
    assert re.fullmatch(words + re.escape(f"${paid:.4f}"), result.message)


@pytest.mark.parametrize("workers", [3, 16])
def test_a_broken_stage_stops_any_number_of_workers_at_the_same_rows(tmp_path, broken_stage, workers):
    workflow = toy(n_requests=20, build=build_with)
    execution = ExecutionConfig(isolation="thread", workers=workers)
    result, rows, _, _ = run(tmp_path / "s.db", workflow, execution=execution, sampler="cascade")
    assert result.stopped_by == "broken"
    assert sum(row.stage == broken_stage for row in rows) >= BROKEN_AFTER
    alone = run(tmp_path / "alone.db", workflow, sampler="cascade")
    assert by_cell(rows) == by_cell(alone[1])


@pytest.mark.parametrize("sampler", ["exhaustive", pytest.param("cascade", marks=pytest.mark.long)])
def test_after_the_repair_the_rows_are_executed_again(tmp_path, broken_stage, sampler, monkeypatch):
    workflow = toy(n_requests=12, build=build_with)
    stopped, _, lost, _ = run(tmp_path / "s.db", workflow, sampler=sampler)
    assert stopped.stopped_by == "broken"
    monkeypatch.delenv(BROKEN)
    result, rows, paid, notes = run(tmp_path / "s.db", workflow, sampler=sampler)
    whole, undisturbed, price, _ = run(tmp_path / "whole.db", workflow, sampler=sampler)
    assert by_cell(rows) == by_cell(undisturbed)
    assert (result.stopped_by, result.failures) == (whole.stopped_by, {})
    assert price < paid <= price + lost + 1e-9  # the money is spent
    assert len(notes) == 1
    assert re.fullmatch(r"\d+ rows of a stage that was broken are executed again; what they cost .*", notes[0])


@pytest.mark.usefixtures("broken_first_stage")
def test_a_run_that_is_told_to_goes_on(tmp_path):
    workflow = toy(n_requests=20, build=build_with)
    result, rows, _, _ = run(tmp_path / "s.db", workflow, keep_going=True)
    assert (result.stopped_by, len(rows)) == ("complete", 40)


def test_a_model_that_always_fails_is_no_reason_to_stop(tmp_path):
    backend = ToyBackend(before=lambda request_id, prefix: "server" if prefix[-1] == "m1" else None)
    result, rows, _, _ = run(tmp_path / "s.db", toy(n_requests=20), backend)
    assert result.stopped_by == "complete"
    assert result.failures == {"server": sum(row.model == "m1" for row in rows)}


def test_a_dead_provider_is(tmp_path):
    backend = ToyBackend(before=lambda request_id, prefix: "server")
    result, rows, _, _ = run(tmp_path / "s.db", toy(n_requests=20), backend)
    assert (result.stopped_by, len(rows)) == ("broken", BROKEN_AFTER)


@pytest.mark.usefixtures("broken_first_stage")
def test_a_killed_run_stops_at_the_same_row(tmp_path):
    """What counts is the order of the paths, not when a row was written."""
    workflow = toy(n_requests=20, build=build_with)
    for calls in (3, 6):
        assert run(tmp_path / "s.db", workflow, budget_calls=calls)[0].stopped_by == "budget"
    result, rows, _, _ = run(tmp_path / "s.db", workflow)
    assert (result.stopped_by, len(rows)) == ("broken", BROKEN_AFTER)


def row(model, failure="tool", detail="KeyError at app.py:3", stage="generate"):
    return Observation(
        request_id="q", prefix=(model,), stage=stage, success=None if failure else True, stopped=None,
        cost_usd=cost_of("q", ("m0",)), latency_s=1.0, failure=failure, detail=detail,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "is_broken"),
    [
        ([row(f"m{i % 2}") for i in range(8)], True),
        ([row("m0") for _ in range(12)], False),
        ([*[row("m0") for _ in range(9)], row("m1")], True),
        ([row("m0", failure=None), *[row(f"m{i % 2}") for i in range(30)]], False),
        ([*[row(f"m{i % 2}") for i in range(4)], *[row(f"m{i % 2}", detail="ValueError") for i in range(20)]], False),
        ([row(f"m{i % 2}", "crash", f"exit code 1: text {i}") for i in range(8)], True),
        ([row(f"m{i % 2}", stage="generate" if i % 2 else "repair") for i in range(14)], False),
    ],
)
def test_what_counts_as_broken(rows, is_broken):
    first = FirstRows(toy().template)
    said = [first.add(one) for one in rows]
    assert any(said) == is_broken
    assert bool(first.broken_cells()) == is_broken
