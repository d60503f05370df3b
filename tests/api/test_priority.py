"""The priority of a request reaches its calls, with and without a plan."""

from typing import TypedDict

import pytest
from kit.tables import random_table
from langgraph.graph import END, START, StateGraph

from vinelm import VineLM
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.rows.observation import Usage

TRIE = random_table(3, n_requests=60, n_models=3, depth=3).annotate()


class State(TypedDict, total=False):
    turns: int


class Heard:
    """Models that note the priority of each call."""

    is_simulated, is_virtual_time = True, False

    def __init__(self):
        self.priorities = []

    def chat_model(self, model, call):
        self.priorities.append(call.priority)
        call.on_usage(Usage(model=model.name, cost_usd=0.0, latency_s=0.0))
        return object()


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def served(heard):
    vine = VineLM(TRIE.catalog, {"test": heard}, trie=TRIE, fallback=False)
    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", lambda state, model: {"turns": 1}, state=State))
    graph.add_edge(START, "generate")
    graph.add_conditional_edges("generate", vine.route(lambda state: True, again="generate", end=END))
    return vine, graph.compile()


@pytest.mark.parametrize("objective", [Objective(maximize="accuracy"), None])
def test_each_call_of_the_request_has_it(served, heard, objective):
    vine, app = served
    app.invoke({}, context=vine.context(objective, priority=3))
    app.invoke({}, context=vine.context(objective))
    with vine.request(objective, priority=-1):
        app.invoke({})
    assert heard.priorities == [3.0, 0.0, -1.0]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), 101, "high", None])
def test_what_is_no_priority_is_one_line(served, wrong):
    with pytest.raises(ConfigError, match="give a number from -100 to 100") as raised:
        served[0].context(priority=wrong)
    assert "\n" not in str(raised.value)


def test_a_stage_has_one_of_its_own_beside_its_requests(heard):
    vine = VineLM(TRIE.catalog, {"test": heard})
    graph = StateGraph(State)
    for name, priority in (("first", 0), ("second", 2), ("third", -100)):
        graph.add_node(name, vine.stage(name, lambda state, model: {"turns": 1}, state=State, priority=priority))
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", "third")
    graph.compile().invoke({}, context=vine.context(priority=-1))
    assert heard.priorities == [-1.0, 1.0, -100.0]
    with pytest.raises(ConfigError, match="give a number from -100 to 100"):
        vine.stage("fourth", lambda state, model: {}, state=State, priority=101)
