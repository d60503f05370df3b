"""A retried stage leaves one entry, keeps its model, and every failure is recorded."""

import asyncio

import pytest
from adapters.kit import KINDS, MODES, App, EchoBackend, control, forced, path_of, run, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import RetryPolicy

from vinelm.errors import CallError

PATH = ["m2", "m0", "m1"]


class FlakyError(Exception):
    """Of the application's own code; its text may hold anything."""


def flaky(stage, times):
    left = [times]

    def inside(name, state, model):
        if name == stage and left[0]:
            left[0] -= 1
            raise FlakyError("the prompt and the key sk-canary")

    return inside


def retrying(error):
    return RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=error)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_a_stage_that_succeeds_at_the_third_attempt_leaves_one_entry(schema, mode):
    vine = control()
    app = App(schema, mode, inside=flaky("repair", 2), retry=retrying(FlakyError))
    graph = app.build(vine).compile(checkpointer=InMemorySaver())
    policy = forced(vine, PATH)
    result = run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=policy))
    assert result["a"] == "m2;m0;m1;"
    assert path_of(graph, thread()) == PATH
    assert [(i.prefix, i.failure) for i in policy.invocations] == [
        (("m2",), None),
        (("m2", "m0"), "tool"),
        (("m2", "m0"), "tool"),
        (("m2", "m0"), None),
        (("m2", "m0", "m1"), None),
    ]
    assert [i.cost_usd for i in policy.invocations] == [0.01] * 5


@pytest.mark.parametrize("mode", MODES)
def test_a_retry_keeps_its_model(mode):
    vine = control()
    app = App(mode=mode, inside=flaky("generate", 2), retry=retrying(FlakyError), turns=1)
    graph = app.build(vine).compile()

    class Asked(type(forced(vine, []))):
        def next(self, stage, prefix):
            asked.append((stage, prefix))
            return f"m{len(asked) - 1}"

    asked = []
    policy = Asked(vine.template, [], clock=vine.new_clock())
    assert run(graph, mode, {"q": "?"}, context=vine.context(policy=policy))["a"] == "m0;"
    assert asked == [("generate", ())]


@pytest.mark.parametrize("mode", MODES)
def test_a_failure_is_recorded_without_its_text_and_raised_unchanged(mode):
    vine = control()
    graph = App(mode=mode, inside=flaky("generate", 1)).build(vine).compile()
    policy = forced(vine, PATH)
    with pytest.raises(FlakyError, match="sk-canary"):
        run(graph, mode, {"q": "?"}, context=vine.context(policy=policy))
    (invocation,) = policy.invocations
    assert (invocation.failure, invocation.detail) == ("tool", "FlakyError")
    assert invocation.cost_usd == 0.01
    assert invocation.latency_s == 1.0


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_call_keeps_its_kind(mode):
    vine = control(EchoBackend({"m0": CallError("the engine said 429", kind="rate_limit")}))
    graph = App(mode=mode).build(vine).compile(checkpointer=InMemorySaver())
    policy = forced(vine, PATH)
    with pytest.raises(CallError, match="429"):
        run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=policy))
    assert [(i.prefix, i.failure, i.detail) for i in policy.invocations] == [
        (("m2",), None, None),
        (("m2", "m0"), "rate_limit", "the engine said 429"),
    ]
    assert path_of(graph, thread()) == ["m2"]
    assert graph.get_state(thread()).next == ("repair",)


def test_a_call_error_behind_the_applications_own_exception_keeps_its_kind():
    vine = control(EchoBackend({"m0": CallError("slow", kind="timeout")}))

    def generate(state, model):
        try:
            model.invoke("?")
        except CallError as error:
            raise FlakyError from error

    app = App()
    graph = app.build(vine)
    graph.nodes.pop("generate")
    graph.add_node("generate", vine.stage("generate", generate, state=app.schema))
    policy = forced(vine, ["m0"])
    with pytest.raises(FlakyError):
        graph.compile().invoke({"q": "?"}, context=vine.context(policy=policy))
    assert policy.invocations[0].failure == "timeout"


def test_a_cancelled_stage_is_recorded_with_what_it_spent():
    vine = control()
    entered = asyncio.Event()

    async def generate(state, model):
        await model.ainvoke("?")
        entered.set()
        await asyncio.sleep(60)

    app = App(mode="async")
    graph = app.build(vine)
    graph.nodes.pop("generate")
    graph.add_node("generate", vine.stage("generate", generate, state=app.schema))
    policy = forced(vine, PATH)

    async def cancelled():
        task = asyncio.create_task(graph.compile().ainvoke({"q": "?"}, context=vine.context(policy=policy)))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    (invocation,) = policy.invocations
    assert (invocation.failure, invocation.detail, invocation.cost_usd) == ("unknown", "CancelledError", 0.01)
