"""Nodes that wait for a person are answered in code while they are profiled."""

import pytest
from kit.toys.profiling import PROMPT, ToyBackend, catalog_for, new_store, toy
from kit.toys.profiling import State as ToyState

from vinelm.errors import WorkflowError
from vinelm.profiler import ProfileSettings, profile
from vinelm.profiler.execution.unit import UnitRunner


class State(ToyState, total=False):
    approved: list[str]


def build_with(person, generate=None):
    """The toy with a node that asks a person between the answer and its check."""

    def build(vine):
        from langgraph.graph import END, START, StateGraph

        def plain(state: State, model) -> State:
            return {"answer": model.invoke(PROMPT.format(question=state["question"])).text}

        graph = StateGraph(State)
        graph.add_node("generate", vine.stage("generate", generate or plain))
        graph.add_node("repair", vine.stage("repair", plain))
        graph.add_node("person", person)
        graph.add_edge(START, "generate")
        graph.add_edge("generate", "person")
        graph.add_edge("repair", "person")
        finished = vine.route(lambda state: state["answer"] in ("right", "plausible"), again="repair", end=END)
        graph.add_conditional_edges("person", finished, ["repair", END])
        return graph

    return build


def ask_twice(state):
    from langgraph.types import interrupt

    first, second = interrupt("is it right?"), interrupt({"sure": state["answer"]})
    return {"approved": [*state.get("approved", []), first, second]}


def approve(request, value):
    return f"{request.id}: {value if isinstance(value, str) else value['sure']}"


def workflow_of(build=None, answer=approve, **changes):
    changes = {"score": lambda request, state: state["answer"] == "right"} | changes
    return toy(build=build or build_with(ask_twice), answer_interrupt=answer, **changes)


def units_of(workflow, backend=None):
    return UnitRunner(workflow, catalog_for(workflow), {"test": backend or ToyBackend()})


def test_each_interrupt_has_its_answer():
    seen = []

    def score(request, state):
        seen.append((request.id, state["answer"], state["approved"]))
        return True

    workflow = workflow_of(score=score)
    units, state, prefix = units_of(workflow), None, ()
    request = workflow.requests[0]
    for _ in range(2):
        prefix = (*prefix, "m0")
        outcome = units.run(request, prefix, state)
        state = outcome.checkpoint
        assert outcome.observation.failure is None
        assert outcome.observation.calls == 1
        if outcome.observation.stopped:
            break
    for k, (request_id, answer, approved) in enumerate(seen):
        assert approved[2 * k :] == [f"{request_id}: is it right?", f"{request_id}: {answer}"]


def test_without_an_answer_the_line_names_the_parameter():
    workflow = workflow_of(answer=None)
    with pytest.raises(WorkflowError, match=r"waits for a person .* with Workflow\(answer_interrupt=\)"):
        units_of(workflow).run(workflow.requests[0], ("m0",), None)


def test_a_person_who_is_never_content_is_a_failed_row():
    from langgraph.types import interrupt

    def stubborn(state):
        while interrupt("again?"):
            pass

    workflow = workflow_of(build_with(stubborn), answer=lambda request, value: True)
    row = units_of(workflow).run(workflow.requests[0], ("m0",), None).observation
    assert (row.failure, row.calls) == ("tool", 1)
    assert "asked a person more than 100 times" in row.detail


def test_a_stage_that_asks_pays_for_the_call_before_the_interrupt_too(tmp_path):
    """LangGraph runs the node again from its start, and so calls the model again: the ledger has both calls."""
    from langgraph.types import interrupt

    def asks(state: State, model) -> State:
        answer = model.invoke("x").text
        interrupt("may I?")
        return {"answer": answer}

    workflow = workflow_of(build_with(ask_twice, generate=asks), n_requests=1)
    backend = ToyBackend()
    with new_store(tmp_path / "s.db", workflow, backend) as store:
        profile(workflow, catalog_for(workflow), {"test": backend}, store, ProfileSettings(sampler="exhaustive"))
        rows = store.observations()
        first = [row for row in rows if row.depth == 1]
        assert backend.calls.count((workflow.requests[0].id, ("m0",))) == 2
        others = sum(row.cost_usd for row in rows if row.depth > 1)
        assert store.committed_usd() == pytest.approx(others + 2 * sum(row.cost_usd for row in first))
        assert all(row.failure is None for row in rows)


def test_the_answers_are_part_of_the_fingerprint(tmp_path):
    from vinelm.profiler.execution.fingerprint import fingerprint

    workflow = workflow_of()
    parts = fingerprint(workflow, catalog_for(workflow), {"test": ToyBackend()})
    other = workflow_of(answer=lambda request, value: "no")
    assert parts["interrupts"] != fingerprint(other, catalog_for(other), {"test": ToyBackend()})["interrupts"]
    assert "interrupts" not in fingerprint(workflow_of(answer=None), catalog_for(other), {"test": ToyBackend()})
