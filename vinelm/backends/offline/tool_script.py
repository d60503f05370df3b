"""Tool use of offline models: an answer is a script of tool calls, and each invocation makes the next call.

A script is a JSON object ``{"calls": [{"name": ..., "args": {...}}, ...], "answer": "..."}``. It is used only if tools are
bound. The next call is the first that was not made since the last human message; after all calls comes the answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.tool import ToolCall


def next_step(text: str, messages: Sequence[BaseMessage]) -> tuple[str, list[ToolCall]]:
    """Return the text and the tool calls of the next message. A text that is not a script is returned unchanged."""
    script = _script(text)
    if script is None:
        return text, []
    made = calls_since_human(messages)
    for call in script["calls"]:
        if not any(one["name"] == call["name"] and one["args"] == call["args"] for one in made):
            return "", [ToolCall(name=call["name"], args=call["args"], id=f"call-{len(made)}", type="tool_call")]
    return str(script["answer"]), []


def _script(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    is_script = isinstance(found, dict) and set(found) == {"calls", "answer"} and isinstance(found["calls"], list)
    return found if is_script and all({"name", "args"} <= set(call) for call in found["calls"]) else None


def calls_since_human(messages: Sequence[BaseMessage]) -> list[ToolCall]:
    """Return the tool calls of the current turn, in order."""
    made: list[ToolCall] = []
    for message in messages:
        if isinstance(message, HumanMessage):
            made = []
        elif isinstance(message, AIMessage):
            made.extend(message.tool_calls)
    return made
