"""Graphs that branch: routers, corrective loops and hand-overs, served by policies without a plan."""

import pytest
from kit.apps.branching import (
    CORRECTIVE,
    ROUTER,
    SUPERVISOR,
    Asked,
    State,
    control_of,
    corrective,
    router,
    stages,
    supervisor,
)
from kit.apps.echo import MODES, path_of, run, thread
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send

from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.errors import WorkflowError
from vinelm.policies import DefaultPolicy
from vinelm.template import Branch, Loop, Stage, Template

MODELS = {"router": "m2", "search": "m1", "write": "m2", "law": "m1", "tax": "m2", "supervisor": "m0"}


def stages_in(app, config):
    """The stages of the stored path."""
    return [entry["stage"] for entry in app.get_state(config).values[PATH_KEY]["path"]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("arm", "stages", "models"),
    [
        ("search", ["router", "search", "grade", "write"], ["m2", "m1", "m0", "m2"]),
        ("chat", ["router", "write"], ["m2", "m2"]),
        ("refuse", ["router"], ["m2"]),
    ],
)
def test_the_verdict_is_the_arm(mode, arm, stages, models):
    vine = control_of(ROUTER)
    app = router(vine, mode).compile(checkpointer=InMemorySaver())
    policy = Asked(vine, MODELS)
    run(app, mode, {"plan": [arm]}, thread(), context=vine.context(policy=policy))
    assert stages_in(app, thread()) == stages
    assert path_of(app, thread()) == models
    assert policy.asked == [(stage, tuple(models[:k])) for k, stage in enumerate(stages)]
    assert policy.edges == []  # nothing to end with behind the router


@pytest.mark.parametrize("mode", MODES)
def test_the_policy_may_end_behind_an_answer_and_is_told_the_arms(mode):
    vine = control_of(CORRECTIVE)
    app = corrective(vine, mode).compile()
    policy = Asked(vine, ends={5})
    out = run(app, mode, {"plan": ["rewrite"] * 9}, context=vine.context(policy=policy))
    assert [edge[0:1] + edge[1:] for edge in policy.edges] == [
        (("m0",) * 2, False, frozenset({"rewrite"})),
        (("m0",) * 5, False, frozenset({"rewrite"})),
    ]
    assert out["log"].count("generate") == 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("template", "times", "turns"), [(CORRECTIVE, None, 3), (CORRECTIVE, 1, 2), (None, 2, 3)])
def test_loops_are_bounded_by_the_template_and_by_times(mode, template, times, turns):
    vine = control_of(template)
    out = run(corrective(vine, mode, times=times).compile(), mode, {"plan": ["rewrite"] * 9})
    assert out["log"].count("generate") == turns


@pytest.mark.parametrize("mode", MODES)
def test_a_supervisor_hands_over_by_command(mode):
    vine = control_of(SUPERVISOR)
    app = supervisor(vine, mode).compile(checkpointer=InMemorySaver())
    policy = Asked(vine, MODELS)
    run(app, mode, {"plan": ["tax", "law", END]}, thread(), context=vine.context(policy=policy))
    assert stages_in(app, thread()) == ["supervisor", "tax", "supervisor", "law", "supervisor"]
    assert path_of(app, thread()) == ["m0", "m2", "m0", "m1", "m0"]
    assert policy.trace() == []


@pytest.mark.parametrize("mode", MODES)
def test_an_arm_that_the_template_lacks_runs_its_default_model_and_is_noted(mode):
    vine = control_of(Template((Stage("router"), Branch({"search": (Stage("search"),), "end": END}), Stage("write"))))
    app = router(vine, mode).compile(checkpointer=InMemorySaver())
    policy = DefaultPolicy(vine.default_model, clock=vine.new_clock(), template=vine.template)
    run(app, mode, {"plan": ["search"]}, thread(), context=vine.context(policy=policy))
    assert stages_in(app, thread()) == ["router", "search", "grade", "write"]
    notes = [(step["stage"], step["note"]) for step in policy.trace()]
    assert notes == [
        ("grade", "unexpected arm: the template has no 'grade' after router > search, so add it there: default model"),
        ("write", "unexpected arm: the template has no 'write' after router > search > grade, so add it there: default model"),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_request_that_is_resumed_brings_its_stages(mode):
    saver = InMemorySaver()
    first = control_of(ROUTER)
    app = router(first, mode).compile(checkpointer=saver, interrupt_before=["grade"])
    run(app, mode, {"plan": ["search"]}, thread(), context=first.context(policy=Asked(first, MODELS)))
    vine = control_of(ROUTER)
    policy = Asked(vine, MODELS)
    run(router(vine, mode).compile(checkpointer=saver), mode, None, thread(), context=vine.context(policy=policy))
    assert policy.inherited == [(("m2", "m1"), ("router", "search"))]
    assert policy.asked == [("grade", ("m2", "m1")), ("write", ("m2", "m1", "m0"))]


@pytest.mark.parametrize("mode", MODES)
def test_every_turn_of_a_thread_is_a_request(mode):
    vine = control_of(SUPERVISOR)
    app = supervisor(vine, mode).compile(checkpointer=InMemorySaver())
    for hands, path in (([END], 1), (["law"], 3), (["law"], 3)):
        log = app.get_state(thread()).values.get("log", [])
        done, plan = len(log), ["-"] * log.count("supervisor") + hands + [END]
        policy = Asked(vine, MODELS)
        run(app, mode, {"plan": plan}, thread(), context=vine.context(policy=policy))
        assert len(policy.asked) == path
        assert policy.asked[0] == ("supervisor", ())
        assert len(app.get_state(thread()).values["log"]) == done + 2 * path


SENDS = Template((Stage("plan"), Branch({"work": (Stage("work"), Stage("join")), "none": ()})))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", [0, 1, 3])
def test_sends_of_a_branch_are_one_invocation(mode, width):
    vine = control_of(SENDS)
    graph = StateGraph(State)
    for name, node in stages(vine, mode, "plan", "work", "join"):
        graph.add_node(name, node)
    graph.add_edge(START, "plan")

    def sends(state):
        return [Send("work", {"plan": [i]}) for i in range(width)] or END

    graph.add_conditional_edges("plan", vine.route(sends, to=["work", END]))
    graph.add_edge("work", "join")
    app = graph.compile(checkpointer=InMemorySaver())
    policy = Asked(vine, {"work": "m2"})
    out = run(app, mode, {"plan": []}, thread(), context=vine.context(policy=policy))
    assert path_of(app, thread()) == (["m0", "m2", "m0"] if width else ["m0"])
    assert out["log"].count("m2") == width
    assert policy.edges == [(("m0",), not width, frozenset({"work"}))]


LOOPED = Template(
    (
        Stage("router"),
        Branch({"fix": (Loop((Stage("fix"),), times=2, early_exit=True),), "ask": (Stage("ask"),)}),
        Stage("write"),
    )
)


@pytest.mark.parametrize("mode", MODES)
def test_a_loop_inside_an_arm_is_left_for_the_step_behind_it(mode):
    """The end of its route leads to another stage, so the policy has no say there."""
    vine = control_of(LOOPED)
    graph = StateGraph(State)
    for name, node in stages(vine, mode, "router", "fix", "ask", "write"):
        graph.add_node(name, node)
    graph.add_edge(START, "router")
    graph.add_conditional_edges("router", vine.route(lambda state: state["plan"][0], to=["fix", "ask"]))
    graph.add_conditional_edges("fix", vine.route(lambda state: len(state["log"]) > 99, again="fix", end="write"))
    graph.add_edge("ask", "write")
    app = graph.compile(checkpointer=InMemorySaver())
    policy = Asked(vine)
    run(app, mode, {"plan": ["fix"]}, thread(), context=vine.context(policy=policy))
    assert stages_in(app, thread()) == ["router", "fix", "fix", "write"]
    assert policy.edges == []


def test_a_place_that_is_not_a_destination_is_refused():
    vine = control_of(ROUTER)
    with pytest.raises(
        WorkflowError, match=r"returned 'other', which is none of its destinations \('search', 'chat', 'refuse'\)"
    ):
        router(vine).compile().invoke({"plan": ["other"]})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "a route needs again= and end=, or its destinations"),
        ({"again": "a", "to": ["a", "b"]}, "again= and to= exclude each other"),
        ({"to": ["a"]}, "to= names at least two nodes"),
        ({"to": "a"}, "to= names at least two nodes"),
        ({"to": ["a", "b"], "times": 2}, "times needs a place to go to when it is reached: pass end="),
        ({"to": ["a", END], "times": {"b": 2}}, "times bounds 'b': use one of 'a'"),
        ({"to": ["a", END], "times": 0}, "times is 0: it must be at least 1"),
    ],
)
def test_arguments_that_do_not_fit_together(settings, words):
    with pytest.raises(WorkflowError, match=words) as caught:
        control_of(None).route(lambda state: END, **settings)
    assert "\n" not in str(caught.value)


def test_the_destinations_are_drawn():
    drawn = {(edge.source, edge.target) for edge in router(control_of(ROUTER)).compile().get_graph().edges}
    assert {edge for edge in drawn if edge[0] == "router"} == {("router", "search"), ("router", "write"), ("router", "__end__")}


def test_a_command_may_go_where_the_template_says_nothing():
    """An unannotated hand-over to a node that is no stage of the template."""
    vine = control_of(Template((Stage("a"), Branch({"b": (Stage("b"),), "end": END}))))
    graph = StateGraph(State)
    (_, b), (_, c) = stages(vine, "sync", "b", "c")
    graph.add_node("a", vine.stage("a", lambda state, model: Command(goto="c"), state=State))
    graph.add_node("b", b)
    graph.add_node("c", c)
    graph.add_edge(START, "a")
    policy = DefaultPolicy(lambda stage: "m1", clock=vine.new_clock(), template=vine.template)
    out = graph.compile().invoke({"plan": []}, context=vine.context(policy=policy))
    assert out["log"] == ["c", "m1"]
    assert policy.trace()[0]["note"].startswith("unexpected arm: the template has no 'c' after a")
