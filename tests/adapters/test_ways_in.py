"""Faults of ours on every way in: no request fails, nothing stays behind, and a cap holds whatever fails."""

import gc

import pytest
from hostile_parts import interrupts, ways_in
from kit.apps.chat import ScriptedBackend
from kit.apps.echo import App, EchoBackend
from kit.catalogs import make_catalog
from kit.tables import random_table

from vinelm import VineLM
from vinelm.adapters.langgraph import RunContext
from vinelm.adapters.langgraph.path.places import RunPlaces
from vinelm.adapters.langgraph.runs.chat_call import ChatCall
from vinelm.adapters.langgraph.runs.run_finder import RunFinder
from vinelm.controller import InFlightLoadMonitor, Session
from vinelm.errors import CallRefused
from vinelm.money.bound_guard import BoundGuard
from vinelm.money.guard_pair import GuardPair
from vinelm.money.spend_guard import SpendGuard
from vinelm.objective import Objective
from vinelm.rows.observation import Usage

OBJECTIVE = Objective(maximize="accuracy", max_latency_s=100.0)
CAPPED = Objective(maximize="accuracy", max_cost_usd=1.0, cost_budget="per_request")
CLEAN = {"app_failures": [], "behind": [], "unguarded": [], "told_prompt": []}


class DefectError(Exception):
    """Ours."""


def broken(*args, **kwargs):
    raise DefectError


def attacked(kind, every, redis=None):
    found = ways_in.run(lambda line: None, kinds=[kind], calls=(1,), every=every, redis=redis)["kinds"][kind]
    assert found["injected"] > 10
    assert {key: found.get(key, []) for key in CLEAN} == CLEAN


@pytest.mark.parametrize("kind", ["chat models", "agents", pytest.param("evidence", marks=pytest.mark.long), "telemetry"])
@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.long)])
def test_no_fault_of_ours_fails_a_request_or_leaves_anything_behind(kind, every):
    attacked(kind, every)


@pytest.mark.parametrize("kind", ["fleet", "dollars of a day"])
@pytest.mark.parametrize("every", [37, pytest.param(1, marks=pytest.mark.long)])
def test_nor_in_a_fleet(kind, every, redis_url):
    attacked(kind, every, redis_url)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["broken Redis", "fleet's thread"])
def test_a_broken_fleet_fails_no_request_and_is_found_again(kind, redis_url):
    attacked(kind, 1, redis_url)


# -- an account that requests share ----------------------------------------------------------------------------------


class Account(SpendGuard):
    """Allows five dollars."""

    def __init__(self):
        super().__init__(5.0)


class Paid(EchoBackend):
    """Asks the guard for a dollar a call, and says what it was allowed."""

    paid = unguarded = 0

    def chat_model(self, model, call):
        made, take = super().chat_model(model, call), call.on_usage

        def on_usage(usage):
            if call.guard is None:
                self.unguarded += 1
            else:
                call.guard.authorize(1.0).settle(Usage(model=usage.model, cost_usd=1.0, latency_s=1.0))
            self.paid += 1
            take(usage)

        call.on_usage = on_usage
        return made


@pytest.fixture(scope="module")
def annotated():
    return random_table(3, n_requests=60, n_models=3, depth=3).annotate()


@pytest.fixture
def shared(annotated):
    """An application whose requests share one account."""
    backend, account = Paid(), Account()
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated)
    vine.adapter.account_of = lambda context: account
    return vine, backend, account


def serve(vine, objective=OBJECTIVE, **how):
    return App(**how).build(vine).compile().invoke({"q": "?"}, context=vine.context(objective))


@pytest.mark.parametrize("method", ["authorize", "_settle", "_count", "_reservation_changed", "_settled"])
def test_a_defect_of_a_shared_account_refuses_calls_and_loses_no_dollar(shared, monkeypatch, method):
    vine, backend, account = shared
    monkeypatch.setattr(SpendGuard, method, broken)
    with pytest.raises(CallRefused):
        serve(vine, turns=9)
    monkeypatch.undo()
    assert backend.unguarded == 0
    assert account.spent_usd + account.reserved_usd >= backend.paid
    if account.spent_usd + account.reserved_usd < 4.0:
        serve(vine)  # the next request asks again


@pytest.mark.parametrize(
    "defect", [(RunFinder, "_context_of"), (RunFinder, "_policy_of"), (Session, "__init__"), (GuardPair, "authorize")]
)
def test_whatever_fails_a_shared_account_is_asked(shared, monkeypatch, defect):
    vine, backend, account = shared
    monkeypatch.setattr(*defect, broken)
    for _ in range(3):
        try:
            serve(vine, CAPPED if defect[0] is GuardPair else OBJECTIVE, turns=2)
        except CallRefused:
            continue
    assert backend.unguarded == 0
    assert account.spent_usd == backend.paid <= 5


def test_an_account_that_cannot_be_found_authorizes_nothing(annotated):
    backend = Paid()
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated)
    vine.adapter.account_of = broken
    with pytest.raises(CallRefused):
        serve(vine)
    assert backend.paid == 0


def test_on_error_raise_raises_what_the_account_raises(annotated):
    vine = VineLM(annotated.catalog, {"test": Paid()}, trie=annotated, on_error="raise")
    vine.adapter.account_of = broken
    with pytest.raises(DefectError):
        serve(vine)


def test_a_request_whose_settings_cannot_be_read_makes_no_call_under_its_own_policys_cap(annotated, monkeypatch):
    backend = Paid()
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated)
    context = vine.context(policy=vine.session(CAPPED))
    monkeypatch.setattr(RunFinder, "_context_of", broken)
    with pytest.raises(CallRefused):
        App().build(vine).compile().invoke({"q": "?"}, context=context)
    assert backend.paid == 0


def test_both_guards_are_settled_even_if_the_first_one_fails():
    first, second = SpendGuard(1.0), SpendGuard(1.0)
    permit = GuardPair(first, second).authorize(0.5)
    first._settle = broken
    with pytest.raises(DefectError):
        permit.settle(Usage(model="m", cost_usd=0.2, latency_s=1.0))
    assert (second.spent_usd, second.reserved_usd) == (0.2, 0.0)


def test_a_reservation_that_cannot_be_told_is_taken_back():
    guard = SpendGuard(1.0)
    guard._reservation_changed = broken
    with pytest.raises(DefectError):
        guard.authorize(0.5)
    assert guard.reserved_usd == 0.0


# -- those who follow the calls --------------------------------------------------------------------------------------


class Follower:
    """Fails at one event."""

    def __init__(self, event):
        setattr(self, event, broken)

    def began(self, *what):
        """Take it."""

    ended = interrupted = began


@pytest.mark.parametrize("event", ["began", "ended", "interrupted"])
@pytest.mark.parametrize("place", [0, 1])
def test_a_follower_that_fails_stops_no_other(annotated, event, place):
    load = InFlightLoadMonitor()
    vine = VineLM(annotated.catalog, {"test": EchoBackend()}, trie=annotated, load=load)
    session = vine.session(OBJECTIVE)
    session._followers.insert(place, Follower(event))
    App().build(vine).compile().invoke({"q": "?"}, context=vine.context(policy=session))
    assert sum(own.in_flight for own in load._own.values()) == 0
    told = [step["note"] for step in session.trace() if step["kind"] == "failed"]
    assert bool(told) == (event != "interrupted")
    assert all("DefectError" in note for note in told)


@pytest.mark.parametrize("method", ["_add", "_excess_s", "record"])
def test_what_cannot_be_recorded_is_in_flight_no_longer(annotated, monkeypatch, method):
    load = InFlightLoadMonitor()
    vine = VineLM(annotated.catalog, {"test": EchoBackend()}, trie=annotated, load=load)
    monkeypatch.setattr(Session, method, broken)
    serve(vine)
    gc.collect()
    assert sum(own.in_flight for own in load._own.values()) == 0


# -- chat models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("defect", [(ChatCall, "_opened"), (RunPlaces, "enter"), (RunFinder, "run_here")])
def test_a_chat_model_answers_whatever_fails(annotated, monkeypatch, defect):
    vine = VineLM(annotated.catalog, {"test": ScriptedBackend()}, trie=annotated)
    model = vine.chat_model("generate")
    monkeypatch.setattr(*defect, broken)
    with vine.request(OBJECTIVE):
        assert model.invoke("?").response_metadata["model_name"] == annotated.template.stages[0].default_model
        assert [chunk.text for chunk in model.stream("?")]


def test_a_chat_model_whose_run_is_not_found_makes_no_call_under_a_cap(annotated, monkeypatch):
    backend = Paid()
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated)
    monkeypatch.setattr(RunFinder, "run_here", broken)
    with vine.request(CAPPED), pytest.raises(CallRefused):
        vine.chat_model("generate").invoke("?")
    with pytest.raises(CallRefused):
        vine.chat_model("generate", objective=CAPPED).invoke("?")
    assert backend.paid == 0


def test_an_edge_before_the_first_call_of_a_chat_model_follows_the_workflow():
    from langgraph.graph import END, START, StateGraph
    from typing_extensions import TypedDict

    class State(TypedDict, total=False):
        turns: int

    vine = VineLM(make_catalog(2), {"test": ScriptedBackend()})
    model = vine.chat_model("node")

    def node(state: State) -> State:
        if state.get("turns"):
            model.invoke("?")
        return {"turns": state.get("turns", 0) + 1}

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_conditional_edges("node", vine.route(lambda state: state["turns"] == 2, again="node", end=END))
    assert graph.compile().invoke({}) == {"turns": 2}


def test_guards_of_one_run_are_one_that_does_not_fail(shared):
    vine, _, account = shared
    run = vine.adapter.finder.runs.alone(RunContext(objective=CAPPED))
    assert type(run.guard) is BoundGuard
    run.guard.authorize(1.0).close()
    assert account.spent_usd == 1.0


# -- Ctrl-C ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_process_works_after_ctrl_c_in_its_first_use():
    assert interrupts.run(lambda line: None, processes=12)["through"] == []
