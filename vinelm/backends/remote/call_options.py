"""The options of one call: those of the catalog entry, overridden by the call's own."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from langchain_core.utils.function_calling import convert_to_openai_tool

from vinelm.catalog import Model
from vinelm.errors import UNSUPPORTED_CALL, ConfigError

PARALLEL = "parallel_tool_calls"
"""OpenAI's option that allows or forbids several tool calls in one answer; chat models of all providers are asked with it."""


class CallOptions(NamedTuple):
    """The options of one call.

    ``limit`` is the maximum of output tokens; ``tools`` is None if there are none or they must not be used; ``rest`` holds
    provider-specific options.
    """

    limit: int
    tools: Any
    choice: Any
    rest: dict[str, Any]


def asked_of(model: Model, own: Mapping[str, Any], options: Mapping[str, Any], ours: Container[str]) -> CallOptions:
    """Merge the call's ``options`` over the entry's ``own``.

    Raises:
        ConfigError: An option is one of ``ours``, or ``max_tokens`` is above the entry's.
    """
    given = {**own, **{key: value for key, value in options.items() if value is not None}}
    tools, choice = given.pop("tools", None), given.pop("tool_choice", None)
    limit = given.pop("max_tokens", model.max_tokens) if "max_tokens" not in own else None
    if not isinstance(limit, int) or not 1 <= limit <= model.max_tokens:
        raise ConfigError(
            f"model {model.name!r}: max_tokens is the entry's, {model.max_tokens}: a call may only ask for less",
            code=UNSUPPORTED_CALL,
        )
    refuse_ours(model, given, ours)
    return CallOptions(limit, tools if tools and choice not in ("none", False) else None, choice, given)


class ToolUse(NamedTuple):
    """The tools that a call must use: "auto" is any or none, "any" at least one, "tool" the one named ``name``."""

    mode: Literal["auto", "any", "tool"]
    name: str = ""


def functions_of(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Return name, description and JSON schema (``parameters``) of each tool; the last two are always there."""
    functions = [convert_to_openai_tool(tool)["function"] for tool in tools]
    nothing = {"type": "object", "properties": {}}
    return [{**f, "description": f.get("description") or "", "parameters": f.get("parameters") or nothing} for f in functions]


def tool_use_of(model: Model, choice: Any, functions: Sequence[Mapping[str, Any]]) -> ToolUse:
    """Return what LangChain's ``tool_choice`` asks for; :class:`ConfigError` if it is neither a mode nor the name of a tool."""
    if isinstance(choice, Mapping):  # in OpenAI's form, or in Anthropic's
        choice = (choice.get("function") or {}).get("name") or choice.get("name") or choice.get("type")
    if choice in [function["name"] for function in functions]:
        return ToolUse("tool", str(choice))
    if choice in ("any", "required", True):
        return ToolUse("any")
    if choice in (None, "auto"):
        return ToolUse("auto")
    raise ConfigError(f"model {model.name!r}: tool_choice must be auto, any, none or the name of a tool")


def refuse_ours(model: Model, options: Mapping[str, Any], ours: Container[str]) -> None:
    """Raise :class:`ConfigError` for an option that the backend sets itself."""
    for key in options:
        if key in ours:
            raise ConfigError(f"model {model.name!r}: option {key!r} is set by VineLM: leave it out")
