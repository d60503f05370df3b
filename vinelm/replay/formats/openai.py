"""Reads OpenAI's chat completions as people log them, with request and response in one object, and files of its Batch
API.

https://platform.openai.com/docs/api-reference/chat and https://platform.openai.com/docs/guides/batch
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vinelm.io.fields import json_in
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.chat import answer_of, format_of, messages_of, settings_of, step_name, tools_of, usage_of
from vinelm.replay.formats.values import conversation_of, epoch, first, mapping, number, stands_for, text

_REQUEST = ("request", "req", "request_body", "body", "kwargs", "input")
_RESPONSE = ("response", "resp", "response_body", "completion", "output")


def _parts(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return (body of the request, body of the response); an empty mapping for a body that the record lacks.

    If the record itself has a body's fields, the record is returned as that body.
    """
    found = []
    for names, fields in ((_REQUEST, ("messages", "input")), (_RESPONSE, ("choices", "usage", "output"))):
        inner = next((one for name in names if (one := mapping(record.get(name)))), record)
        inner = mapping(inner.get("body")) or inner
        found.append(inner if any(field in inner for field in fields) else {})
    return found[0], found[1]


def is_record(record: Mapping[str, Any]) -> bool:
    """Return whether a record has the messages of a request or the choices of a response, in OpenAI's Chat Completions or
    Responses API.
    """
    asked, answered = _parts(record)
    is_batch, is_responses = "custom_id" in record and "response" in record, "output" in answered and "model" in answered
    return "messages" in asked or "choices" in answered or is_batch or ("input" in asked and is_responses)


def calls_of(record: Mapping[str, Any], where: str) -> Iterator[LoggedCall]:
    """Yield the call of a record, found at ``where`` (file and line).

    A request without a response, as in a batch that has not been sent yet, yields nothing.
    """
    asked, answered = _parts(record)
    is_batched = "custom_id" in record
    if is_batched and "response" not in record:
        return
    about = {**mapping(record.get("metadata")), **mapping(asked.get("metadata"))}
    response = mapping(record.get("response"))
    error = json_in(first(record.get("error"), response.get("error"), mapping(response.get("body")).get("error")))
    usage = usage_of(answered.get("usage"))
    times = [record.get(name) for name in ("started_at", "start_time", "startTime", "timestamp", "created_at", "time")]
    began, ended = (
        epoch(first(*times, answered.get("created"))),
        epoch(first(record.get("ended_at"), record.get("end_time"), record.get("endTime"))),
    )
    seconds = number(
        first(*(record.get(name) for name in ("seconds", "latency_s", "duration_s", "latency", "duration", "elapsed")))
    )
    if seconds is None and (ms := number(first(record.get("latency_ms"), record.get("duration_ms")))) is not None:
        seconds = ms / 1e3
    if seconds is None and began is not None and ended is not None:
        seconds = max(ended - began, 0.0)
    held = asked.get("conversation")  # of OpenAI's Responses: an id, or an object with one
    call = text(first(record.get("id"), record.get("custom_id"), answered.get("id"), where))
    names = [one.get(name) for one in (record, about) for name in ("step", "node", "langgraph_node", "name")]
    yield LoggedCall(
        request=text(first(*(one.get(k) for one in (record, about) for k in ("request_id", "trace_id", "session_id")), call)),
        call=call,
        conversation=conversation_of({**about, **record}, mapping(held).get("id") if isinstance(held, Mapping) else held),
        step=step_name(first(*names)),
        model=text(first(asked.get("model"), answered.get("model"), record.get("model"))),
        provider=text(record.get("provider")),
        messages=messages_of(asked) if asked else (),
        answer=answer_of(answered) if answered else None,
        tools=tools_of(asked.get("tools")),
        response_format=format_of(asked),
        settings={**settings_of(asked), "service_tier": "batch"} if is_batched else settings_of(asked),
        started_at=began,
        seconds=seconds,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cached_tokens=usage.cached,
        cost_usd=number(first(record.get("cost_usd"), record.get("cost"))),
        error=(text(error.get("message")) or text(error.get("code")) or "error" if isinstance(error, Mapping) else text(error))
        or None,
        stands_for=stands_for({**about, **record}),
        where=where,
    )
