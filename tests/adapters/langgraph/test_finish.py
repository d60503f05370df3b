"""The node that returns an earlier answer: which values, under which reducers and streams, and what the trace says."""

import asyncio
import operator
from typing import Annotated

import pytest
from kit.apps.echo import KINDS, MODES, Typed, run, thread
from kit.apps.savers import dump, load
from kit.apps.signals import BY_ANSWER, Watching, adapter, answering
from langgraph.channels import Topic
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from vinelm import VineLM
from vinelm.adapters.langgraph.nodes.finish import FINISH_MARK
from vinelm.errors import ConfigError, WorkflowError
from vinelm.policies import ForcedPolicy
from vinelm.signals import Signals

PATH = ["m0", "m1", "m0", "m2"]
"""Answers 1 and 3 agree; the last one is the fourth."""


def serve(vine, policy, mode="sync", schema=Typed, **settings):
    graph = answering(vine, schema, mode, **settings).compile()
    return run(graph, mode, {"q": "?"}, context=vine.context(policy=policy))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("schema", KINDS.values(), ids=KINDS)
def test_the_first_answer_of_the_class_is_returned(schema, mode):
    vine, policy = adapter(Signals(answer=("a", "log"), agree=lambda a, b: a["a"] == b["a"])), Watching(PATH, wanted=0)
    result = serve(vine, policy, mode, schema)
    assert result == {"q": "?", "a": "m0", "log": ["m0"]}  # log has a reducer
    assert policy.notes == ["returned answer 1: two of four agree"]
    assert policy.events[-1] == ("returned?", 4)


@pytest.mark.parametrize("wanted", [None, 2])
def test_the_last_answer_stays_where_the_policy_wants_it(wanted):
    vine, policy = adapter(), Watching(PATH, wanted=wanted)
    assert serve(vine, policy)["a"] == "m2"
    assert policy.notes == []


def test_another_answer_of_the_last_ones_class_is_not_put_in_its_place():
    signals = Signals(answer=("a", "log"), agree=lambda a, b: a["a"] == b["a"])
    vine, policy = adapter(signals), Watching(["m0", "m1", "m0"], wanted=0)
    assert serve(vine, policy)["log"] == ["m0", "m1", "m0"]
    assert policy.notes == []


def test_the_last_invocation_may_have_no_answer():
    vine, policy = adapter(), Watching(["m0", "m1"], wanted=0)

    def no_second(state):
        return {"a": None, "log": ["none"]} if state["log"] else None

    assert serve(vine, policy, tool=no_second)["a"] == "m0"
    assert policy.outcomes[-1] == (2, "2 lines", None)
    assert policy.notes == ["returned answer 1: no other answer"]


def test_what_the_trace_says_of_an_answer_that_stands_alone():
    vine, policy = adapter(), Watching(["m0", "m1", "m2"], wanted=1)
    assert serve(vine, policy)["a"] == "m1"
    assert policy.notes == ["returned answer 2: none of three agrees with it"]


def test_what_was_not_written_yet_at_the_first_answer_is_taken_back():
    class State(TypedDict, total=False):
        q: str
        a: str
        log: Annotated[list, operator.add]
        note: str

    vine, policy = adapter(Signals(answer=("a", "note"))), Watching(["m0", "m1"], wanted=0)

    def second_note(state):
        return {"log": ["x"], "note": "late"} if state["log"] else {"log": ["x"]}

    assert serve(vine, policy, schema=State, tool=second_note)["note"] is None


def test_messages_are_replaced_as_a_whole():
    class Chat(TypedDict, total=False):
        q: str
        a: str
        log: Annotated[list, operator.add]
        messages: Annotated[list, add_messages]

    vine, policy = adapter(Signals(answer=("messages",))), Watching(["m0", "m1"], wanted=0)
    result = serve(vine, policy, schema=Chat, tool=lambda state: {"messages": [("ai", state["a"])], "log": ["x"]})
    assert [message.content for message in result["messages"]] == ["m0"]


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_where_tokens_were_streamed_the_last_answer_is_returned(mode):
    vine, policy = adapter(), Watching(["m0", "m1"], wanted=0)
    graph = answering(vine, mode=mode).compile()

    async def read():
        arguments = {"context": vine.context(policy=policy), "stream_mode": ["messages", "values"]}
        return [item async for item in graph.astream({"q": "?"}, **arguments)]

    if mode == "async":
        items = asyncio.run(read())
    else:
        context = vine.context(policy=policy)
        items = list(graph.stream({"q": "?"}, context=context, stream_mode=["messages", "values"]))
    tokens = [chunk[0].content for kind, chunk in items if kind == "messages"]
    assert tokens.count("one ") == 2
    assert [values for kind, values in items if kind == "values"][-1]["log"] == ["one two three"] * 2
    assert policy.notes == []  # both streamed answers are the same words


@pytest.mark.parametrize("how", ["messages", "events"])
def test_the_trace_says_that_streamed_tokens_kept_the_last_answer(how):
    vine, policy = adapter(Signals(answer=("log",))), Watching(["m0", "m1"], wanted=0)
    graph = answering(vine, mode="async").compile()
    contexts = []

    async def read():
        context = vine.context(policy=policy)
        contexts.append(context)
        if how == "messages":
            return [part async for part in graph.astream({"q": "?"}, context=context, stream_mode="messages")]
        return [event async for event in graph.astream_events({"q": "?"}, context=context, version="v2")]

    asyncio.run(read())
    assert policy.notes == [
        "returned the last answer, whose tokens were streamed, instead of answer 1: none of two agrees with it"
    ]


@pytest.mark.parametrize("stream_mode", ["values", "updates"])
def test_other_streams_return_earlier_answers(stream_mode):
    vine, policy = adapter(), Watching(["m0", "m1"], wanted=0)
    items = list(answering(vine).compile().stream({"q": "?"}, context=vine.context(policy=policy), stream_mode=stream_mode))
    assert (items[-1] if stream_mode == "values" else items[-1]["finish"])["a"] == "m0"


# -- what a policy may count on ----------------------------------------------------------------------------------------


def contexts_of(build, signals=BY_ANSWER, **invoke):
    seen = []
    vine = adapter(signals, new_policy=seen.append)
    build(vine).compile().invoke({"q": "?"}, **invoke)
    return vine, seen


def test_new_policies_are_told_whether_an_earlier_answer_can_be_returned():
    vine, [context] = contexts_of(lambda vine: answering(vine, passes=["m0"]))
    assert vine.returns_earlier
    assert context.returns_earlier
    vine, [context] = contexts_of(lambda vine: answering(vine, end=END, passes=["m0"]))
    assert not vine.returns_earlier
    assert not context.returns_earlier
    vine, [context] = contexts_of(lambda vine: answering(vine, passes=["m0"]), Signals(signal="status"))
    assert not context.returns_earlier


def test_a_run_whose_tokens_are_streamed_returns_the_last_answer_and_its_policy_knows():
    seen = []
    vine = adapter(new_policy=seen.append)
    list(answering(vine, passes=["m0", "one two three"]).compile().stream({"q": "?"}, stream_mode="messages"))
    assert [context.returns_earlier for context in seen] == [False]


def test_an_edge_that_ends_at_once_leaves_only_last_answers():
    def build(vine):
        graph = answering(vine, passes=["m0"])
        vine.route(lambda state: True, again="repair", end=END)
        return graph

    assert not contexts_of(build)[0].returns_earlier


def test_without_a_finish_node_the_policy_is_not_asked():
    vine, policy = adapter(), Watching(PATH, wanted=0)
    assert serve(vine, policy, end=END)["a"] == "m2"
    assert ("returned?", 4) not in policy.events


# -- runs that go on elsewhere -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_a_run_resumed_before_the_finish_returns_an_answer_of_the_run_before(mode):
    vine, saver = adapter(), InMemorySaver()
    graph = answering(vine, mode=mode).compile(checkpointer=saver)
    first = vine.context(policy=Watching(PATH, wanted=0))
    run(graph, mode, {"q": "?"}, thread(), context=first, interrupt_before=["finish"], durability="exit")

    other, elsewhere = adapter(), InMemorySaver()
    load(elsewhere, dump(saver, thread()), "t")
    policy = Watching(PATH, wanted=0)
    graph = answering(other, mode=mode).compile(checkpointer=elsewhere)
    assert run(graph, mode, None, thread(), context=other.context(policy=policy))["a"] == "m0"
    assert [event[2] for event in policy.outcomes] == [0, 1, 0, 2]
    assert policy.notes == ["returned answer 1: two of four agree"]


@pytest.mark.parametrize("mode", MODES)
def test_an_interrupt_between_the_answers_loses_none(mode):
    vine = adapter(Signals(answer=("a", "log"), agree=lambda a, b: a["a"] == b["a"]))
    tool = lambda state: interrupt("?") and None  # noqa: E731
    graph = answering(vine, mode=mode, tool=tool).compile(checkpointer=InMemorySaver())
    result = run(graph, mode, {"q": "?"}, thread(), context=vine.context(policy=Watching(PATH, wanted=0)))
    while "__interrupt__" in result:
        policy = Watching(PATH, wanted=0)
        result = run(graph, mode, Command(resume=1), thread(), context=vine.context(policy=policy))
    assert (result["a"], result["log"]) == ("m0", ["m0"])
    assert policy.notes == ["returned answer 1: two of four agree"]


def test_what_follows_the_finish_sees_the_answer_and_a_later_stage_does_not_judge_it():
    vine, policy = adapter(), Watching(["m0", "m1", "m2"], wanted=0)
    policy.should_continue = lambda prefix, finished, state, arms=None: len(prefix) < 2
    graph = answering(vine)
    seen = []

    def report(state, model):
        seen.append(state["a"])
        return {"q": model.invoke("?").content}

    graph.add_node("report", vine.stage("repair", report, state=Typed))
    graph.edges.discard(("finish", END))
    graph.add_edge("finish", "report")
    graph.add_edge("report", END)
    assert graph.compile().invoke({"q": "?"}, context=vine.context(policy=policy))["q"] == "m2"
    assert seen == ["m0"]
    assert policy.outcomes == [(1, "1 lines", 0), (2, "2 lines", 1)]


def test_a_finish_inside_a_subgraph_restores_the_state_of_the_subgraph():
    vine, policy = adapter(), Watching(["m0", "m1"], wanted=0)
    graph = StateGraph(Typed)
    graph.add_node("worker", answering(vine).compile())
    graph.add_edge(START, "worker")
    graph.add_edge("worker", END)
    result = graph.compile().invoke({"q": "?", "log": []}, context=vine.context(policy=policy))
    assert result["a"] == "m0"


def test_an_update_by_hand_passes_the_finish():
    vine = adapter()
    graph = answering(vine).compile(checkpointer=InMemorySaver())
    graph.update_state(thread(), {"a": "by hand", "log": []}, as_node="execute")
    assert graph.invoke(None, thread())["a"]


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_a_key_that_cannot_be_replaced_is_refused():
    class State(TypedDict, total=False):
        q: str
        a: str
        log: Annotated[list, operator.add]
        kept: Annotated[list, Topic]

    vine, policy = adapter(Signals(answer=("a", "kept"))), Watching(["m0"])
    with pytest.raises(WorkflowError, match="the state keeps 'kept' in a Topic, which cannot be replaced") as caught:
        serve(vine, policy, schema=State, tool=lambda state: {"kept": ["x"], "log": []})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keys", [("b",), ("a", "b")])
def test_a_key_that_the_state_lacks_is_refused(keys):
    vine = adapter(Signals(answer=keys), on_error="default")
    policy = Watching(["m0"])
    policy.on_error = "default"
    with pytest.raises(WorkflowError, match="the graph's state has no key 'b'"):
        serve(vine, policy)


def test_a_class_that_no_answer_has_is_refused():
    with pytest.raises(WorkflowError, match="an answer of class 7, of which the request has none"):
        serve(adapter(), Watching(["m0", "m1"], wanted=7))


def test_a_policy_that_fails_returns_the_last_answer():
    vine, policy = adapter(on_error="default"), Watching(["m0", "m1"])
    policy.on_error = "default"
    policy.returned = lambda prefix: 1 / 0
    failures = []
    policy.note_failure = lambda what, error, *where: failures.append((what, type(error)))
    assert serve(vine, policy)["a"] == "m1"
    assert failures == [("returned", ZeroDivisionError)]


def test_a_comparison_that_raises_is_one_line():
    vine = adapter(Signals(agree=lambda a, b: a / b, answer=("a",)))
    with pytest.raises(WorkflowError, match=r"agree\(a, b\) raised TypeError"):
        serve(vine, Watching(["m0", "m1"]))


# -- the front door ----------------------------------------------------------------------------------------------------


def test_the_application_declares_the_same_four():
    models = adapter().catalog
    vine = VineLM(models, signals=Signals(lambda state: 0.3, (0.5,), lambda a, b: a == b, ("a",)))
    assert vine.adapter.signals.edges == (0.5,)
    assert getattr(vine.finish, FINISH_MARK)
    with pytest.raises(ConfigError, match="agree needs to know what an answer is"):
        VineLM(models, signals=Signals(agree=lambda a, b: True))
    with pytest.raises(ConfigError, match="give a tuple of keys"):
        VineLM(models, signals=Signals(answer="a"))
    assert not VineLM(models).adapter.signals


def test_a_profile_passes_the_finish_unchanged():
    vine = adapter(None)
    policy = ForcedPolicy(vine.template, PATH, mode="through")
    assert serve(vine, policy)["a"] == "m2"
