"""Digests of prompts, with which a replayed call is compared with the recorded one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.utils.function_calling import convert_to_openai_tool

from vinelm.adapters.calls.tool_binding import STRUCTURED, BoundTools, Structured

_IDS = frozenset({"id", "tool_use_id", "call_id", "tool_call_id", "index"})
"""Keys of content blocks that an application or a provider may number afresh; they say nothing about the prompt."""


def prompt_digest(messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> str:
    """Return a digest of what a call sends: roles, contents, tool calls, tools, output schema and stop words.

    Ids of messages and of tool calls are left out, and so is what belongs to the answer of an earlier call besides its content
    (usage, response metadata): an application may make them anew in each run.

    Args:
        messages: the prompt.
        options: the arguments that the model is called or bound with.
    """
    asked = {name: _plain_option(value) for name, value in options.items() if value is not None and name in _COMPARED}
    text = json.dumps([_plain_messages(messages), asked], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


_COMPARED = frozenset({"tools", "tool_choice", "stop", STRUCTURED})


def _plain_messages(messages: Sequence[BaseMessage]) -> list[Any]:
    order: dict[str, int] = {}  # tool calls by their place, since their ids may be new
    plain = []
    for message in messages:
        item: list[Any] = [message.type, message.name, _without_ids(message.content)]
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                order.setdefault(str(call["id"]), len(order))
            item.append([[call["name"], call["args"]] for call in message.tool_calls])
        elif isinstance(message, ToolMessage):
            item += [order.get(message.tool_call_id), message.status]
        plain.append(item)
    return plain


def _without_ids(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _without_ids(inner) for key, inner in value.items() if key not in _IDS}
    if isinstance(value, (list, tuple)):
        return [_without_ids(inner) for inner in value]
    return value


def _plain_option(value: Any) -> Any:
    if isinstance(value, BoundTools):
        choice = {name: inner for name, inner in value.options.items() if name == "tool_choice"}
        return [[_plain_tool(tool) for tool in value], choice]
    if isinstance(value, Structured):
        return _plain_tool(value.schema)
    return value


def _plain_tool(tool: Any) -> Any:
    try:
        return convert_to_openai_tool(tool)
    except Exception:  # in a provider's own form
        return tool if isinstance(tool, Mapping) else getattr(tool, "__name__", type(tool).__name__)


__all__ = ["prompt_digest"]
