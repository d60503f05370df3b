"""The wrapped edge: forms of verdict, the policy's say, and LangGraph's own machinery around it."""

from typing import Literal

import pytest
from kit.apps.echo import KINDS, MODES, App, Typed, control, forced, get, path_of, run, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from vinelm.adapters.langgraph import GraphAdapter
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.errors import WorkflowError
from vinelm.policies import DefaultPolicy
from vinelm.template import Loop, Stage, Template

PATH = ["m2", "m0", "m1"]


class Deciding(DefaultPolicy):
    """Ends or goes on as the test says; keeps what it was asked."""

    def __init__(self, vine, answers):
        super().__init__(lambda stage: "m0", clock=vine.new_clock(), template=vine.template)
        self.answers = list(answers)
        self.asked = []

    def should_continue(self, prefix, finished, state, arms=None):
        self.asked.append((prefix, finished, state))
        return self.answers.pop(0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_the_policy_may_end_before_the_workflow_does(schema, mode):
    vine = control()
    policy = Deciding(vine, [True, False])
    result = run(App(schema, mode, turns=9).build(vine).compile(), mode, {"q": "?"}, context=vine.context(policy=policy))
    assert result["a"] == "m0;m0;"
    assert [(prefix, finished) for prefix, finished, _ in policy.asked] == [(("m0",), False), (("m0", "m0"), False)]
    for _, _, state in policy.asked:
        assert type(state) is (dict if schema is Typed else schema)
    assert get(policy.asked[1][2], "a") == "m0;m0;"


@pytest.mark.parametrize("mode", MODES)
def test_a_profile_goes_through_the_workflows_own_end(mode):
    vine = control()
    policy = forced(vine, PATH, mode="through")
    result = run(App(mode=mode, turns=2).build(vine).compile(), mode, {"q": "?"}, context=vine.context(policy=policy))
    assert result["a"] == "m2;m0;m1;"
    assert policy.verdicts == {1: False, 2: True, 3: True}


@pytest.mark.parametrize("mode", MODES)
def test_a_plain_edge_is_not_the_policys(mode):
    vine = control()
    policy = Deciding(vine, [])
    graph = App(mode=mode, turns=2, wrapped=False).build(vine).compile()
    assert run(graph, mode, {"q": "?"}, context=vine.context(policy=policy))["a"] == "m0;m0;"
    assert policy.asked == []


def looping():
    """A control whose template lets generate follow itself."""
    vine = control()
    return GraphAdapter(vine.models, template=Template((Loop((Stage("generate"),), 4),)))


def loop(vine, fn, path_map=None, mode="sync", again="generate"):
    """One stage that is its own loop, the route right behind it; ``tool`` is a third place."""
    graph = StateGraph(Typed)
    graph.add_node("generate", vine.stage("generate", lambda state, model: {"a": state.get("a", "") + "x"}, state=Typed))
    graph.add_node("tool", lambda state: {"q": "tool"})
    graph.add_edge(START, "generate")
    graph.add_conditional_edges("generate", vine.route(fn, again=again, end=END), *([path_map] if path_map else []))
    return graph


def long_enough(state):
    return len(state["a"]) >= 2


async def along_enough(state):
    return len(state["a"]) >= 2


def place(state):
    return END if len(state["a"]) >= 2 else "generate"


def place_in_a_list(state):
    return END if len(state["a"]) >= 2 else ["generate"]


class Check:
    def __call__(self, state) -> bool:
        return len(state["a"]) >= 2

    def method(self, state: Typed) -> bool:
        return len(state["a"]) >= 2


@pytest.mark.parametrize(
    "fn",
    [long_enough, along_enough, lambda state: len(state["a"]) >= 2, place, place_in_a_list, Check(), Check().method],
    ids=["bool", "async bool", "lambda", "place", "list", "object", "method"],
)
def test_forms_of_verdict(fn):
    vine = looping()
    graph = loop(vine, fn).compile()
    mode = "async" if fn is along_enough else "sync"
    policy = forced(vine, ["m0", "m1", "m2"])
    assert run(graph, mode, {"q": "?"}, context=vine.context(policy=policy))["a"] == "xx"
    assert policy.verdicts == {1: False, 2: True}


def test_the_places_are_drawn_and_checked_when_the_graph_is_compiled():
    vine = looping()
    edges = {(edge.source, edge.target) for edge in loop(vine, long_enough).compile().get_graph().edges}
    assert {edge for edge in edges if edge[0] == "generate"} == {("generate", "generate"), ("generate", "__end__")}
    with pytest.raises(ValueError, match="generat"):
        loop(vine, long_enough, again="generat").compile()


def test_a_third_place_is_followed_where_it_is_declared():
    vine = looping()

    def fn(state) -> Literal["generate", "tool", "__end__"]:
        return "tool" if len(state["a"]) >= 2 else "generate"

    policy = forced(vine, PATH)
    assert loop(vine, fn).compile().invoke({"q": "?"}, context=vine.context(policy=policy))["q"] == "tool"
    assert policy.verdicts == {1: False}


def test_a_third_place_that_is_not_declared_is_refused():
    vine = looping()
    with pytest.raises(WorkflowError, match=r"the route went to 'tool'.*Literal"):
        loop(vine, lambda state: "tool").compile().invoke({"q": "?"})


def test_a_verdict_of_another_type_is_langgraphs_to_judge():
    vine = looping()
    with pytest.raises(KeyError):
        loop(vine, lambda state: None).compile().invoke({"q": "?"})


def test_a_route_may_ask_for_config_and_runtime():
    vine = control()
    got = []

    def fn(state: Typed, config, runtime: Runtime) -> bool:
        got.append((config["configurable"].get("mine"), runtime.context["tenant"]))
        return True

    context = vine.context(user={"tenant": "acme"})
    loop(vine, fn).compile().invoke({"q": "?"}, {"configurable": {"mine": 7}}, context=context)
    assert got == [(7, "acme")]


def test_update_state_as_node_follows_the_workflows_own_verdict():
    vine = control()
    graph = App(turns=2).build(vine).compile(checkpointer=InMemorySaver())
    graph.invoke({"q": "?"}, thread(), context=vine.context(policy=Deciding(vine, [False])))
    assert path_of(graph, thread()) == ["m0"]
    graph.update_state(thread(), {"a": "by hand;"}, as_node="execute")
    assert graph.get_state(thread()).next == ("repair",)
    graph.update_state(thread(), {"a": "by;hand;"}, as_node="execute")
    assert graph.get_state(thread()).next == ()


def test_update_state_in_the_middle_of_a_run_follows_the_workflows_own_verdict():
    vine = control()
    graph = App(turns=1).build(vine).compile(checkpointer=InMemorySaver())
    context = vine.context(policy=Deciding(vine, []))
    for text, after in (("one", ("repair",)), ("one;", ())):
        graph.invoke({"q": "?"}, thread(text), context=context, interrupt_before=["execute"])
        graph.update_state(thread(text), {"a": text}, as_node="execute")
        assert graph.get_state(thread(text)).next == after


def test_a_route_before_the_first_stage_is_the_workflows_own_in_every_turn():
    vine = control()
    graph = StateGraph(Typed)
    graph.add_node("generate", vine.stage("generate", lambda state, model: {"a": "x"}, state=Typed))
    graph.add_conditional_edges(START, vine.route(lambda state: False, again="generate", end=END))
    app = graph.compile(checkpointer=InMemorySaver())
    policy = Deciding(vine, [])
    for _ in range(2):
        assert app.invoke({"q": "?", "a": ""}, thread(), context=vine.context(policy=policy))["a"] == "x"
    assert len(policy.invocations) == 2
    assert policy.asked == []


@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_a_route_right_behind_a_stage_sees_a_state_without_the_path(schema):
    """Its function says no type, so LangGraph hands it the stage's own."""
    vine = control()
    seen = []
    graph = StateGraph(schema)
    graph.add_node("generate", vine.stage("generate", lambda state, model: {"a": "x"}, state=schema))
    graph.add_edge(START, "generate")
    graph.add_conditional_edges("generate", vine.route(lambda state: not seen.append(state), again="generate", end=END))
    graph.compile().invoke({"q": "?"}, context=vine.context(policy=forced(vine, ["m0"])))
    if schema is Typed:
        assert seen[0].get("a") == "x"
        assert PATH_KEY not in seen[0]
    else:
        assert type(seen[0]) is schema


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        ("not a function", "needs a function"),
        (lambda: True, "takes no state"),
        (lambda state, db: True, "unknown parameter 'db': it may ask for config, runtime"),
        (lambda state, model: True, "unknown parameter 'model'"),
    ],
)
def test_refusals(fn, words):
    with pytest.raises(WorkflowError, match=words) as caught:
        control().route(fn, again="repair", end=END)
    assert "\n" not in str(caught.value)
