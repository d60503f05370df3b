"""A scripted model that calls each tool once and fills every schema, so that an application runs to completion."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
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
        source = self.binding.source
        filled = partial(_filled, text=text, yes=not getattr(source, "denies", False))
        call = _next_call(options, messages, filled, getattr(source, "untried", frozenset()))
        if call is not None:
            return "", [call]
        schema = _answer_schema(options.get("response_format"))
        if schema is None:
            source.has_written = True
            form = described_json(messages, text) if getattr(source, "fills_prompts", False) else None
            return text if form is None else json.dumps(form), []
        return json.dumps(filled(schema)), []


def _next_call(
    options: Mapping[str, Any],
    messages: Sequence[BaseMessage],
    filled: Callable[[Mapping[str, Any]], Any],
    untried: Collection[str],
) -> ToolCall | None:
    """Return a call of the first tool that has not been called since the last human message; None if no tool should be called.

    A tool that the options force is called again even if every tool was called. Tools in ``untried`` are called only if forced.
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
    return ToolCall(name=wanted, args=filled(tools[wanted]), id=f"call-{len(made)}", type="tool_call")


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


_OPENS, _CLOSES = "{[", "}]"
_PAIR = re.compile(r"""["'](\w[\w -]*)["']\s*:\s*""")
_KINDS: tuple[tuple[str, Callable[[str], Any]], ...] = (
    (r"\s*<?\s*(\[|array|list)", lambda text: [text]),
    (r"\s*<?\s*(\{|object|dict)", lambda _: {}),
    (r"\s*<?\s*(-?\d|int|number|float|score)", lambda _: 1),
    (r"\s*<?\s*(true|false|bool)", lambda _: True),
    (r"\s*<?\s*null", lambda _: None),
)
"""How a prompt describes the value of a key, and the scripted value."""


def described_json(messages: Sequence[BaseMessage], text: str) -> Any:
    """Return data in the JSON format that the prompt asks for; None if no message describes a format.

    A message describes a format by a JSON object, or by an outline of one: ``{"title": <string>, "sections": [...]}``. The last
    such message counts. In an outline, a value that is described as a text becomes ``text``.
    """
    for message in reversed(messages):
        said = message.text
        for start in (found.start() for found in re.finditer(r"""\{\s*["']""", said)):
            form = said[start : _end_of(said, start)]
            try:
                return json.loads(form)
            except ValueError:
                keys = [(pair[1], form[pair.end() :]) for pair in _PAIR.finditer(form) if _depth(form[: pair.start()]) == 1]
                if keys:
                    return {key: _described(value, text) for key, value in keys}
    return None


def _described(value: str, text: str) -> Any:
    """Return a value of the type that ``value`` names at its beginning, such as 1 for ``<number>``; return ``text`` if it names
    no type.
    """
    return next((made(text) for kind, made in _KINDS if re.match(kind, value, re.IGNORECASE)), text)


def _depth(text: str) -> int:
    """Return how many brackets are still open at the end of a text."""
    return sum((one in _OPENS) - (one in _CLOSES) for one in text)


def _end_of(text: str, start: int) -> int:
    """Return the position after the bracket that closes the one at ``start``; the text's end if none does."""
    open_brackets = 0
    for position in range(start, len(text)):
        open_brackets += (text[position] in _OPENS) - (text[position] in _CLOSES)
        if open_brackets == 0:
            return position + 1
    return len(text)


def _filled(schema: Mapping[str, Any], *, text: str, yes: bool) -> Any:
    """Return ``text`` parsed as JSON if it is an object that fits the keys of the schema. Otherwise return generated data that
    fits the schema.

    An object fits if it has all required keys, and no key that the schema lacks.
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
    return fill(schema, text, yes=yes)
