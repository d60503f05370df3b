"""Served requests are divided between two plans, each once, whoever goes on with it."""

import gc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from kit.tables import random_table
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from vinelm import VineLM
from vinelm.controller import Planner
from vinelm.controller.fleet.joined.shared_corrections import SharedCorrections
from vinelm.objective import Objective
from vinelm.rows.observation import Usage

TRIE = random_table(0, n_requests=80, n_models=4, depth=2).annotate()


def divided():
    """An objective whose bound lies in the middle between two plans that begin with different models."""
    planner = Planner(TRIE)
    low, high = (planner.plan(one).path_cost_usd for one in (Objective(minimize="cost"), Objective(maximize="accuracy")))
    for budget in np.linspace(low, high, 200):
        objective = Objective(maximize="accuracy", max_cost_usd=float(budget))
        mixture = planner.mixture(objective)
        if mixture is not None and 0.3 < mixture.share < 0.7:
            both = planner.plan(mixture.low), planner.plan(mixture.high)
            if len({plan.next_model for plan in both}) == 2 and min(len(plan.path) for plan in both) == 2:
                return objective, mixture, both
    raise AssertionError("no bound lies between two plans")


BETWEEN, MIXTURE, (LOW, HIGH) = divided()


class State(TypedDict, total=False):
    seen: list


class Priced:
    """Each call costs what the trie expects times ``factor``."""

    is_simulated, is_virtual_time = True, False

    def __init__(self, factor=1.0):
        self.factor = factor

    def chat_model(self, model, call):
        backend = self

        class Chat:
            name = model.name

            def invoke(self, prompt):
                usd = backend.factor * float(TRIE.cost_usd[TRIE.trie.node(call.prefix)])
                call.on_usage(Usage(model=model.name, cost_usd=usd, latency_s=0.0, tokens_in=7, tokens_out=2))

        return Chat()


def serving(*, saver=None, factor=1.0, **settings):
    vine = VineLM(TRIE.catalog, {"test": Priced(factor)}, trie=TRIE, fallback=False, **settings)

    def answer(state: State, model):
        model.invoke("?")
        return {"seen": [*state.get("seen", []), model.name]}

    def person(state: State):
        return {"seen": state["seen"]} if interrupt("go on?") else {}

    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", answer, default="m0"))
    graph.add_node("repair", vine.stage("repair", answer, default="m0"))
    graph.add_edge(START, "generate")
    follower = "repair" if saver is None else "person"
    if saver is not None:
        graph.add_node("person", person)
        graph.add_edge("person", "repair")
    graph.add_conditional_edges("generate", vine.route(lambda state: False, again=follower, end=END))
    graph.add_edge("repair", END)
    return vine, graph.compile(checkpointer=saver)


def test_the_share_follows_each_plan_and_the_mean_meets_the_bound():
    vine, app = serving(correct_spend=False)
    first, spent = [], []
    for i in range(400):
        session = vine.session(BETWEEN, run_id=f"r{i}")
        seen = tuple(app.invoke({}, context=vine.context(BETWEEN, policy=session))["seen"])
        assert seen in {LOW.path, HIGH.path}
        first.append(seen == HIGH.path)
        spent.append(session.spent_usd)
        assert session.assigned.bound in {MIXTURE.low_bound, MIXTURE.high_bound}
        assert session.steps[0].note.startswith("of two plans")
    assert np.mean(first) == pytest.approx(MIXTURE.share, abs=0.08)
    expected = [float(TRIE.cost_usd[TRIE.trie.path(plan.target)].sum()) for plan in (LOW, HIGH)]
    assert np.mean(spent) == pytest.approx(np.mean([expected[is_high] for is_high in first]))


def test_every_process_and_every_conversation_draws_alike():
    one, other = serving()[0], serving()[0]
    drawn = [[vine.session(BETWEEN, run_id=f"r{i}").assigned.bound for i in range(300)] for vine in (one, other)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 2
    for thread in range(20):
        assert len({one.session(BETWEEN, configurable={"thread_id": f"t{thread}"}).assigned.bound for _ in range(4)}) == 1


def test_a_resumed_request_keeps_its_plan_although_the_share_has_moved():
    saver = InMemorySaver()
    (one, app), (other, resumed) = serving(saver=saver), serving(saver=saver)
    moved = Objective(maximize="accuracy", max_cost_usd=BETWEEN.max_cost_usd + 0.45 * (MIXTURE.high_bound - MIXTURE.low_bound))
    now, changed = other.planner.mixture(moved), 0
    for i in range(40):
        config = {"configurable": {"thread_id": str(i)}}
        begun = app.invoke({}, config, context=one.context(BETWEEN, request_id=f"r{i}"))
        if "__interrupt__" not in begun:  # its plan has only one invocation
            continue
        drawn = MIXTURE.low_bound if begun["seen"][0] == LOW.next_model else MIXTURE.high_bound
        session = other.session(moved, run_id=f"r{i}")
        changed += now is None or session.assigned.bound != drawn
        resumed.invoke(Command(resume=True), config, context=other.context(moved, policy=session, request_id=f"r{i}"))
        assert session.assigned.bound == drawn
        assert tuple(resumed.get_state(config).values["seen"]) == (LOW if drawn == MIXTURE.low_bound else HIGH).path
    assert changed


def test_without_mixing_one_plan_serves_all():
    vine, app = serving()
    alone = Objective(maximize="accuracy", max_cost_usd=BETWEEN.max_cost_usd, mix=False)
    seen = {tuple(app.invoke({}, context=vine.context(alone, request_id=f"r{i}"))["seen"]) for i in range(20)}
    assert len(seen) == 1
    assert vine.session(alone, run_id="r").assigned.bound is None


def test_a_planner_that_fails_leaves_the_application_running(monkeypatch):
    vine, app = serving()
    monkeypatch.setattr(Planner, "mixture", lambda self, objective: 1 / 0)
    assert app.invoke({}, context=vine.context(BETWEEN))["seen"]
    strict, _ = serving(on_error="raise")
    with pytest.raises(ZeroDivisionError):
        strict.session(BETWEEN)


def test_objectives_that_callers_invent_take_no_memory_without_end(monkeypatch):
    """Neither here nor in a fleet; a correction that a request still uses is the fleet's as long."""
    monkeypatch.setattr("vinelm.api.application.MOST_OBJECTIVES", 3)
    vine, _ = serving(correct_spend=True)
    shared = SharedCorrections()
    vine.fleet = SimpleNamespace(fleet=SimpleNamespace(share_correction=shared.add), rows=lambda *_: None)
    kept = vine.session(BETWEEN, run_id="kept")
    for number in range(20):
        vine.session(replace(BETWEEN, max_cost_usd=BETWEEN.max_cost_usd * (1 + 0.001 * number)), run_id=f"r{number}")
    gc.collect()
    assert len(shared) == 4
    assert kept.spent_usd == 0.0


@pytest.mark.parametrize("factor", [pytest.param(0.97, marks=pytest.mark.long), 1.03])
def test_spend_control_moves_the_share_until_the_bound_is_met(factor):
    """Requests cost more, or less, than planned: fewer, or more, of them follow the dearer plan, and both plans stay."""
    shares = [float(TRIE.cost_usd[TRIE.trie.path(plan.target)].sum()) for plan in (LOW, HIGH)]
    planned = BETWEEN.max_cost_usd / np.dot((1 - MIXTURE.share, MIXTURE.share), shares)  # no check ends requests here
    vine, app = serving(factor=factor * planned, correct_spend=True)
    spent, seen = [], set()
    for i in range(1200):
        session = vine.session(BETWEEN, run_id=f"r{i}")
        seen.add(tuple(app.invoke({}, context=vine.context(BETWEEN, policy=session))["seen"]))
        spent.append(session.spent_usd)
    assert seen == {LOW.path, HIGH.path}
    assert np.mean(spent[400:]) == pytest.approx(BETWEEN.max_cost_usd, rel=0.01)
