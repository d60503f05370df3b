"""Stages inside subgraphs, and code without a graph, are served: the run itself keeps their path."""

import asyncio
import operator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypedDict

import pytest
from kit.apps.echo import EchoBackend, Typed, make_catalog, thread
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send

from vinelm import VineChatModel, VineMiddleware
from vinelm.adapters.langgraph import GraphAdapter, build_graph
from vinelm.adapters.langgraph.inner_app import runs_async
from vinelm.backends.resolver import ModelResolver
from vinelm.clock import VirtualClock
from vinelm.errors import WorkflowError
from vinelm.policies import Policy
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Stage, Template


class Asked(Policy):
    """Answers every question with the number of invocations so far, and keeps the questions."""

    def __init__(self):
        super().__init__(clock=VirtualClock())
        self.asked = []

    def next_model(self, stage, prefix):
        self.asked.append((stage, prefix))
        return f"m{len(prefix) % 3}"

    def should_continue(self, prefix, finished, state, arms=None):
        return not finished


def adapter(**settings):
    return GraphAdapter(ModelResolver(make_catalog(3), {"test": EchoBackend()}), **settings)


def asked_by(app, vine, inputs, **arguments):
    policy = Asked()
    out = app.invoke(inputs, context=vine.context(policy=policy), **arguments)
    return policy.asked, out


def chain(*names):
    """What a path of these stages asks of the policy."""
    return [(name, tuple(f"m{i % 3}" for i in range(k))) for k, name in enumerate(names)]


def node(vine, name):
    def run(state: Typed, model) -> Typed:
        return {"a": model.invoke("x").text, "log": [name]}

    return vine.stage(name, run)


def line(*nodes):
    graph = StateGraph(Typed)
    previous = START
    for name, function in nodes:
        graph.add_node(name, function)
        graph.add_edge(previous, name)
        previous = name
    return graph


@pytest.mark.parametrize("form", ["node", "called"])
@pytest.mark.parametrize("checkpointer", [None, True])
def test_wrapped_stages_in_a_subgraph_follow_those_of_the_root(form, checkpointer):
    vine = adapter()
    inner = line(("draft", node(vine, "draft")), ("edit", node(vine, "edit"))).compile()
    middle = inner if form == "node" else lambda state: {"a": inner.invoke({"q": "?"})["a"]}
    app = line(("plan", node(vine, "plan")), ("write", middle), ("sign", node(vine, "sign"))).compile(
        checkpointer=InMemorySaver() if checkpointer else None
    )
    for turn in range(2):  # a second turn on the thread is another request
        asked, _ = asked_by(app, vine, {"q": "?"}, config=thread())
        assert asked == chain("plan", "draft", "edit", "sign"), turn


def test_agents_in_a_graph_that_calls_first():
    """The first invocation of the run is inside a subgraph; the root graph's stages follow it."""
    vine = adapter()
    agent = create_agent(VineChatModel(vine=vine, stage="boss"), tools=[], middleware=[VineMiddleware(vine, stage="boss")])

    def last(state: MessagesState, model):
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("last", vine.stage("last", last))
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "last")
    asked, out = asked_by(graph.compile(), vine, {"messages": [("user", "?")]})
    assert asked == chain("boss", "last")
    assert [message.text for message in out["messages"]] == ["?", "m0", "m1"]


class Fan(TypedDict, total=False):
    parts: Annotated[list, operator.add]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_fan_out_of_subgraphs_shares_the_place_of_each_call(is_async):
    vine = adapter()
    llm = vine_chat(vine, "work")

    async def work_async(state: Fan):
        return {"parts": [(await llm.ainvoke("a")).text, (await llm.ainvoke("b")).text]}

    def work(state: Fan):
        return {"parts": [llm.invoke("a").text, llm.invoke("b").text]}

    inner = StateGraph(Fan)
    inner.add_node("work", work_async if is_async else work)
    inner.add_edge(START, "work")
    graph = StateGraph(Fan)
    graph.add_node("worker", inner.compile())
    graph.add_conditional_edges(START, lambda state: [Send("worker", {"parts": []}) for _ in range(3)], ["worker"])
    app, policy = graph.compile(), Asked()
    context = vine.context(policy=policy)
    out = asyncio.run(app.ainvoke({}, context=context)) if is_async else app.invoke({}, context=context)
    assert policy.asked == chain("work", "work")
    assert sorted(out["parts"]) == ["m0"] * 3 + ["m1"] * 3
    assert len(policy.invocations) == 6


def vine_chat(vine, stage):
    return VineChatModel(vine=vine, stage=stage)


def test_concurrent_requests_do_not_mix():
    vine = adapter()
    inner = line(("draft", node(vine, "draft")), ("edit", node(vine, "edit"))).compile()
    app = line(("plan", node(vine, "plan")), ("write", inner)).compile()
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda _: asked_by(app, vine, {"q": "?"})[0], range(60)))
    assert found == [chain("plan", "draft", "edit")] * 60


def test_a_graph_inside_with_settings_of_its_own_is_another_request():
    vine = adapter()
    inner, other = line(("draft", node(vine, "draft"))).compile(), Asked()

    def ask(state: Typed):
        return {"a": inner.invoke({"q": "?"}, context=vine.context(policy=other))["a"]}

    app = line(("plan", node(vine, "plan")), ("ask", ask), ("sign", node(vine, "sign"))).compile()
    asked, _ = asked_by(app, vine, {"q": "?"})
    assert (asked, other.asked) == (chain("plan", "sign"), chain("draft"))


def test_a_stage_may_hand_over_to_the_graph_around_it():
    """The hand-off of a swarm: Command(graph=PARENT) from inside an agent."""
    vine = adapter()

    def first(state: Typed, model):
        return Command(graph=Command.PARENT, goto="second", update={"a": model.invoke("x").text})

    inner = line(("first", vine.stage("first", first))).compile()
    graph = StateGraph(Typed)
    graph.add_node("one", inner, destinations=("second",))
    graph.add_node("second", node(vine, "second"))
    graph.add_edge(START, "one")
    asked, out = asked_by(graph.compile(), vine, {"q": "?"})
    assert (asked, out["a"]) == (chain("first", "second"), "m1")


def workflow(build, *names):
    template = Template(tuple(Stage(name, ("m0", "m1", "m2")) for name in names))
    return Workflow(name="w", template=template, build=build, requests=[Request("q", {"q": "?"})], score=lambda r, s: True)


def function_of(vine):
    one, two = vine_chat(vine, "one"), vine_chat(vine, "two")

    def app(inputs):
        return {"a": one.invoke(inputs["q"]).text + two.invoke("y").text + one.invoke("z").text}

    return app


def coroutine_of(vine):
    one, two = vine_chat(vine, "one"), vine_chat(vine, "two")

    async def app(inputs):
        return {"a": "".join([(await llm.ainvoke("x")).text for llm in (one, two, one)])}

    return app


def entrypoint_of(vine):
    one, two = vine_chat(vine, "one"), vine_chat(vine, "two")

    @task
    def again(text):
        return two.invoke(text).text

    @entrypoint()
    def app(inputs):
        return {"a": one.invoke("x").text + again("y").result() + one.invoke("z").text}

    return app


@pytest.mark.parametrize("build", [function_of, coroutine_of, entrypoint_of])
def test_code_without_a_graph(build):
    vine = adapter()
    app = build_graph(workflow(build, "one", "two"), vine)
    for _ in range(2):
        asked, out = asked_by(app, vine, {"q": "?"})
        assert (asked, out["a"]) == (chain("one", "two", "one"), "m0m1m2")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_graph_with_a_tool_that_is_a_coroutine_is_run_asynchronously(is_async):
    """As the tools of MCP servers are; run synchronously, LangChain refuses them."""

    def look(name: str) -> str:
        """Look it up."""
        return name

    async def alook(name: str) -> str:
        """Look it up."""
        return name

    find = StructuredTool.from_function(func=None if is_async else look, coroutine=alook, name="find", description="finds")
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([find]))
    graph.add_edge(START, "tools")
    assert runs_async(graph.compile()) is is_async


def test_a_function_that_returns_no_state_says_so():
    vine = adapter()
    app = build_graph(workflow(lambda vine: lambda inputs: "text", "one"), vine)
    with pytest.raises(WorkflowError, match="returned str: return a dict, the state"):
        app.invoke({"q": "?"})


@pytest.mark.parametrize("own", [True, InMemorySaver()])
def test_a_subgraph_with_a_checkpointer_of_its_own_is_refused(own):
    def build(vine):
        return line(("write", line(("draft", node(vine, "draft"))).compile(checkpointer=own)))

    with pytest.raises(WorkflowError, match="stage 'draft' is inside a subgraph of the node 'write' that is compiled with a"):
        build_graph(workflow(build, "draft"), adapter())


def test_a_failed_call_in_a_subgraph_gives_its_place_to_the_next():
    from vinelm.errors import CallError

    backend = EchoBackend(fail={"m0": CallError("no", kind="server")})
    vine = GraphAdapter(ModelResolver(make_catalog(3), {"test": backend}))
    llm = vine_chat(vine, "ask")

    class Other(Asked):
        def next_model(self, stage, prefix):
            super().next_model(stage, prefix)
            return ("m0", "m1", "m2")[len(self.asked) - 1]

    def ask(state: Typed):
        return {"a": llm.with_fallbacks([llm]).invoke("x").text + llm.invoke("y").text}

    app, policy = line(("write", line(("ask", ask)).compile())).compile(), Other()
    assert app.invoke({"q": "?"}, context=vine.context(policy=policy))["a"] == "m1m2"
    assert policy.asked == [("ask", ()), ("ask", ()), ("ask", ("m1",))]
