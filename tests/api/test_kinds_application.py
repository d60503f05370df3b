"""Requests of several kinds in service: each by the plan of its kind, also where the kind cannot be told or changes."""

import pytest
from kit.stores import made_store
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from vinelm import VineLM, estimate
from vinelm.errors import WorkflowError
from vinelm.objective import Objective
from vinelm.rows.observation import Usage

BEST = Objective(maximize="accuracy")
UNLIKE = {"code": {"m0": 0.2, "m1": 0.9}, "prose": {"m0": 0.9, "m1": 0.2}}


class State(TypedDict, total=False):
    kind: str
    seen: list


class Free:
    """Calls cost nothing."""

    is_simulated, is_virtual_time = True, False

    def chat_model(self, model, call):
        class Chat:
            name = model.name

            def invoke(self, prompt):
                call.on_usage(Usage(model=model.name, cost_usd=0.0, latency_s=0.0, tokens_in=1, tokens_out=1))

        return Chat()


@pytest.fixture(scope="module")
def trie(tmp_path_factory):
    path = made_store(tmp_path_factory.mktemp("kinds") / "a.db", UNLIKE["code"], {"m0": 0.001, "m1": 0.001}, kinds=UNLIKE)
    return estimate(path, check=False)


def serving(trie, kind, *, saver=None, **settings):
    vine = VineLM(trie.catalog, {"test": Free()}, trie=trie, fallback=False, kind=kind, allow_unproven=True, **settings)

    def answer(state: State, model):
        model.invoke("?")
        return {"seen": [*state.get("seen", []), model.name]}

    def person(state: State):
        return {"seen": state["seen"]} if interrupt("go on?") else {}

    graph = StateGraph(State)
    graph.add_node("answer", vine.stage("answer", answer, default="m0"))
    graph.add_node("person", person)
    graph.add_node("retry", vine.stage("retry", answer, default="m0"))
    graph.add_edge(START, "answer")
    graph.add_conditional_edges("answer", vine.route(lambda state: False, again="person", end=END))
    graph.add_edge("person", "retry")
    graph.add_edge("retry", END)
    return vine, graph.compile(checkpointer=saver or InMemorySaver())


def begun(vine, app, state, thread="t"):
    """The session of a request that waits for a person, and what answered first."""
    session = vine.session(BEST, run_id=thread)
    context = vine.context(BEST, policy=session)
    found = app.invoke(state, {"configurable": {"thread_id": thread}}, context=context)
    return session, found["seen"]


def broken(inputs):
    raise ValueError("a secret " + inputs["kind"])


@pytest.mark.parametrize(("kind", "model"), [("code", "m1"), ("prose", "m0")])
def test_a_request_is_served_by_the_plan_of_its_kind(trie, kind, model):
    session, seen = begun(*serving(trie, "kind"), {"kind": kind})
    assert seen == [model]
    assert session.steps[0].note == f"kind: {kind}"


def test_a_kind_that_raises_is_other_and_the_trace_says_why(trie):
    session, seen = begun(*serving(trie, broken), {"kind": "code"})
    assert len(seen) == 1
    assert session.kind == "other"
    assert "raised ValueError" in session.steps[0].note
    assert "secret" not in session.steps[0].note


def test_a_kind_that_raises_is_an_error_where_errors_are_raised(trie):
    with pytest.raises(WorkflowError, match="raised ValueError"):
        begun(*serving(trie, broken, on_error="raise"), {"kind": "code"})


def test_a_resumed_request_stays_of_its_kind(trie):
    saver = InMemorySaver()
    vine, app = serving(trie, "kind", saver=saver)
    _, seen = begun(vine, app, {"kind": "code"})
    other, resumed = serving(trie, lambda inputs: "prose", saver=saver)
    session = other.session(BEST, run_id="t")
    config = {"configurable": {"thread_id": "t"}}
    resumed.invoke(Command(resume=True), config, context=other.context(BEST, policy=session))
    assert seen == ["m1"]
    assert session.kind == "code"
