"""A scripted model that calls each tool once and fills every schema, so that an application runs to completion."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.messages.tool import ToolCall

from vinelm.backends.offline.chat_model import OfflineChatModel, calls_since_human
from vinelm.backends.offline.schema_filler import fill


class ScriptedChatModel(OfflineChatModel):
    """An offline chat model whose answer fits the call: tool calls, or JSON for the requested schema."""

    def _said(self, text: str, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> tuple[str, list[ToolCall]]:
        said, calls = super()._said(text, messages, options)
        if calls or said != text:
            return said, calls  # the text is a script by the application's writer
        call = _next_call(options, messages, text, getattr(self.binding.source, "untried", frozenset()))
        if call is not None:
            return "", [call]
        schema = _answer_schema(options.get("response_format"))
        if schema is None:
            self.binding.source.has_written = True
            return text, []
        return json.dumps(_filled(schema, text)), []


def _next_call(
    options: Mapping[str, Any], messages: Sequence[BaseMessage], text: str, untried: Collection[str]
) -> ToolCall | None:
    """Return a call of the first tool that has not been called since the last human message; None if no tool is to be called.

    A forced tool is called even if all were called. The tools in ``untried`` are called only if forced.
    """
    tools = dict(_functions(options.get("tools") or ()))
    choice = options.get("tool_choice")
    if not tools or choice == "none":
        return None
    made = calls_since_human(messages)
    wanted = _forced(choice, tools)
    if wanted is None:
        called = {*untried, *(call["name"] for call in made)}
        wanted = next((name for name in tools if name not in called), None)
    if wanted is None and choice in ("any", "required", True):
        wanted = list(tools)[-1]
    if wanted is None:
        return None
    return ToolCall(name=wanted, args=_filled(tools[wanted], text), id=f"call-{len(made)}", type="tool_call")


def _functions(tools: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for tool in tools:
        function = tool.get("function", tool)
        if "name" in function:
            yield function["name"], function.get("parameters") or function.get("input_schema") or {"type": "object"}


def _forced(choice: Any, tools: Mapping[str, Any]) -> str | None:
    if isinstance(choice, Mapping):
        choice = choice.get("function", choice).get("name")
    return choice if isinstance(choice, str) and choice in tools else None


def _answer_schema(asked: Any) -> Mapping[str, Any] | None:
    if not isinstance(asked, Mapping):
        return None
    if asked.get("type") == "json_schema":
        found = asked.get("json_schema", {})
        return found.get("schema", found)  # type: ignore[no-any-return]
    return {"type": "object"} if asked.get("type") == "json_object" else None


def _filled(schema: Mapping[str, Any], text: str) -> Any:
    """Return the text itself if it is a JSON object with the schema's required keys, otherwise generated data that fits the
    schema.
    """
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if (
        isinstance(given, dict)
        and given
        and set(schema.get("required", ())) <= set(given) <= set(schema.get("properties", given))
    ):
        return given
    return fill(schema, text)
