"""A decorated stage is still its function: called in a test, or by other code, without a graph around it."""

import asyncio

import pytest
from kit.apps.echo import EchoBackend, forced
from kit.catalogs import make_catalog
from kit.templates import make_template
from langchain_core.language_models import FakeListChatModel
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from vinelm import VineLM


class State(TypedDict, total=False):
    question: str
    out: str


@pytest.fixture
def vine():
    return VineLM(make_catalog(3), {"test": EchoBackend()}, template=make_template(3, 3))


def stages(vine):
    """The same stage, sync and async, each called from plain code."""

    @vine.stage("generate")
    def ask(state: State, model, config=None):
        return {"out": model.invoke(state["question"]).text, "config": config}

    @vine.stage("generate")
    async def aask(state: State, model, config=None):
        return {"out": (await model.ainvoke(state["question"])).text, "config": config}

    return {"sync": ask, "async": lambda *given, **named: asyncio.run(aask(*given, **named))}


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_test_gives_a_model_of_its_own(vine, how):
    """It failed: "missing 2 required positional arguments: 'config' and 'runtime'"."""
    ask, fake = stages(vine)[how], FakeListChatModel(responses=["fake"])
    assert ask({"question": "?"}, fake) == {"out": "fake", "config": None}
    assert ask({"question": "?"}, model=fake, config={"tags": ["a"]}) == {"out": "fake", "config": {"tags": ["a"]}}
    assert vine.models.backends["test"].calls == []


@pytest.mark.parametrize("how", ["sync", "async"])
def test_without_a_model_it_runs_on_the_default_one(vine, how):
    assert stages(vine)[how]({"question": "?"}) == {"out": "m0", "config": None}


@pytest.mark.parametrize("how", ["sync", "async"])
def test_in_a_with_block_it_is_an_invocation_of_the_request(vine, how):
    policy = forced(vine, ("m2", "m1"))
    with vine.request(policy=policy):
        ask = stages(vine)[how]
        assert [ask({"question": "?"})["out"] for _ in range(2)] == ["m2", "m1"]
    assert [one.prefix for one in policy.invocations] == [("m2",), ("m2", "m1")]


def test_in_a_node_of_a_graph_it_is_an_invocation_of_the_run(vine):
    ask = stages(vine)["sync"]

    @vine.stage("repair")
    def again(state: State, model):
        return {"out": state["out"] + model.invoke("?").text}

    graph = StateGraph(State)
    graph.add_node("both", lambda state: again({"out": ask(state)["out"]}))
    graph.add_edge(START, "both")
    graph.add_edge("both", END)
    context = vine.context(policy=forced(vine, ("m1", "m2")))
    assert graph.compile().invoke({"question": "?"}, context=context)["out"] == "m1m2"


def test_what_the_function_raises_is_raised(vine):
    @vine.stage("generate")
    def broken(state: State, model):
        raise OSError("down")

    policy = forced(vine, ("m1",))
    with vine.request(policy=policy), pytest.raises(OSError, match="down"):
        broken({})
    assert [one.failure for one in policy.invocations] == ["tool"]


def test_a_wrong_argument_is_named_by_python(vine):
    with pytest.raises(TypeError, match="modle"):
        stages(vine)["sync"]({}, modle=1)
