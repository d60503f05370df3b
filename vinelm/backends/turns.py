"""LangChain messages in the form that most providers require: alternating turns, plain parts, complete tool calls.

What a provider wants back with its tool calls and LangChain's cannot carry (thinking blocks, signatures) is kept beside them.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, TypeVar

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, convert_to_openai_messages

KEPT = 10_000

V = TypeVar("V")


class CallMemory(Generic[V]):
    """A value for each of the last :data:`KEPT` tool calls of this process, by model and call id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], V] = OrderedDict()

    def put(self, model_id: str, call_id: str, value: V) -> None:
        """Store the value of a call."""
        with self._lock:
            self._known[model_id, call_id] = value
            if len(self._known) > KEPT:
                self._known.popitem(last=False)

    def get(self, model_id: str, call_id: str, unseen: V) -> V:
        """Return the value of a call; ``unseen`` if this process did not see this model make it."""
        with self._lock:
            return self._known.get((model_id, call_id), unseen)


NOT_SENT = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content", "tool_use", "function_call"})
"""Parts of a content that belong to the model that wrote them, or repeat the message's tool calls."""


class MadeCall(NamedTuple):
    """A tool call of an earlier answer."""

    id: str | None
    name: str | None
    arguments: Mapping[str, Any]


def made_calls(message: BaseMessage) -> Iterator[MadeCall]:
    """Yield the tool calls of a message, also those that could not be parsed: tool messages answer them, too."""
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            yield MadeCall(call["id"], call["name"], call["args"])
        for broken in message.invalid_tool_calls:
            yield MadeCall(broken["id"], broken["name"], {"invalid_json": broken["args"]})


def plain_parts(message: BaseMessage) -> Iterator[dict[str, Any]]:
    """Yield texts and attachments of a message in the OpenAI format, into which LangChain translates the others.

    Texts keep their ``cache_control``; empty ones, :data:`NOT_SENT` and tool calls are left out. What LangChain raises on
    content that it does not know is not caught.
    """
    parts: Sequence[Any] = [message.content] if isinstance(message.content, str) else message.content
    for part in parts:
        if isinstance(part, str) or part.get("type") == "text":
            block = {"text": part} if isinstance(part, str) else part
            if block["text"]:
                kept = {key: block[key] for key in ("cache_control",) if block.get(key)}
                yield {"type": "text", "text": block["text"], **kept}
        elif part.get("type") not in NOT_SENT:
            without_calls: dict[str, Any] = {"tool_calls": []} if isinstance(message, AIMessage) else {}
            plain = message.model_copy(update={"content": [part], **without_calls})
            yield from convert_to_openai_messages([plain], text_format="block")[0]["content"]


def prompt_parts(messages: Sequence[BaseMessage], tools: Iterable[Any] = ()) -> list[str]:
    """Return the text of a prompt in the order in which a server reads it: tools, system messages, then the conversation.

    One part for each tool and each message that is not empty, with its role. Attachments are digests; ids of tool calls, which
    servers do not show to the model, are left out. The parts are those of :func:`vinelm.prompts.shape.shape_of`. Never raises.
    """
    system = [message for message in messages if isinstance(message, SystemMessage)]
    others = [message for message in messages if not isinstance(message, SystemMessage)]
    texts = ((message.type, message_text(message)) for message in (*system, *others))
    return [*(f"tool\n{_canonical(tool)}" for tool in tools), *(f"{role}\n{text}" for role, text in texts if text)]


def message_text(message: BaseMessage) -> str:
    """Return the canonical text of a message: its texts, digests of its attachments, and its tool calls."""
    content = message.content
    parts: Sequence[Any] = [content] if isinstance(content, str) else content
    lines = [part if isinstance(part, str) else _part_text(part) for part in parts]
    lines += [_canonical([call.name, call.arguments]) for call in made_calls(message)]
    return "\n".join(line for line in lines if line)


def _part_text(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text", ""))
    return "" if kind in NOT_SENT else f"{kind} {blake2b(_canonical(part).encode('utf-8', 'replace')).hexdigest()}"


def _canonical(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=lambda other: type(other).__name__)
    except (TypeError, ValueError):  # keys that cannot be sorted, a value within itself
        return type(value).__name__


def inline_image(part: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return the format ("png") and the data of a part of :func:`plain_parts`; :class:`ValueError` if it is no such image."""
    head, _, data = part["image_url"]["url"].partition(";base64,")
    kind, _, image_format = head.removeprefix("data:").partition("/")
    if kind != "image" or not data:
        raise ValueError("not an image as base64 data")
    try:
        return image_format, base64.b64decode(data, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None


def joined_turns(
    messages: Sequence[BaseMessage],
    parts_of: Callable[[BaseMessage], Iterable[dict[str, Any]]],
    *,
    model_role: str = "assistant",
    key: str = "content",
) -> list[dict[str, Any]]:
    """Return the turns of a conversation without its system messages; neighbours of one role, such as the results of parallel
    calls, are one turn.

    Args:
        messages: the conversation.
        parts_of: a message in the provider's format. What it raises is not caught; a message without parts begins no turn.
        model_role: what the provider calls the model's turns; all others are the ``user``'s.
        key: where a turn holds its parts.
    """
    turns: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, SystemMessage):
            continue
        role = model_role if isinstance(message, AIMessage) else "user"
        parts = list(parts_of(message))
        if turns and turns[-1]["role"] == role:
            turns[-1][key] += parts
        elif parts:
            turns.append({"role": role, key: parts})
    return turns
