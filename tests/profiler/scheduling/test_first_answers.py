"""A run stops and asks when no answer of the first ten requests is right: the answer is read in the wrong place."""

from dataclasses import replace

import pytest
from kit.toys.profiling import ToyBackend, catalog_for, new_store, score, toy
from pydantic import BaseModel

from vinelm.profiler import ExecutionConfig, ProfileSettings, profile
from vinelm.profiler.execution.answers import beside_label
from vinelm.profiler.scheduling.observed_cells import NONE_RIGHT_AFTER, AnswersOfToday
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation
from vinelm.template import Stage, Template


def wrong_place(request, state) -> bool:
    return state.get("nowhere") == "right"


def misread(n_requests=20):
    """The workflow that knows labels, and whose scorer reads a key that no state has."""
    workflow = toy(n_requests=n_requests)
    requests = tuple(Request(one.id, {**one.data, "gold": "plausible"}) for one in workflow.requests)
    return replace(workflow, requests=requests, labels=("gold",), score=wrong_place)


def run(path, workflow, backend, **settings):
    with new_store(path, workflow) as store:
        found = ProfileSettings(sampler=settings.pop("sampler", "exhaustive"), **settings)
        result = profile(workflow, catalog_for(workflow), {"test": backend}, store, found)
        return result, store.observations()


@pytest.mark.parametrize("workers", [1, 3, 16])
def test_ten_requests_without_a_right_answer_end_the_run_at_the_same_rows(tmp_path, workers):
    backend = ToyBackend()
    execution = ExecutionConfig(isolation="thread", workers=workers)
    result, rows = run(tmp_path / "s.db", misread(), backend, execution=execution)
    assert result.stopped_by == "none-right"
    _, of_one = run(tmp_path / "one.db", misread(), ToyBackend())
    assert {(row.request_id, row.prefix) for row in rows} == {(row.request_id, row.prefix) for row in of_one}
    assert "none of the first 10 answers is right" in result.message
    assert "has the label gold 'plausible'" in result.message


def test_the_same_line_buys_nothing_more_and_a_repaired_scorer_goes_on(tmp_path):
    run(tmp_path / "s.db", misread(), ToyBackend())
    again = ToyBackend()
    assert run(tmp_path / "s.db", misread(), again)[0].stopped_by == "none-right"
    assert again.calls == []
    repaired = replace(misread(), score=score)
    result, rows = run(tmp_path / "s.db", repaired, ToyBackend())
    assert result.stopped_by == "complete"
    assert any(row.success for row in rows)


def test_one_right_answer_is_enough_and_who_is_told_to_goes_on(tmp_path):
    assert run(tmp_path / "s.db", toy(n_requests=20), ToyBackend())[0].stopped_by == "complete"
    assert run(tmp_path / "w.db", misread(), ToyBackend(), keep_going=True)[0].stopped_by == "complete"


def test_only_what_runs_today_counts_and_any_model_s_right_answer_settles_it():
    template = Template((Stage("write", ("m0", "m1"), default="m1"),))

    def row(number, model, success):
        return Observation(
            request_id=f"q{number}", prefix=(model,), stage="write", success=success, stopped=True, cost_usd=0.0, latency_s=1.0
        )

    found = AnswersOfToday(template)
    assert all(found.add(row(n, "m0", False)) is None for n in range(3 * NONE_RIGHT_AFTER))
    for n in range(NONE_RIGHT_AFTER - 1):
        assert found.add(row(n, "m1", 0.0)) is None
    assert found.add(row(99, "m1", False)).startswith("none of the first 10 answers is right of what runs today")
    other = AnswersOfToday(template)
    other.add(row(0, "m0", True))
    assert all(other.add(row(n, "m1", False)) is None for n in range(3 * NONE_RIGHT_AFTER))


class Reply(BaseModel):
    gold: str


@pytest.mark.parametrize(
    ("state", "place", "code"),
    [
        ({"structured_response": Reply(gold="42")}, "structured_response.gold", 'state["structured_response"].gold'),
        ({"structured_response": {"gold": 42}}, "structured_response['gold']", 'state["structured_response"]["gold"]'),
        ({"result": {"found": [{"gold": " 42 "}]}}, "result['found'][-1]['gold']", 'state["result"]["found"][-1]["gold"]'),
        ({"draft": '{"gold": "42"}'}, "json.loads(draft)['gold']", ""),
        ({"info": {"why": "42", "gold": "42"}}, "info['gold']", 'state["info"]["gold"]'),
        ({"golden": {"why": "42"}}, "golden['why']", ""),  # the reasoning, where the answer is of another type
        ({"messages": [{"gold": "42"}, {"content": "?"}]}, "messages[-2]['gold']", ""),
    ],
)
def test_the_place_of_the_label_in_the_state_is_named(state, place, code):
    workflow = Workflow(name="w", build=None, requests=(Request("a", {"q": "?", "gold": 42}),), labels=("gold",), score=score)
    said, answer_at = beside_label(workflow, workflow.requests[0], {"q": "?", **state})
    assert answer_at == code
    assert not code or str(eval(code, {"state": state})).strip() == "42"
    assert said.startswith("request 'a' has the label gold '42', and the final state has that in")
    assert f"in {place}: " in said


def test_a_forced_tool_s_arguments_are_found_in_the_last_message():
    from langchain_core.messages import AIMessage, HumanMessage

    calls = [{"name": "Answer", "args": {"answer": "42"}, "id": "1"}]
    workflow = Workflow(name="w", build=None, requests=(Request("a", {"q": "?", "gold": 42}),), labels=("gold",), score=score)
    state = {"messages": [HumanMessage("?"), AIMessage("", tool_calls=calls)]}
    assert "in messages[-1].tool_calls[0]['args']['answer']: " in beside_label(workflow, workflow.requests[0], state).shown


def test_an_answer_without_its_label_is_shown_beside_it():
    workflow = Workflow(name="w", build=None, requests=(Request("a", {"q": "?", "gold": 42}),), labels=("gold",), score=score)
    said = beside_label(workflow, workflow.requests[0], {"q": "?", "answer": "forty-two"}).shown
    assert said == "request 'a' has the label gold '42', and the final state ends with answer = 'forty-two'"
