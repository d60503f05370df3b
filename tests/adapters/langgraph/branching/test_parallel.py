"""Different stages in one superstep: one joint decision, in the order of the template."""

from threading import Barrier, Event

import pytest
from kit.apps.branching import EXPERTS, Asked, State, control_of, experts
from kit.apps.echo import MODES, EchoBackend, path_of, run, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.errors import CallError, WorkflowError
from vinelm.policies import DefaultPolicy
from vinelm.template import Loop, Parallel, Stage, Template

MODELS = {"law": "m1", "tax": "m2", "judge": "m0"}
JOINT = [("law", ()), ("tax", ("m1",)), ("judge", ("m1", "m2"))]


@pytest.mark.parametrize("mode", MODES)
def test_the_policy_is_asked_in_the_order_of_the_template(mode):
    vine = control_of(EXPERTS)
    app = experts(vine, mode).compile(checkpointer=InMemorySaver())
    policy = Asked(vine, MODELS)
    run(app, mode, {}, thread(), context=vine.context(policy=policy))
    assert policy.asked == JOINT
    assert path_of(app, thread()) == ["m1", "m2", "m0"]
    assert [entry["k"] for entry in app.get_state(thread()).values[PATH_KEY]["path"]] == [0, 1, 2]
    assert sorted(one.prefix for one in policy.invocations) == [("m1",), ("m1", "m2"), ("m1", "m2", "m0")]


def side_by_side(vine, bodies):
    """Two nodes with those bodies, started together."""
    graph = StateGraph(State)
    for name, body in bodies.items():
        graph.add_node(name, vine.stage(name, body, state=State))
        graph.add_edge(START, name)
    return graph


def test_whichever_begins_first():
    """Tax runs while law has not begun: law's model is chosen before it all the same, and is the one that law then runs."""
    begun = Event()
    vine = control_of(Template((Parallel((Stage("law"), Stage("tax"))),)))

    def node(name):
        def run_it(state, model):
            return {"log": [name, model.invoke("?").content]}

        return run_it

    graph = side_by_side(vine, {"tax": node("tax"), "law": node("law")})
    policy = Asked(vine, MODELS)

    def slow(stage, prefix, ask=policy.next_model):
        begun.set()
        return ask(stage, prefix)

    policy.next_model = slow
    out = graph.compile().invoke({}, context=vine.context(policy=policy), config={"max_concurrency": 1})
    assert begun.is_set()
    assert policy.asked == JOINT[:2]
    assert out["log"] in (["tax", "m2", "law", "m1"], ["law", "m1", "tax", "m2"])


def test_stages_that_really_run_at_the_same_time():
    barrier = Barrier(2)
    vine = control_of(Template((Parallel((Stage("law"), Stage("tax"))),)))

    def node(name):
        def run_it(state, model):
            barrier.wait(10)
            return {"log": [name, model.invoke("?").content]}

        return run_it

    app = side_by_side(vine, {"law": node("law"), "tax": node("tax")}).compile(checkpointer=InMemorySaver())
    policy = Asked(vine, MODELS)
    app.invoke({}, thread(), context=vine.context(policy=policy))
    assert policy.asked == JOINT[:2]
    assert path_of(app, thread()) == ["m1", "m2"]


@pytest.mark.parametrize("mode", MODES)
def test_a_second_turn_of_the_thread_begins_anew(mode):
    vine = control_of(EXPERTS)
    app = experts(vine, mode).compile(checkpointer=InMemorySaver())
    for _ in range(2):
        policy = Asked(vine, MODELS)
        run(app, mode, {}, thread(), context=vine.context(policy=policy))
        assert policy.asked == JOINT
        assert path_of(app, thread()) == ["m1", "m2", "m0"]


@pytest.mark.parametrize("mode", MODES)
def test_in_a_loop(mode):
    vine = control_of(Template((Loop((Parallel((Stage("law"), Stage("tax"))), Stage("judge")), times=2),)))
    graph = experts(vine, mode)
    graph.edges.discard(("judge", "__end__"))
    graph.add_node("again", lambda state: {})
    graph.add_edge("again", "law")
    graph.add_edge("again", "tax")
    graph.add_conditional_edges("judge", vine.route(lambda state: False, again="again", end="__end__"))
    app = graph.compile(checkpointer=InMemorySaver())
    policy = Asked(vine, MODELS)
    run(app, mode, {}, thread(), context=vine.context(policy=policy))
    assert path_of(app, thread()) == ["m1", "m2", "m0"] * 2
    assert len(policy.asked) == 6


@pytest.mark.parametrize("mode", MODES)
def test_one_of_them_that_fails_is_made_up_for_in_another_run(mode):
    vine = control_of(EXPERTS, EchoBackend({"m1": CallError("down", kind="server")}))
    app = experts(vine, mode).compile(checkpointer=InMemorySaver())
    with pytest.raises(CallError):
        run(app, mode, {}, thread(), context=vine.context(policy=Asked(vine, MODELS)))
    policy = Asked(vine, MODELS | {"law": "m0"})
    run(app, mode, None, thread(), context=vine.context(policy=policy))
    assert path_of(app, thread()) == ["m0", "m2", "m0"]


@pytest.mark.parametrize("mode", MODES)
def test_a_retry_of_one_leaves_the_other(mode):
    vine = control_of(EXPERTS, EchoBackend({"m1": CallError("down", kind="server")}))
    graph = experts(vine, mode)
    for spec in graph.nodes.values():
        spec.retry_policy = RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False, retry_on=CallError)
    app = graph.compile(checkpointer=InMemorySaver())

    class Moving(Asked):
        def next_model(self, stage, prefix):
            super().next_model(stage, prefix)
            return "m2" if stage == "law" and any(one.failure for one in self.invocations) else self.models.get(stage, "m0")

    policy = Moving(vine, MODELS)
    run(app, mode, {}, thread(), context=vine.context(policy=policy))
    assert path_of(app, thread()) == ["m2", "m2", "m0"]
    assert policy.asked[-1] == ("judge", ("m2", "m2"))


@pytest.mark.parametrize("mode", MODES)
def test_where_nothing_is_planned_and_no_template_is_known_they_run_as_without_us(mode):
    app = experts(control_of(None), mode).compile(checkpointer=InMemorySaver())
    for _ in range(2):
        run(app, mode, {}, thread())
        path = app.get_state(thread()).values[PATH_KEY]["path"]
        assert [entry["k"] for entry in path] == [0, 1, 2]
        assert ({path[0]["stage"], path[1]["stage"]}, path[2]["stage"]) == ({"law", "tax"}, "judge")


@pytest.mark.parametrize("mode", MODES)
def test_without_parallel_in_the_template_it_is_refused_with_the_remedy(mode):
    vine = control_of(Template((Stage("law"), Stage("tax"), Stage("judge"))))
    policy = DefaultPolicy(lambda stage: "m0", clock=vine.new_clock(), template=vine.template)
    with pytest.raises(WorkflowError, match=r"run in one superstep: .*or declare Parallel\(\(Stage\('") as caught:
        run(experts(vine, mode).compile(), mode, {}, context=vine.context(policy=policy))
    assert "\n" not in str(caught.value)
