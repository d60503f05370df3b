"""What the orders of a fleet do to the calls of an application: priorities, replicas, and parts of common limits."""

import time
from contextlib import ExitStack
from typing import TypedDict

import pytest
from kit.tables import random_table
from kit.waiting import wait_for
from kit.wire.client import entry
from langgraph.graph import END, START, StateGraph

from vinelm import VineLM
from vinelm.adapters.langgraph import RunContext
from vinelm.api.application_fleet import ApplicationFleet
from vinelm.backends.registry import replica_gates_of
from vinelm.backends.resolver import ModelResolver
from vinelm.catalog import Catalog
from vinelm.controller import FleetConfig, GlobalLoop, Orders, RedisLink
from vinelm.controller.fleet.joined.fleet import CatalogComparison, Fleet
from vinelm.controller.fleet.live_invocations import InvocationStart
from vinelm.objective import Objective
from vinelm.rows.observation import Usage

TRIE = random_table(3, n_requests=60, n_models=3, depth=3).annotate()
OBJECTIVE = Objective(maximize="accuracy", max_latency_s=100.0)


class State(TypedDict, total=False):
    turns: int


class Heard:
    """Models that note the priority of each call, which may change later."""

    is_simulated, is_virtual_time = True, False

    def __init__(self):
        self.calls = []

    def chat_model(self, model, call):
        self.calls.append(call)
        call.on_usage(Usage(model=model.name, cost_usd=0.0, latency_s=0.0))
        return object()


@pytest.fixture
def fleet(redis_url, fleet_name):
    return FleetConfig(url=redis_url, name=fleet_name)


def test_orders_reach_the_calls_of_a_conversation_while_they_wait(fleet):
    heard = Heard()
    vine = VineLM(TRIE.catalog, {"test": heard}, trie=TRIE, fallback=False, fleet=fleet)
    seen = []

    def policy(view):
        return Orders(sessions={int(view.session[0]): 7.0}, stages={"generate": 0.5})

    loop = GlobalLoop(RedisLink(fleet.url, fleet.name), policy)

    def generate(state: State, model):
        call = heard.calls[-1]
        seen.append(float(call.priority))
        wait_for(lambda: loop.round().rows == 1)
        wait_for(lambda: vine.fleet.fleet.orders_version)
        seen.append(float(call.priority))
        return {"turns": 1}

    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", generate))
    graph.add_edge(START, "generate")
    graph.add_conditional_edges("generate", vine.route(lambda state: True, again="generate", end=END))
    app = graph.compile()
    app.invoke({}, {"configurable": {"thread_id": "chat-7"}}, context=vine.context(OBJECTIVE, priority=2))
    assert seen == [2.0, 9.5]
    assert heard.calls[0].priority.engine is None
    loop.close()
    vine.close()


def test_a_part_of_the_limits_is_what_the_orders_say(fleet):
    one, two = Fleet(fleet), Fleet(fleet)
    wait_for(lambda: one.processes == two.processes == 2)
    loop = GlobalLoop(RedisLink(fleet.url, fleet.name), lambda view: Orders(shares={one.process: 4.0}))
    wait_for(lambda: loop.round().processes == 2)
    wait_for(lambda: one.orders_version and two.orders_version)
    assert (one._orders.current.share, two._orders.current.share) == (0.8, 0.2)
    for made in (one, two):
        made.stop()
    loop.close()


GROUP = Catalog([entry(f"http://localhost:{n}/v1", name=f"r{n}", engine=f"e{n}", group="m") for n in (1, 2)], {"openai": {}})


def test_replicas_are_chosen_by_orders_and_by_what_all_processes_have_in_flight(fleet):
    one, two = (ApplicationFleet(Fleet.of(fleet), ModelResolver(GROUP)) for _ in range(2))
    for made in (one, two):
        made.account_of(RunContext())  # the first request
    (gate,) = replica_gates_of(two._models.backends)
    live = one.fleet._live
    slot = live.begin(InvocationStart(7, "", "write", 0, "m", 0.0))
    live.queue(slot, "m")
    live.run(slot, "e1")
    wait_for(lambda: two.fleet.others() == {"e1": 1})
    assert two.others() == {"e1": 1, "m": 1}  # the load of the choice that plans know
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(gate.admit(1, time.sleep))
        assert gate.in_flight() == {"e1": 1, "e2": 2}
    loop = GlobalLoop(RedisLink(fleet.url, fleet.name), lambda view: Orders(weights={"e2": 0.0}))
    wait_for(lambda: loop.round().processes == 2 and not loop.round().problem)
    wait_for(lambda: two.fleet.orders_version)
    with gate.admit(1, time.sleep) as permit:
        assert permit.engine == "e1"
    view = two.fleet.reader().view()
    assert dict(zip(view.engines, view.groups, strict=True)) == {"e1": "m", "e2": "m"}
    assert dict(zip(view.engines, view.count_by_engine().tolist(), strict=True)) == {"e1": 1, "e2": 0}
    for made in (one, two):
        made.fleet.stop()
    loop.close()


def test_first_requests_that_come_at_once_steer_once(fleet):
    made = ApplicationFleet(Fleet.of(fleet), ModelResolver(GROUP))
    for _ in range(2):
        made.account_of(RunContext())
        made._has_shared = False  # as a second thread finds it
    assert len(made.fleet._gates) == 1
    assert sum(isinstance(chore, CatalogComparison) for chore in made.fleet._member.chores) == 1
    made.fleet.stop()


def test_other_models_than_those_of_the_fleet_are_one_line(fleet):
    other = Catalog([entry("http://localhost:3/v1", name="r3", engine="e3")], {"openai": {}})
    one = ApplicationFleet(Fleet.of(fleet), ModelResolver(GROUP))
    one.account_of(RunContext())
    two = Fleet(fleet)
    wait_for(lambda: two.processes == 2)
    two._member.stop()  # its rounds are the test's
    ApplicationFleet(two, ModelResolver(other)).account_of(RunContext())
    with pytest.warns(UserWarning, match="of the fleet differ: model 'r1' is only there: each goes by its own") as said:
        wait_for(lambda: two._member.round() and len(said))
    one.fleet.stop()
    two.stop()
