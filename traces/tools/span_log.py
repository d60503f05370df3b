"""Reads sessions from OpenTelemetry spans by the conventions for generative AI: one session per conversation or trace.

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/execute-tool.md
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from vinelm.errors import DatasetError, WorkflowError
from vinelm.tools.call import CallKind, ToolEvent, ToolSession, canonical_key, is_answered, value_of

_OPERATION = "gen_ai.operation.name"
_EXECUTES = "execute_tool"
_CONVERSATION = "gen_ai.conversation.id"
_VALUES = {"stringValue": str, "boolValue": bool, "intValue": int, "doubleValue": float, "bytesValue": str}
_DECODER = json.JSONDecoder()


class _Span(NamedTuple):
    """The fields of a span that are used here; its start and end are in seconds since 1970."""

    trace: str
    id: str
    name: str
    started_s: float
    ended_s: float
    is_error: bool
    attributes: Mapping[str, Any]


def is_span_log(text: str) -> bool:
    """Return whether a text begins with spans, as OTLP JSON or as printed by OpenTelemetry's Python SDK."""
    try:
        first, _ = _DECODER.raw_decode(text.lstrip())
    except (ValueError, RecursionError):
        return False
    first = first[0] if isinstance(first, list) and first else first
    return isinstance(first, dict) and ("resourceSpans" in first or {"context", "start_time", "attributes"} <= first.keys())


def span_sessions(text: str, path: Path) -> list[ToolSession]:
    """Return the sessions in a file of spans, ordered by start time.

    Calls are ``execute_tool`` spans, in the order in which they ended. Arguments and results are read from
    ``gen_ai.tool.call.arguments`` and ``gen_ai.tool.call.result``, the user's messages from ``gen_ai.input.messages`` of model
    spans, if present. In a session, the traces of one conversation follow each other without a pause.

    Args:
        text: a JSON document, or several JSON values such as JSON lines.
        path: the file's path for error messages.

    Raises:
        DatasetError: a value is not JSON or not a span (the message names the line), or no span is a tool call.
    """
    traces: dict[str, list[_Span]] = {}
    names: dict[str, str] = {}
    for line, value in _values(text, path):
        for span in _spans(value, f"{path}:{line}"):
            traces.setdefault(span.trace, []).append(span)
            if _CONVERSATION in span.attributes:
                names[span.trace] = str(span.attributes[_CONVERSATION])
    found: dict[str, list[list[_Span]]] = {}
    for trace in sorted(traces, key=lambda one: min(span.started_s for span in traces[one])):
        if any(_is_call(span) for span in traces[trace]):
            found.setdefault(names.get(trace, trace), []).append(traces[trace])
    if not found:
        raise DatasetError(f"{path}: no span of a tool in it: export spans named execute_tool")
    return [ToolSession(name, name, _session(name, parts, path)) for name, parts in found.items()]


def _session(name: str, traces: list[list[_Span]], path: Path) -> list[str | ToolEvent]:
    events: list[str | ToolEvent] = []
    begin_s, known = 0.0, list[str]()
    for spans in traces:
        first_s = min(span.started_s for span in spans)
        for span in sorted(spans, key=lambda one: one.ended_s if _is_call(one) else one.started_s):
            if _is_call(span):
                events.append(_event(name, len(events), span, begin_s - first_s, path))
            else:
                said = _user_words(span.attributes.get("gen_ai.input.messages"))
                # A server that keeps the history is sent only the new turn, with each call of the turn.
                is_whole = said[: len(known)] == known
                new = said[len(known) :] if is_whole else [text for text in said if text not in known]
                events += new
                known += new
        begin_s += max(span.ended_s for span in spans if _is_call(span)) - first_s
    return events


def _event(name: str, seq: int, span: _Span, shift_s: float, path: Path) -> ToolEvent:
    of = span.attributes
    tool = str(of.get("gen_ai.tool.name") or span.name.removeprefix(_EXECUTES).strip())
    if not tool:
        raise DatasetError(f"{path}: the span {span.id!r} does not say which tool it is: it needs gen_ai.tool.name")
    arguments, result = _plain(of.get("gen_ai.tool.call.arguments")), of.get("gen_ai.tool.call.result")
    arguments = arguments if isinstance(arguments, dict) else None
    kinds: dict[str, CallKind] = {"eager": "eager", "speculated": "speculated"}
    try:
        cost_usd = float(of.get("vinelm.cost_usd", 0.0))
        if not (cost_usd >= 0.0 and math.isfinite(cost_usd)):
            raise ValueError(cost_usd)
        # Without arguments no two calls can be recognized as the same.
        key = str(
            of.get("vinelm.tool.arguments_digest") or canonical_key(tool, {"span": span.id} if arguments is None else arguments)
        )
    except WorkflowError as error:
        raise DatasetError(f"{path}: the span {span.id!r}: {error}") from None
    except (TypeError, ValueError):
        usd = of["vinelm.cost_usd"]
        raise DatasetError(f"{path}: the span {span.id!r}: vinelm.cost_usd is {usd!r}, no dollars >= 0") from None
    return ToolEvent(
        request_id=name,
        seq=seq,
        tool=tool,
        key=key,
        is_ok=not span.is_error and is_answered(None, result if isinstance(result, str) else ""),
        kind=kinds.get(str(of.get("vinelm.tool.kind")), "authoritative"),
        started_s=span.started_s + shift_s,
        ended_s=span.ended_s + shift_s,
        cost_usd=cost_usd,
        is_used=bool(of.get("vinelm.tool.is_used", True)),
        arguments=arguments,
        result=_plain(result),
    )


def _is_call(span: _Span) -> bool:
    return str(span.attributes.get(_OPERATION, span.name.partition(" ")[0])) == _EXECUTES


def _plain(value: Any) -> Any:
    """Return an attribute's value, parsed if it is a JSON text."""
    return value_of(value) if isinstance(value, str) else value


def _user_words(value: Any) -> list[str]:
    """Return the texts of the user's messages in a span's ``gen_ai.input.messages``."""
    messages = _plain(value)
    found = []
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") == "user":
            parts = [part for part in message.get("parts") or () if isinstance(part, dict) and part.get("type") == "text"]
            found.append("\n".join(str(part.get("content", "")) for part in parts))
    return found


# -- reading -----------------------------------------------------------------------------------------------------


def _values(text: str, path: Path) -> Iterator[tuple[int, Any]]:
    """Yield (number of the value's first line, value) for each JSON value in the text."""
    at, line = 0, 1
    while True:
        begin = at
        while at < len(text) and text[at].isspace():
            at += 1
        line += text.count("\n", begin, at)
        if at == len(text):
            return
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{path}:{line}: not valid JSON: {getattr(error, 'msg', 'nested too deep')}") from None
        yield line, value
        line += text.count("\n", at, end)
        at = end


def _spans(value: Any, where: str) -> Iterator[_Span]:
    if isinstance(value, list):
        for one in value:
            yield from _spans(one, where)
        return
    try:
        if "resourceSpans" not in value:
            yield _printed_span(value)
            return
        for resource in value["resourceSpans"]:
            for scope in resource.get("scopeSpans", ()):
                yield from map(_otlp_span, scope.get("spans", ()))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DatasetError(f"{where}: not a span: give OTLP's JSON, or lines of ReadableSpan.to_json(indent=None)") from None


def _otlp_span(span: Mapping[str, Any]) -> _Span:
    attributes = {str(one["key"]): plain_value(one.get("value", {})) for one in span.get("attributes", ())}
    times = [int(span[name]) / 1e9 for name in ("startTimeUnixNano", "endTimeUnixNano")]
    is_error = span.get("status", {}).get("code") in (2, "STATUS_CODE_ERROR") or "error.type" in attributes
    return _Span(str(span["traceId"]), str(span["spanId"]), str(span["name"]), times[0], max(times), is_error, attributes)


def _printed_span(span: Mapping[str, Any]) -> _Span:
    attributes = dict(span["attributes"] or {})
    times = [datetime.fromisoformat(span[name]).timestamp() for name in ("start_time", "end_time")]
    is_error = (span.get("status") or {}).get("status_code") == "ERROR" or "error.type" in attributes
    of = span["context"]
    return _Span(str(of["trace_id"]), str(of["span_id"]), str(span["name"]), times[0], max(times), is_error, attributes)


def plain_value(value: Mapping[str, Any]) -> Any:
    """Return the value of OTLP's ``AnyValue``; None if it is empty or of an unknown kind."""
    for name, kind in _VALUES.items():
        if name in value:
            return kind(value[name])
    if "arrayValue" in value:
        return [plain_value(one) for one in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return {str(one["key"]): plain_value(one.get("value", {})) for one in value["kvlistValue"].get("values", ())}
    return None
