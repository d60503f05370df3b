"""Sessions from OpenTelemetry spans, as the usual exporters write them."""

import json

import pytest

from vinelm.errors import DatasetError
from vinelm.tools.call import canonical_key
from vinelm.traces.tools.message_log import read_sessions

USER = json.dumps([{"role": "system", "parts": []}, {"role": "user", "parts": [{"type": "text", "content": "my order?"}]}])


def attribute(name, value):
    kind = {str: "stringValue", bool: "boolValue", float: "doubleValue", int: "intValue"}[type(value)]
    return {"key": name, "value": {kind: str(value) if kind == "intValue" else value}}


def span(name, started_s, ended_s, *, trace="t1", status=None, **attributes):
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return {
        "traceId": trace, "spanId": f"s{started_s}", "name": name, "attributes": [attribute(*one) for one in named.items()],
        "startTimeUnixNano": str(int((1_700_000_000 + started_s) * 1e9)),
        "endTimeUnixNano": str(int((1_700_000_000 + ended_s) * 1e9)), "status": {} if status is None else {"code": status},
    }  # fmt: skip


def tool_span(tool, started_s, ended_s, arguments=None, result=None, **more):
    given = {"gen_ai__tool__call__arguments": arguments, "gen_ai__tool__call__result": result}
    values = {key: json.dumps(value) for key, value in given.items() if value is not None}
    return span(f"execute_tool {tool}", started_s, ended_s, gen_ai__operation__name="execute_tool", gen_ai__tool__name=tool,
                **values, **more)  # fmt: skip


def document(*spans):
    return json.dumps({"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]})


def read(tmp_path, text):
    path = tmp_path / "spans.jsonl"
    path.write_text(text)
    return read_sessions(path)


def test_a_trace_is_a_session_with_its_words_calls_and_seconds(tmp_path):
    spans = [
        tool_span("get_order", 5.0, 7.0, {"id": 7}, {"items": [1]}),
        span("invoke_agent shop", 0.0, 9.0, gen_ai__operation__name="invoke_agent"),
        span("chat m", 1.0, 4.0, gen_ai__operation__name="chat", gen_ai__input__messages=USER),
        span("chat m", 7.0, 8.0, gen_ai__operation__name="chat", gen_ai__input__messages=USER),
        tool_span("cancel", 8.0, 8.5, {"id": 7}, status=2),
    ]
    (session,) = read(tmp_path, document(*spans[:2]) + "\n" + document(*spans[2:]) + "\n")
    words, order, cancel = session.events
    assert (session.name, session.group, words) == ("t1", "t1", "my order?")
    assert (order.tool, order.arguments, order.result, order.is_ok) == ("get_order", {"id": 7}, {"items": [1]}, True)
    assert order.key == canonical_key("get_order", {"id": 7})
    assert (order.started_s, order.ended_s) == pytest.approx((5.0, 7.0), abs=1e-5)
    assert (cancel.is_ok, cancel.result) == (False, None)


def test_traces_of_one_conversation_follow_each_other_without_a_pause(tmp_path):
    calls = [
        tool_span("look", 100.0 * at + 1.0, 100.0 * at + 2.0, {"n": at}, trace=f"t{at}", gen_ai__conversation__id="c")
        for at in (1, 0)
    ]
    starts = [span("invoke_agent", 100.0 * at, 100.0 * at + 3.0, trace=f"t{at}") for at in (0, 1)]
    (session,) = read(tmp_path, document(*calls, *starts))
    assert session.name == "c"
    assert [event.arguments["n"] for event in session.events] == [0, 1]
    assert [event.started_s for event in session.events] == pytest.approx([1.0, 3.0], abs=1e-5)


def test_words_of_later_turns_are_kept_where_a_server_keeps_the_history(tmp_path):
    def turn(at, text):
        said = json.dumps([{"role": "user", "parts": [{"type": "text", "content": text}]}])
        more = {"trace": f"t{at}", "gen_ai__conversation__id": "c"}
        chats = [span("chat m", at + s, at + s + 0.5, gen_ai__input__messages=said, **more) for s in (0.0, 3.0)]
        return [*chats, tool_span("ls", at + 1.0, at + 2.0, {}, **more)]

    (session,) = read(tmp_path, document(*turn(0.0, "first"), *turn(100.0, "second")))
    assert [one if isinstance(one, str) else one.key for one in session.events] == [
        "first", canonical_key("ls", {}), "second", canonical_key("ls", {}),
    ]  # fmt: skip


def test_without_values_there_are_names_and_times_and_no_two_calls_are_the_same(tmp_path):
    (session,) = read(tmp_path, document(tool_span("look", 0.0, 1.0), tool_span("look", 2.0, 3.0)))
    first, second = session.events
    assert (first.arguments, first.result, first.tool) == (None, None, "look")
    assert first.key != second.key


def test_spans_that_the_sdk_for_python_prints(tmp_path):
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    with provider.get_tracer("t").start_as_current_span("execute_tool look") as made:
        made.set_attribute("gen_ai.tool.call.arguments", '{"a": 1}')
        made.set_attribute("gen_ai.tool.call.result", "plain")
    text = "\n".join(one.to_json(indent=None) for one in memory.get_finished_spans())
    (session,) = read(tmp_path, text)
    (event,) = session.events
    assert (event.tool, event.arguments, event.result, event.is_ok) == ("look", {"a": 1}, "plain", True)
    pretty = "\n".join(one.to_json() for one in memory.get_finished_spans())
    assert read(tmp_path, pretty) == [session]


def test_what_our_own_observer_writes_can_be_read(tmp_path):
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    from vinelm.telemetry import OpenTelemetry
    from vinelm.tools.call import ToolEvent

    provider = trace.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    key = canonical_key("look", {"a": 1})
    event = ToolEvent(request_id="r", seq=0, tool="look", key=key, is_ok=True, kind="speculated", is_used=False, cost_usd=0.5)
    OpenTelemetry(provider).tool_ended(event, 0.0)
    (session,) = read(tmp_path, memory.get_finished_spans()[0].to_json(indent=None))
    (found,) = session.events
    assert (found.key, found.kind, found.is_used, found.cost_usd, found.arguments) == (key, "speculated", False, 0.5, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (document(span("chat m", 0.0, 1.0)), "no span of a tool in it"),
        (document(tool_span("look", 0.0, 1.0)) + "\n{", r"spans.jsonl:2: not valid JSON"),
        ('{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": 3}]}]}]}', "spans.jsonl:1: not a span"),
        ('{"resourceSpans": 3}', "spans.jsonl:1: not a span"),
        (document(span("execute_tool", 0.0, 1.0)), "it needs gen_ai.tool.name"),
        (document(tool_span("look", 0.0, 1.0, vinelm__cost_usd="n/a")), "vinelm.cost_usd is 'n/a', no dollars"),
        (document(tool_span("look", 0.0, 1.0, vinelm__cost_usd=-1.0)), "vinelm.cost_usd is -1.0, no dollars"),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, says):
    with pytest.raises(DatasetError, match=says) as error:
        read(tmp_path, text)
    assert "\n" not in str(error.value)
