"""Build the body of a chat completion from LangChain messages, and bound its cost.

Wire format: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages

from vinelm.backends.remote.transport import AttemptBound, TransportRequest
from vinelm.catalog import Model
from vinelm.errors import UNSUPPORTED_CALL, ConfigError, WorkflowError

OURS = ("model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens")
"""Parameters that the backend sets; not allowed as options. The maximum output length is the entry's ``max_tokens``."""
OWN_OPTIONS = ("max_tokens_parameter",)
AZURE_OPTIONS = (*OWN_OPTIONS, "api_version")
"""Options that are not sent; they configure the request."""
_REASONS = re.compile(r"o\d|gpt-5(?!.*chat)")
"""OpenAI's models that refuse every temperature but their own while they reason."""
LIMIT_NAMES = ("max_tokens", "max_completion_tokens")


def completion_request(
    model: Model, messages: Sequence[BaseMessage], options: Mapping[str, Any], *, is_streamed: bool
) -> TransportRequest:
    """Build the body: the entry's options, overridden by the call's.

    Both are sent unchanged, but for a call's ``temperature`` where the model takes none: an application gives it for all the
    models that may be chosen.

    Raises:
        ConfigError: A parameter is set by the backend, or the call's ``max_tokens`` is above the entry's.
        WorkflowError: The format cannot represent a message.
    """
    check_options(model, model.options)
    given = {key: value for key, value in options.items() if value is not None}
    if _REASONS.match(model.model_id) and {**model.options, **given}.get("reasoning_effort") != "none":
        given.pop("temperature", None)
    limit = _limit(model, given)
    check_options(model, given)
    own = AZURE_OPTIONS if model.provider == "azure" else OWN_OPTIONS
    body: dict[str, Any] = {
        **{key: value for key, value in model.options.items() if key not in own},
        **given,
        "messages": wire_messages(messages),
        limit_name(model): limit,
    }
    if not body.get("tools"):  # an agent without tools binds none, which the API refuses
        body.pop("tools", None)
    if body.get("tool_choice") is not None:
        body["tool_choice"] = _tool_choice(body["tool_choice"], body.get("tools") or ())
    if is_streamed:
        body["stream_options"] = {"include_usage": True}
    chars = sum(
        len(json.dumps(body[key], ensure_ascii=False)) for key in ("messages", "tools", "response_format") if key in body
    )
    return TransportRequest(body=body, prompt_chars=chars, is_streamed=is_streamed)


def attempt_bound(body: Mapping[str, Any]) -> AttemptBound:
    """Return the most tokens that one attempt can cost."""
    sent = {key: value for key, value in body.items() if key not in LIMIT_NAMES}
    return AttemptBound.of(
        json.dumps(sent, ensure_ascii=False),
        max_tokens=body.get("max_tokens") or body["max_completion_tokens"],
        links=sum(_attachments(message) for message in body["messages"]),
    )


def prompt_parts(body: Mapping[str, Any]) -> list[str]:
    """Return the canonical text of the tools and of each message, in the order in which a cache reads them."""
    tools = [json.dumps(body["tools"], ensure_ascii=False)] if body.get("tools") else []
    return tools + [json.dumps(message, ensure_ascii=False) for message in body["messages"]]


def cache_key(model: Model, first: int) -> dict[str, str]:
    """Return OpenAI's parameter that keeps prompts of one beginning together; empty for servers that may not know it."""
    return {"prompt_cache_key": f"{first:016x}"} if model.api_base is None or model.provider == "azure" else {}


def wire_messages(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Convert messages to the API's format. Multimodal parts are kept, reasoning of other models is left out."""
    try:
        return [_with_invalid_calls(sent, source) for source in messages for sent in _converted(source)]
    except (ValueError, KeyError, TypeError):
        pass  # their message contains the chat message
    raise WorkflowError(
        "a message has content that the OpenAI format cannot represent: send text, images, files or sounds",
        code=UNSUPPORTED_CALL,
    )


def limit_name(model: Model) -> str:
    """Return the name of the parameter that limits the completion: newer for OpenAI and Azure, older for other servers.

    The entry's option ``max_tokens_parameter`` overrides it.
    """
    guess = "max_completion_tokens" if model.api_base is None or model.provider == "azure" else "max_tokens"
    return str(model.options.get("max_tokens_parameter", guess))


def check_options(model: Model, options: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for a parameter that the backend sets itself."""
    for key in options:
        if key in LIMIT_NAMES:
            raise ConfigError(f"model {model.name!r}: option {key!r}: set the entry's max_tokens instead")
        if key in OURS or key.startswith("extra_") or key == "timeout":
            raise ConfigError(f"model {model.name!r}: option {key!r} is set by VineLM: leave it out")
    if limit_name(model) not in LIMIT_NAMES:
        raise ConfigError(f"model {model.name!r}: max_tokens_parameter must be one of {', '.join(LIMIT_NAMES)}")


def _limit(model: Model, given: dict[str, Any]) -> int:
    """Return the call's own limit (removed from ``given``) or the entry's."""
    asked = [given.pop(name) for name in LIMIT_NAMES if name in given]
    for limit in asked:
        if not isinstance(limit, int) or not 1 <= limit <= model.max_tokens:
            raise ConfigError(
                f"model {model.name!r}: the call asks for max_tokens = {limit!r}, "
                f"the catalog allows {model.max_tokens}: raise it there",
                code=UNSUPPORTED_CALL,
            )
    return min(asked, default=model.max_tokens)


def _converted(message: BaseMessage) -> list[dict[str, Any]]:
    if isinstance(message, AIMessage) and isinstance(message.content, list):
        kept = [part for part in message.content if isinstance(part, str) or part.get("type") not in _THOUGHTS]
        message = message.model_copy(update={"content": kept})
    return convert_to_openai_messages([message])


def _with_invalid_calls(sent: dict[str, Any], source: BaseMessage) -> dict[str, Any]:
    """Add calls that could not be parsed: tool messages answer them, so the server must see them."""
    if isinstance(source, AIMessage) and source.invalid_tool_calls and sent["role"] == "assistant":
        sent.setdefault("tool_calls", []).extend(
            {"type": "function", "id": call["id"], "function": {"name": call["name"] or "", "arguments": call["args"] or ""}}
            for call in source.invalid_tool_calls
        )
    return sent


def _tool_choice(choice: Any, tools: Sequence[Mapping[str, Any]]) -> Any:
    if choice is True or choice == "any":
        return "required"
    if choice is False:
        return "none"
    names = [tool.get("function", {}).get("name") for tool in tools]
    return {"type": "function", "function": {"name": choice}} if choice in names else choice


def _attachments(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    return sum(part.get("type") != "text" for part in parts if isinstance(part, dict))


_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
