"""Reads OpenTelemetry spans by the current and earlier conventions for generative AI, and by those of OpenLLMetry and
OpenInference.

https://github.com/open-telemetry/semantic-conventions-genai and https://arize-ai.github.io/openinference/spec/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from vinelm.io.fields import json_in
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.chat import SETTINGS, answer_of, format_of, messages_of, settings_of, step_name, tools_of
from vinelm.replay.formats.values import conversation_of, count, epoch, first, mapping, number, stands_for, text
from vinelm.traces.tools.span_log import plain_value

_CALLS = ("chat", "generate_content", "text_completion", "completion", "")
"""Operations that are one call of a model. ``invoke_agent`` sums several up, and would count them twice."""
_NODES = (
    "vinelm.stage", "metadata.langgraph_node", "traceloop.association.properties.langgraph_node", "gen_ai.step.name",
    "gen_ai.prompt.name",
)  # fmt: skip
"""Attributes in which an application or its framework names the step."""
_CONVERSATIONS = (
    "gen_ai.conversation.id", "session.id", "langfuse.session.id", "metadata.thread_id", "metadata.session_id",
    *(f"traceloop.association.properties.{name}" for name in ("session_id", "thread_id", "conversation_id")),
)  # fmt: skip
_THRESHOLD = re.compile(r"(?:^|,)\s*ot=(?:[^,]*;)?th:([0-9a-f]{1,14})\b")
"""What a sampler writes into the trace state: spans whose random number is below this were left out."""
_ROLES = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def is_record(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a span or a document of spans, in OTLP's JSON or as the Python SDK prints them."""
    if "resourceSpans" in record or "scopeSpans" in record:
        return True
    return "attributes" in record and ("context" in record or "spanId" in record or "span_id" in record)


def inputs_of(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name of the request, inputs of the application) for each outermost span that is not a model call, from
    ``input.value`` (OpenInference).
    """
    for one in _spans(record):
        attributes = _attributes(one.get("attributes"))
        parent = first(one.get("parentSpanId"), one.get("parent_span_id"), one.get("parent_id"))
        if not parent and attributes.get("openinference.span.kind") != "LLM" and "input.value" in attributes:
            context = mapping(one.get("context"))
            request = text(first(one.get("traceId"), one.get("trace_id"), context.get("trace_id")))
            yield request, json_in(attributes["input.value"])


def _spans(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    lists = [record[name] for name in ("resourceSpans", "scopeSpans", "spans") if isinstance(record.get(name), list)]
    if not lists:
        yield record
    for one in lists[0] if lists else ():
        if isinstance(one, Mapping):
            yield from _spans(one)


def calls_of(record: Mapping[str, Any], where: str) -> Iterator[LoggedCall]:
    """Yield the model calls among the spans of a record, found at ``where`` (file and line)."""
    for name in ("resourceSpans", "scopeSpans", "spans"):
        if isinstance(record.get(name), list):
            for one in record[name]:
                yield from calls_of(one, where)
            return
    attributes, events = _attributes(record.get("attributes")), record.get("events")
    happened = [(text(one.get("name")), _attributes(one.get("attributes"))) for one in events or () if isinstance(one, Mapping)]
    for name, more in happened:
        if name == "gen_ai.client.inference.operation.details":
            attributes = {**more, **attributes}
    kind, operation = text(attributes.get("openinference.span.kind")), text(attributes.get("gen_ai.operation.name"))
    model = first(
        attributes.get("gen_ai.request.model"), attributes.get("gen_ai.response.model"), attributes.get("llm.model_name")
    )
    is_chat = attributes.get("llm.request.type") in (None, "chat", "completion")
    if (kind or "LLM") != "LLM" or operation not in _CALLS or not is_chat or (model is None and kind != "LLM"):
        return
    context, status = mapping(record.get("context")), mapping(record.get("status"))
    began = epoch(first(record.get("startTimeUnixNano"), record.get("start_time")))
    ended = epoch(first(record.get("endTimeUnixNano"), record.get("end_time")))
    is_failed = (
        first(status.get("code"), status.get("status_code")) in (2, "STATUS_CODE_ERROR", "ERROR") or "error.type" in attributes
    )
    metadata, asked = mapping(attributes.get("metadata")), mapping(attributes.get("llm.invocation_parameters"))
    prompt, answer = _inference(attributes) if kind else _genai(attributes, happened)
    tokens = [
        count(first(*(attributes.get(name) for name in names)))
        for names in (
            ("gen_ai.usage.input_tokens", "llm.token_count.prompt", "gen_ai.usage.prompt_tokens"),
            ("gen_ai.usage.output_tokens", "llm.token_count.completion", "gen_ai.usage.completion_tokens"),
            (
                "gen_ai.usage.cache_read.input_tokens",
                "llm.token_count.prompt_details.cache_read",
                "gen_ai.usage.cache_read_input_tokens",
            ),
        )
    ]
    if tokens[0] is not None and tokens[2] is not None and tokens[2] > tokens[0]:
        tokens[0] += tokens[2]  # counted separately, as Anthropic does
    found = {name: value for name in SETTINGS if (value := attributes.get(f"gen_ai.request.{name}")) is not None}
    yield LoggedCall(
        request=text(first(record.get("traceId"), record.get("trace_id"), context.get("trace_id"))),
        call=text(first(record.get("spanId"), record.get("span_id"), context.get("span_id"))),
        conversation=conversation_of(metadata, *(attributes.get(name) for name in _CONVERSATIONS)),
        step=step_name(
            first(metadata.get("langgraph_node"), *(attributes.get(name) for name in _NODES)),
            record.get("name"),
            *(attributes.get(name) for name in ("traceloop.entity.name", "gen_ai.agent.name")),
        ),
        model=text(model),
        provider=text(
            first(*(attributes.get(name) for name in ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")))
        ),
        messages=prompt,
        answer=answer,
        tools=tools_of(first(attributes.get("gen_ai.tool.definitions"), asked.get("tools"), _schemas(attributes))),
        response_format=format_of(asked)
        or ({"type": "json_object"} if attributes.get("gen_ai.output.type") == "json" else None),
        settings={**settings_of(asked), **settings_of(found)},
        started_at=began,
        seconds=ended - began if began is not None and ended is not None else None,
        tokens_in=tokens[0],
        tokens_out=tokens[1],
        cached_tokens=tokens[2],
        cost_usd=number(first(*(attributes.get(name) for name in ("llm.cost.total", "gen_ai.usage.cost", "vinelm.cost_usd")))),
        error=(text(first(status.get("message"), status.get("description"), attributes.get("error.type"))) or "error")
        if is_failed
        else None,
        stands_for=_adjusted_count(first(record.get("traceState"), record.get("trace_state"), context.get("trace_state")))
        or stands_for({**metadata, **attributes}),
        where=where,
    )


def _adjusted_count(state: Any) -> float | None:
    """Return the number of spans that a sampled span represents, from its trace state; None if the trace state lacks
    the number.
    """
    found = _THRESHOLD.search(state) if isinstance(state, str) else None
    return None if found is None else 2**56 / (2**56 - int(found[1].ljust(14, "0"), 16))


def _attributes(value: Any) -> dict[str, Any]:
    """Return attributes as a flat dictionary, from OTLP's list of typed keys and values or Phoenix's nested export."""
    if isinstance(value, list):
        return {
            str(one["key"]): plain_value(one.get("value") or {}) for one in value if isinstance(one, Mapping) and "key" in one
        }
    return dict(_flat("", value)) if isinstance(value, Mapping) else {}


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and prefix not in ("metadata.",):
        for name, one in value.items():
            yield from _flat(f"{prefix}{name}.", one)
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for place, one in enumerate(value):
            yield from _flat(f"{prefix}{place}.", one)
    else:
        yield prefix[:-1], value


def _listed(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return, as a list, the objects in numbered attributes that begin with ``prefix``, such as
    ``llm.input_messages.0.message.role``.
    """
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            at, words = found, name[len(prefix) :].split(".")
            for word in words[:-1]:
                inner = at.setdefault(word, {})
                at = inner if isinstance(inner, dict) else {}
            at[words[-1]] = value
    return [found[place] for place in sorted(found, key=lambda one: int(one) if one.isdecimal() else 0)]


def _inference(attributes: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return (prompt, answer) of an OpenInference span; the answer is None if the span has none."""

    def message(one: Any) -> dict[str, Any]:
        of = mapping(mapping(one).get("message"))
        parts = [mapping(part.get("message_content")) for _, part in sorted(mapping(of.get("contents")).items())]
        calls = [mapping(call.get("tool_call")) for _, call in sorted(mapping(of.get("tool_calls")).items())]
        found = {**of, "content": first(of.get("content"), parts or None), "tool_calls": calls or None}
        return found if "role" in found else {**found, "role": "assistant"}

    asked = [message(one) for one in _listed(attributes, "llm.input_messages.")]
    answered = [message(one) for one in _listed(attributes, "llm.output_messages.")]
    return messages_of(asked or attributes.get("input.value")), answer_of(answered or attributes.get("output.value"))


def _genai(
    attributes: Mapping[str, Any], events: list[tuple[str, dict[str, Any]]]
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return (prompt, answer) of a span: from its attributes, otherwise from its events or from OpenLLMetry's numbered
    attributes.
    """
    above = json_in(attributes.get("gen_ai.system_instructions"))
    system = messages_of([{"role": "system", "parts": above}] if isinstance(above, list) else None)
    asked, answered = attributes.get("gen_ai.input.messages"), attributes.get("gen_ai.output.messages")
    if asked is None and answered is None:
        spoken: list[Any] = []
        for name, more in events:
            body = json_in(
                first(*(more.get(k) for k in ("gen_ai.event.content", "gen_ai.prompt", "gen_ai.completion", "body")), None)
            )
            role = _ROLES.get(name.removeprefix("gen_ai.").removesuffix(".message"))
            if name in ("gen_ai.choice", "gen_ai.content.completion"):
                choice = body if body is not None else more
                answered = choice if answered is None else answered
            elif name == "gen_ai.content.prompt":
                spoken += messages_of(body)
            elif role:
                said = {**more, **(body if isinstance(body, Mapping) else {} if body is None else {"content": body})}
                calls = json_in(said.get("tool_calls"))
                spoken.append(
                    {"role": role, **said, "tool_calls": calls, "tool_call_id": said.get("id") if role == "tool" else None}
                )
        asked = spoken or _listed(attributes, "gen_ai.prompt.")
        answered = answered if answered is not None else _listed(attributes, "gen_ai.completion.")
        if isinstance(answered, Mapping) and isinstance(message := json_in(answered.get("message")), Mapping):
            answered = message
        if isinstance(asked, list):
            asked = [{**one, "tool_calls": _numbered(one)} if isinstance(one, Mapping) else one for one in asked]
        if isinstance(answered, list):
            answered = [{**one, "tool_calls": _numbered(one)} for one in answered if isinstance(one, Mapping)]
    return [*system, *messages_of(asked)], answer_of(answered)


def _numbered(message: Mapping[str, Any]) -> Any:
    """Return the tool calls in OpenLLMetry's numbered attributes, such as ``gen_ai.completion.0.tool_calls.0.name``."""
    calls = message.get("tool_calls")
    return [calls[place] for place in sorted(calls)] if isinstance(calls, Mapping) else calls


def _schemas(attributes: Mapping[str, Any]) -> list[Any]:
    """Return the declarations of tools in a span of OpenInference, or in OpenLLMetry's ``llm.request.functions``."""
    listed = [mapping(mapping(one).get("tool")).get("json_schema") for one in _listed(attributes, "llm.tools.")]
    return listed or _listed(attributes, "llm.request.functions.")
