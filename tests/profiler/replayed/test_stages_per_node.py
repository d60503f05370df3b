"""Nodes whose number of calls only shows when they run: loops, calls at the same time, agents and graphs that they make."""

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest
from kit.apps.branching import Asked, control_of
from kit.apps.echo import MODES, run
from kit.toys.profiling import ToyBackend, catalog_for, new_store, toy
from langchain.agents import create_agent
from langgraph.graph import START, StateGraph

from vinelm import VineChatModel
from vinelm.adapters.langgraph.exits import resolved
from vinelm.controller.session.request_rows import InFlight, RequestRows
from vinelm.profiler import ProfileSettings, profile
from vinelm.requests.protocols import Invocation
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Parallel, Stage, Template
from vinelm.template.steps import from_plain, to_plain

MODELS = ("m0", "m1")
WRITE = Stage("write", MODELS)


def wide(name):
    return Stage(name, MODELS, answerable=False, per_node=True)


STUDY = Template((Stage("plan", MODELS, answerable=False), wide("study"), WRITE))
EXPERTS = Template((Parallel((wide("tax"), wide("law"))), WRITE))


class State(TypedDict, total=False):
    question: str
    log: Annotated[list, operator.add]
    answer: str


async def said_by(llm):
    """Call the model in a row, at the same time, in an agent and in a graph; return the six answers."""
    inner = StateGraph(State)
    inner.add_node("read", lambda state: {"log": [llm.invoke("read").text]})
    inner.add_edge(START, "read")
    agent = create_agent(llm, tools=[])
    said = [(await llm.ainvoke(str(turn))).text for turn in range(2)]
    said += [one.text for one in await asyncio.gather(*(llm.ainvoke(f"part {part}") for part in range(2)))]
    said.append((await agent.ainvoke({"messages": [("user", "?")]}))["messages"][-1].text)
    return said + (await inner.compile().ainvoke({}))["log"]


def graph_of(vine, mode, *wide_nodes, plans=True):
    """A plain node if ``plans``, the wide nodes side by side, and a plain node."""
    llm, graph = VineChatModel(vine=vine), StateGraph(State)

    def node(name):
        async def arun(state: State):
            return {"log": [(name, await said_by(llm))]}

        def run_it(state: State):
            asyncio.set_event_loop(None)
            return asyncio.run(arun(state))

        return arun if mode == "async" else run_it

    graph.add_node("plan", lambda state: {"log": [("plan", [llm.invoke("plan").text] if plans else [])]})
    graph.add_node("write", lambda state: {"answer": llm.invoke("write").text})
    graph.add_edge(START, "plan")
    for name in wide_nodes:
        graph.add_node(name, node(name))
        graph.add_edge("plan", name)
    graph.add_edge(list(wide_nodes), "write")
    return graph


@pytest.mark.parametrize("mode", MODES)
def test_one_choice_serves_all_calls_of_the_node(mode):
    vine = control_of(STUDY)
    policy = Asked(vine, {"plan": "m0", "study": "m1", "write": "m0"})
    found = run(graph_of(vine, mode, "study").compile(), mode, {}, context=vine.context(policy=policy))
    assert policy.asked == [("plan", ()), ("study", ("m0",)), ("write", ("m0", "m1"))]
    (_, planned), (_, studied) = found["log"]
    assert (set(planned), set(studied), len(studied)) == ({"m0"}, {"m1"}, 6)
    assert found["answer"] == "m0"
    calls = [(one.stage, one.prefix) for one in policy.invocations]
    assert calls == [("plan", ("m0",)), *[("study", ("m0", "m1"))] * 6, ("write", ("m0", "m1", "m0"))]


def test_nodes_side_by_side_are_chosen_in_the_order_of_the_template():
    vine = control_of(EXPERTS)
    policy = Asked(vine, {"law": "m0", "tax": "m1"})
    app = graph_of(vine, "async", "tax", "law", plans=False).compile()  # LangGraph begins with law, by the alphabet
    found = run(app, "async", {}, context=vine.context(policy=policy))
    assert policy.asked == [("tax", ()), ("law", ("m1",)), ("write", ("m1", "m0"))]
    assert {name: set(said) for name, said in found["log"] if said} == {"law": {"m0"}, "tax": {"m1"}}


@pytest.mark.parametrize(("template", "nodes"), [(STUDY, ["study"]), (EXPERTS, ["tax", "law"])])
def test_a_profile_buys_one_row_for_all_calls_of_the_node(tmp_path, template, nodes):
    def build(vine):
        return graph_of(vine, "async", *nodes, plans=template is STUDY)

    workflow = toy(
        n_requests=2, build=build, template=template, score=lambda request, state: bool(state["answer"]), name="wide"
    )
    backend = ToyBackend()
    with new_store(tmp_path / "s.db", workflow) as store:
        result = profile(workflow, catalog_for(workflow), {"test": backend}, store, ProfileSettings(sampler="exhaustive"))
        rows = store.observations()
    assert (result.stopped_by, result.failures) == ("complete", {})
    assert len(rows) == 2 * (2 + 4 + 8)
    wide_rows = [row for row in rows if row.stage in nodes]
    assert {row.calls for row in wide_rows} == {6}
    assert {row.calls for row in rows if row.stage not in nodes} == {1}
    for row in wide_rows:
        assert row.cost_usd == pytest.approx(6 * (1 + 2 + 3 * row.depth + int(row.model[1:])) / 1e4)
    assert len(backend.calls) == sum(row.calls for row in rows)  # replays bought nothing
    if template is STUDY:  # four turns one after the other, two calls at once; each takes as many seconds as its depth
        assert {row.latency_s for row in wide_rows} <= {10.0, 12.0}


@pytest.mark.parametrize(
    ("calls", "latency_s"),
    [
        ([(3.0, 1.0), (9.0, 4.0)], 5.0),  # one after the other, with the application's own work between them
        ([(6.0, 4.0), (6.5, 4.0)], 4.5),  # at the same time, nearly
    ],
)
def test_a_served_row_has_the_seconds_of_all_calls(calls, latency_s):
    """It had those of its longest call, where a profile's row had those of all."""
    rows, clock = [], iter([1.0, 1.0, *(ended_s for ended_s, _ in calls)])
    served = RequestRows("r", STUDY, rows.append, InFlight({}), lambda: next(clock))
    served.began("plan", ("m0",), 0.0, None)
    served.ended(Invocation(stage="plan", prefix=("m0",), latency_s=1.0), None)
    served.began("study", ("m0", "m1"), 0.0, None)
    for _, took_s in calls:
        served.ended(Invocation(stage="study", prefix=("m0", "m1"), latency_s=took_s), None)
    served.close()
    assert [(row.stage, row.latency_s) for row in rows] == [("plan", 1.0), ("study", latency_s)]


def test_it_is_read_from_the_graph_and_kept_in_files():
    request = Request("q0", {"question": "?"})
    read = Workflow(
        name="read", build=lambda vine: graph_of(vine, "async", "study"), requests=[request], score=lambda *_: False
    )
    found = resolved(read, control_of(None)).template
    assert [stage.name for stage in found.stages if stage.per_node] == ["study"]
    assert from_plain(to_plain(wide("study"))) == wide("study")
    assert "per_node" not in to_plain(WRITE)  # files of others stay as they are
