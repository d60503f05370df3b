"""Finds the step of a call by its name in the trace, otherwise by what its prompts have in common."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from vinelm.replay.formats.call import LoggedCall

TITLE_CHARS = 40
"""The most characters of a system prompt that become the title of a step without a name."""
_READ_CHARS = 200
"""How much of a system prompt's beginning tells steps apart: later text often differs in every request."""
NO_SYSTEM = "(no system prompt)"


class CallStep(NamedTuple):
    """A step of the application.

    Attributes:
        key: The step's identifier, the same for all of its calls.
        title: The step's name, the first words of its system prompt, or the name of the requested schema.
        is_named: Whether the step's name is in the trace.
    """

    key: str
    title: str
    is_named: bool


def step_of(call: LoggedCall) -> CallStep:
    """Return the step that made a call: the step named in the trace, otherwise a step identified by what its prompts have
    in common.

    Prompts of one step have the same system prompt, tools and requested format. Digits in a system prompt, and everything
    after its first 200 characters, are ignored.
    """
    if call.step:
        return CallStep(f"name:{call.step}", call.step, True)
    system = " ".join(next((_said(one) for one in call.messages if one.get("role") in ("system", "developer")), "").split())
    tools = sorted(str(_name(one)) for one in call.tools)
    form = call.response_format or {}
    schema = form.get("json_schema")
    named = schema.get("name") if isinstance(schema, Mapping) else None
    parts = [re.sub(r"\d+", "0", system[:_READ_CHARS]), *tools, str(named if isinstance(schema, Mapping) else form.get("type"))]
    digest = hashlib.blake2b("\n".join(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()
    title = system if len(system) <= TITLE_CHARS else f"{system[:TITLE_CHARS].rsplit(' ', 1)[0]}..."
    return CallStep(f"prompt:{digest}", title or str(named or NO_SYSTEM)[:TITLE_CHARS], False)


def _said(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = " ".join(str(one.get("text", "")) for one in content if isinstance(one, Mapping))
    return content if isinstance(content, str) else ""


def _name(tool: Mapping[str, Any]) -> Any:
    inner = tool.get("function")
    return inner.get("name") if isinstance(inner, Mapping) else tool.get("name")
