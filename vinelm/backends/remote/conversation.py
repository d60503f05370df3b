"""Selects which parts of a conversation are sent to another provider: text, tool calls and results, but not reasoning.

A provider expects its own reasoning back, signed and complete, and refuses another provider's. So the provider's own answers
stay unchanged, and other answers are reduced to their text and tool calls. LangChain's packages mark answers with their
provider; unmarked answers are recognized by the types of their content blocks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from vinelm.backends.remote.inner import package_of, setting_of

RESPONSES = "openai responses"
_FAMILIES = {
    "anthropic": "anthropic",
    "google_anthropic_vertex": "anthropic",
    "openai": "openai",
    "azure": "openai",
    "azure_openai": "openai",
    "google_genai": "google",
    "google_vertexai": "google",
    "bedrock": "bedrock",
    "bedrock_converse": "bedrock",
    "amazon_bedrock": "bedrock",
    "aws": "bedrock",
}
"""The family of a provider, by the name that LangChain writes into the provider's answers, or by the chat model's package."""
_BLOCKS = {
    "thinking": "anthropic",
    "redacted_thinking": "anthropic",
    "tool_use": "anthropic",
    "server_tool_use": "anthropic",
    "web_search_tool_result": "anthropic",
    "code_execution_tool_result": "anthropic",
    "mcp_tool_use": "anthropic",
    "mcp_tool_result": "anthropic",
    "reasoning_content": "bedrock",
    "function_call": RESPONSES,
    "reasoning": RESPONSES,
    "refusal": RESPONSES,
    "web_search_call": RESPONSES,
    "file_search_call": RESPONSES,
    "computer_call": RESPONSES,
    "code_interpreter_call": RESPONSES,
    "image_generation_call": RESPONSES,
    "mcp_call": RESPONSES,
}
"""Kinds of blocks that only one provider has."""
_NEUTRAL = frozenset({"text", "image_url", "image", "input_audio", "audio", "file", "media", "video"})
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_STRICT_IDS = frozenset({"anthropic", "bedrock", "openai", RESPONSES})


def carried_to(chat: BaseChatModel, messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the conversation in a form that this chat model's provider accepts.

    Answers of other providers lose everything but text and tool calls. The messages are unchanged if all answers are the
    provider's own, except for tool-call ids that the provider would refuse.
    """
    if not any(isinstance(one, AIMessage | ToolMessage) for one in messages):
        return list(messages)  # there is no answer yet
    target = _target(chat)
    model = str(setting_of(chat, "model_name") or setting_of(chat, "model") or "")
    carried = [_plain(one) if isinstance(one, AIMessage) and _is_foreign(one, target, model) else one for one in messages]
    return _with_ids(carried) if target in _STRICT_IDS else carried


def must_not_think(chat: BaseChatModel, messages: Sequence[BaseMessage], options: Mapping[str, Any], limit: int) -> bool:
    """Return whether Anthropic's API would refuse this call because the chat model asks for thinking.

    The API refuses thinking in three cases: a tool is forced; the ``limit`` on the answer's tokens is too small; or the turn
    has tool calls without Claude's own thinking, because another model made them or thinking was off.
    """
    thinking = setting_of(chat, "thinking")
    if not isinstance(thinking, Mapping) or thinking.get("type") in (None, "disabled") or _target(chat) != "anthropic":
        return False
    choice = options.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") in ("any", "tool"):
        return True
    if thinking.get("type") != "enabled":
        return False
    if int(thinking.get("budget_tokens") or 0) >= limit:
        return True
    for message in reversed(carried_to(chat, messages)):  # another model's thoughts are not sent along
        if isinstance(message, HumanMessage):
            return False
        if isinstance(message, AIMessage) and message.tool_calls:
            return not _begins_with_thought(message)
    return False


def _begins_with_thought(message: AIMessage) -> bool:
    content = message.content
    first = content[0] if isinstance(content, list) and content else None
    return isinstance(first, dict) and first.get("type") in ("thinking", "redacted_thinking", "reasoning")


def _target(chat: BaseChatModel) -> str:
    package = package_of(chat).removeprefix("langchain_")
    if package == "openai":
        return RESPONSES if _uses_responses(chat) else "openai"
    return _FAMILIES.get(package, package)


def _uses_responses(chat: Any) -> bool:
    asked = setting_of(chat, "use_responses_api")
    if asked is not None:
        return bool(asked)
    settings = (
        setting_of(chat, name) for name in ("reasoning", "verbosity", "include", "truncation", "use_previous_response_id")
    )
    return any(settings) or setting_of(chat, "output_version") == "responses/v1"


def _is_foreign(message: AIMessage, target: str, model: str) -> bool:
    kinds = (
        {part.get("type") for part in message.content if isinstance(part, dict)} if isinstance(message.content, list) else set()
    )
    special = kinds - _NEUTRAL
    stamp = message.response_metadata.get("model_provider")
    origin = _FAMILIES.get(stamp, stamp) if isinstance(stamp, str) else None
    if not special:
        return False  # text and attachments may come from any model
    if origin is None:
        origin = next((_BLOCKS[kind] for kind in special if kind in _BLOCKS), None)
        return origin is not None and origin != target
    if origin == "openai" and special & {kind for kind, home in _BLOCKS.items() if home == RESPONSES}:
        # A model that does not reason takes no reasoning items, and no calls that refer to them.
        wrote = str(message.response_metadata.get("model_name") or "")
        is_same = not wrote or wrote.startswith(model) or model.startswith(wrote)
        return target != RESPONSES or not is_same
    return origin != target.removesuffix(" responses")


def _plain(message: AIMessage) -> AIMessage:
    """Return the message's text and tool calls in a form that every package accepts, without ids and signatures."""
    return AIMessage(
        content=str(message.text),
        name=message.name,
        tool_calls=[
            {"name": call["name"], "args": call["args"], "id": call["id"], "type": "tool_call"} for call in message.tool_calls
        ],
        invalid_tool_calls=message.invalid_tool_calls,
    )


def _with_ids(messages: list[BaseMessage]) -> list[BaseMessage]:
    """Return the messages with tool-call ids that Anthropic and Bedrock accept. Ids of other providers may be longer or use
    other characters.
    """
    return [_with_short_ids(message) for message in messages]


def _with_short_ids(message: BaseMessage) -> BaseMessage:
    if isinstance(message, ToolMessage) and not _ID.fullmatch(message.tool_call_id):
        return message.model_copy(update={"tool_call_id": _short(message.tool_call_id)})
    if isinstance(message, AIMessage) and any(call["id"] and not _ID.fullmatch(call["id"]) for call in message.tool_calls):
        calls = [
            {**call, "id": _short(call["id"]) if call["id"] and not _ID.fullmatch(call["id"]) else call["id"]}
            for call in message.tool_calls
        ]
        return message.model_copy(update={"tool_calls": calls})
    return message


def _short(call_id: str) -> str:
    return f"call_{blake2b(call_id.encode('utf-8', 'replace'), digest_size=12).hexdigest()}"
