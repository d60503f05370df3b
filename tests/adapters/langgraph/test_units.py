"""The profiler's unit, on every path of a small workflow: one stage and the tools after it, from the parent's checkpoint."""

import itertools

import pytest
from kit.apps.echo import KINDS, MODES, App, control, forced, path_of, run, thread
from kit.apps.savers import dump, load
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from vinelm.adapters.langgraph.path.path_channel import PATH_KEY

MODELS = ("m0", "m1", "m2")
STAGES = ["generate", "repair"]
STEP = {"interrupt_before": STAGES, "durability": "exit"}


def unit(make, mode, parent, prefix, *, through):
    """Run the invocation that ends ``prefix`` from its parent's checkpoint."""
    vine, saver = control(), InMemorySaver()
    graph = make().build(vine).compile(checkpointer=saver)
    policy = forced(vine, {len(prefix) - 1: prefix[-1]}, mode="through" if through else "stop")
    context = vine.context(policy=policy)
    if parent is None:
        run(graph, mode, {"q": "?"}, thread("u"), context=context, **STEP)
    else:
        load(saver, parent, "u")
        if graph.get_state(thread("u")).next == ():  # LangGraph runs the place of a goto at once, boundary or not
            run(graph, mode, Command(goto="repair"), thread("u"), context=context, **STEP)
    if not policy.invocations:
        run(graph, mode, None, thread("u"), context=context, **STEP)
    return dump(saver, thread("u")), graph.get_state(thread("u")), policy


@pytest.mark.parametrize("wrapped", [True, False], ids=["wrapped edge", "plain edge"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schema", [KINDS["Typed"], KINDS["Frozen"], KINDS["Strict"]], ids=["Typed", "Frozen", "Strict"])
def test_units_make_the_same_states_as_straight_runs(schema, mode, wrapped):
    def make():
        return App(schema, mode, turns=2, wrapped=wrapped)

    saved = {(): None}
    for depth in (1, 2, 3):
        for prefix in itertools.product(MODELS, repeat=depth):
            if depth == 3 and prefix[1] != "m1":
                continue  # nine of the twenty-seven are enough
            blob, state, policy = unit(make, mode, saved[prefix[:-1]], prefix, through=True)
            saved[prefix] = blob
            (invocation,) = policy.invocations
            assert (invocation.stage, invocation.prefix) == ("generate" if depth == 1 else "repair", prefix)
            assert [entry["model"] for entry in state.values[PATH_KEY]["path"]] == list(prefix)
            assert state.values["a"] == "".join(f"{model};" for model in prefix)
            assert state.values["log"] == ["generate", "execute", *["repair", "execute"] * (depth - 1)]
            if wrapped:
                assert policy.verdicts == {depth: depth >= 2}
                assert state.next == (() if depth == 3 else ("repair",))
            else:
                assert state.next == (() if depth >= 2 else ("repair",))
    vine = control()
    graph = App(schema, mode, turns=3, wrapped=wrapped).build(vine).compile(checkpointer=InMemorySaver())
    straight = ["m2", "m1", "m0"]
    run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=forced(vine, straight)))
    saver = InMemorySaver()
    load(saver, saved[tuple(straight)], "t")
    resumed = App(schema, mode, wrapped=wrapped).build(control()).compile(checkpointer=saver)
    for key in ("q", "a", "log"):
        assert resumed.get_state(thread()).values[key] == graph.get_state(thread()).values[key]
    assert path_of(resumed, thread()) == path_of(graph, thread()) == straight


@pytest.mark.parametrize("mode", MODES)
def test_mode_stop_ends_where_the_workflow_does(mode):
    def make():
        return App(mode=mode, turns=2)

    blob, state, _ = unit(make, mode, None, ("m2",), through=False)
    assert state.next == ("repair",)
    _, state, policy = unit(make, mode, blob, ("m2", "m0"), through=False)
    assert state.next == ()
    assert policy.verdicts == {2: True}


@pytest.mark.parametrize("mode", MODES)
def test_a_tool_that_fails_leaves_the_paid_stage_in_state_and_policy(mode):
    def tool(state):
        raise OSError("disk")

    vine, saver = control(), InMemorySaver()
    graph = App(mode=mode, tool=tool).build(vine).compile(checkpointer=saver)
    policy = forced(vine, ["m2"])
    with pytest.raises(OSError, match="disk"):
        run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=policy))
    assert [i.failure for i in policy.invocations] == [None]
    assert path_of(graph, thread()) == ["m2"]
    assert graph.get_state(thread()).next == ("execute",)
