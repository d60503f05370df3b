"""A node that is not wrapped and calls a chat model: it fails, is tried again and is resumed as without VineLM."""

import asyncio
from operator import add
from typing import Annotated, TypedDict

import pytest
from kit.apps.chat import ScriptedBackend, chat_control, follow
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from vinelm.adapters.langchain import VineChatModel
from vinelm.adapters.langgraph.path.within_node import with_path_channel

THREAD = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    done: Annotated[list[str], add]


class Script:
    """What happens behind the calls of each node, one item for each execution: an error to raise, "ask", or nothing."""

    def __init__(self, **happens):
        self.happens, self.log = happens, []

    def end(self, node):
        self.log.append(node)
        what = self.happens.get(node, [None])
        now = what.pop(0) if len(what) > 1 else what[0]
        if now == "ask":
            interrupt("may I?")
        elif now is not None:
            raise now


def chain(vine, script, *nodes, calls=1, is_async=False, retry=None, saver=None, has_channel=True):
    """Nodes one after the other, each with so many calls of a chat model of its own."""
    graph = StateGraph(State)
    models = {node: VineChatModel(vine=vine, stage=node) for node in nodes}

    def node_of(name):
        def run(_state):
            for _ in range(calls):
                models[name].invoke("hello")
            script.end(name)
            return {"done": [name]}

        async def arun(_state):
            for _ in range(calls):
                await models[name].ainvoke("hello")
            script.end(name)
            return {"done": [name]}

        return arun if is_async else run

    for name in nodes:
        graph.add_node(name, node_of(name), retry_policy=retry)
    for before, after in zip((START, *nodes), (*nodes, END), strict=True):
        graph.add_edge(before, after)
    compiled = graph.compile(checkpointer=saver or InMemorySaver())
    return with_path_channel(compiled) if has_channel else compiled


def run(graph, given, vine, models, *, is_async, config=THREAD):
    context = vine.context(policy=follow(vine, *models))
    if is_async:
        return asyncio.run(graph.ainvoke(given, config, context=context))
    return graph.invoke(given, config, context=context)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["channel added to the run", "channel of the graph"])
def has_channel(request):
    return request.param


@pytest.fixture
def backend():
    return ScriptedBackend()


@pytest.fixture
def vine(backend):
    return chat_control(backend, depth=4)


def paths(backend):
    """The models up to each call, its own included."""
    return [" ".join(prefix) for _, prefix, _ in backend.log]


def test_a_node_that_fails_after_its_call_is_run_again_when_the_run_goes_on(vine, backend, is_async, has_channel):
    script = Script(second=[ValueError("no luck"), None])
    graph = chain(vine, script, "first", "second", is_async=is_async, has_channel=has_channel)
    with pytest.raises(ValueError, match="no luck"):
        run(graph, {"done": []}, vine, ("m0", "m1"), is_async=is_async)
    assert graph.get_state(THREAD).next == ("second",)
    found = run(graph, None, vine, ("m0", "m2"), is_async=is_async)
    assert found["done"] == ["first", "second"]
    assert script.log == ["first", "second", "second"]
    assert paths(backend) == ["m0", "m0 m1", "m0 m2"]  # what failed has no place


def test_so_it_is_in_another_process(vine, is_async):
    saver, script = InMemorySaver(), Script(second=[ValueError("no luck"), None])
    graph = chain(vine, script, "first", "second", saver=saver, is_async=is_async)
    with pytest.raises(ValueError, match="no luck"):
        run(graph, {"done": []}, vine, ("m0", "m1"), is_async=is_async)
    backend = ScriptedBackend()
    fresh = chat_control(backend, depth=4)
    graph = chain(fresh, script, "first", "second", saver=saver, is_async=is_async)
    assert run(graph, None, fresh, ("m0", "m2"), is_async=is_async)["done"] == ["first", "second"]
    assert script.log == ["first", "second", "second"]
    assert paths(backend) == ["m0 m2"]


def test_an_attempt_that_is_tried_again_leaves_no_place(vine, backend, is_async, has_channel):
    script = Script(first=[ConnectionError("away"), ConnectionError("away"), None])
    policy = RetryPolicy(initial_interval=0.001, jitter=False, max_attempts=3, retry_on=ConnectionError)
    graph = chain(vine, script, "first", "second", calls=2, is_async=is_async, retry=policy, has_channel=has_channel)
    run(graph, {"done": []}, vine, ("m0", "m1", "m2", "m0"), is_async=is_async)
    assert script.log == ["first", "first", "first", "second"]
    assert paths(backend) == [*["m0", "m0 m1"] * 3, "m0 m1 m2", "m0 m1 m2 m0"]


def test_an_execution_that_asks_leaves_no_place_before_it_is_answered(vine, backend, is_async, has_channel):
    script = Script(first=["ask"])
    graph = chain(vine, script, "first", "second", calls=2, is_async=is_async, has_channel=has_channel)
    run(graph, {"done": []}, vine, ("m0", "m1", "m2", "m0"), is_async=is_async)
    run(graph, Command(resume="yes"), vine, ("m0", "m1", "m2", "m0"), is_async=is_async)
    assert paths(backend) == [*["m0", "m0 m1"] * 2, "m0 m1 m2", "m0 m1 m2 m0"]


def test_calls_of_one_node_and_the_edge_behind_it_see_those_before(vine):
    """The route asks for the path in the task of the node, before its superstep has ended."""
    graph = StateGraph(State)
    model = VineChatModel(vine=vine, stage="s0")

    def once(_state):
        model.invoke("hello")
        return {"done": ["once"]}

    asked = []
    graph.add_node("s0", once)
    graph.add_edge(START, "s0")
    graph.add_conditional_edges("s0", vine.route(lambda _state: bool(asked.append(1)), again="s0", end=END, times=2))
    found = run(graph.compile(), {"done": []}, vine, ("m0", "m1", "m2"), is_async=False, config={})
    assert found["done"] == ["once"] * 3


def test_a_node_of_which_a_neighbour_fails_keeps_what_it_has_done(vine):
    """LangGraph keeps its update and runs the other one only; the plan goes on behind both."""
    graph = StateGraph(State)
    model = VineChatModel(vine=vine, stage="left")
    failures = [ValueError("no luck"), None]

    def left(_state):
        model.invoke("hello")
        return {"done": ["left"]}

    def right(_state):
        if (failure := failures.pop(0)) is not None:
            raise failure
        return {"done": ["right"]}

    def last(_state):
        VineChatModel(vine=vine, stage="last").invoke("hello")
        return {"done": ["last"]}

    for node in (left, right, last):
        graph.add_node(node.__name__, node)
    for before, after in ((START, "left"), (START, "right"), (["left", "right"], "last"), ("last", END)):
        graph.add_edge(before, after)
    compiled = graph.compile(checkpointer=InMemorySaver())
    with pytest.raises(ValueError, match="no luck"):
        run(compiled, {"done": []}, vine, ("m0", "m1"), is_async=False)
    assert run(compiled, None, vine, ("m0", "m1"), is_async=False)["done"] == ["left", "right", "last"]


def test_tasks_of_the_functional_api_that_have_ended_are_not_run_again(vine):
    log, failures = [], [ValueError("no luck"), None]

    @task
    def draft():
        log.append("draft")
        return VineChatModel(vine=vine, stage="draft").invoke("hello").text

    @task
    def check():
        log.append("check")
        VineChatModel(vine=vine, stage="check").invoke("hello")
        if (failure := failures.pop(0)) is not None:
            raise failure
        return True

    @entrypoint(checkpointer=InMemorySaver())
    def app(_given):
        draft().result()
        return check().result()

    with pytest.raises(ValueError, match="no luck"):
        run(app, "q", vine, ("m0", "m1"), is_async=False)
    assert run(app, None, vine, ("m0", "m1"), is_async=False) is True
    assert log == ["draft", "check", "check"]
