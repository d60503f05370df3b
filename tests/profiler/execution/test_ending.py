"""Nodes after the loop: an answer is scored as it would have left the workflow there, wherever the loop might be ended."""

import pytest
from kit.toys.profiling import State, ToyBackend, answer_of, catalog_for, finished, generate, reachable, repair, toy

from vinelm.profiler.execution.unit import UnitRunner

ran = []


def polish(state: State) -> dict:
    ran.append(state["answer"])
    if state["answer"] == "broken" and state["question"] == "number 3":
        raise RuntimeError("sk-canary")
    return {"answer": f"<{state['answer']}>"}


def sign(state: State) -> dict:
    return {"answer": state["answer"] + "!"}


def build(vine, end="polish"):
    from langgraph.graph import END, START, StateGraph

    graph = StateGraph(State)
    graph.add_node("generate", vine.stage("generate", generate))
    graph.add_node("repair", vine.stage("repair", repair))
    graph.add_node("check", lambda state: {"checked": state.get("checked", 0) + 1})
    graph.add_node("polish", polish)
    graph.add_node("sign", sign)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "check")
    graph.add_edge("repair", "check")
    graph.add_conditional_edges("check", vine.route(finished, again="repair", end=end), ["repair", end])
    graph.add_edge("polish", "sign")
    graph.add_edge("sign", END)
    return graph


def score(request, state) -> bool:
    """Only what went through both nodes can be right."""
    return state["answer"] in ("<right>!", "<odd>!")


@pytest.mark.parametrize("stop", ["oracle", "workflow"])
def test_every_answer_is_scored_as_it_would_have_left_the_workflow(stop):
    workflow = toy(n_requests=5, stop=stop, build=build, score=score)
    backend = ToyBackend()
    worker = UnitRunner(workflow, catalog_for(workflow), {"test": backend})
    checkpoints, failed, seen = {}, set(), []
    for request in workflow.requests:
        for request_id, prefix in reachable(workflow):
            if request_id != request.id or any((request_id, prefix[:k]) in failed for k in range(len(prefix))):
                continue
            ran.clear()
            outcome = worker.run(request, prefix, checkpoints.get((request_id, prefix[:-1])))
            row, answer = outcome.observation, answer_of(request_id, prefix)
            assert ran == [answer]  # once, on the answer of this very invocation: the next one starts from the other copy
            if (request_id, answer) == ("q3", "broken"):
                failed.add((request_id, prefix))
                assert (row.failure, row.detail.split(" at ")[0]) == (
                    "tool",
                    "after the loop, RuntimeError" if len(prefix) < 3 else "RuntimeError",
                )
                continue
            assert row.failure is None
            assert row.success == (answer in ("right", "odd"))
            assert row.stopped == (answer in ("right", "plausible"))
            checkpoints[request_id, prefix] = outcome.checkpoint
            seen.append((len(prefix), row.success, row.stopped))
    assert failed
    assert {(1, True, False), (1, False, False), (2, True, False)} <= set(seen)  # right answers that the check sent back
    assert len(backend.calls) == len(seen) + len(failed)  # no call twice
