"""Reads LiteLLM's standard logging payload, as written to files, buckets and callbacks.

https://docs.litellm.ai/docs/proxy/logging_spec
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vinelm.io.fields import json_in
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.chat import answer_of, format_of, messages_of, settings_of, step_name, tools_of, usage_of
from vinelm.replay.formats.values import conversation_of, count, epoch, first, mapping, number, stands_for, text

_NAMES = ("langgraph_node", "step", "generation_name", "trace_name")
"""Names of a step that an application may put into a call's ``metadata``, which LiteLLM passes on unchanged."""


def _payload(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(record.get("standard_logging_object")) or record


def is_record(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a payload of LiteLLM, or contains one under the key ``standard_logging_object``."""
    of = _payload(record)
    return "call_type" in of and ("startTime" in of or "response_cost" in of)


def calls_of(record: Mapping[str, Any], where: str) -> Iterator[LoggedCall]:
    """Yield the call in a record of a completion; yield nothing for embeddings and images. ``where`` is the record's file
    and line.
    """
    of = _payload(record)
    kind = str(of.get("call_type") or "completion").lower()
    if not any(word in kind for word in ("completion", "responses", "anthropic_messages", "generate_content")):
        return
    metadata, hidden, asked = mapping(of.get("metadata")), mapping(of.get("hidden_params")), mapping(of.get("model_parameters"))
    said = {**metadata, **mapping(metadata.get("spend_logs_metadata")), **mapping(metadata.get("requester_metadata"))}
    tags = of.get("request_tags")
    named = [tag for tag in tags if not str(tag).startswith("User-Agent")] if isinstance(tags, list) else []
    response = json_in(of.get("response"))
    usage = usage_of(first(metadata.get("usage_object"), mapping(response).get("usage")))
    began, ended = epoch(of.get("startTime")), epoch(of.get("endTime"))
    prompt = of.get("messages")
    is_failed = of.get("status") == "failure"
    about = mapping(of.get("error_information"))
    error = text(first(of.get("error_str"), about.get("error_message"), about.get("error_class"), "failure"))
    cost = number(of.get("response_cost"))
    yield LoggedCall(
        request=text(first(of.get("trace_id"), of.get("id"))),
        call=text(of.get("id")),
        conversation=conversation_of(said),
        step=step_name(first(*(said.get(name) for name in _NAMES)), *named[:1]),
        model=text(first(of.get("model"), hidden.get("litellm_model_name"), of.get("model_group"))),
        provider=text(of.get("custom_llm_provider")),
        messages=() if prompt == "redacted-by-litellm" else messages_of(prompt),
        answer=None if is_failed else answer_of(response),
        tools=tools_of(asked.get("tools")),
        response_format=format_of(asked),
        settings=settings_of(asked),
        started_at=began,
        seconds=ended - began if began is not None and ended is not None else number(of.get("response_time")),
        tokens_in=first(count(of.get("prompt_tokens")) or None, usage.tokens_in),
        tokens_out=first(count(of.get("completion_tokens")) or None, usage.tokens_out),
        cached_tokens=usage.cached,
        cost_usd=cost if cost or of.get("cache_hit") is True else None,  # 0 if LiteLLM does not know the price
        error=error if is_failed else None,
        stands_for=stands_for(said),
        where=where,
    )
