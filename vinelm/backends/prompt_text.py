"""Converts a prompt to a canonical text, which is the same for every provider."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

NOT_SENT = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content", "tool_use", "function_call"})
"""Parts of a content that only the model that wrote them understands, or that repeat the message's tool calls."""


class MadeCall(NamedTuple):
    """A tool call that an earlier answer in the conversation contains."""

    id: str | None
    name: str | None
    arguments: Mapping[str, Any]


def made_calls(message: BaseMessage) -> Iterator[MadeCall]:
    """Yield the tool calls of a message. Invalid calls are included, because later tool messages answer them, too."""
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            yield MadeCall(call["id"], call["name"], call["args"])
        for broken in message.invalid_tool_calls:
            yield MadeCall(broken["id"], broken["name"], {"invalid_json": broken["args"]})


def prompt_parts(messages: Sequence[BaseMessage], tools: Iterable[Any] = ()) -> list[str]:
    """Return the parts of a prompt's text in the order in which a server reads them: tools, system messages, then the
    conversation.

    Each tool and each non-empty message is one part, with its role. Attachments are replaced by digests. Ids of tool calls are
    left out, since the model does not see them. The parts are those of :func:`vinelm.prompts.shape.shape_of`. Never raises.
    """
    system = [message for message in messages if isinstance(message, SystemMessage)]
    others = [message for message in messages if not isinstance(message, SystemMessage)]
    texts = ((message.type, message_text(message)) for message in (*system, *others))
    return [*(f"tool\n{canonical(tool)}" for tool in tools), *(f"{role}\n{text}" for role, text in texts if text)]


def message_text(message: BaseMessage) -> str:
    """Return the canonical text of a message: its texts, attachment digests, and tool calls."""
    content = message.content
    parts: Sequence[Any] = [content] if isinstance(content, str) else content
    lines = [part if isinstance(part, str) else _part_text(part) for part in parts]
    lines += [canonical([call.name, call.arguments]) for call in made_calls(message)]
    return "\n".join(line for line in lines if line)


def _part_text(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text", ""))
    return "" if kind in NOT_SENT else f"{kind} {blake2b(canonical(part).encode('utf-8', 'replace')).hexdigest()}"


def canonical(value: Any) -> str:
    """Return a value as JSON with sorted keys, or the name of its type if it cannot be converted."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=lambda other: type(other).__name__)
    except (TypeError, ValueError):  # keys that cannot be sorted, or a value that contains itself
        return type(value).__name__
