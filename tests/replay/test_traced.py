"""Requests of traces, as each form tells what the application was given."""

import json
import stat

import pytest
from kit.catalogs import make_catalog
from langchain_core.messages import HumanMessage

from vinelm.backends.remote.equal_calls import answer_in, recorded_digest
from vinelm.errors import ConfigError
from vinelm.replay.traced import Traces

GIVEN, ASKED = {"question": "Is 4 even?"}, [{"role": "user", "content": "Say yes or no. Is 4 even?"}]
SAID = {"role": "assistant", "content": "yes"}
TIMES = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:00:02Z"}
LANGSMITH = [
    {"id": "root", "trace_id": "t", "run_type": "chain", "inputs": GIVEN, "parent_run_id": None},
    {"id": "node", "trace_id": "t", "run_type": "chain", "inputs": {"other": 1}, "parent_run_id": "root"},
    {
        "id": "call", "trace_id": "t", "run_type": "llm", "parent_run_id": "node", "inputs": {"messages": ASKED},
        "outputs": {"message": SAID}, "extra": {"metadata": {"ls_model_name": "test-0"}}, "prompt_tokens": 9,
        "completion_tokens": 1, "start_time": "2026-01-01T00:00:00Z", "end_time": "2026-01-01T00:00:02Z",
    },
]  # fmt: skip
LANGFUSE = [
    {"id": "root", "traceId": "t", "type": "SPAN", "input": GIVEN, "level": "DEFAULT", **TIMES},
    {"id": "node", "traceId": "t", "type": "SPAN", "input": {"other": 1}, "parentObservationId": "root", **TIMES},
    {
        "id": "call", "traceId": "t", "type": "GENERATION", "parentObservationId": "node", "input": ASKED, "output": SAID,
        "model": "test-0", "usage": {"input": 9, "output": 1}, **TIMES,
    },
]  # fmt: skip


def span(name, parent, kind, **attributes):
    """A span of OpenInference, as OTLP's JSON has it."""
    attributes = {"openinference.span.kind": kind, **attributes}
    values = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
    times = {"startTimeUnixNano": "1767225600000000000", "endTimeUnixNano": "1767225602000000000"}
    return {"traceId": "t", "spanId": name, "parentSpanId": parent, "name": name, "attributes": values, **times}


PROMPT = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": ASKED[0]["content"]}
ANSWER = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "yes"}
TOKENS = {"llm.token_count.prompt": "9", "llm.token_count.completion": "1"}
SPANS = [
    span("root", "", "CHAIN", **{"input.value": json.dumps(GIVEN)}),
    span("node", "root", "CHAIN", **{"input.value": '{"other": 1}'}),
    span("call", "node", "LLM", **{"llm.model_name": "test-0"}, **PROMPT, **ANSWER, **TOKENS),
]
OTEL = [{"resourceSpans": [{"scopeSpans": [{"spans": SPANS}]}]}]


def written(path, records):
    path.write_text("".join(f"{json.dumps(one)}\n" for one in records), encoding="utf-8")
    return path


@pytest.mark.parametrize("records", [LANGSMITH, LANGFUSE, OTEL], ids=["langsmith", "langfuse", "openinference"])
def test_the_input_is_that_of_the_outermost_run_and_the_answer_is_found_by_its_prompt(records, tmp_path):
    traces = Traces.read(written(tmp_path / "t.jsonl", records))
    assert traces.rows() == [{**GIVEN, "id": "t"}]
    catalog = make_catalog(2)
    answers = dict(traces.answers(catalog))
    assert list(answers) == [recorded_digest("m0", [HumanMessage(ASKED[0]["content"])])]
    result, usage = answer_in(next(iter(answers.values())))
    assert result.generations[0].message.text == "yes"
    assert (usage.cost_usd, usage.list_usd) == (0.0, pytest.approx(catalog["m0"].price.cost_usd(9, 1)))
    assert usage.latency_s == pytest.approx(2.0)


def test_without_an_outermost_run_the_last_message_of_a_user_is_the_input(tmp_path):
    traces = Traces.read(written(tmp_path / "t.jsonl", LANGSMITH[2:]))
    assert traces.rows() == [{"prompt": ASKED[0]["content"], "id": "t"}]
    system = {**LANGSMITH[2], "inputs": {"messages": [{"role": "system", "content": "Be short."}]}}
    with pytest.raises(ConfigError, match="no request of the traces has an input"):
        Traces.read(written(tmp_path / "t.jsonl", [system])).rows()


def test_whole_requests_are_drawn_and_the_same_ones_each_time(tmp_path):
    many = [
        {**one, "trace_id": f"t{n}", "id": f"{one['id']}{n}", **({"parent_run_id": f"{one['parent_run_id']}{n}"} if k else {})}
        for n in range(50)
        for k, one in enumerate(LANGSMITH)
    ]
    found, again, others = (
        Traces.read(written(tmp_path / "t.jsonl", lines), requests=10, seed=seed)
        for lines, seed in ((many, 1), (many[::-1], 1), (many, 2))
    )
    assert {row["id"] for row in found.rows()} == {row["id"] for row in again.rows()} != {row["id"] for row in others.rows()}
    assert len(found.rows()) == 10
    assert all(len(calls) == 1 for calls in found.calls.values())


def test_rows_are_for_their_owner_and_overwrite_nothing(tmp_path):
    traces, path = Traces.read(written(tmp_path / "t.jsonl", LANGSMITH)), tmp_path / "requests.jsonl"
    for _ in range(2):
        traces.write_rows(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="is there already"):
        traces.write_rows(path)
    assert path.read_text(encoding="utf-8") == "mine"
