"""What a replay cannot do, and where it leaves its record: one line each."""

import itertools
import secrets
from contextlib import suppress
from functools import partial

import pytest
from kit.toys.profiling import State, ToyBackend, catalog_for, toy
from kit.toys.replayed import build_function, experts_toy, function_toy, nested_toy, right, stages, twice_toy
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph

from vinelm.errors import CallError, StoreError, WorkflowError
from vinelm.profiler.execution.replayed.runner import make_units


def runner(workflow, **backend):
    return make_units(workflow, catalog_for(workflow), {"test": ToyBackend(**backend)})


def two_units(workflow, **backend):
    units = runner(workflow, **backend)
    [request, *_] = workflow.requests
    first = units.run(request, ("m0",), None)
    assert first.observation.failure is None
    return units, units.run(request, ("m0", "m1"), first.checkpoint)


def drifting(first, second, *, forgives=False):
    """A function whose prompts differ from run to run where the arguments do."""

    def build(vine):
        one, two = vine.chat_model("one"), vine.chat_model("two")

        def solve(inputs):
            answer = "none"
            with suppress(*([Exception] if forgives else [])):
                answer = one.invoke(f"{inputs['question']} {first()}").text
            return {"answer": two.invoke(f"{answer} {second()}").text}

        return solve

    return toy(build=build, template=stages("one", "two"), score=right)


@pytest.mark.parametrize("forgives", [False, True])
def test_a_prompt_that_changes_is_a_failed_row_that_says_where(forgives):
    units, outcome = two_units(drifting(partial(secrets.randbits, 60), str, forgives=forgives))
    row = outcome.observation
    assert (row.failure, row.cost_usd, row.calls, outcome.checkpoint) == ("state", 0.0, 0, None)
    assert row.detail.startswith(
        "the replay left its record: the prompt of the stage 'one' at invocation 1 is not the recorded"
    )
    assert "make it deterministic" in row.detail
    assert "\n" not in row.detail
    assert len(units.backends["test"].calls) == 1  # nothing was bought behind the drift


def test_what_changes_behind_the_bought_call_is_no_drift():
    _, outcome = two_units(drifting(str, partial(secrets.randbits, 60)))
    assert outcome.observation.failure is None


def ordered(names):
    """Calls its stages in the next of these orders each time it runs."""
    orders = itertools.cycle(names)

    def build(vine):
        models = {name: vine.chat_model(name) for name in ("one", "two", "three")}

        def solve(inputs):
            answer = ""
            for name in next(orders):
                answer = models[name].invoke(inputs["question"]).text
            return {"answer": answer}

        return solve

    return toy(build=build, template=stages("one", "two", "three"), score=right)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            (("one", "two"), ("two", "one")),
            "the stage 'two' was called as the replayed invocation 1, where its record has 'one'",
        ),
        ((("one", "two"), ("one", "three")), "the stage 'three' was called as invocation 2, where its record has 'two'"),
        ((("one", "two"), ("one",)), "the request ended before invocation 2 ('two'), which its record has"),
    ],
)
def test_another_order_is_a_drift(names, words):
    _, outcome = two_units(ordered(names))
    assert outcome.observation.failure == "state"
    assert words in outcome.observation.detail


def test_an_application_that_leaves_its_template_is_refused():
    units = runner(ordered((("two",),)))
    with pytest.raises(WorkflowError, match="request 'q0': the stage 'two' is called first, where the template has 'one'"):
        units.run(units.workflow.requests[0], ("m0",), None)
    units = runner(ordered((("one", "three"),)))
    with pytest.raises(WorkflowError, match="after 1 invocations the application goes to three, its template to 'two'"):
        units.run(units.workflow.requests[0], ("m0",), None)


def test_ids_that_an_application_makes_are_no_drift():
    from uuid import uuid4

    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    def build(vine):
        one, two = vine.chat_model("one"), vine.chat_model("two")

        def solve(inputs):
            call = {"name": "look", "args": {"at": inputs["question"]}, "id": uuid4().hex}
            history = [
                HumanMessage(inputs["question"], id=uuid4().hex),
                AIMessage("", tool_calls=[call], id=uuid4().hex),
                ToolMessage("seen", tool_call_id=call["id"]),
            ]
            return {"answer": two.invoke([*history, one.invoke(history)]).text}

        return solve

    _, outcome = two_units(toy(build=build, template=stages("one", "two"), score=right))
    assert outcome.observation.failure is None


def test_bound_tools_are_part_of_the_prompt():
    kinds = itertools.count()

    def build(vine):
        one, two = vine.chat_model("one"), vine.chat_model("two")

        def solve(inputs):
            @tool(f"look_{next(kinds)}")
            def look(at: str) -> str:
                """Look."""
                return at

            answer = one.bind_tools([look]).invoke(inputs["question"]).text
            return {"answer": two.invoke(answer).text}

        return solve

    _, outcome = two_units(toy(build=build, template=stages("one", "two"), score=right))
    assert "the prompt of the stage 'one'" in outcome.observation.detail


def mailing(is_tool):
    """Sends a mail between its two calls."""

    @tool
    def send_mail(text: str) -> str:
        """Send it."""
        return "sent"

    def build(vine):
        one, two = vine.chat_model("one"), vine.chat_model("two")
        if is_tool:
            return lambda inputs: {"answer": two.invoke(send_mail.invoke({"text": one.invoke(inputs["question"]).text})).text}
        graph = StateGraph(State)
        graph.add_node("first", lambda state: {"answer": one.invoke(state["question"]).text})
        graph.add_node("send_mail", lambda state: {"log": ["sent"]})
        graph.add_node("last", lambda state: {"answer": two.invoke(state["answer"]).text})
        for before, after in ((START, "first"), ("first", "send_mail"), ("send_mail", "last"), ("last", END)):
            graph.add_edge(before, after)
        return graph

    return toy(build=build, template=stages("one", "two"), score=right, unrepeatable=("send_mail",), replay=True)


@pytest.mark.parametrize("is_tool", [True, False])
def test_what_must_not_run_again_is_refused_before_it_does(is_tool):
    with pytest.raises(
        WorkflowError, match=r"'send_mail' runs before invocation 2 \('two'\) and would run again in its replay"
    ):
        two_units(mailing(is_tool))


def test_a_graph_that_is_forked_may_name_what_must_not_run_again():
    units, outcome = two_units(mailing(False).__class__(**{**vars(mailing(False)), "replay": False}))
    assert type(units).__name__ == "UnitRunner"
    assert outcome.observation.failure is None


def test_the_oracle_stop_is_refused():
    with pytest.raises(WorkflowError, match=r"is replayed \(it is no graph\) and stops by the oracle"):
        runner(function_toy(stop="oracle"))


def test_a_second_call_in_a_node_names_the_way_out():
    units = runner(twice_toy(replay=False))
    with pytest.raises(WorkflowError, match=r"after another call in one execution: .* so set Workflow\(replay=True\)"):
        units.run(units.workflow.requests[0], ("m0",), None)


def test_a_checkpoint_is_no_record():
    units = runner(nested_toy())
    with pytest.raises(StoreError, match="the store holds checkpoints, and this workflow is replayed"):
        units.run(units.workflow.requests[0], ("m0", "m0"), b"w....")


def test_stages_of_a_function_that_come_in_another_order_than_the_template_says():
    def build(vine):
        tax, law, art, judge = (vine.chat_model(name) for name in ("tax", "law", "art", "judge"))
        return lambda inputs: {"answer": [llm.invoke(inputs["question"]).text for llm in (law, tax, art, judge)][-1]}

    units = runner(experts_toy(build=build))
    with pytest.raises(WorkflowError, match="'law' is called before 'tax': name the stages of a Parallel in the order"):
        units.run(units.workflow.requests[0], ("m0",), None)


def test_a_failed_call_is_a_failed_row():
    workflow = function_toy()
    units = runner(workflow, before=lambda request, prefix: "server" if len(prefix) == 2 else None)
    [request] = [one for one in workflow.requests if not units.run(one, ("m0",), None).observation.stopped][:1]
    first = units.run(request, ("m0",), None)
    second = units.run(request, ("m0", "m1"), first.checkpoint)
    assert (second.observation.failure, second.checkpoint) == ("server", None)
    assert second.observation.cost_usd > 0


def test_calls_that_failed_and_were_forgiven_fail_again_in_the_replay():
    def build(vine):
        one, two = vine.chat_model("one"), vine.chat_model("two")

        def solve(inputs):
            seen = []
            for text in ("a", "b"):
                try:
                    seen.append(one.with_retry(stop_after_attempt=1).invoke(text).text)
                except CallError:
                    seen.append("failed")
            return {"answer": two.invoke(" ".join(seen)).text}

        return solve

    failures = iter([True, False, False, False])
    template = stages("one", "two")
    units = runner(
        toy(build=build, template=template, score=right), before=lambda request, prefix: "server" if next(failures) else None
    )
    [request, *_] = units.workflow.requests
    first = units.run(request, ("m0",), None)
    assert (first.observation.failure, first.observation.calls) == (None, 2)
    second = units.run(request, ("m0", "m1"), first.checkpoint)
    assert (second.observation.failure, second.observation.calls) == (None, 1)


def test_a_function_that_is_an_object():
    class Solver:
        def __init__(self, vine):
            self.solve = build_function(vine)

        def __call__(self, inputs):
            return self.solve(inputs)

    _, outcome = two_units(function_toy(Solver))
    assert outcome.observation.failure is None
