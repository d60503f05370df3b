"""Reads LangSmith's runs from its API, its SDK and its bulk export.

https://docs.langchain.com/langsmith/run-data-format
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vinelm.io.fields import json_in
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.chat import answer_of, format_of, messages_of, settings_of, step_name, tools_of, usage_of
from vinelm.replay.formats.values import conversation_of, count, epoch, first, mapping, number, stands_for, text


def is_record(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a run of LangSmith."""
    return "run_type" in record


def calls_of(record: Mapping[str, Any], where: str) -> Iterator[LoggedCall]:
    """Yield the model call in a run, found at ``where`` (file and line); yield nothing if the run is not a model call."""
    if str(record["run_type"]).lower() != "llm":
        return
    inputs, outputs, extra = json_in(record.get("inputs")), json_in(record.get("outputs")), mapping(record.get("extra"))
    asked = {**(inputs if isinstance(inputs, Mapping) else {}), **mapping(extra.get("invocation_params"))}
    metadata = {**mapping(record.get("metadata")), **mapping(extra.get("metadata"))}
    answer = answer_of(outputs)
    began, ended = epoch(record.get("start_time")), epoch(record.get("end_time"))
    usage = usage_of(_usage(outputs))
    cached = first(mapping(record.get("prompt_token_details")).get("cache_read"), usage.cached)
    tokens_in, tokens_out = count(record.get("prompt_tokens")), count(record.get("completion_tokens"))
    error = text(record.get("error")) or None
    cost = number(record.get("total_cost"))
    yield LoggedCall(
        request=text(first(record.get("trace_id"), str(record.get("dotted_order") or "").partition(".")[0], record.get("id"))),
        call=text(record.get("id")),
        conversation=conversation_of(metadata),  # the record's own session_id is its project
        step=step_name(metadata.get("langgraph_node"), record.get("name")),
        model=text(first(metadata.get("ls_model_name"), asked.get("model"), asked.get("model_name"))),
        provider=text(metadata.get("ls_provider")),
        messages=messages_of(inputs),
        answer=answer,
        tools=tools_of(asked.get("tools")),
        response_format=format_of(asked),
        settings=settings_of(asked),
        started_at=began,
        seconds=ended - began if began is not None and ended is not None else number(record.get("latency_seconds")),
        tokens_in=tokens_in or usage.tokens_in,
        tokens_out=tokens_out if tokens_in else first(usage.tokens_out, tokens_out),
        cached_tokens=count(cached),
        cost_usd=cost or None,  # 0 if LangSmith does not know the price
        error=error,
        stands_for=stands_for(metadata),
        where=where,
    )


def inputs_of(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name of the request, inputs of the application) from an outermost run; nothing from a model call or an inner
    run.
    """
    if str(record["run_type"]).lower() != "llm" and not record.get("parent_run_id"):
        yield text(first(record.get("trace_id"), record.get("id"))), json_in(record.get("inputs"))


def _usage(outputs: Any) -> Any:
    """Return the token usage in a run's outputs; None if it is missing.

    It is searched in the outputs themselves, in the answer's message, and in LangChain's ``llm_output``.
    """
    of = mapping(outputs)
    generation = of.get("generations")
    while isinstance(generation, list) and generation:
        generation = generation[0]
    message = mapping(first(mapping(generation).get("message"), of.get("message")))
    return first(
        of.get("usage_metadata"),
        of.get("usage"),
        mapping(first(message.get("kwargs"), message)).get("usage_metadata"),
        mapping(of.get("llm_output")).get("token_usage"),
    )
