"""Stores of templates that branch grow: what a change does not touch stays, and an arm that was missing is bought."""

import pytest
from kit.toys.branching import BranchingBackend, branching, reachable
from kit.toys.profiling import catalog_for

from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.template import END, Branch, Loop, Stage, Template
from vinelm.traces import ObservationStore

pytestmark = pytest.mark.long

MODELS = ("m0", "m1")


def run(path, workflow, backend=None, **settings):
    """Returns the calls of this run, what growth said, and the rows."""
    backend, notes = backend or BranchingBackend(), []
    identity = store_identity(workflow, catalog_for(workflow), {"test": backend})
    with ObservationStore.open_or_create(path, identity) as store:
        profile(
            workflow,
            catalog_for(workflow),
            {"test": backend},
            store,
            ProfileSettings(sampler="exhaustive", on_note=notes.append, **settings),
        )
        return backend.calls, " ".join(notes), store.observations()


def cells(rows):
    return {(row.request_id, row.prefix): row for row in rows}


def stages():
    return {
        name: Stage(name, MODELS, answerable=name in ("router", "write")) for name in ("router", "search", "grade", "write")
    }


def test_a_model_is_added_and_no_row_is_lost(tmp_path):
    _, _, before = run(tmp_path / "s.db", branching())
    workflow = branching(n_models=3)
    calls, _, rows = run(tmp_path / "s.db", workflow)
    wanted = {(row["request_id"], row["prefix"]) for row in reachable(workflow)}
    assert set(cells(rows)) == wanted
    assert set(calls) == wanted - set(cells(before))
    assert cells(rows).items() >= cells(before).items()


def test_rows_that_went_where_no_arm_was_are_bought_again_when_there_is_one(tmp_path):
    known = stages()
    other = (known["grade"], known["search"], known["write"])
    template = Template((known["router"], Branch({"write": (known["write"],), "stop": END, "other": other})))
    _, _, before = run(tmp_path / "s.db", branching(template=template))
    lost = {cell for cell, row in cells(before).items() if row.failure == "unexpected_arm"}
    assert lost
    workflow = branching()
    calls, notes, rows = run(tmp_path / "s.db", workflow)
    assert f"the template changed, which had no arm for them: {len(lost)}" in notes
    wanted = {(row["request_id"], row["prefix"]) for row in reachable(workflow)}
    assert set(cells(rows)) == wanted
    assert set(calls) == (wanted - set(cells(before))) | lost
    assert {row.failure for row in rows} == {None}


def test_rows_of_a_chain_hold_where_a_branch_is_added(tmp_path):
    """They did not say which stage came next, since there was one."""

    class Searching(BranchingBackend):
        def answer(self, model, call, prompt_chars):
            text, usage = super().answer(model, call, prompt_chars)
            return {"router": "search", "grade": "good"}.get(call.stage, text), usage

    chain = branching(template=Template(tuple(stages().values())))
    _, _, before = run(tmp_path / "s.db", chain, Searching())
    assert {row.arm for row in before} == {None}
    calls, _, rows = run(tmp_path / "s.db", branching(), Searching())
    assert calls == []
    assert {row.stage: row.arm for row in rows} == {"router": "search", "search": "grade", "grade": "write", "write": None}
    assert set(cells(rows)) == set(cells(before))


def test_an_arm_that_is_taken_away_takes_its_rows_with_it(tmp_path):
    _, _, before = run(tmp_path / "s.db", branching())
    known = stages()
    once = Loop((known["search"], known["grade"]), 1)
    template = Template((known["router"], Branch({"search": (once,), "write": (), "stop": END}), known["write"]))
    calls, notes, rows = run(tmp_path / "s.db", branching(template=template))
    gone = {cell for cell, row in cells(before).items() if row.stage == "grade" and row.arm == "search"}
    assert gone
    assert "the template has no arm 'search' after router > search > grade" in notes
    assert set(calls) == {cell for cell in gone if len(cell[1]) == 3}  # once more: now they fail
    assert {cells(rows)[cell].failure for cell in calls} == {"unexpected_arm"}
