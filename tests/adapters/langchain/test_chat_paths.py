"""The path of chat models in a hand-built graph, whose state knows nothing of VineLM: it goes on where the run goes on."""

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest
from kit.apps.echo import EchoBackend
from kit.catalogs import make_catalog
from kit.templates import make_template
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

from vinelm import VineLM
from vinelm.adapters.langchain import VineChatModel
from vinelm.policies import DefaultPolicy


class State(TypedDict, total=False):
    out: Annotated[list, operator.add]


class Watching(DefaultPolicy):
    """Notes what it is asked, and runs each invocation on the model of that number."""

    def __init__(self, vine, seen):
        super().__init__(vine.default_model, template=vine.template)
        self.seen = seen

    def next_model(self, stage, prefix):
        self.seen.append((stage, prefix))
        return f"m{len(prefix)}"


@pytest.fixture
def vine():
    catalog = make_catalog(3)
    return VineLM(catalog, {"test": EchoBackend()}, template=make_template(3, 3))


def app_of(vine, generate=None, **options):
    model = vine.chat_model()

    def ask(state: State):
        return {"out": [model.invoke("?").text]}

    graph = StateGraph(State)
    graph.add_node("generate", generate or ask, **options)
    graph.add_node("person", lambda state: {"out": [interrupt("well?")]})
    graph.add_node("repair", ask)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "person")
    graph.add_edge("person", "repair")
    graph.add_edge("repair", END)
    return graph.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("mode", [pytest.param("sync", marks=pytest.mark.long), "async"])
def test_a_resumed_run_goes_on_and_the_next_turn_begins_anew(vine, mode):
    """It began anew at ``repair``, which then ran as a first invocation."""
    app, seen = app_of(vine), []
    config = {"configurable": {"thread_id": "one"}}

    def call(given):
        context = vine.context(policy=Watching(vine, seen))
        return (
            app.invoke(given, config, context=context)
            if mode == "sync"
            else asyncio.run(app.ainvoke(given, config, context=context))
        )

    for _ in range(2):
        call({"out": []})
        call(Command(resume="yes"))
    assert seen == [("generate", ()), ("repair", ("m0",))] * 2
    assert "vinelm_path" not in app.get_state(config).values


def test_threads_keep_apart(vine):
    app, seen = app_of(vine), []
    for thread in ("a", "b"):
        app.invoke({"out": []}, {"configurable": {"thread_id": thread}}, context=vine.context(policy=Watching(vine, seen)))
    app.invoke(Command(resume="x"), {"configurable": {"thread_id": "a"}}, context=vine.context(policy=Watching(vine, seen)))
    assert seen == [("generate", ()), ("generate", ()), ("repair", ("m0",))]


def test_threads_of_one_name_keep_apart(vine):
    """Two graphs over one object, or two tenants, with a checkpointer each."""
    apps, seen = [app_of(vine), app_of(vine)], []
    config = {"configurable": {"thread_id": "1"}}
    for app, given in zip((*apps, *apps), ({"out": []}, {"out": []}, Command(resume="x"), Command(resume="x")), strict=True):
        app.invoke(given, config, context=vine.context(policy=Watching(vine, seen)))
    assert seen == [("generate", ())] * 2 + [("repair", ("m0",))] * 2


def test_a_node_that_is_tried_again_leaves_one_invocation(vine):
    model, tries, seen = VineChatModel(vine=vine), [], []

    def flaky(state: State):
        answer = model.invoke("?").text
        tries.append(answer)
        if len(tries) < 3:
            raise OSError("the tool behind the call is down")
        return {"out": [answer]}

    app = app_of(vine, flaky, retry_policy=RetryPolicy(initial_interval=0.001, jitter=False, retry_on=OSError))
    config = {"configurable": {"thread_id": "one"}}
    for given in ({"out": []}, Command(resume="x")):
        app.invoke(given, config, context=vine.context(policy=Watching(vine, seen)))
    assert len(tries) == 3
    assert seen[-1] == ("repair", ("m0",))


def test_calls_of_one_node_follow_one_another_and_branches_share_a_place(vine):
    first, model, seen = vine.chat_model("generate"), vine.chat_model("repair"), []

    def work(state):
        return {"out": [first.invoke("?").text, model.invoke("?").text]}

    graph = StateGraph(State)
    graph.add_node("plan", lambda state: {})
    graph.add_node("work", work)
    graph.add_node("join", lambda state: {"out": [model.invoke("?").text]})
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", lambda state: [Send("work", {}) for _ in range(2)], ["work"])
    graph.add_edge("work", "join")
    app = graph.compile()
    out = app.invoke({"out": []}, context=vine.context(policy=Watching(vine, seen)))["out"]
    assert out[-1] == "m2"
    assert sorted(out[:-1]) == ["m0", "m0", "m1", "m1"]


def test_the_vine_whose_context_it_is_plans_the_run(vine):
    """A graph at module level is served by another VineLM: ``vinelm verify``, a second trie."""
    other = VineLM(make_catalog(3), {"test": EchoBackend()})
    app, seen = app_of(vine), []
    app.invoke({"out": []}, {"configurable": {"thread_id": "one"}}, context=other.context(policy=Watching(other, seen)))
    assert seen == [("generate", ())]
    assert len(other.models.backends["test"].calls) == 1
    assert vine.models.backends["test"].calls == []


def test_without_an_edge_of_vinelm_no_plan_ends_early(vine):
    """``vine.chat_model()`` names its stages only when it is called, after the plan was made."""
    assert VineLM(make_catalog(3), {"test": EchoBackend()}).adapter.can_end
    vine.chat_model()
    assert not vine.adapter.can_end
