"""What an invocation shows is told to the policy once, before it is asked what follows, and survives a checkpoint."""

import pytest
from kit.apps.echo import KINDS, MODES, EchoBackend, Typed, run, thread
from kit.apps.savers import dump, load
from kit.apps.signals import BY_ANSWER, Watching, adapter, answering
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

from vinelm import VineLM
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.errors import CallError, ConfigError, WorkflowError
from vinelm.signals import Signals
from vinelm.template import Loop, Stage, Template

STATUS = Signals(signal="status", answer=("a",))


def told(events):
    return [event for event in events if event[0] in ("observed", "continue?", "model")]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_each_outcome_is_told_once_before_the_policy_decides(schema, mode):
    vine, policy = adapter(), Watching(["m0", "m1", "m0"])
    run(answering(vine, schema, mode).compile(), mode, {"q": "?"}, context=vine.context(policy=policy))
    assert told(policy.events) == [
        ("model", 0),
        ("observed", 1, "1 lines", 0),
        ("continue?", 1, False),
        ("model", 1),
        ("observed", 2, "2 lines", 1),
        ("continue?", 2, False),
        ("model", 2),
        ("observed", 3, "3 lines", 0),
        ("continue?", 3, False),
    ]


def test_without_signals_nothing_is_told_and_nothing_is_stored():
    vine, policy = adapter(None), Watching(["m0", "m1"])
    graph = answering(vine, end=END).compile(checkpointer=InMemorySaver())
    graph.invoke({"q": "?"}, thread(), context=vine.context(policy=policy))
    assert policy.outcomes == []
    stored = graph.get_state(thread()).values[PATH_KEY]["path"]
    assert all("shown" not in entry for entry in stored)


@pytest.mark.parametrize("mode", MODES)
def test_status_is_the_workflows_own_verdict_and_the_policy_may_go_on_below_it(mode):
    vine, policy = adapter(STATUS), Watching(["m0", "m1", "m2"])
    graph = answering(vine, mode=mode, passes=["m1"]).compile()
    assert run(graph, mode, {"q": "?"}, context=vine.context(policy=policy))["a"] == "m2"
    assert policy.outcomes == [(1, "failed", 0), (2, "passed", 1), (3, "failed", 2)]
    assert [event for event in policy.events if event[0] == "continue?"][1] == ("continue?", 2, True)


def test_the_policy_may_end_an_answer_that_the_check_has_not_passed():
    vine, policy = adapter(STATUS), Watching(["m0"])
    assert answering(vine).compile().invoke({"q": "?"}, context=vine.context(policy=policy))["a"] == "m0"
    assert policy.outcomes == [(1, "failed", 0)]


def test_going_on_is_bounded_by_the_template():
    class Tireless(Watching):
        def should_continue(self, prefix, finished, state, arms=None):
            return True

    vine, policy = adapter(STATUS), Tireless(["m0"] * 9)
    graph = answering(vine, passes=["m0"]).compile()
    graph.invoke({"q": "?"}, context=vine.context(policy=policy))
    assert len(policy.invocations) == vine.template.depth


def test_between_stages_without_a_route_the_next_stage_tells():
    template = Template((Stage("draft"), Stage("write")))
    vine = adapter(STATUS, template=False)
    vine.template = template.bind(tuple(vine.catalog))
    graph = StateGraph(Typed)
    graph.add_node("draft", vine.stage("draft", lambda state, model: {"a": model.invoke("?").content}, state=Typed))
    graph.add_node("tool", lambda state: {"a": state["a"] + "!"})
    graph.add_node("write", vine.stage("write", lambda state, model: {"a": model.invoke("?").content}, state=Typed))
    graph.add_node("finish", vine.finish)
    for one, other in ((START, "draft"), ("draft", "tool"), ("tool", "write"), ("write", "finish"), ("finish", END)):
        graph.add_edge(one, other)
    policy = Watching(["m0", "m1"], wanted=0)
    result = graph.compile().invoke({"q": "?"}, context=vine.context(policy=policy))
    assert told(policy.events) == [
        ("model", 0),
        ("observed", 1, None, 0),
        ("model", 1),
        ("observed", 2, None, 1),
    ]
    assert result["a"] == "m0!"
    assert not vine.returns_earlier  # no edge asks the policy


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_of_another_process_is_compared_and_told_again(mode):
    vine, saver = adapter(), InMemorySaver()
    first = Watching(["m0", "m1", "m0"])
    graph = answering(vine, mode=mode).compile(checkpointer=saver)
    stop = {"interrupt_before": ["execute"], "durability": "exit"}
    run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=first), **stop)
    run(graph, mode, None, thread(), context=vine.context(policy=first), **stop)
    assert first.outcomes == [(1, "1 lines", 0)]

    other, elsewhere = adapter(), InMemorySaver()
    load(elsewhere, dump(saver, thread()), "t")
    second = Watching(["m0", "m1", "m0"])
    graph = answering(other, mode=mode).compile(checkpointer=elsewhere)
    run(graph, mode, None, thread(), context=other.context(policy=second))
    assert second.outcomes == [(1, "1 lines", 0), (2, "2 lines", 1), (3, "3 lines", 0)]
    assert second.events.index(("observed", 1, "1 lines", 0)) > second.events.index(("resumed", 2))
    stored = graph.get_state(thread()).values[PATH_KEY]["path"]
    assert [entry["shown"] for entry in stored] == [
        {"signal": "1 lines", "answer_class": 0, "first": {"a": "m0"}},
        {"signal": "2 lines", "answer_class": 1, "first": {"a": "m1"}},
        {"signal": "3 lines", "answer_class": 0},
    ]


@pytest.mark.parametrize("mode", MODES)
def test_an_interrupt_behind_a_stage_keeps_what_was_told(mode):
    vine = adapter()
    graph = answering(vine, mode=mode, tool=lambda state: interrupt("run it?") and None).compile(checkpointer=InMemorySaver())
    run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=Watching(["m0", "m0"])))
    policies = [Watching(["m0", "m0"]) for _ in range(2)]
    for policy in policies:
        run(graph, mode, Command(resume=1), thread(), context=vine.context(policy=policy))
    assert policies[0].outcomes == [(1, "1 lines", 0)]
    assert policies[1].outcomes == [(1, "1 lines", 0), (2, "2 lines", 0)]


def test_a_second_turn_on_the_thread_begins_with_no_answers():
    vine = adapter()
    graph = answering(vine).compile(checkpointer=InMemorySaver())
    for _ in range(2):
        policy = Watching(["m0", "m1"])
        graph.invoke({"q": "?"}, thread(), context=vine.context(policy=policy))
        assert [event[2] for event in policy.outcomes] == [0, 1]


def test_a_second_request_in_one_run_begins_with_no_answers():
    vine, policy = adapter(), Watching(["m0", "m0"])
    graph = answering(vine, end="finish")
    graph.edges.discard(("finish", END))
    graph.add_conditional_edges("finish", lambda state: END if len(state["log"]) > 2 else "generate", ["generate", END])
    graph.compile().invoke({"q": "?"}, context=vine.context(policy=policy))
    assert policy.outcomes == [(1, "1 lines", 0), (2, "2 lines", 0), (1, "3 lines", 0), (2, "4 lines", 0)]


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_attempt_is_told_and_its_repetition_replaces_it(mode):
    failed = []

    def inside(text):
        if not failed:
            failed.append(1)
            raise OSError

    vine, policy = adapter(STATUS), Watching(["m0"])
    retry = RetryPolicy(max_attempts=2, initial_interval=0.001, jitter=False, retry_on=OSError)
    run(answering(vine, mode=mode, inside=inside, retry=retry).compile(), mode, {"q": "?"}, context=vine.context(policy=policy))
    assert policy.outcomes == [(1, "error", None), (1, "failed", 0)]


def test_a_failed_call_has_the_label_error_under_status_only():
    for signals, label in ((STATUS, "error"), (BY_ANSWER, None)):
        vine, policy = adapter(signals, EchoBackend({"m0": CallError("down", kind="server")})), Watching(["m0"])
        with pytest.raises(CallError):
            answering(vine).compile().invoke({"q": "?"}, context=vine.context(policy=policy))
        assert policy.outcomes == [(1, label, None)]


def test_a_fan_out_tells_one_outcome_from_the_state_of_the_graph():
    vine = adapter(Signals(signal=lambda state: len(state["log"]), answer=("log",)))
    graph = StateGraph(Typed)
    graph.add_node("generate", vine.stage("generate", lambda state, model: {"log": ["g"]}, state=Typed))
    graph.add_node("repair", vine.stage("repair", lambda state, model: {"log": [state["q"]]}, state=Typed))
    graph.add_node("join", lambda state: {"a": "joined"})
    graph.add_node("finish", vine.finish)
    graph.add_edge(START, "generate")
    sends = [Send("repair", {"q": text}) for text in "xyz"]
    graph.add_conditional_edges("generate", lambda state: sends, ["repair"])
    graph.add_edge("repair", "join")
    graph.add_conditional_edges("join", vine.route(lambda state: True, again="repair", end="finish"))
    graph.add_edge("finish", END)
    policy = Watching(["m0", "m1"], wanted=0)
    result = graph.compile(checkpointer=InMemorySaver()).invoke({"q": "?"}, thread(), context=vine.context(policy=policy))
    assert policy.outcomes == [(1, "1", 0), (2, "4", 1)]
    assert result["log"] == ["g"]


def test_a_stage_inside_a_subgraph_is_seen_where_the_state_of_the_graph_is():
    vine = adapter(STATUS)
    inner = StateGraph(Typed)
    inner.add_node("generate", vine.stage("generate", lambda state, model: {"a": model.invoke("?").content}, state=Typed))
    inner.add_node("repair", vine.stage("repair", lambda state, model: {"a": model.invoke("?").content}, state=Typed))
    inner.add_edge(START, "generate")
    inner.add_edge("generate", "repair")
    graph = StateGraph(Typed)
    graph.add_node("worker", inner.compile())
    graph.add_node("repair", vine.stage("repair", lambda state, model: {"a": model.invoke("?").content}, state=Typed))
    graph.add_node("finish", vine.finish)
    graph.add_edge(START, "worker")
    route = vine.route(lambda state: False, again="repair", end="finish")
    graph.add_conditional_edges("worker", route)
    graph.add_conditional_edges("repair", route)
    policy = Watching(["m0", "m1", "m2"], wanted=0)
    result = graph.compile().invoke({"q": "?"}, context=vine.context(policy=policy))
    assert policy.outcomes == [(1, None, None), (2, "failed", 0), (3, "failed", 1)]
    assert told(policy.events)[:3] == [("model", 0), ("observed", 1, None, None), ("model", 1)]
    assert result["a"] == "m1"


def test_calls_of_one_node_show_what_the_node_leaves():
    vine = adapter(Signals(signal=lambda state: "seen", answer=("a",)))
    graph = StateGraph(Typed)
    model = VineLM(vine.catalog).chat_model("generate")
    graph.add_node("generate", lambda state: {"a": model.invoke("1").content + model.invoke("2").content})
    graph.add_node("finish", vine.finish)
    graph.add_edge(START, "generate")
    graph.add_conditional_edges("generate", vine.route(lambda state: True, again="generate", end="finish"))
    vine.template = Template((Loop((Stage("generate"),), 4),)).bind(tuple(vine.catalog))
    policy = Watching(["m0", "m1"], template=vine.template)
    graph.compile().invoke({"q": "?"}, context=vine.context(policy=policy))
    assert told(policy.events)[:4] == [("model", 0), ("observed", 1, None, None), ("model", 1), ("observed", 2, "seen", 0)]


@pytest.mark.parametrize("on_error", ["raise", "default"])
def test_a_signal_that_raises_costs_no_request_in_service(on_error):
    vine = adapter(Signals(signal=lambda state: state["nothing"], answer=("a",)), on_error=on_error)
    policy = Watching(["m0", "m1"])
    policy.on_error = on_error
    failures = []
    policy.note_failure = lambda what, error, *where: failures.append((what, type(error)))
    graph = answering(vine).compile()
    if on_error == "raise":
        with pytest.raises(WorkflowError, match=r"signal\(state\) raised KeyError"):
            graph.invoke({"q": "?"}, context=vine.context(policy=policy))
        return
    assert graph.invoke({"q": "?"}, context=vine.context(policy=policy))["a"] == "m1"
    assert policy.outcomes == [(1, None, 0), (2, None, 1)]
    assert failures == [("the signal", WorkflowError)] * 2


def test_what_is_not_a_policy_is_refused_in_one_line():
    class Other:
        """Has some of a policy's methods."""

        def next_model(self, stage, prefix):
            return "m0"

    with pytest.raises(ConfigError, match=r"policy is of Other: derive the class from vinelm\.policies\.Policy"):
        adapter().context(policy=Other())


def test_the_check_judges_only_stages_that_answer():
    template = Template((Loop((Stage("draft"), Stage("critique", answerable=False)), 2),))
    vine = adapter(STATUS, template=False)
    vine.template = template.bind(tuple(vine.catalog))
    graph = StateGraph(Typed)
    graph.add_node("draft", vine.stage("draft", lambda state, model: {"a": model.invoke("?").content}, state=Typed))
    graph.add_node("critique", vine.stage("critique", lambda state, model: {"q": model.invoke("?").content}, state=Typed))
    graph.add_edge(START, "draft")
    graph.add_conditional_edges("draft", vine.route(lambda state: False, again="critique", end=END))
    graph.add_conditional_edges("critique", vine.route(lambda state: False, again="draft", end=END))
    policy = Watching(["m0", "m1", "m2"], template=vine.template)
    graph.compile().invoke({"q": "?"}, context=vine.context(policy=policy))
    assert [event[1] for event in policy.outcomes] == ["failed", None, "failed"]


def test_an_answer_that_the_application_changes_in_place_keeps_its_class():
    def change(state):
        state["log"] += ["changed"]

    signals = Signals(agree=lambda a, b: a == b, answer=("log",))
    vine, policy = adapter(signals), Watching(["m0", "m1"], wanted=0)

    def generate(state, model):
        return {"log": [model.invoke("?").content]}

    graph = StateGraph(Typed)
    graph.add_node("generate", vine.stage("generate", generate, state=Typed))
    graph.add_node("repair", vine.stage("repair", lambda state, model: change(state), state=Typed))
    graph.add_node("tool", lambda state: {"q": "!"})
    graph.add_node("finish", vine.finish)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "tool")
    graph.add_edge("repair", "tool")
    graph.add_conditional_edges("tool", vine.route(lambda state: False, again="repair", end="finish"))
    assert graph.compile().invoke({"q": "?"}, context=vine.context(policy=policy))["log"] == ["m0"]
    assert [event[2] for event in policy.outcomes] == [0, 1]
