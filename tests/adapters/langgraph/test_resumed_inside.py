"""A run that waits for a person inside a subgraph is resumed behind what it has invoked there, by the process that ran it."""

import asyncio
import operator
from typing import Annotated

import pytest
from kit.apps.echo import EchoBackend
from kit.catalogs import make_catalog
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from vinelm import Stage, Template, VineLM
from vinelm.policies import DefaultPolicy

TEMPLATE = Template(tuple(Stage(name) for name in ("plan", "ask", "act", "write")))


class State(TypedDict, total=False):
    out: Annotated[list, operator.add]


class Watching(DefaultPolicy):
    """Runs each invocation on the model of its place, and notes what it is asked and told."""

    def __init__(self, vine, asked, told):
        super().__init__(vine.default_model, template=vine.template, clock=vine.models.new_clock())
        self.asked, self.told = asked, told

    def next_model(self, stage, prefix):
        self.asked.append((stage, prefix))
        return f"m{len(prefix)}"

    def resumed(self, prefix, costs_usd, stages=()):
        self.told.append((prefix, len(costs_usd)))


@pytest.fixture
def vine():
    return VineLM(make_catalog(4), {"test": EchoBackend()}, template=TEMPLATE)


def person(state):
    return {"out": [interrupt("well?")]}


def app_of(vine, way, inner_nodes=("ask", "person", "act"), *, waits_itself=False):
    """plan -> (ask -> a person -> act) -> write: the agent in the middle is a subgraph."""

    def node(name):
        def stage(state: State, model):
            answer = model.invoke("?").text
            if waits_itself and name == "ask":
                interrupt("well?")
            return {"out": [answer]}

        def plain(state: State):
            return stage(state, vine.chat_model(name))

        return vine.stage(name, stage) if way == "stage" else plain

    agent = StateGraph(State)
    for before, name in zip((START, *inner_nodes), inner_nodes, strict=False):
        agent.add_node(name, person if name == "person" else node(name))
        agent.add_edge(before, name)
    graph = StateGraph(State)
    graph.add_node("plan", node("plan"))
    graph.add_node("agent", agent.compile())
    graph.add_node("write", node("write"))
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "agent")
    graph.add_edge("agent", "write")
    graph.add_edge("write", END)
    return graph.compile(checkpointer=InMemorySaver())


@pytest.fixture(params=["sync", "async"])
def served(request, vine):
    """Serves a thread turn by turn; returns what the policy of each turn was asked, and told of earlier ones."""

    def turn(app, given, thread="one"):
        asked, told = [], []
        config = {"configurable": {"thread_id": thread}}
        context = vine.context(policy=Watching(vine, asked, told))
        if request.param == "sync":
            app.invoke(given, config, context=context)
        else:
            asyncio.run(app.ainvoke(given, config, context=context))
        return asked, told

    return turn


@pytest.mark.parametrize("way", ["stage", "chat"])
def test_it_goes_on_behind_the_person(vine, served, way):
    """The invocation inside was lost: ``act`` and ``write`` ran as if ``ask`` had not been."""
    app = app_of(vine, way)
    for _ in range(2):  # the second turn begins anew
        assert served(app, {"out": []})[0] == [("plan", ()), ("ask", ("m0",))]
        asked, told = served(app, Command(resume="yes"))
        assert asked == [("act", ("m0", "m1")), ("write", ("m0", "m1", "m2"))]
        assert told == [(("m0", "m1"), 2)]


@pytest.mark.parametrize("way", ["stage", "chat"])
def test_the_root_goes_on_where_nothing_more_is_invoked_inside(vine, served, way):
    app = app_of(vine, way, ("ask", "act", "person"))
    served(app, {"out": []})
    asked, told = served(app, Command(resume="yes"))
    assert asked == [("write", ("m0", "m1", "m2"))]
    assert told == [(("m0", "m1", "m2"), 3)]


@pytest.mark.parametrize("way", ["stage", "chat"])
def test_a_node_that_waits_itself_is_counted_once(vine, served, way):
    """LangGraph runs it again from its start."""
    app = app_of(vine, way, ("ask", "act"), waits_itself=True)
    assert served(app, {"out": []})[0] == [("plan", ()), ("ask", ("m0",))]
    assert served(app, Command(resume="yes"))[0] == [("ask", ("m0",)), ("act", ("m0", "m1")), ("write", ("m0", "m1", "m2"))]


def test_a_new_question_in_place_of_an_answer_begins_anew(vine, served):
    app = app_of(vine, "stage")
    served(app, {"out": []})
    assert served(app, {"out": []})[0] == [("plan", ()), ("ask", ("m0",))]
    assert served(app, Command(resume="yes"))[0] == [("act", ("m0", "m1")), ("write", ("m0", "m1", "m2"))]


def test_threads_of_one_name_keep_apart(vine, served):
    """Two graphs over one object, or two tenants, with a checkpointer each."""
    apps = [app_of(vine, "chat"), app_of(vine, "chat")]
    for app in apps:
        served(app, {"out": []})
    for app in apps:
        assert served(app, Command(resume="yes"))[0] == [("act", ("m0", "m1")), ("write", ("m0", "m1", "m2"))]


def test_threads_keep_apart(vine, served):
    app = app_of(vine, "chat")
    for thread in ("a", "b"):
        served(app, {"out": []}, thread)
    for thread in ("a", "b"):
        assert served(app, Command(resume="yes"), thread)[0] == [("act", ("m0", "m1")), ("write", ("m0", "m1", "m2"))]
