"""LangChain messages as turns of Anthropic's Messages API.

Wire format: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from vinelm.backends.turns import CallMemory, joined_turns, made_calls, plain_parts
from vinelm.errors import UNSUPPORTED_CALL, WorkflowError

Thinking = tuple[Mapping[str, Any], ...] | None
"""The thinking blocks before a tool call, in their order; empty if the model did not think, None if that is not known."""
_ODD_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


def system_blocks(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """Return the text of all system messages, in their order."""
    return [block for message in messages if isinstance(message, SystemMessage) for block in _checked(message)]


def conversation(messages: Sequence[BaseMessage], model_id: str, known: CallMemory[Thinking] | None) -> list[dict[str, Any]]:
    """Convert the other messages to user and assistant turns; joins turns of one role, as results of parallel calls require.

    Args:
        messages: The conversation.
        model_id: The model that is asked.
        known: Thinking blocks to send back; None if the model is not to think.

    Raises:
        WorkflowError: The format cannot represent a message.
    """
    return joined_turns(messages, lambda message: [*_thought(message, model_id, known), *_checked(message)])


def is_thinking_answered(messages: Sequence[BaseMessage], model_id: str, known: CallMemory[Thinking]) -> bool:
    """Return whether the thinking of every tool call since the user's last turn is known."""
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            if any(known.get(model_id, call_id, None) is None for call_id in _call_ids(message)):
                return False
        elif not isinstance(message, ToolMessage | SystemMessage):
            return True
    return True


def _thought(message: BaseMessage, model_id: str, known: CallMemory[Thinking] | None) -> Iterator[dict[str, Any]]:
    if known is None or not isinstance(message, AIMessage):
        return
    for call_id in _call_ids(message)[:1]:
        yield from (dict(block) for block in known.get(model_id, call_id, None) or ())


def _call_ids(message: AIMessage) -> list[str]:
    return [str(call.id) for call in made_calls(message)]


def _checked(message: BaseMessage) -> list[dict[str, Any]]:
    try:
        return list(_blocks(message))
    except (ValueError, KeyError, TypeError, AttributeError):
        pass  # their message contains the chat message
    raise WorkflowError(
        "a message has content that Anthropic's API cannot represent: send text, images or PDF files", code=UNSUPPORTED_CALL
    )


def _blocks(message: BaseMessage) -> Iterator[dict[str, Any]]:
    if isinstance(message, ToolMessage):
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(message.tool_call_id)}
        if content := list(_content(message)):
            result["content"] = content
        yield {**result, "is_error": True} if message.status == "error" else result
        return
    yield from _content(message)
    for call in made_calls(message):
        yield {"type": "tool_use", "id": _id(call.id), "name": call.name or "unknown", "input": call.arguments}


def _id(call_id: Any) -> str:
    """The id of a call in the API's alphabet; other providers use more characters."""
    return _ODD_IN_ID.sub("_", str(call_id))


def _content(message: BaseMessage) -> Iterator[dict[str, Any]]:
    for part in plain_parts(message):
        if part["type"] != "text":
            yield _attachment(part)
        elif part["text"].strip():  # the API refuses blank texts
            yield part


def _attachment(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "image_url":
        return {"type": "image", "source": _source(part["image_url"]["url"])}
    if part["type"] == "file":
        return {"type": "document", "source": _source(part["file"]["file_data"])}
    raise ValueError("no such attachment")


def _source(url: str) -> dict[str, str]:
    if url.startswith(("http://", "https://")):
        return {"type": "url", "url": url}
    head, _, data = url.partition(";base64,")
    kind = head.removeprefix("data:")
    if not data or not (kind.startswith("image/") or kind == "application/pdf"):
        raise ValueError("neither a link nor base64 data")
    return {"type": "base64", "media_type": kind, "data": data}
