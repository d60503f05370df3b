"""Which request does a stored path belong to: second turns, abandoned runs, runs that go on past their end."""

import pytest
from kit.apps.echo import KINDS, MODES, App, control, forced, path_of, run, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from vinelm.adapters.langgraph import GraphAdapter
from vinelm.template import Loop, Stage, Template


@pytest.mark.parametrize("template", [True, False], ids=["template", "no template"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_a_second_turn_on_a_thread_starts_at_the_root(schema, mode, template):
    vine, reference = control(template=template), control()
    graph = App(schema, mode, turns=2).build(vine).compile(checkpointer=InMemorySaver())
    for path in (["m0", "m1"], ["m2", "m0"], ["m1", "m1"]):
        policy = forced(reference, path)
        policy.template = vine.template
        run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=policy))
        assert [i.prefix for i in policy.invocations] == [tuple(path[:1]), tuple(path)]
        assert path_of(graph, thread()) == path


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_was_abandoned_halfway_leaves_nothing_to_the_next(mode):
    vine = control()
    graph = App(mode=mode).build(vine).compile(checkpointer=InMemorySaver())
    for stop in (["repair"], ["execute"]):
        run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=forced(vine, ["m0", "m1"])), interrupt_before=stop)
        assert path_of(graph, thread())[:1] == ["m0"]
    policy = forced(vine, ["m2", "m2", "m1"])
    run(graph, mode, {"q": "!"}, thread(), context=vine.context(policy=policy), interrupt_before=["repair"])
    run(graph, mode, None, thread(), context=vine.context(policy=policy), interrupt_before=["repair"])
    assert path_of(graph, thread()) == ["m2", "m2"]


@pytest.mark.parametrize("mode", MODES)
def test_a_stage_reached_by_goto_past_the_end_goes_on_with_the_path(mode):
    vine = control()
    graph = App(mode=mode, turns=1).build(vine).compile(checkpointer=InMemorySaver())
    policy = forced(vine, ["m2", "m1", "m0"])
    run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=policy))
    for depth in (2, 3):
        assert graph.get_state(thread()).next == ()
        run(graph, mode, Command(goto="repair"), thread(), context=vine.context(policy=policy))
        assert path_of(graph, thread()) == ["m2", "m1", "m0"][:depth]


def test_a_new_thread_still_looks_empty():
    graph = App().build(control()).compile(checkpointer=InMemorySaver())
    assert graph.get_state(thread("new")).values == {}


def agent(vine, mode, turns=2):
    """One stage that may follow itself: the template alone cannot tell two requests apart."""
    app = App(mode=mode, turns=turns)
    whole = app.build(vine)
    graph = StateGraph(app.schema)
    graph.add_node("repair", whole.nodes["repair"].runnable, input_schema=whole.nodes["repair"].input_schema)
    graph.add_node("execute", whole.nodes["execute"].runnable)
    graph.add_edge(START, "repair")
    graph.add_edge("repair", "execute")
    ((_, branch),) = whole.branches["execute"].items()
    graph.add_conditional_edges("execute", branch.path, {"repair": "repair", END: END})
    return graph.compile(checkpointer=InMemorySaver())


def react() -> GraphAdapter:
    template = Template((Loop((Stage("repair"),), 4),))
    return GraphAdapter(control().models, template=template)


@pytest.mark.parametrize("mode", MODES)
def test_a_loop_from_the_root_starts_anew_after_its_end(mode):
    vine = react()
    graph = agent(vine, mode)
    for path in (["m0", "m1"], ["m2", "m0"]):
        policy = forced(vine, path)
        run(graph, mode, {"q": "?", "a": ""}, thread(), context=vine.context(policy=policy))
        assert path_of(graph, thread()) == path


@pytest.mark.parametrize("mode", MODES)
def test_a_request_id_tells_an_abandoned_loop_from_a_new_request(mode):
    vine = react()
    graph = agent(vine, mode, turns=3)

    def turn(value, request_id, path):
        context = vine.context(policy=forced(vine, path), request_id=request_id)
        run(graph, mode, value, thread(), context=context, interrupt_after=["repair"])
        return path_of(graph, thread())

    assert turn({"q": "?"}, "first", ["m0"]) == ["m0"]
    assert turn(None, "first", ["m0", "m1"]) == ["m0", "m1"]
    assert turn({"q": "!", "a": ""}, "second", ["m2"]) == ["m2"]
    assert turn(None, "second", ["m2", "m0"]) == ["m2", "m0"]


@pytest.mark.parametrize("mode", MODES)
def test_a_request_id_continues_its_own_closed_loop(mode):
    """The profiler goes on past the workflow's own end of the same request."""
    vine = react()
    graph = agent(vine, mode, turns=1)
    context = vine.context(policy=forced(vine, ["m2", "m1", "m0"]), request_id="one")
    run(graph, mode, {"q": "?"}, thread(), context=context)
    run(graph, mode, Command(goto="repair"), thread(), context=context)
    assert path_of(graph, thread()) == ["m2", "m1"]
