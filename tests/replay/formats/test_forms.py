"""Records in the published form of each tool, written by hand: what a ``LoggedCall`` says of them."""

import json

import pytest

from vinelm.replay.formats.reading import FORMATS

PROMPT = [{"role": "system", "content": "Answer with one word."}, {"role": "user", "content": "Is it late?"}]


def call_of(form, record):
    """The one call of a record, which only this form recognizes first."""
    assert next(name for name, reader in FORMATS.items() if reader.is_record(record)) == form
    (call,) = FORMATS[form].calls_of(record, "here:1")
    assert call.where == "here:1"
    return call


def said(call):
    return call.answer["content"]


# -- Langfuse ---------------------------------------------------------------------------------------------------------

V2 = {
    "id": "obs-1",
    "traceId": "trace-1",
    "startTime": "2025-12-17T16:09:00.875Z",
    "endTime": "2025-12-17T16:09:01.456Z",
    "projectId": "project",
    "parentObservationId": None,
    "type": "GENERATION",
    "name": "judge",
    "level": "DEFAULT",
    "statusMessage": "",
    "input": json.dumps({"messages": PROMPT, "tools": [{"type": "function", "function": {"name": "look"}}]}),
    "output": '{"role":"assistant","content":"Yes"}',
    "metadata": {},
    "providedModelName": "gpt-4o",
    "modelParameters": {"temperature": 0.2, "max_tokens": "100"},
    "usageDetails": {"input": 98, "output": 68, "total": 166},
    "costDetails": {"input": 0.00049, "output": 0.00204, "total": 0.00253},
    "totalCost": 0.00253,
    "sessionId": "session",
    "somethingNew": {"nobody": ["knows"]},
}


def test_langfuse_api_v2():
    call = call_of("langfuse", V2)
    assert (call.request, call.call, call.step, call.model) == ("trace-1", "obs-1", "judge", "gpt-4o")
    assert call.messages == PROMPT
    assert call.answer == {"role": "assistant", "content": "Yes"}
    assert call.tools == [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    assert call.settings == {"temperature": 0.2, "max_tokens": 100}
    assert (call.tokens_in, call.tokens_out, call.cached_tokens, call.cost_usd) == (98, 68, None, 0.00253)
    assert call.seconds == pytest.approx(0.581)
    assert call.started_at == pytest.approx(1765987740.875)
    assert call.error is None


def test_langfuse_blob_export_with_everything_as_text():
    """Columns in snake case; in CSV all cells are texts, times have no zone and are UTC."""
    record = {
        "id": "obs-1",
        "trace_id": "trace-1",
        "type": "GENERATION",
        "parent_observation_id": "",
        "start_time": "2024-05-29 13:46:19.963000",
        "end_time": "2024-05-29 13:46:20.963000",
        "name": "ChatOpenAI",
        "metadata": '{"langgraph_node":"grade","ls_provider":"openai"}',
        "level": "DEFAULT",
        "input": json.dumps(PROMPT),
        "output": "Yes",
        "provided_model_name": "gpt-4o",
        "model_parameters": '{"temperature":0.7}',
        "usage_details": '{"input":500,"output":120,"input_cached_tokens":300,"output_reasoning_tokens":30,"total":950}',
        "cost_details": '{"input":0.001,"output":0.002}',
        "total_cost": "",
        "tool_definitions": "{}",
    }
    call = call_of("langfuse", record)
    assert (call.step, call.provider) == ("grade", "openai")
    assert call.messages == PROMPT
    assert said(call) == "Yes"
    assert (call.tokens_in, call.tokens_out, call.cached_tokens) == (800, 150, 300)
    assert call.cost_usd == pytest.approx(0.003)
    assert call.seconds == pytest.approx(1.0)
    assert call.started_at == pytest.approx(1716990379.963)


def test_langfuse_legacy_observation_and_page():
    record = {
        "id": "o", "traceId": "t", "type": "GENERATION", "name": "openai-chat", "model": "gpt-4o-mini",
        "startTime": "2025-04-12T10:23:14.512Z", "endTime": "2025-04-12T10:23:16.108Z", "input": PROMPT,
        "output": {"role": "assistant", "content": "The email asks ..."}, "promptName": "mails",
        "usage": {"input": 412, "output": 87, "total": 499, "unit": "TOKENS"}, "calculatedTotalCost": 0.000183,
    }  # fmt: skip
    call = call_of("langfuse", record)
    assert (call.step, call.model, call.tokens_in, call.tokens_out) == ("mails", "gpt-4o-mini", 412, 87)
    assert call.cost_usd == 0.000183


def test_langfuse_a_price_that_langfuse_does_not_know_is_none():
    assert call_of("langfuse", {**V2, "totalCost": 0, "costDetails": {}}).cost_usd is None


def test_langfuse_categories_inside_the_input_are_not_added_twice():
    """Where ``input`` and ``output`` alone make up the total, cached tokens lie within the input."""
    usage = {"input": 100, "input_cached_tokens": 40, "output": 10, "total": 110}
    call = call_of("langfuse", {**V2, "usageDetails": usage})
    assert (call.tokens_in, call.tokens_out, call.cached_tokens) == (100, 10, 40)


def test_langfuse_failures_and_other_observations():
    failed = call_of("langfuse", {**V2, "level": "ERROR", "statusMessage": "429", "output": None})
    assert (failed.error, failed.answer) == ("429", None)
    assert list(FORMATS["langfuse"].calls_of({**V2, "type": "SPAN"}, "")) == []


# -- LangSmith --------------------------------------------------------------------------------------------------------


def lc(kind, **fields):
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind], "kwargs": fields}


RUN = {
    "id": "run-1",
    "trace_id": "trace-1",
    "dotted_order": "20250101T000000000000Ztrace-1.20250101T000001000000Zrun-1",
    "name": "ChatOpenAI",
    "run_type": "llm",
    "start_time": "2025-01-01T00:00:01.000000",
    "end_time": "2025-01-01T00:00:03.500000",
    "status": "success",
    "inputs": {
        "messages": [
            [
                lc("SystemMessage", content="Answer with one word.", type="system"),
                lc("HumanMessage", content="Is it late?", type="human"),
                lc("AIMessage", content="", tool_calls=[{"name": "clock", "args": {"zone": "UTC"}, "id": "c1"}], type="ai"),
                lc("ToolMessage", content="23:00", tool_call_id="c1", type="tool"),
            ]
        ]
    },
    "outputs": {
        "generations": [
            [
                {
                    "text": "Yes",
                    "type": "ChatGeneration",
                    "message": lc(
                        "AIMessage",
                        content="Yes",
                        type="ai",
                        usage_metadata={"input_tokens": 30, "output_tokens": 1, "input_token_details": {"cache_read": 10}},
                    ),
                }
            ]
        ],
        "llm_output": {"model_name": "gpt-4o-2024-08-06"},
    },
    "extra": {
        "invocation_params": {"model": "gpt-4o", "temperature": 0, "response_format": {"type": "json_object"}},
        "metadata": {"ls_provider": "openai", "ls_model_name": "gpt-4o", "langgraph_node": "judge"},
    },
    "total_cost": "0.00012",
}


def test_langsmith_run_of_langchain():
    call = call_of("langsmith", RUN)
    assert (call.request, call.step, call.model, call.provider) == ("trace-1", "judge", "gpt-4o", "openai")
    clock = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": '{"zone": "UTC"}'}}
    assert call.messages == [
        *PROMPT,
        {"role": "assistant", "content": None, "tool_calls": [clock]},
        {"role": "tool", "content": "23:00", "tool_call_id": "c1"},
    ]
    assert said(call) == "Yes"
    assert (call.tokens_in, call.tokens_out, call.cached_tokens, call.cost_usd) == (30, 1, 10, 0.00012)
    assert (call.seconds, call.settings) == (2.5, {"temperature": 0})
    assert call.response_format == {"type": "json_object"}


def test_langsmith_bulk_export_has_json_in_cells():
    record = {**RUN, **{name: json.dumps(RUN[name]) for name in ("inputs", "outputs", "extra")}, "prompt_tokens": 30}
    record |= {"completion_tokens": 1, "prompt_token_details": '{"cache_read": 10}', "trace_id": None}
    call = call_of("langsmith", record)
    assert call.messages[:2] == PROMPT
    assert (call.tokens_in, call.tokens_out, call.cached_tokens) == (30, 1, 10)
    assert call.request == "20250101T000000000000Ztrace-1"


def test_langsmith_run_of_the_openai_wrapper_and_other_runs():
    record = {
        "id": "r", "trace_id": "t", "run_type": "llm", "name": "ChatOpenAI", "start_time": "2025-01-01T00:00:00",
        "inputs": {"messages": PROMPT, "model": "gpt-4o", "tools": [{"type": "function", "function": {"name": "look"}}]},
        "outputs": {
            "choices": [{"message": {"role": "assistant", "content": "Yes"}}],
            "usage_metadata": {"input_tokens": 5, "output_tokens": 1},
        },
        "error": None, "extra": None,
    }  # fmt: skip
    call = call_of("langsmith", record)
    assert (call.step, call.model, said(call), call.tokens_in, call.seconds) == ("", "gpt-4o", "Yes", 5, None)
    assert call.tools[0]["function"]["name"] == "look"
    assert list(FORMATS["langsmith"].calls_of({**record, "run_type": "tool"}, "")) == []


# -- OpenTelemetry ----------------------------------------------------------------------------------------------------


def span(attributes, events=(), **more):
    def value(of):
        if isinstance(of, list):
            return {"arrayValue": {"values": [value(one) for one in of]}}
        return {"intValue": str(of)} if isinstance(of, int) else {"stringValue": of}

    def listed(of):
        return [{"key": key, "value": value(one)} for key, one in of.items()]

    one = {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "name": "chat gpt-4o",
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": "1544712661500000000",
        "attributes": listed(attributes),
        "events": [{"name": name, "attributes": listed(of)} for name, of in events],
        **more,
    }
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [one]}]}]}


CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-4o"}


def test_otel_messages_with_parts():
    parts = [
        {"role": "user", "parts": [{"type": "text", "content": "Is it late?"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "clock", "arguments": {"zone": "UTC"}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "23:00"}]},
    ]
    answer = [
        {
            "role": "assistant",
            "parts": [{"type": "reasoning", "content": "hm"}, {"type": "text", "content": "Yes"}],
            "finish_reason": "stop",
        }
    ]
    record = span(
        {
            **CHAT,
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Answer with one word."}]),
            "gen_ai.input.messages": json.dumps(parts),
            "gen_ai.output.messages": json.dumps(answer),
            "gen_ai.tool.definitions": json.dumps([{"type": "function", "name": "clock", "parameters": {"type": "object"}}]),
            "gen_ai.usage.input_tokens": 40,
            "gen_ai.usage.output_tokens": 1,
            "gen_ai.usage.cache_read.input_tokens": 8,
            "gen_ai.request.max_tokens": 50,
            "gen_ai.request.stop_sequences": ["END"],
            "gen_ai.agent.name": "judge",
        }
    )
    call = call_of("otel", record)
    assert (call.request, call.step, call.model, call.provider) == (
        "5b8efff798038103d269b633813fc60c", "judge", "gpt-4o", "openai",
    )  # fmt: skip
    assert call.messages[:2] == PROMPT
    assert call.messages[2]["tool_calls"][0]["function"] == {"name": "clock", "arguments": '{"zone": "UTC"}'}
    assert call.messages[3:] == [{"role": "tool", "content": "23:00", "tool_call_id": "c1"}]
    assert call.answer == {"role": "assistant", "content": "Yes"}
    assert call.tools == [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}]
    assert (call.tokens_in, call.tokens_out, call.cached_tokens, call.seconds) == (40, 1, 8, 1.5)
    assert call.settings == {"max_tokens": 50, "stop_sequences": ["END"]}


def test_otel_events_of_before():
    events = [
        ("gen_ai.system.message", {"content": "Answer with one word."}),
        ("gen_ai.user.message", {"gen_ai.event.content": json.dumps({"role": "user", "content": "Is it late?"})}),
        (
            "gen_ai.choice",
            {"index": 0, "finish_reason": "stop", "message": json.dumps({"role": "assistant", "content": "Yes"})},
        ),
    ]
    call = call_of("otel", span({**CHAT, "gen_ai.system": "openai"}, events))
    assert call.messages == [{"role": m["role"], "content": m["content"]} for m in PROMPT]
    assert said(call) == "Yes"


def test_otel_details_as_an_event():
    details = {
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Is it late?"}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Yes"}]}]),
    }
    call = call_of("otel", span(CHAT, [("gen_ai.client.inference.operation.details", details)]))
    assert (call.messages, said(call)) == ([PROMPT[1]], "Yes")


def test_otel_openllmetry():
    attributes = {
        "gen_ai.system": "OpenAI", "llm.request.type": "chat", "gen_ai.request.model": "gpt-4o",
        "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Answer with one word.",
        "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "Is it late?",
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.finish_reason": "tool_calls",
        "gen_ai.completion.0.tool_calls.0.id": "c1", "gen_ai.completion.0.tool_calls.0.name": "clock",
        "gen_ai.completion.0.tool_calls.0.arguments": "{}", "gen_ai.usage.prompt_tokens": 20,
        "gen_ai.usage.completion_tokens": 4, "traceloop.entity.name": "judge",
    }  # fmt: skip
    call = call_of("otel", span(attributes, name="openai.chat"))
    assert call.messages == PROMPT
    assert call.answer["tool_calls"][0]["function"] == {"name": "clock", "arguments": "{}"}
    assert (call.step, call.tokens_in, call.tokens_out) == ("judge", 20, 4)


def test_otel_openinference():
    attributes = {
        "openinference.span.kind": "LLM", "llm.model_name": "gpt-4o", "llm.provider": "openai",
        "llm.invocation_parameters": '{"temperature": 0.5, "model": "gpt-4o"}',
        "llm.input_messages.0.message.role": "system", "llm.input_messages.0.message.content": "Answer with one word.",
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.contents.0.message_content.type": "text",
        "llm.input_messages.1.message.contents.0.message_content.text": "Is it late?",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "clock",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"zone": "UTC"}',
        "llm.tools.0.tool.json_schema": '{"type": "function", "function": {"name": "clock"}}',
        "llm.token_count.prompt": 25, "llm.token_count.completion": 7,
        "llm.token_count.prompt_details.cache_read": 5, "metadata": '{"langgraph_node": "judge"}',
    }  # fmt: skip
    call = call_of("otel", span(attributes, name="ChatOpenAI"))
    assert call.messages == PROMPT
    assert call.answer["tool_calls"][0]["function"] == {"name": "clock", "arguments": '{"zone": "UTC"}'}
    assert call.tools[0]["function"]["name"] == "clock"
    assert (call.step, call.tokens_in, call.tokens_out, call.cached_tokens) == ("judge", 25, 7, 5)
    assert call.settings == {"temperature": 0.5}


def test_otel_what_is_no_call_of_a_model_is_none():
    for operation in ("invoke_agent", "execute_tool", "embeddings"):
        assert list(FORMATS["otel"].calls_of(span({**CHAT, "gen_ai.operation.name": operation}), "")) == []
    assert list(FORMATS["otel"].calls_of(span({"openinference.span.kind": "CHAIN", "llm.model_name": "m"}), "")) == []
    assert list(FORMATS["otel"].calls_of(span({"http.method": "GET"}), "")) == []


def test_otel_errors_and_printed_spans():
    call = call_of("otel", span({**CHAT, "error.type": "timeout"}, status={"code": 2, "message": "too slow"}))
    assert call.error == "too slow"
    printed = {
        "name": "judge",
        "context": {"trace_id": "0x1", "span_id": "0x2", "trace_state": "[]"},
        "start_time": "2025-01-01T00:00:00.000000Z",
        "end_time": "2025-01-01T00:00:02.000000Z",
        "status": {"status_code": "UNSET"},
        "attributes": {**CHAT, "gen_ai.usage.input_tokens": 3},
    }
    call = call_of("otel", printed)
    assert (call.request, call.step, call.seconds, call.tokens_in, call.error) == ("0x1", "judge", 2.0, 3, None)


# -- LiteLLM ----------------------------------------------------------------------------------------------------------

PAYLOAD = {
    "id": "chatcmpl-1",
    "trace_id": "trace-1",
    "call_type": "acompletion",
    "response_cost": 0.00042,
    "status": "success",
    "total_tokens": 21,
    "prompt_tokens": 20,
    "completion_tokens": 1,
    "startTime": 1717000000.5,
    "endTime": 1717000001.75,
    "model_map_information": {"model_map_key": "gpt-4o"},
    "model": "gpt-4o",
    "custom_llm_provider": "openai",
    "metadata": {
        "user_api_key_hash": "88dc28",
        "requester_metadata": {"langgraph_node": "judge"},
        "usage_object": {"prompt_tokens": 20, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 16}},
    },
    "cache_hit": None,
    "request_tags": ["User-Agent: openai"],
    "messages": PROMPT,
    "response": {"choices": [{"message": {"role": "assistant", "content": "Yes", "tool_calls": None}}]},
    "error_str": None,
    "model_parameters": {"temperature": 0.1, "user": "somebody"},
    "hidden_params": {},
}


def test_litellm_payload():
    for record in (PAYLOAD, {"standard_logging_object": PAYLOAD}):
        call = call_of("litellm", record)
        assert (call.request, call.step, call.model, call.provider) == ("trace-1", "judge", "gpt-4o", "openai")
        assert (call.messages, said(call)) == (PROMPT, "Yes")
        assert (call.tokens_in, call.tokens_out, call.cached_tokens, call.cost_usd) == (20, 1, 16, 0.00042)
        assert (call.seconds, call.settings) == (1.25, {"temperature": 0.1})


def test_litellm_failures_redacted_prompts_unknown_prices_and_other_calls():
    failed = {**PAYLOAD, "status": "failure", "response": None, "error_str": "429", "messages": "redacted-by-litellm"}
    call = call_of("litellm", {**failed, "response_cost": 0})
    assert (call.error, call.answer, call.messages, call.cost_usd) == ("429", None, (), None)
    assert call_of("litellm", {**PAYLOAD, "response_cost": 0, "cache_hit": True}).cost_usd == 0
    assert call_of("litellm", {**PAYLOAD, "request_tags": ["judge"], "metadata": {}}).step == "judge"
    assert list(FORMATS["litellm"].calls_of({**PAYLOAD, "call_type": "aembedding"}, "")) == []


# -- OpenAI -----------------------------------------------------------------------------------------------------------

ASKED = {
    "model": "gpt-4o",
    "messages": PROMPT,
    "seed": 7,
    "tools": [{"type": "function", "function": {"name": "look"}}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "Late", "schema": {}}},
}
ANSWERED = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1717000000,
    "model": "gpt-4o-2024-08-06",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes", "refusal": None}}],
    "usage": {"prompt_tokens": 20, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 16}},
}


@pytest.mark.parametrize(
    "record",
    [
        {"request": ASKED, "response": ANSWERED},
        {"request": json.dumps(ASKED), "response": json.dumps(ANSWERED)},
        {"request": {"body": ASKED}, "response": {"status_code": 200, "body": ANSWERED}},
        {**ANSWERED, **ASKED},
        {**ASKED, "completion": ANSWERED},
    ],
)
def test_openai_request_beside_response(record):
    call = call_of("openai", record)
    assert (call.model, call.messages, said(call)) == ("gpt-4o", PROMPT, "Yes")
    assert (call.tokens_in, call.tokens_out, call.cached_tokens) == (20, 1, 16)
    assert (call.settings, call.tools[0]["function"]["name"]) == ({"seed": 7}, "look")
    assert call.response_format["json_schema"]["name"] == "Late"


def test_openai_what_the_application_adds():
    about = {"step": "judge", "trace_id": "t", "timestamp": "2025-01-01T00:00:00Z", "latency_ms": 1500}
    call = call_of("openai", {**about, "request": ASKED, "response": ANSWERED})
    assert (call.step, call.request, call.seconds, call.started_at) == ("judge", "t", 1.5, 1735689600.0)
    failed = call_of("openai", {"request": ASKED, "error": {"message": "overloaded", "code": 529}})
    assert (failed.error, failed.answer) == ("overloaded", None)


def test_openai_batch_output():
    record = {"id": "batch_req_1", "custom_id": "a", "response": {"status_code": 200, "body": ANSWERED}, "error": None}
    call = call_of("openai", record)
    assert (call.model, said(call), call.tokens_in) == ("gpt-4o-2024-08-06", "Yes", 20)
    assert call.messages == ()
    asked = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": ASKED}
    assert list(FORMATS["openai"].calls_of(asked, "")) == []


def test_openai_responses():
    answered = {
        "model": "gpt-4o",
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]},
            {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"},
        ],
        "usage": {"input_tokens": 20, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 16}},
    }
    asked = {"model": "gpt-4o", "instructions": "Answer with one word.", "input": "Is it late?"}
    call = call_of("openai", {"request": asked, "response": answered})
    assert (call.messages, said(call)) == (PROMPT, "Yes")
    assert call.answer["tool_calls"][0]["function"]["name"] == "clock"
    assert (call.tokens_in, call.cached_tokens) == (20, 16)


# -- prompts of other providers, inside any form ----------------------------------------------------------------------


def test_anthropic_blocks_become_tool_calls_and_results():
    use = {"type": "tool_use", "id": "c1", "name": "clock", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "23:00"}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Is it late?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, use]},
        {"role": "user", "content": [result, {"type": "text", "text": "Well?"}]},
    ]
    prompt = {"system": [{"type": "text", "text": "Answer with one word."}], "messages": messages}
    output = {"role": "assistant", "content": [{"type": "thinking", "thinking": "..."}, {"type": "text", "text": "Yes"}]}
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": 2}
    call = call_of("langfuse", {**V2, "input": prompt, "output": output, "usageDetails": usage})
    assert call.messages[:2] == PROMPT
    assert call.messages[2]["content"] == "Let me see."
    assert call.messages[2]["tool_calls"][0]["function"] == {"name": "clock", "arguments": "{}"}
    assert call.messages[3:] == [
        {"role": "tool", "content": "23:00", "tool_call_id": "c1"},
        {"role": "user", "content": "Well?"},
    ]
    assert said(call) == "Yes"
    assert (call.tokens_in, call.tokens_out, call.cached_tokens) == (105, 2, 90)


def test_pictures_stay_in_prompts():
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    content = [{"type": "text", "text": "What is it?"}, picture]
    call = call_of("langfuse", {**V2, "input": [{"role": "user", "content": content}]})
    assert call.messages == [{"role": "user", "content": content}]


@pytest.mark.parametrize("name", ["ChatOpenAI", "AzureChatOpenAI", "OpenAI-generation", "chat gpt-4o", "acompletion", "llm"])
def test_names_of_libraries_name_no_step(name):
    assert call_of("langfuse", {**V2, "name": name}).step == ""


@pytest.mark.parametrize("name", ["chatbot", "Chat with the user", "chat_history", "llm_router", "call_model"])
def test_names_of_people_name_steps(name):
    assert call_of("langfuse", {**V2, "name": name}).step == name


# -- what a call stands for, and what it is a part of -----------------------------------------------------------------

_OTHERS = {"session_id": "s1", "sample_weight": 20}


@pytest.mark.parametrize(
    ("form", "record", "conversation", "stands_for"),
    [
        ("langfuse", V2, "session", 1),
        ("langfuse", {**V2, "sessionId": None, "metadata": {"thread_id": "t9", "sample_weight": "2.5"}}, "t9", 2.5),
        ("langsmith", {**RUN, "session_id": "its project", "extra": {"metadata": {**_OTHERS}}}, "s1", 20),
        ("langsmith", {**RUN, "session_id": "its project", "extra": {}}, "", 1),
        ("otel", span({**CHAT, "gen_ai.conversation.id": "conv_5"}), "conv_5", 1),
        ("otel", span({**CHAT, "session.id": "s1", "sample_weight": 3}), "s1", 3),
        ("otel", span(CHAT, traceState="vendor=a,ot=rv:1f4;th:c"), "", 4),
        ("otel", span(CHAT, traceState="ot=th:fd70a3d70a3d71"), "", pytest.approx(100)),
        ("otel", span(CHAT, traceState="ot=th:0"), "", 1),
        ("otel", span(CHAT, traceState="bot=th:c,ot=other:c"), "", 1),
        ("litellm", {**PAYLOAD, "metadata": {"requester_metadata": _OTHERS}}, "s1", 20),
        ("openai", {"request": {**ASKED, "conversation": {"id": "c1"}}, "response": ANSWERED, "sample_weight": 4}, "c1", 4),
        ("openai", {"request": {**ASKED, "metadata": _OTHERS}, "response": ANSWERED}, "s1", 20),
        ("openai", {"request": ASKED, "response": ANSWERED, "thread_id": "t"}, "t", 1),
        ("vinelm", {"vinelm_call": 1, "request": "r", "conversation": "c", "stands_for": 7}, "c", 7),
        ("vinelm", {"vinelm_call": 1, "request": "r", "stands_for": "many"}, "", 1),
    ],
)  # fmt: skip
def test_conversations_and_sampling_rates(form, record, conversation, stands_for):
    call = call_of(form, record)
    assert (call.conversation, call.stands_for) == (conversation, stands_for)
