"""A store grows: what still holds stays and is not paid for again; the rest is kept apart and may come back."""

import signal
from dataclasses import replace

import pytest
from kit.toys.profiling import State, ToyBackend, catalog_for, new_store, only_right, reachable, repair, toy
from sqlalchemy import text

from vinelm.catalog import Catalog, Price
from vinelm.errors import StoreError
from vinelm.profiler import ExecutionConfig, ProfileLimits, ProfileSettings, profile
from vinelm.requests.workflow import Request
from vinelm.template import Loop, Stage, Template
from vinelm.traces import ObservationStore, check_store, contents_of, export_store, import_export, merge_stores


def cells(rows):
    return {(row.request_id, row.prefix) for row in rows}


def by_cell(rows):
    """What each cell showed; who bought the row, when and how probably is a matter of the store's past."""
    bought = {"sampler": None, "round": None, "probability": None}
    return {(row.request_id, row.prefix): replace(row, **bought) for row in rows}


def run(path, workflow, catalog=None, backend=None, **settings):
    """One run; returns its calls, its notes and the store's rows."""
    backend, notes = backend or ToyBackend(), []
    catalog = catalog or catalog_for(workflow)
    with new_store(path, workflow) if not path.exists() else ObservationStore.open(path) as store:
        profile(workflow, catalog, {"test": backend}, store, ProfileSettings(on_note=notes.append, **settings))
        rows = store.observations()
    assert check_store(path).findings == ()
    return backend.calls, [note for note in notes if "last run had other settings" not in note], rows


def undisturbed(tmp_path, workflow, **settings):
    _, _, rows = run(tmp_path / f"undisturbed-{len(list(tmp_path.iterdir()))}.db", workflow, **settings)
    return rows


def with_model(catalog, name, **changes):
    return Catalog(m.model_copy(update=changes) if m.name == name else m for m in catalog.models)


def changed_repair(state: State, model):
    """Another stage: its source differs."""
    answer = repair(state, model)
    return {**answer, "log": [*state["log"], "repair!"]}


def build_changed(vine):
    from kit.toys.profiling import check, finished, generate
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", generate))
    graph.add_node("repair", vine.stage("repair", changed_repair))
    graph.add_node("check", check)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "check")
    graph.add_edge("repair", "check")
    graph.add_conditional_edges("check", vine.route(finished, again="repair", end=END), ["repair", END])
    return graph


def test_requests_added_removed_and_reordered_keep_the_rows_of_the_others(tmp_path):
    path, six = tmp_path / "s.db", toy(n_requests=6)
    first, _, _ = run(path, toy(n_requests=4))
    changed = [
        replace(six.requests[1], data={"question": "another", "label": 1}) if i == 1 else six.requests[i] for i in (5, 3, 1, 0)
    ]
    workflow = toy(requests=changed)
    calls, notes, rows = run(path, workflow)
    assert {request for request, _ in calls} == {"q5", "q1"}  # q2 went, q4 never came, q0 and q3 stay
    assert cells(rows) == set(reachable(workflow))
    (note,) = notes
    gone, other = (sum(request == one for request, _ in first) for one in ("q2", "q1"))
    assert f"{len(first) - gone - other} of {len(first)} rows stay" in note
    assert f"requests that are no longer in the dataset: {gone}" in note
    assert f"requests whose dataset row changed: {other}" in note
    calls, _, rows = run(path, toy(n_requests=4))  # and back: q2 and the old q1 hold again
    assert calls == []
    assert cells(rows) == set(reachable(toy(n_requests=4)))


def test_a_new_model_leaves_the_paths_of_the_others(tmp_path):
    path = tmp_path / "s.db"
    run(path, toy())
    calls, notes, rows = run(path, toy(n_models=3))
    assert calls
    assert all("m2" in prefix for _, prefix in calls)
    assert by_cell(rows) == by_cell(undisturbed(tmp_path, toy(n_models=3)))
    before = len(list(reachable(toy())))
    said = f"{before} of {before} rows stay; nothing is bought again, only what is new"
    assert notes == [f"model 'm2' added since the last run: {said}"]
    calls, notes, rows = run(path, toy())
    assert calls == []
    assert cells(rows) == set(reachable(toy()))
    assert "stage 'generate' no longer runs on model 'm2'" in notes[0]
    calls, notes, _ = run(path, toy(n_models=3))
    assert calls == []
    assert "earlier rows hold again" in notes[0]


def test_a_changed_price_is_applied_to_the_tokens_and_nothing_is_bought(tmp_path):
    path, workflow = tmp_path / "s.db", toy()
    _, _, before = run(path, workflow)
    with ObservationStore.open(path) as store:
        unknown = before[0]
        with store.database.transaction() as connection:
            connection.execute(text("UPDATE observations SET tokens_in = NULL WHERE row_id = 1"))
        paid = store.committed_usd()
    double = Price(input=2.0, output=8.0, source="a test", as_of="2026-02-02")
    catalog = Catalog(model.model_copy(update={"price": double, "timeout_s": 5.0}) for model in catalog_for(workflow).models)
    calls, notes, rows = run(path, workflow, catalog)
    assert calls == []
    assert rows[0].cost_usd == unknown.cost_usd
    assert [row.cost_usd for row in rows[1:]] == pytest.approx([2 * row.cost_usd for row in before[1:]])
    assert (
        f"prices are applied to the tokens of {len(rows) - 1} rows; 1 rows without token counts keep their dollars" in notes[0]
    )
    with ObservationStore.open(path) as store:
        assert store.committed_usd() == paid  # what was paid is what was paid
        export_store(store, tmp_path / "rows.csv")
    import_export(tmp_path / "rows.csv", tmp_path / "again.db")
    with ObservationStore.open(tmp_path / "again.db") as store:
        assert store.committed_usd() == pytest.approx(sum(row.cost_usd for row in rows))  # nothing counts twice
    _, _, rows = run(path, workflow)
    assert [row.cost_usd for row in rows] == [row.cost_usd for row in before]  # bit for bit


def test_settings_that_decide_no_row_change_nothing(tmp_path):
    path, workflow = tmp_path / "s.db", toy()
    _, _, before = run(path, workflow)
    plain = catalog_for(workflow)
    catalog = Catalog((m.model_copy(update={"timeout_s": 3.0, "engine": "west", "api_key_env": "KEY"}) for m in plain.models),
                      {"test": {"limits": {"west": {"concurrency": 3}}}})  # fmt: skip
    assert run(path, workflow, catalog) == ([], [], before)


def test_a_changed_model_is_bought_again_from_the_first_place_where_it_stands(tmp_path):
    path, workflow = tmp_path / "s.db", toy()
    _, _, before = run(path, workflow)
    lost = [row for row in before if "m1" in row.prefix]
    with ObservationStore.open(path) as store:
        paid = store.committed_usd()
    catalog = with_model(catalog_for(workflow), "m1", max_tokens=200)
    calls, notes, rows = run(path, workflow, catalog)
    assert sorted(calls) == sorted(cells(lost))
    assert f"model 'm1' has other settings (max_tokens 200 instead of 100): {len(lost)}" in notes[0]
    assert by_cell(rows) == by_cell(before)
    with ObservationStore.open(path) as store:
        assert store.committed_usd() == pytest.approx(paid + sum(row.cost_usd for row in lost))
        assert contents_of(store).retired == {"model 'm1' has other settings (max_tokens 200 instead of 100)": len(lost)}
    calls, _, rows = run(path, workflow)
    assert calls == []
    assert by_cell(rows) == by_cell(before)


def test_a_longer_loop_resumes_from_the_states_of_its_end(tmp_path):
    path = tmp_path / "s.db"
    _, _, before = run(path, toy(depth=2))
    calls, _, rows = run(path, toy(depth=3))
    assert calls
    assert all(len(prefix) == 3 for _, prefix in calls)
    assert by_cell(rows) == by_cell(undisturbed(tmp_path, toy(depth=3)))
    calls, notes, rows = run(path, toy(depth=2))
    assert (calls, cells(rows)) == ([], cells(before))
    assert "the template has only 2 invocations" in notes[0]


def test_changed_code_of_a_stage_keeps_what_came_before_it(tmp_path):
    path = tmp_path / "s.db"
    _, _, before = run(path, toy())
    workflow = toy(build=build_changed)
    calls, notes, rows = run(path, workflow)
    assert calls
    assert all(len(prefix) > 1 for _, prefix in calls)
    assert sum(row.depth == 1 for row in rows) == sum(row.depth == 1 for row in before)
    assert "the code of stage 'repair' changed" in notes[0]


@pytest.mark.parametrize("stop", ["workflow", "oracle"])
def test_another_scorer_judges_the_states_and_calls_nothing_for_it(tmp_path, stop):
    path, workflow = tmp_path / "s.db", toy(stop=stop, score=only_right)
    _, _, before = run(path, toy(stop=stop))
    calls, notes, rows = run(path, workflow)
    assert by_cell(rows) == by_cell(undisturbed(tmp_path, workflow))
    assert cells(before).isdisjoint(calls)
    if stop == "workflow":
        assert calls == []
        assert f"{len(before)} of them are scored again from their stored state, without a call" in notes[0]
    else:
        assert calls  # some requests go on that used to end: their first new call is paid for
    calls, _, rows = run(path, toy(stop=stop))
    assert calls == []
    assert by_cell(rows) == by_cell(before)


def test_a_corrected_label_is_scored_again(tmp_path):
    def score(request, state):
        return state["answer"] == ("right" if request.data["label"] else "odd")

    path, workflow = tmp_path / "s.db", toy(score=score)
    _, _, before = run(path, workflow)
    corrected = [Request(r.id, {**r.data, "label": int(r.id == "q0" or r.data["label"])}) for r in workflow.requests]
    calls, notes, rows = run(path, toy(score=score, requests=corrected))
    assert calls == []
    assert "scored again" in notes[0]
    assert by_cell(rows) == by_cell(undisturbed(tmp_path, toy(score=score, requests=corrected)))
    assert by_cell(rows) != by_cell(before)


def test_a_scorer_that_raises_leaves_the_rows_apart(tmp_path):
    def score(request, state):
        raise KeyError("gold")

    path = tmp_path / "s.db"
    _, _, before = run(path, toy())
    calls, notes, _ = run(path, toy(score=score), budget_calls=len(before))
    assert calls == []
    assert f"scoring them again failed: {sum(row.depth == 1 for row in before)}" in notes[0]


def test_another_stop_rule_uses_what_it_reaches(tmp_path):
    path = tmp_path / "s.db"
    run(path, toy(stop="workflow"))
    calls, _, rows = run(path, toy(stop="oracle"))
    assert by_cell(rows) == by_cell(undisturbed(tmp_path, toy(stop="oracle")))
    assert set(calls) == set(reachable(toy(stop="oracle"))) - set(reachable(toy(stop="workflow")))


def test_nothing_is_bought_where_nothing_would_stay(tmp_path):
    path, workflow = tmp_path / "s.db", toy()
    _, _, before = run(path, workflow)
    every = Catalog(model.model_copy(update={"model_id": "another"}) for model in catalog_for(workflow).models)
    with pytest.raises(StoreError, match=r"none of its .* rows would stay .*model_id another instead of test") as caught:
        run(path, workflow, every)
    assert (caught.value.code, "\n" in str(caught.value)) == ("store-mismatch", False)
    assert run(path, workflow) == ([], [], before)


PLACES = (ExecutionConfig(), ExecutionConfig(isolation="thread", workers=4))


@pytest.mark.parametrize("execution", PLACES, ids=["inline", "thread"])
def test_a_capped_run_on_a_grown_store_is_the_beginning_of_the_uncapped(tmp_path, execution):
    workflow = toy(n_models=3, n_requests=4)
    for name in ("whole", "capped"):
        run(tmp_path / f"{name}.db", toy(n_requests=4), coverage=0.5)
    _, _, whole = run(tmp_path / "whole.db", workflow, coverage=0.8)
    spent = sum(row.cost_usd for row in whole)
    rows = []
    for share in (0.7, 0.8, 0.9, 2.0):
        settings = {"whole": ProfileLimits(coverage=0.8), "coverage": 0.8, "budget_usd": share * spent, "execution": execution}
        _, _, rows = run(tmp_path / "capped.db", workflow, **settings)
        if execution.isolation == "inline":
            assert rows == whole[: len(rows)]
        assert cells(rows) == cells(whole[: len(rows)])
    assert len(rows) == len(whole)


CHILD = """
import os, signal, sys
from kit.toys.profiling import *
from vinelm.profiler.runner import profile
path, n = sys.argv[1], int(sys.argv[2])
store = ObservationStore.open(path)
left = [n]
def die(*_):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
from sqlalchemy import event
event.listen(store.database._engine, "commit", die)
workflow = toy(stop="oracle", score=only_right, n_models=3)
profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store)
"""


@pytest.mark.long
def test_kill_9_while_a_store_grows_and_resume_gives_the_undisturbed_store(tmp_path, python):
    workflow = toy(stop="oracle", score=only_right, n_models=3)
    for name in ("calm", "killed"):
        run(tmp_path / f"{name}.db", toy(stop="oracle"))
    _, _, calm = run(tmp_path / "calm.db", workflow)
    for n in (1, 2, 3, 5, 8, 9, 30):
        with python.start(CHILD, str(tmp_path / "killed.db"), str(n)) as child:
            assert child.wait() == -signal.SIGKILL
    _, _, rows = run(tmp_path / "killed.db", workflow)
    assert rows == calm


def test_stage_names_and_not_places_decide_after_a_loop(tmp_path):
    """Another number of turns moves the stages behind the loop: rows hold as far as the sequence of stages is the same."""
    from vinelm.traces.growth.conditions import RowConditions
    from vinelm.traces.testing import an_identity

    models = ("small", "large")

    def identity(times):
        loop = Loop((Stage("a", models), Stage("b", models)), times)
        return an_identity(template=Template((loop, Stage("c", models))).to_dict())

    conditions = RowConditions(identity(1), identity(2))
    assert conditions.difference(("small", "large")) is None
    assert conditions.difference(("small", "large", "small")) == "invocation 3 is of stage 'a', not 'c'"


def test_a_merge_keeps_what_no_longer_holds(tmp_path):
    one, two, merged = (tmp_path / name for name in ("one.db", "two.db", "merged.db"))
    six = toy(n_requests=6)
    for path, requests in ((one, six.requests[:3]), (two, six.requests[3:])):
        run(path, six, requests=requests)
        run(path, six, with_model(catalog_for(six), "m1", max_tokens=200), requests=requests)
    changed = with_model(catalog_for(six), "m1", max_tokens=200)
    with ObservationStore.open(one) as first, ObservationStore.open(two) as second:
        rows = [*first.observations(), *second.observations()]
        retired = [sum(contents_of(store).retired.values()) for store in (first, second)]
        paid = first.committed_usd() + second.committed_usd()
    assert min(retired) > 0
    merge_stores([one, two], merged)
    with ObservationStore.open(merged) as store:
        assert store.observations() == rows
        assert sum(contents_of(store).retired.values()) == sum(retired)
        assert store.committed_usd() == pytest.approx(paid)
    assert run(merged, six, changed)[0] == []
    assert run(merged, six)[0] == []  # and back: everything is there
