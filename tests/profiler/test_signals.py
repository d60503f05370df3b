"""What requests show is in the rows: signals, answers and their classes, and rows below an answer that the check passed."""

import json
from dataclasses import replace
from functools import partial

import pytest
from kit.toys.profiling import (
    State,
    ToyBackend,
    answer_of,
    catalog_for,
    check,
    cost_of,
    expected,
    finished,
    generate,
    new_store,
    plain_edge,
    repair,
    toy,
)
from kit.toys.profiling import build as plain_build
from kit.toys.replayed import build_function

from vinelm.errors import WorkflowError
from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource, profile
from vinelm.requests.protocols import RequestPath
from vinelm.signals import Signals
from vinelm.signals.classes import answer_classes
from vinelm.traces import ObservationStore, check_store, contents_of
from vinelm.traces.store.shown import ShownRows

PLACES = [
    ExecutionConfig(),
    ExecutionConfig(isolation="thread", workers=3),
]


def label(state) -> str:
    return "long" if len(state["answer"]) > 5 else "short"


def same_letter(one, other) -> bool:
    """Answers that begin alike are equal; "broken" ones are none."""
    return one[0] == other[0] != "b"


def length_at_least(one, other) -> bool:
    """Not symmetric."""
    return len(one) >= len(other)


def close(one, other) -> bool:
    """Symmetric, and not transitive: odd (3) ~ right (5) ~ broken (6) ~ plausible (9)."""
    return abs(len(one) - len(other)) <= 3


class Paths:
    """Proposes these paths, in one round."""

    def __init__(self, *paths):
        self._paths = paths

    def propose(self, round_, observations):
        yield from self._paths if round_ == 0 else ()


def run(path, workflow, backend=None, **settings):
    """The calls, the notes and the rows by cell of one run."""
    backend, notes = backend or ToyBackend(), []
    with new_store(path, workflow) as store:
        profile(workflow, catalog_for(workflow), {"test": backend}, store, ProfileSettings(on_note=notes.append, **settings))
        rows = store.observations()
    assert check_store(path).findings == ()
    return backend.calls, [note for note in notes if "other settings" not in note], {(r.request_id, r.prefix): r for r in rows}


def passed_first():
    """A request of the toy whose first answer on m0 the check passes, and one whose answer it does not."""
    ids = [f"q{i}" for i in range(20)]
    return (
        next(i for i in ids if expected(i, ("m0",))["stopped"]),
        next(i for i in ids if not expected(i, ("m0",))["stopped"]),
    )


@pytest.mark.parametrize("execution", PLACES, ids=lambda one: one.isolation)
def test_every_row_has_its_label_its_answer_and_its_class(tmp_path, execution):
    workflow = toy(signal=label, answer=("answer",), agree=same_letter)
    _, notes, rows = run(tmp_path / "s.db", workflow, sampler="exhaustive", execution=execution)
    assert notes == []
    for (request_id, prefix), row in rows.items():
        answer = answer_of(request_id, prefix)
        assert row.signal == ("long" if len(answer) > 5 else "short")
        assert json.loads(row.answer) == answer
        assert (row.answer_class is None) == (answer == "broken")
    assert {row.answer_class for row in rows.values()} >= {None, 0, 1}
    for one in rows.values():
        for other in rows.values():
            if one.request_id == other.request_id and None not in (one.answer_class, other.answer_class):
                assert (one.answer_class == other.answer_class) == same_letter(json.loads(one.answer), json.loads(other.answer))


@pytest.mark.long
def test_a_fresh_process_gives_the_same_rows(tmp_path, one_zygote):
    """Those below a passed check included."""
    source = WorkflowSource(function="kit.toys.profiling:load_showing")
    workflow, paths = source.load().workflow, Paths(*mixed(4))
    _, _, inline = run(tmp_path / "a.db", workflow, sampler=paths)
    there = ExecutionConfig(isolation="process", workers=2, source=source)
    _, _, rows = run(tmp_path / "b.db", workflow, sampler=paths, execution=there)
    assert rows == inline
    assert {row.signal for row in rows.values()} == {"long", "short"}
    assert any(row.is_continued for row in rows.values())


def test_status_says_what_the_check_and_the_call_say(tmp_path):
    backend = ToyBackend(before=lambda request_id, prefix: "server" if (request_id, prefix) == ("q1", ("m1",)) else None)
    _, _, rows = run(tmp_path / "s.db", toy(signal="status"), backend, sampler="exhaustive")
    assert rows["q1", ("m1",)].signal == "error"
    assert rows["q1", ("m1",)].failure == "server"
    for row in rows.values():
        if row.failure is None:
            assert row.signal == ("passed" if row.stopped else "failed")
            assert row.answer is row.answer_digest is row.answer_class is None


def test_nothing_declared_shows_nothing_but_who_bought_it(tmp_path):
    _, _, rows = run(tmp_path / "s.db", toy(), sampler="cascade", coverage=0.3, seed=1)
    assert {(row.signal, row.answer, row.answer_class, row.is_continued) for row in rows.values()} == {
        (None, None, None, False)
    }
    assert {(row.sampler, row.round, row.probability) for row in rows.values()} == {("cascade", 0, None)}
    with ObservationStore.open(tmp_path / "s.db") as store:
        assert ShownRows(store).record is None


def test_rows_say_with_what_probability_their_path_was_proposed(tmp_path):
    paths = [RequestPath("q0", ("m0", "m0", "m0"), probability=0.25), RequestPath("q0", ("m0", "m1", "m0"), probability=0.5)]
    _, _, rows = run(tmp_path / "s.db", toy(), sampler=Paths(*paths))
    assert rows["q0", ("m0",)].probability == 0.25
    assert all(row.probability == 0.25 for row in rows.values() if row.prefix[:2] in {("m0",), ("m0", "m0")})
    assert all(row.probability == 0.5 for row in rows.values() if row.prefix[:2] == ("m0", "m1"))
    assert {row.sampler for row in rows.values()} == {"paths"}


# -- going on below a passed check ---------------------------------------------------------------------------------


@pytest.mark.parametrize("execution", PLACES, ids=lambda one: one.isolation)
def test_a_path_goes_on_below_a_passed_check_and_ordinary_ones_do_not(tmp_path, execution):
    passed, _ = passed_first()
    workflow = toy(n_requests=20, signal="status")
    ordinary, on = RequestPath(passed, ("m0", "m1", "m0")), RequestPath(passed, ("m0", "m0", "m1"), goes_on=True)
    calls, _, rows = run(tmp_path / "s.db", workflow, sampler=Paths(ordinary, on, ordinary), execution=execution)
    assert set(rows) == {(passed, ("m0",)), (passed, ("m0", "m0")), (passed, ("m0", "m0", "m1"))}
    assert sorted(calls) == sorted(rows)
    assert [row.is_continued for row in sorted(rows.values(), key=lambda row: row.depth)] == [False, True, True]
    for cell, row in rows.items():
        wanted = expected(*cell)
        assert {name: getattr(row, name) for name in wanted} == wanted


def test_a_path_that_goes_on_buys_ordinary_rows_where_nothing_passes(tmp_path):
    _, failed = passed_first()
    workflow = toy(n_requests=20)
    _, _, rows = run(tmp_path / "s.db", workflow, sampler=Paths(RequestPath(failed, ("m0", "m1", "m0"), goes_on=True)))
    assert not rows[failed, ("m0",)].is_continued
    assert not rows[failed, ("m0", "m1")].is_continued
    ended = rows[failed, ("m0", "m1")].stopped
    assert rows[failed, ("m0", "m1", "m0")].is_continued == ended


def test_a_failure_ends_a_path_that_goes_on(tmp_path):
    passed, _ = passed_first()
    backend = ToyBackend(before=lambda request_id, prefix: "server" if len(prefix) == 2 else None)
    path = RequestPath(passed, ("m0", "m0", "m0"), goes_on=True)
    _, _, rows = run(tmp_path / "s.db", toy(n_requests=20), backend, sampler=Paths(path))
    assert len(rows) == 2
    assert rows[passed, ("m0", "m0")].failure == "server"
    assert rows[passed, ("m0", "m0")].is_continued


def test_under_the_oracle_going_on_has_no_effect(tmp_path):
    right = next(f"q{i}" for i in range(20) if expected(f"q{i}", ("m0",))["success"])
    workflow = toy(n_requests=20, stop="oracle")
    _, _, rows = run(tmp_path / "s.db", workflow, sampler=Paths(RequestPath(right, ("m0", "m0", "m0"), goes_on=True)))
    assert set(rows) == {(right, ("m0",))}


def mixed(n=20):
    """Ordinary paths and paths that go on, which share cells."""
    found = []
    for i in range(n):
        for k, path in enumerate([("m0", "m1", "m0"), ("m0", "m0", "m1"), ("m1", "m0", "m0"), ("m0", "m1", "m1")]):
            found.append(RequestPath(f"q{i}", path, goes_on=(i + k) % 3 == 0, probability=1 / (1 + k)))
    return found


@pytest.mark.parametrize("coverage", [None, 0.1, 0.4])
def test_any_number_of_workers_buys_the_same_rows_and_never_more_than_the_coverage(tmp_path, coverage):
    workflow = toy(n_requests=20, signal=label, answer=("answer",), agree=same_letter)
    settings = {"sampler": Paths(*mixed()), "coverage": coverage}
    _, _, one = run(tmp_path / "one.db", workflow, **settings)
    _, _, several = run(tmp_path / "several.db", workflow, execution=PLACES[1], **settings)
    assert any(row.is_continued for row in one.values())
    assert {cell: replace(row, in_flight=0) for cell, row in several.items()} == one
    assert list(one) != []
    assert set(several) == set(one)


def test_what_continued_rows_cost_is_spent_and_is_no_part_of_the_whole(tmp_path):
    workflow, goes_on = toy(n_requests=6), Paths(*(RequestPath(f"q{i}", ("m0", "m0", "m0"), goes_on=True) for i in range(6)))
    found = {}
    for name, samplers in {"with": (goes_on, "exhaustive"), "without": ("exhaustive",)}.items():
        with new_store(tmp_path / f"{name}.db", workflow) as store:
            for sampler in samplers:
                found[name] = profile(
                    workflow, catalog_for(workflow), {"test": ToyBackend()}, store, ProfileSettings(sampler=sampler)
                )
            continued = sum(row.cost_usd for row in store.observations() if row.is_continued)
            assert (continued > 0) == (name == "with")
            found[name, "continued"] = continued
    more, whole = found["with"], found["without"]
    assert more.exhaustive_usd == pytest.approx(whole.exhaustive_usd)
    assert more.spent_usd == pytest.approx(whole.spent_usd + found["with", "continued"])
    assert more.counts == whole.counts
    assert more.coverage == whole.coverage == 1.0


def test_rows_below_a_passed_check_stay_when_the_dataset_grows(tmp_path):
    path, settings = tmp_path / "s.db", {"sampler": Paths(*mixed(6))}
    _, _, before = run(path, toy(n_requests=6), **settings)
    calls, _, after = run(path, toy(n_requests=8), **settings)
    assert calls == []
    assert after == before


def test_a_run_that_is_cut_short_goes_on_as_if_it_had_not_been(tmp_path):
    workflow = toy(n_requests=8, signal=label, answer=("answer",), agree=same_letter)
    _, _, whole = run(tmp_path / "whole.db", workflow, sampler=Paths(*mixed(8)))
    for calls in (1, 7, 20, None):
        made, _, rows = run(tmp_path / "cut.db", workflow, sampler=Paths(*mixed(8)), budget_calls=calls)
        assert calls is None or len(rows) == calls
        assert len(made) == len(set(made))
    assert rows == whole


def test_under_another_stop_rule_continued_rows_are_judged_by_it(tmp_path):
    """The oracle reaches what lies below a wrong answer that the check passed; what lies below a right one no longer holds."""
    path = tmp_path / "s.db"
    _, _, before = run(path, toy(n_requests=12), sampler=Paths(*mixed(12)))
    _, _, after = run(path, toy(n_requests=12, stop="oracle"), sampler=Paths(), keep_going=True)
    assert any(row.is_continued for row in before.values())
    assert not any(row.is_continued for row in after.values())
    for (request_id, prefix), row in before.items():
        below_right = any(before[request_id, prefix[:k]].success for k in range(1, row.depth))
        assert ((request_id, prefix) in after) == (not below_right)


def polished(vine):
    """The toy with a node before each repair, and one after the loop."""
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", generate))
    graph.add_node("repair", vine.stage("repair", repair))
    graph.add_node("check", check)
    graph.add_node("prepare", lambda state: {"log": [*state["log"], "prepare"]})
    graph.add_node("polish", lambda state: {"answer": f"<{state['answer']}>"})
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "check")
    graph.add_edge("repair", "check")
    graph.add_edge("prepare", "repair")
    graph.add_conditional_edges("check", vine.route(finished, again="prepare", end="polish"), ["prepare", "polish"])
    graph.add_edge("polish", END)
    return graph


def steps_of(state):
    """What ran before, as a signal."""
    return "+".join(state["log"])


@pytest.mark.parametrize("is_replayed", [False, True])
def test_what_follows_the_loop_does_not_run_before_a_path_goes_on(tmp_path, is_replayed):
    """The state below a passed check is the one before the nodes after the loop, and the nodes of the loop run again."""
    workflow = toy(
        n_requests=6, build=polished, score=lambda request, state: state["answer"] == "<right>", signal=steps_of,
        answer=("answer",), replay=is_replayed,
    )  # fmt: skip
    backend = ToyBackend()
    calls, _, rows = run(tmp_path / "s.db", workflow, backend, sampler=Paths(*mixed(6)))
    assert any(row.is_continued and row.depth == 3 for row in rows.values())
    assert sorted(calls) == sorted(rows)
    for (request_id, prefix), row in rows.items():
        answer = answer_of(request_id, prefix)
        assert (row.failure, row.success) == (None, answer == "right")
        goes_back = not row.stopped and row.depth < 3
        assert json.loads(row.answer) == (answer if goes_back and is_replayed else f"<{answer}>")
        steps = ["generate", *["prepare", "repair"] * (row.depth - 1), *["prepare"] * goes_back]
        assert row.signal == "+".join(steps)
    again = replace(workflow, signal="status")
    calls, _, renewed = run(tmp_path / "s.db", again, sampler=Paths(*mixed(6)))
    assert calls == []
    assert {cell: row.answer for cell, row in renewed.items()} == {cell: row.answer for cell, row in rows.items()}
    assert all(row.signal == ("passed" if row.stopped else "failed") for row in renewed.values())
    calls, _, renewed = run(tmp_path / "s.db", workflow, sampler=Paths(*mixed(6)))
    assert (calls, renewed) == ([], rows)


def test_a_state_behind_the_loop_is_made_again_to_go_on_from_it(tmp_path):
    """A store from before signals kept the state after the nodes that follow the loop."""
    passed, _ = passed_first()
    path, workflow = tmp_path / "s.db", toy(n_requests=20, build=polished, score=lambda request, state: True)
    run(path, workflow, sampler=Paths(RequestPath(passed, ("m0",))))
    on = Paths(RequestPath(passed, ("m0", "m1"), goes_on=True))
    calls, _, rows = run(path, replace(workflow, signal=steps_of), sampler=on)
    assert calls == [(passed, ("m0",)), (passed, ("m0", "m1"))]
    assert rows[passed, ("m0", "m1")].signal.startswith("generate+prepare+repair")
    with ObservationStore.open(path) as store:
        assert store.committed_usd() == pytest.approx(sum(cost_of(*cell) for cell in rows) + cost_of(passed, ("m0",)))


@pytest.mark.parametrize("build", [build_function, partial(plain_build, route=plain_edge)], ids=["function", "own edge"])
def test_without_an_edge_that_asks_no_path_goes_on(tmp_path, build):
    passed, _ = passed_first()
    workflow = toy(n_requests=20, build=build, score=lambda request, state: True, signal="status")
    _, _, rows = run(tmp_path / "s.db", workflow, sampler=Paths(RequestPath(passed, ("m0", "m0", "m0"), goes_on=True)))
    assert set(rows) == {(passed, ("m0",))}


# -- changed declarations ------------------------------------------------------------------------------------------


def test_another_declaration_costs_nothing(tmp_path):
    """Rows of a store without signals show what they would have shown, and so do they under each later declaration."""
    path = tmp_path / "s.db"
    run(path, toy(), sampler=Paths(*mixed(4)))
    for n, changes in enumerate([
        {"signal": label},
        {"signal": label, "answer": ("answer",)},
        {"signal": label, "answer": ("answer",), "agree": same_letter},
        {"signal": "status", "answer": ("answer",), "agree": same_letter},
        {"answer": ("answer", "checked")},
        {"signal": lambda state: len(state["answer"]), "signal_edges": (4, 7)},
        {},
    ]):  # fmt: skip
        calls, notes, rows = run(path, toy(**changes), sampler=Paths(*mixed(4)))
        assert calls == []
        _, _, fresh = run(tmp_path / f"fresh{n}.db", toy(**changes), sampler=Paths(*mixed(4)))
        assert rows == fresh
        assert len(notes) == (1 if changes and n != 2 else 0)  # of agree alone the classes change, and no row


def test_rows_that_come_back_show_what_is_declared_now(tmp_path):
    path = tmp_path / "s.db"
    run(path, toy(n_requests=6, signal=label), sampler="exhaustive")
    run(path, toy(n_requests=4, signal="status"), sampler="exhaustive")  # two requests are retired meanwhile
    calls, _, rows = run(path, toy(n_requests=6, signal="status"), sampler="exhaustive")
    assert calls == []
    assert {row.signal for row in rows.values()} == {"passed", "failed"}


def test_rows_without_a_state_are_counted(tmp_path):
    path = tmp_path / "s.db"
    _, _, before = run(path, toy(), sampler="exhaustive")
    with ObservationStore.open(path) as store, store.database.transaction() as connection:
        connection.exec_driver_sql("DELETE FROM checkpoints WHERE request_id = 'q0'")
        connection.exec_driver_sql("DELETE FROM blobs WHERE digest NOT IN (SELECT digest FROM checkpoints)")
    lost = sum(request_id == "q0" for request_id, _ in before)
    calls, notes, rows = run(path, toy(signal=label), sampler="exhaustive")
    assert calls == []
    assert f"; {lost} rows keep less, since the state after them is not kept" in notes[0]
    assert {row.signal for (request_id, _), row in rows.items() if request_id == "q0"} == {None}
    assert {row.signal for (request_id, _), row in rows.items() if request_id != "q0"} == {"long", "short"}


def test_digests_alone_cannot_be_compared_again(tmp_path):
    path = tmp_path / "s.db"
    run(path, toy(answer=("answer",), agree=same_letter), sampler="exhaustive")
    with ObservationStore.open(path) as store, store.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE observations SET answer = NULL")
    _, notes, _ = run(path, toy(answer=("answer",), agree=close), sampler="exhaustive")
    assert notes == [
        "the answer classes of 4 requests cannot be computed: of some of their answers the store keeps only a digest"
    ]
    with ObservationStore.open(path) as store:
        assert ShownRows(store).record.unknown == 4


# -- what is wrong -------------------------------------------------------------------------------------------------


def test_a_ninth_value_is_one_line_and_what_was_paid_is_kept(tmp_path):
    seen = iter(range(100))
    workflow = toy(n_requests=6, signal=lambda state: f"v{next(seen)}")
    with new_store(tmp_path / "s.db", workflow) as store:
        with pytest.raises(
            WorkflowError, match=r"^request 'q\d': signal\(state\) returned 'v8', value 9 of the signal"
        ) as caught:
            profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store, ProfileSettings(sampler="exhaustive"))
        assert "\n" not in str(caught.value)
        assert len(store) == 9
        assert contents_of(store).open_usd == 0
    calls, _, rows = run(tmp_path / "s.db", toy(n_requests=6, signal=label), sampler="exhaustive")
    assert len(calls) == len(rows) - 9


def test_an_agree_that_is_not_symmetric_names_the_two_rows_and_no_answer(tmp_path):
    workflow = toy(answer=("answer",), agree=length_at_least)
    with new_store(tmp_path / "s.db", workflow) as store:
        with pytest.raises(WorkflowError, match=r"agree is not symmetric: request 'q\d'.* m\d(/m\d)* and m\d(/m\d)*") as caught:
            profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store, ProfileSettings(sampler="exhaustive"))
        assert len(store) > 0
    assert not any(answer in str(caught.value) for answer in ("right", "plausible", "odd", "broken"))


def test_an_agree_that_is_not_transitive_is_counted(tmp_path):
    run(tmp_path / "s.db", toy(answer=("answer",), agree=close), sampler="exhaustive")
    with ObservationStore.open(tmp_path / "s.db") as store:
        record = ShownRows(store).record
    assert 0 < record.intransitive < record.compared


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"answer": ("answer", "nothing")}, "request 'q0', invocation 1 .'generate'.: answer: the state has no key 'nothing'"),
        ({"signal": lambda state: state["nothing"]}, "request 'q0', invocation 1 .'generate'.: signal.state. raised KeyError"),
        ({"signal": lambda state: 0.5}, "signal.state. returned a float: return text, a bool or an int, or give signal_edges"),
    ],
)
def test_a_wrong_declaration_is_one_line_that_names_the_request(tmp_path, changes, words):
    workflow = toy(**changes)
    with new_store(tmp_path / "s.db", workflow) as store, pytest.raises(WorkflowError, match=words) as caught:
        profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store, ProfileSettings(sampler="exhaustive"))
    assert "\n" not in str(caught.value)


def test_a_sampler_sees_classes_among_the_rows_that_it_is_shown(tmp_path):
    seen = []

    class TwoRounds:
        def propose(self, round_, observations):
            seen.append(observations)
            yield from [RequestPath("q0", ("m0",)), RequestPath("q0", ("m1",)), RequestPath("q1", ("m0",))] * (round_ < 2)

    workflow = toy(answer=("answer",))
    run(tmp_path / "s.db", workflow, sampler=TwoRounds())
    assert seen[0] == ()
    wanted = answer_classes(seen[1], Signals(answer=("answer",))).of
    assert {(row.request_id, row.prefix): row.answer_class for row in seen[1]} == wanted
    assert {row.round for row in seen[1]} == {0}


@pytest.mark.parametrize("coverage", [0.3, pytest.param(0.8, marks=pytest.mark.long)])
def test_the_default_sampler_goes_on_below_passed_checks_and_buys_the_same_with_any_number_of_workers(tmp_path, coverage):
    workflow = replace(toy(n_requests=12), signal="status")
    found = [run(tmp_path / f"{i}.db", workflow, coverage=coverage, execution=place)[2] for i, place in enumerate(PLACES)]
    kept = [{cell: (row.is_continued, row.sampler, row.round, row.probability) for cell, row in rows.items()} for rows in found]
    assert kept[0] == kept[1]
    assert {row.sampler for row in found[0].values()} == {"deciding"}
    assert all(0.0 < row.probability <= 1.0 for row in found[0].values() if row.is_continued)  # whole runs are no draws
    share = sum(row.is_continued for row in found[0].values()) / len(found[0])
    assert 0.03 < share < 0.2
    silent = run(tmp_path / "silent.db", toy(n_requests=12), coverage=coverage)[2]
    assert not any(row.is_continued for row in silent.values())


def test_an_agree_that_fails_between_rounds_loses_no_row(tmp_path):
    class TwoRounds:
        def propose(self, round_, observations):
            yield from [RequestPath("q0", ("m0",)), RequestPath("q0", ("m1",)), RequestPath("q1", ("m0",))] * (round_ < 2)

    def never(one, other):
        raise KeyError(one)

    workflow = toy(answer=("answer",), agree=never)
    with new_store(tmp_path / "s.db", workflow) as store:
        with pytest.raises(WorkflowError, match=r"agree\(a, b\) raised KeyError"):
            profile(workflow, catalog_for(workflow), {"test": ToyBackend()}, store, ProfileSettings(sampler=TwoRounds()))
        assert len(store) == 3
        assert contents_of(store).open_usd == 0
