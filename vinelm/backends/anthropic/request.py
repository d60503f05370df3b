"""Build a request of Anthropic's Messages API from LangChain messages, and bound its cost.

Wire format: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from vinelm.backends.anthropic.messages import Thinking, conversation, is_thinking_answered, system_blocks
from vinelm.backends.remote.call_options import PARALLEL, asked_of, functions_of, refuse_ours, tool_use_of
from vinelm.backends.remote.transport import AttemptBound, TransportRequest
from vinelm.backends.turns import CallMemory
from vinelm.catalog import Model
from vinelm.errors import UNSUPPORTED_CALL, ConfigError

OURS = ("messages", "system", "stream", "max_tokens", "timeout", "speed", "extra_body", "extra_headers", "extra_query")
"""Parameters that the backend sets, or whose price is another; not allowed as options."""
NOT_SENT = ("anthropic_version",)
"""Options that are not sent in the body."""


def message_request(
    model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], known: CallMemory[Thinking], *, is_streamed: bool
) -> TransportRequest:
    """Build the body. Options go into it under the API's names; ``stop`` and ``response_format`` are translated.

    Thinking is switched off for a call that the API would refuse with it: one whose own ``max_tokens`` leaves no room for it,
    one that forces a tool call, and one that goes on after a tool call whose thinking this process does not have.

    Raises:
        ConfigError: An option is set by the backend, or a tool is none of the caller's.
        WorkflowError: The format cannot represent a message.
    """
    own = {key: value for key, value in model.options.items() if key not in NOT_SENT}
    asked = asked_of(model, own, options, OURS)
    body: dict[str, Any] = {**_in_words_of_the_api(model, asked.rest), "max_tokens": asked.limit}
    is_parallel = body.pop(PARALLEL, None)
    if system := system_blocks(messages):
        body["system"] = system
    if asked.tools:
        body |= _tools(model, asked.tools, asked.choice, is_parallel)
    is_answered = is_thinking_answered(messages, model.model_id, known)
    is_off = _must_not_think(body, is_answered=is_answered)
    if is_off:
        _switch_off(body)
    body["messages"] = conversation(messages, model.model_id, known if is_answered and not is_off else None)
    return TransportRequest(body=body, prompt_chars=len(_prompt_text(body)), is_streamed=is_streamed)


def attempt_bound(body: Mapping[str, Any]) -> AttemptBound:
    """Return the most tokens that one attempt can cost."""
    prompt = _prompt_text(body)
    return AttemptBound.of(
        prompt,
        max_tokens=body["max_tokens"],
        links=prompt.count('"type": "url"'),
        writes_cache="cache_control" in prompt or "cache_control" in body,
    )


def check_options(model: Model, options: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for an option that the backend sets itself, or a budget that leaves no room for an answer."""
    refuse_ours(model, options, OURS)
    thinking = options.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    if isinstance(budget, int) and budget >= model.max_tokens:
        raise ConfigError(
            f"model {model.name!r}: thinking.budget_tokens = {budget} leaves no room in max_tokens = {model.max_tokens}: "
            "raise max_tokens"
        )


def _in_words_of_the_api(model: Model, options: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(options)
    stop, form = given.pop("stop", None), given.pop("response_format", None)
    if stop:
        given["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if form is not None:
        schema = form.get("json_schema", {}).get("schema") if isinstance(form, Mapping) else None
        if not isinstance(schema, Mapping):
            raise ConfigError(
                f"model {model.name!r}: response_format must be a json_schema: Anthropic has no other", code=UNSUPPORTED_CALL
            )
        given["output_config"] = {
            **(given.get("output_config") or {}),
            "format": {"type": "json_schema", "schema": dict(schema)},
        }
    return given


def _tools(model: Model, tools: Sequence[Any], choice: Any, is_parallel: Any) -> dict[str, Any]:
    if any(isinstance(tool, Mapping) and tool.get("type", "function") != "function" for tool in tools):
        raise ConfigError(
            f"model {model.name!r}: a tool that runs at Anthropic is billed apart, which is not supported",
            code=UNSUPPORTED_CALL,
        )
    functions = functions_of(tools)
    chosen = tool_use_of(model, choice, functions)
    how: dict[str, Any] = {"type": chosen.mode, **({"name": chosen.name} if chosen.name else {})}
    if is_parallel is False:
        how["disable_parallel_tool_use"] = True
    return {"tools": [_tool(function) for function in functions], **({} if how == {"type": "auto"} else {"tool_choice": how})}


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    more = {key: function[key] for key in ("description", "strict") if function.get(key)}
    return {"name": function["name"], "input_schema": function["parameters"], **more}


def _must_not_think(body: Mapping[str, Any], *, is_answered: bool) -> bool:
    """True if the API would refuse the call with the thinking that it asks for. A fixed budget has stricter rules."""
    thinking = body.get("thinking")
    if not isinstance(thinking, Mapping) or thinking.get("type") == "disabled":
        return False
    is_forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
    has_budget = thinking.get("type") == "enabled"
    has_room = int(thinking.get("budget_tokens") or 0) < int(body["max_tokens"])
    return is_forced or (has_budget and not (has_room and is_answered))


def _switch_off(body: dict[str, Any]) -> None:
    """Older models do not think without being asked; newer ones may, and know ``disabled``."""
    if body["thinking"].get("type") == "enabled":
        del body["thinking"]
    else:
        body["thinking"] = {"type": "disabled"}


def _prompt_text(body: Mapping[str, Any]) -> str:
    prompt = {key: body[key] for key in ("system", "tools", "messages", "output_config") if key in body}
    return json.dumps(prompt, ensure_ascii=False, default=str)
