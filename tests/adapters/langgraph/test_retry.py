"""A retried stage leaves one entry, each attempt is planned with what is left, and every failure is recorded."""

import asyncio

import pytest
from kit.apps.echo import KINDS, MODES, App, EchoBackend, control, forced, path_of, run, thread
from kit.tables import random_table
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import RetryPolicy

from vinelm import VineLM
from vinelm.controller import Planner
from vinelm.errors import CallError
from vinelm.objective import Objective
from vinelm.policies import ForcedPolicy

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


class InjectedParameters(ForcedPolicy):
    """Gives every question another model."""

    def __init__(self, vine):
        super().__init__(vine.template, [], clock=vine.new_clock())
        self.asked = []

    def next_model(self, stage, prefix):
        self.asked.append((stage, prefix))
        return f"m{len(self.asked) - 1}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_a_failed_attempt_is_asked_for_again_at_the_same_place(schema, mode):
    vine = control()
    app = App(schema, mode, inside=flaky("generate", 2), retry=retrying(FlakyError), turns=1)
    graph = app.build(vine).compile(checkpointer=InMemorySaver())
    policy = InjectedParameters(vine)
    assert run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=policy))["a"] == "m2;"
    assert policy.asked == [("generate", ())] * 3
    assert [(i.prefix, i.failure) for i in policy.invocations] == [(("m0",), "tool"), (("m1",), "tool"), (("m2",), None)]
    assert path_of(graph, thread()) == ["m2"]


def table():
    return random_table(3, n_requests=60, n_models=3, depth=3).annotate()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["server", "timeout", "rate_limit", "empty"])
def test_a_retry_goes_around_what_failed_with_what_is_left(mode, kind):
    annotated = table()
    objective = Objective(maximize="accuracy", max_latency_s=1000.0)
    wanted = Planner(annotated).plan(objective, may_stop=False).next_model
    backend = EchoBackend({wanted: CallError(f"{wanted} failed", kind=kind)})
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated)
    graph = App(mode=mode, retry=retrying(CallError), turns=1).build(vine).compile(checkpointer=InMemorySaver())
    session = vine.session(objective)
    run(graph, mode, {"q": "?"}, thread(), context=vine.context(objective, policy=session))
    first, second = session.steps[:2]
    assert (first.model, first.elapsed_s, first.spent_usd) == (wanted, 0.0, 0.0)
    assert (second.elapsed_s, second.spent_usd, second.prefix) == (1.0, 0.01, ())  # the failed attempt's own
    engine_of = {model.name: model.engine for model in annotated.catalog.models}
    if kind == "empty":
        assert second.model != wanted
    else:
        assert engine_of[second.model] != engine_of[wanted]
    assert f"{wanted} ({kind})" in second.note
    assert second.note in session.explain()
    assert [(i.prefix, i.failure, i.cost_usd) for i in session.invocations[:2]] == [
        ((wanted,), kind, 0.01),
        ((second.model,), None, 0.01),
    ]
    assert path_of(graph, thread())[0] == second.model


@pytest.mark.parametrize("mode", MODES)
def test_where_every_engine_fails_the_retries_end_with_the_last_error_and_every_cent_on_record(mode):
    annotated = table()
    backend = EchoBackend({model: CallError(f"{model} failed", kind="server") for model in annotated.catalog})
    vine = VineLM(annotated.catalog, {"test": backend}, trie=annotated)
    graph = App(mode=mode, retry=retrying(CallError)).build(vine).compile()
    objective = Objective(maximize="accuracy")
    session = vine.session(objective)
    with pytest.raises(CallError, match="failed"):
        run(graph, mode, {"q": "?"}, context=vine.context(objective, policy=session))
    assert [i.failure for i in session.invocations] == ["server"] * 3
    assert session.spent_usd == pytest.approx(0.03)
    assert len({step.model for step in session.steps[:2]}) == 2


def test_a_failure_of_the_applications_own_does_not_bar_the_model():
    annotated = table()
    vine = VineLM(annotated.catalog, {"test": EchoBackend()}, trie=annotated)
    graph = App(inside=flaky("generate", 1), retry=retrying(FlakyError), turns=1).build(vine).compile()
    objective = Objective(maximize="accuracy")
    session = vine.session(objective)
    graph.invoke({"q": "?"}, context=vine.context(objective, policy=session))
    assert session.steps[0].model == session.steps[1].model
    assert [step.note for step in session.steps[:2]] == ["", ""]


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
