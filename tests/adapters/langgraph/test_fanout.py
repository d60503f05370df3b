"""A Send fan-out of one stage is one invocation with one model; different stages in one superstep are refused."""

import asyncio
from contextlib import nullcontext
from threading import Barrier

import pytest
from kit.apps.echo import KINDS, MODES, App, control, forced, path_of, run, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

from vinelm.errors import WorkflowError
from vinelm.policies import ForcedPolicy

WIDTH = 3


def fan(vine, schema, mode, *, by="route", inside=None, retry=None):
    """generate -> three Sends of repair -> join."""
    seen = []

    def generate(state: schema, model):
        seen.append(("generate", model.name_))
        if by == "command":
            return Command(update={"log": ["generate"]}, goto=sends(state))
        return {"log": ["generate"]}

    def part(state, model):
        seen.append((state["part"], model.name_))
        if inside:
            inside(state)
        return {"log": [f"repair {state['part']}"]}

    async def apart(state, model):
        await asyncio.sleep(0)
        return part(state, model)

    def sends(state):
        return [Send("repair", {"part": i}) for i in range(WIDTH)]

    graph = StateGraph(schema)
    graph.add_node("generate", vine.stage("generate", generate))
    graph.add_node("repair", vine.stage("repair", part if mode == "sync" else apart, state=schema), retry_policy=retry)
    graph.add_node("join", lambda state: {"a": "joined"})
    graph.add_edge(START, "generate")
    if by == "route":
        graph.add_conditional_edges("generate", vine.route(sends, again="repair", end=END))
    elif by == "edge":
        graph.add_conditional_edges("generate", sends, ["repair"])
    graph.add_edge("repair", "join")
    graph.add_edge("join", END)
    return graph.compile(checkpointer=InMemorySaver()), seen


@pytest.mark.parametrize("by", ["route", "edge", "command"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_a_fan_out_is_one_invocation(schema, mode, by):
    vine = control()
    graph, seen = fan(vine, schema, mode, by=by)
    policy = forced(vine, ["m2", "m1"])
    result = run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=policy))
    assert result["a"] == "joined"
    assert result["log"] == ["generate", "repair 0", "repair 1", "repair 2"]
    assert seen[0] == ("generate", "m2")
    assert sorted(seen[1:]) == [(0, "m1"), (1, "m1"), (2, "m1")]
    assert path_of(graph, thread()) == ["m2", "m1"]
    assert [i.prefix for i in policy.invocations] == [("m2",)] + [("m2", "m1")] * WIDTH


def asking(vine, asked):
    """A policy that would give every question another model."""

    class InjectedParameters(ForcedPolicy):
        def next_model(self, stage, prefix):
            asked.append((stage, prefix))
            return f"m{len(asked) - 1}"

    return InjectedParameters(vine.template, [], clock=vine.new_clock())


def test_branches_that_run_at_the_same_time_ask_once():
    barrier, asked = Barrier(WIDTH), []
    vine = control()
    graph, seen = fan(vine, KINDS["Typed"], "sync", inside=lambda state: barrier.wait(10))
    graph.invoke({"q": "?"}, thread(), context=vine.context(policy=asking(vine, asked)))
    assert asked == [("generate", ()), ("repair", ("m0",))]
    assert {model for _, model in seen[1:]} == {"m1"}
    assert path_of(graph, thread()) == ["m0", "m1"]


@pytest.mark.parametrize("mode", MODES)
def test_a_branch_that_is_retried_keeps_the_model_of_its_siblings(mode):
    failed, asked = [], []

    def inside(state):
        if state["part"] == 1 and not failed:
            failed.append(1)
            raise OSError

    vine = control()
    retry = RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False, retry_on=OSError)
    graph, seen = fan(vine, KINDS["Typed"], mode, inside=inside, retry=retry)
    run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=asking(vine, asked)))
    assert asked == [("generate", ()), ("repair", ("m0",))]
    assert len(seen) == 1 + WIDTH + 1
    assert {model for _, model in seen[1:]} == {"m1"}
    assert path_of(graph, thread()) == ["m0", "m1"]


@pytest.mark.parametrize("mode", MODES)
def test_a_fan_out_whose_branches_all_fail_moves_to_another_model_together(mode):
    barrier, failed, asked = Barrier(WIDTH), [], []

    def inside(state):
        if len(failed) < WIDTH:
            failed.append(state["part"])
            if mode == "sync":
                barrier.wait(10)
            raise OSError

    vine = control(n_models=4)
    retry = RetryPolicy(max_attempts=2, initial_interval=0.05, jitter=False, retry_on=OSError)
    graph, seen = fan(vine, KINDS["Typed"], mode, inside=inside, retry=retry)
    run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=asking(vine, asked)))
    assert asked == [("generate", ()), ("repair", ("m0",)), ("repair", ("m0",))]
    assert sorted(seen[1:]) == sorted([(part, model) for part in range(WIDTH) for model in ("m1", "m2")])
    assert path_of(graph, thread()) == ["m0", "m2"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["failed", "interrupted"])
def test_a_branch_that_is_made_up_for_in_another_run_leaves_its_siblings_model(mode, how):
    failed = []

    def inside(state):
        if state["part"] == 1 and how == "interrupted":
            interrupt("go on?")
        elif state["part"] == 1 and not failed:
            failed.append(1)
            raise OSError("lost")

    vine = control()
    graph, seen = fan(vine, KINDS["Typed"], mode, inside=inside)
    with pytest.raises(OSError, match="lost") if how == "failed" else nullcontext():
        run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=forced(vine, ["m2", "m1"])))
    again = None if how == "failed" else Command(resume=True)
    result = run(graph, mode, again, thread(), context=vine.context(policy=forced(vine, ["m2", "m0"])))
    assert result["log"] == ["generate", "repair 0", "repair 1", "repair 2"]
    assert seen[-1] == (1, "m0")
    assert path_of(graph, thread()) == ["m2", "m1"]


@pytest.mark.parametrize("mode", MODES)
def test_a_second_turn_after_a_fan_out_starts_at_the_root(mode):
    vine = control()
    graph, _ = fan(vine, KINDS["Typed"], mode)
    for path in (["m2", "m1"], ["m0", "m2"]):
        run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=forced(vine, path)))
        assert path_of(graph, thread()) == path


@pytest.mark.parametrize("mode", MODES)
def test_different_stages_in_one_superstep_are_refused(mode):
    vine = control()
    app = App(mode=mode)
    graph = app.build(vine)
    graph.add_conditional_edges(START, lambda state: ["generate", "repair"], ["generate", "repair"])
    with pytest.raises(WorkflowError, match=r"in one superstep: .*put an edge between them"):
        run(graph.compile(), mode, {"q": "?"})
