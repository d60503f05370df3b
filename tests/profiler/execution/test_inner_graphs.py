"""Graphs inside a node: they inherit the unit's checkpointer by its namespace, and behave as in an application."""

import json
from dataclasses import dataclass, field, replace
from typing import Annotated, TypedDict

import pytest
from kit.toys.profiling import ToyBackend, catalog_for, new_store, toy

from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.unit import UnitRunner
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Usage
from vinelm.template import Loop, Stage, Template

create_agent = pytest.importorskip("langchain.agents").create_agent

SCRIPT = json.dumps({"calls": [{"name": "add", "args": {"a": 2, "b": 2}}], "answer": "four"})
DEPTH = 3


class State(TypedDict, total=False):
    question: str
    answer: str
    seen: list[int]


class Inner(TypedDict, total=False):
    question: str
    answer: str
    turns: Annotated[int, lambda a, b: a + b]


@dataclass
class Scripted(ToyBackend):
    """Calls the tool, then answers: two calls of the model in each invocation."""

    added: list = field(default_factory=list)

    def answer(self, model, call, prompt_chars):
        usage = Usage(model=model.name, cost_usd=0.001, latency_s=1.0, tokens_in=10, tokens_out=2)
        return SCRIPT, usage


def agent_nodes(backend):
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        backend.added.append((a, b))
        return a + b

    def inside(model):
        return create_agent(model, [add], system_prompt="Use the tool.")

    def solve(state: State, model) -> State:
        out = inside(model).invoke({"messages": [("user", state["question"])]})
        return {"answer": out["messages"][-1].text, "seen": [*state.get("seen", []), len(out["messages"])]}

    async def asolve(state: State, model) -> State:
        out = await inside(model).ainvoke({"messages": [("user", state["question"])]})
        return {"answer": out["messages"][-1].text, "seen": [*state.get("seen", []), len(out["messages"])]}

    return solve, asolve


def workflow_of(node, finished=lambda state: False):
    def build(vine):
        from langgraph.graph import END, START, StateGraph

        graph = StateGraph(State)
        graph.add_node("solve", vine.stage("solve", node))
        graph.add_node("again", vine.stage("again", node))
        graph.add_edge(START, "solve")
        route = vine.route(finished, again="again", end=END)
        for name in ("solve", "again"):
            graph.add_conditional_edges(name, route, ["again", END])
        return graph

    template = Template((Stage("solve", ("m0",)), Loop((Stage("again", ("m0",)),), DEPTH - 1)))
    return toy(
        n_requests=2, template=template, build=build, score=lambda request, state: state["answer"] == "four",
        requests=[Request(f"q{i}", {"question": f"2 + 2, number {i}"}) for i in range(2)], labels=(),
    )  # fmt: skip


@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_inside_a_node_answers_in_every_unit(tmp_path, is_async):
    backend = Scripted()
    workflow = workflow_of(agent_nodes(backend)[is_async])
    with new_store(tmp_path / "s.db", workflow, backend) as store:
        result = profile(workflow, catalog_for(workflow), {"test": backend}, store, ProfileSettings(sampler="exhaustive"))
        rows = store.observations()
    assert (result.executed, result.failures) == (2 * DEPTH, {})
    assert {(row.success, row.calls, row.cost_usd) for row in rows} == {(True, 2, 0.002)}
    assert backend.added == [(2, 2)] * (2 * DEPTH)


def run_path(workflow, depth=DEPTH):
    """The state after each unit, each in a runner of its own, as in a process of its own."""
    outcome, seen = None, []
    for k in range(1, depth + 1):
        units = UnitRunner(replace(workflow, score=lambda request, state: not seen.append(state)), *world(workflow))
        outcome = units.run(workflow.requests[0], ("m0",) * k, outcome.checkpoint if outcome else None)
        assert outcome.observation.failure is None, outcome.observation.detail
    return seen


def world(workflow):
    return catalog_for(workflow), {"test": Scripted()}


def inner_graph(checkpointer):
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(Inner)
    graph.add_node("first", lambda state: {"turns": 1})
    graph.add_node("second", lambda state: {"answer": f"{state['question']}, turn {state['turns']}"})
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    return graph.compile(checkpointer=checkpointer)


def asking(inner, times=1):
    def node(state: State, model) -> State:
        model.invoke("hello")
        seen = state.get("seen", [])
        for _ in range(times):
            out = inner.invoke({"question": f"ask {len(seen)}"})
            seen = [*seen, out["turns"]]
        return {"answer": out["answer"], "seen": seen}

    return node


@pytest.mark.parametrize("checkpointer", [None, False])
def test_a_graph_without_a_memory_starts_anew_each_time(checkpointer):
    workflow = workflow_of(asking(inner_graph(checkpointer), times=2))
    *_, last = run_path(workflow)
    assert last["seen"] == [1] * (2 * DEPTH)
    assert last["answer"] == f"ask {2 * DEPTH - 1}, turn 1"


@pytest.mark.parametrize("times", [1, 2])
def test_a_graph_with_a_memory_keeps_it_from_unit_to_unit_and_takes_each_input(times):
    """As the application's own run does, which is never resumed between two stages."""
    from langgraph.checkpoint.memory import InMemorySaver

    workflow = workflow_of(asking(inner_graph(True), times), finished=lambda state: len(state["seen"]) >= DEPTH * times)
    *_, last = run_path(workflow)
    from vinelm.adapters.langgraph import GraphAdapter, build_graph
    from vinelm.backends.resolver import ModelResolver
    from vinelm.clock import VirtualClock
    from vinelm.policies import ForcedPolicy

    adapter = GraphAdapter(ModelResolver(*world(workflow)), template=workflow.template, new_policy=None)
    graph = build_graph(workflow, adapter, checkpointer=InMemorySaver())
    policy = ForcedPolicy(
        workflow.template, dict.fromkeys(range(DEPTH), "m0"), mode="stop", clock=VirtualClock(), request=workflow.requests[0]
    )
    whole = graph.invoke(
        workflow.graph_input(workflow.requests[0]),
        {"configurable": {"thread_id": "t"}},
        context=adapter.context(policy=policy, request=workflow.requests[0]),
    )
    assert last["seen"] == whole["seen"] == [turn for turn in (1, 1, 2) for _ in range(times)]  # a memory per node and place
    assert last["answer"] == whole["answer"]


def test_another_path_of_the_request_does_not_see_that_memory():
    """Nor the unit's own, executed once more."""
    workflow, seen = workflow_of(asking(inner_graph(True))), []
    units = UnitRunner(replace(workflow, score=lambda request, state: not seen.append(state)), *world(workflow))
    request, checkpoint = workflow.requests[0], None
    for k in range(1, DEPTH + 1):
        contents = {units.run(request, ("m0",) * k, checkpoint).checkpoint for _ in range(3)}
        (checkpoint,) = contents
    assert [state["seen"] for state in seen] == [[1]] * 3 + [[1, 1]] * 3 + [[1, 1, 2]] * 3


def test_the_state_of_a_graph_without_a_memory_need_not_be_serializable():
    class Odd(TypedDict, total=False):
        question: str
        handle: object
        turns: int
        answer: str

    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(Odd)
    graph.add_node("first", lambda state: {"handle": lambda: 1})
    graph.add_node("second", lambda state: {"turns": state["handle"](), "answer": "four"})
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    *_, last = run_path(workflow_of(asking(graph.compile())))
    assert last["answer"] == "four"


def test_equal_runs_of_a_graph_with_a_memory_give_equal_checkpoints():
    workflow = workflow_of(asking(inner_graph(True)))
    units = [UnitRunner(workflow, *world(workflow)) for _ in range(2)]
    first = [one.run(workflow.requests[0], ("m0",), None).checkpoint for one in units]
    second = [
        one.run(workflow.requests[0], ("m0", "m0"), content).checkpoint for one, content in zip(units, first, strict=True)
    ]
    assert first[0] == first[1] is not None
    assert second[0] == second[1] is not None


def test_a_subgraph_as_a_node_runs_in_every_unit(tmp_path):
    """A tool of the graph that is a graph itself."""

    def build(vine):
        from langgraph.graph import END, START, StateGraph

        inner = StateGraph(State)
        inner.add_node("check", lambda state: {"answer": "four"})
        inner.add_edge(START, "check")
        inner.add_edge("check", END)
        graph = StateGraph(State)

        def solve(state: State, model) -> State:
            return {"answer": model.invoke("hello").text}

        graph.add_node("solve", vine.stage("solve", solve))
        graph.add_node("again", vine.stage("again", solve))
        graph.add_node("inner", inner.compile())
        graph.add_edge(START, "solve")
        graph.add_edge("solve", "inner")
        graph.add_edge("again", "inner")
        graph.add_conditional_edges("inner", vine.route(lambda state: False, again="again", end=END), ["again", END])
        return graph

    *_, last = run_path(replace(workflow_of(None), build=build))
    assert last["answer"] == "four"
