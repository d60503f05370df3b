"""Reads Langfuse's observations from its API (v1, v2), its exports to blob storage (enriched, legacy), and its pages.

https://langfuse.com/docs/api-and-data-platform/features/blob-storage-export-fields
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vinelm.io.fields import json_in
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.chat import CallTokens, answer_of, format_of, messages_of, settings_of, step_name, tools_of, usage_of
from vinelm.replay.formats.values import conversation_of, count, epoch, first, mapping, number, stands_for, text

_SHOWS = (
    "parentObservationId",
    "parent_observation_id",
    "usageDetails",
    "usage_details",
    "provided_model_name",
    "level",
    "model",
)


def is_record(record: Mapping[str, Any]) -> bool:
    """Return whether a record is an observation of Langfuse."""
    is_named = ("traceId" in record or "trace_id" in record) and ("startTime" in record or "start_time" in record)
    return is_named and "run_type" not in record and "spanId" not in record and any(name in record for name in _SHOWS)


def calls_of(record: Mapping[str, Any], where: str) -> Iterator[LoggedCall]:
    """Yield the model call in an observation, found at ``where`` (file and line); yield nothing if it is not a generation."""

    def of(camel: str, snake: str) -> Any:
        return first(record.get(camel), record.get(snake))

    if (record.get("type") or "GENERATION") != "GENERATION":
        return
    prompt, metadata, parameters = (
        json_in(record.get("input")),
        mapping(record.get("metadata")),
        of("modelParameters", "model_parameters"),
    )
    about = prompt if isinstance(prompt, Mapping) else {}
    began, ended = epoch(of("startTime", "start_time")), epoch(of("endTime", "end_time"))
    seconds = ended - began if began is not None and ended is not None else number(record.get("latency"))
    usage = _usage(record)
    costs = mapping(of("costDetails", "cost_details"))
    parts = [found for name in costs if (found := number(costs[name])) is not None and name != "total"]
    cost = number(first(of("totalCost", "total_cost"), record.get("calculatedTotalCost"), costs.get("total")))
    if cost == 0.0 or cost is None:  # Langfuse writes 0 if it does not know the price of the model
        cost = sum(parts) or None
    error = text(of("statusMessage", "status_message")) or "error" if record.get("level") == "ERROR" else None
    yield LoggedCall(
        request=text(of("traceId", "trace_id")),
        call=text(record.get("id")),
        conversation=conversation_of(metadata, of("sessionId", "session_id"), metadata.get("langfuse_session_id")),
        step=step_name(metadata.get("langgraph_node"), record.get("name"), of("promptName", "prompt_name")),
        model=text(first(of("providedModelName", "provided_model_name"), record.get("model"), metadata.get("ls_model_name"))),
        provider=text(metadata.get("ls_provider")),
        messages=messages_of(prompt),
        answer=None if error and not record.get("output") else answer_of(record.get("output")),
        tools=tools_of(first(about.get("tools"), mapping(parameters).get("tools"), of("toolDefinitions", "tool_definitions"))),
        response_format=format_of(about) or format_of(parameters),
        settings={**settings_of(about), **settings_of(parameters)},
        started_at=began,
        seconds=seconds,
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        cached_tokens=usage.cached,
        cost_usd=cost,
        error=error,
        stands_for=stands_for(metadata),
        where=where,
    )


def inputs_of(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name of the request, inputs of the application) from an outermost observation; nothing from a generation or an
    inner observation.
    """
    is_outermost = not first(record.get("parentObservationId"), record.get("parent_observation_id"))
    if (record.get("type") or "GENERATION") != "GENERATION" and is_outermost:
        yield text(first(record.get("traceId"), record.get("trace_id"))), json_in(record.get("input"))


def _usage(record: Mapping[str, Any]) -> CallTokens:
    """Return a record's numbers of prompt, answer and cached tokens.

    In some records ``input`` includes the cached tokens, in others it does not; both are understood.
    """
    details = mapping(first(record.get("usageDetails"), record.get("usage_details"), record.get("usage")))
    known = {name: found for name in details if (found := count(details[name])) is not None and name != "total"}
    if not known:
        flat = [
            count(first(record.get(a), record.get(b)))
            for a, b in (("inputUsage", "inputTokens"), ("outputUsage", "outputTokens"))
        ]
        return CallTokens(
            flat[0] if flat[0] is not None else count(record.get("promptTokens")),
            flat[1] if flat[1] is not None else count(record.get("completionTokens")),
        )
    if "input" not in known and "output" not in known:
        return usage_of(details)
    total, plain_in, plain_out = count(details.get("total")), known.get("input", 0), known.get("output", 0)
    is_whole = total is not None and plain_in + plain_out == total
    extra_in = sum(found for name, found in known.items() if "input" in name and name != "input")
    extra_out = sum(found for name, found in known.items() if name.startswith("output_"))
    cached = [found for name, found in known.items() if "cache" in name and "creation" not in name and "write" not in name]
    tokens = (plain_in, plain_out) if is_whole else (plain_in + extra_in, plain_out + extra_out)
    return CallTokens(*tokens, sum(cached) if cached else None)
