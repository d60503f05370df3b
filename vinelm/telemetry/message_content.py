"""Converts prompts and answers to span attributes by the semantic conventions for generative AI, only if the user asks for it.

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/gen-ai-input-messages.json and
``gen-ai-output-messages.json``
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from vinelm.catalog.secrets import redacted

VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The conventions' own switch, which other instrumentations read, too."""
ON = frozenset({"true", "1", "span_only", "span_and_event"})
OFF = frozenset({"", "false", "0", "no_content", "event_only"})
"""Values that switch content off; ``event_only`` is one, because nothing here makes events."""
ROLES = {"human": "user", "ai": "assistant", "chat": "user", "function": "tool"}


def is_asked_for() -> bool:
    """Return whether an environment variable asks to capture prompts and answers.

    The variable is ``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT``. For an unknown value, log a warning and return
    False.
    """
    said = os.environ.get(VARIABLE, "").strip().lower()
    if said not in ON | OFF:
        known = "NO_CONTENT, SPAN_ONLY, EVENT_ONLY, SPAN_AND_EVENT, true, false"
        logging.getLogger(__name__).warning("%s is none of %s: no content is captured", VARIABLE, known)
    return said in ON


def attributes(messages: Sequence[BaseMessage], answer: AIMessage | None) -> dict[str, str]:
    """Return ``gen_ai.input.messages`` and, if there is an answer, ``gen_ai.output.messages``, each as a JSON text."""
    found = {"gen_ai.input.messages": _json([_message(message) for message in messages])}
    if answer is not None:
        reason = answer.response_metadata.get("finish_reason") or "error"
        found["gen_ai.output.messages"] = _json([{**_message(answer), "finish_reason": str(reason)}])
    return found


def _json(plain: Any) -> str:
    text = json.dumps(_without_secrets(plain), ensure_ascii=False, default=str)
    return text.encode(errors="backslashreplace").decode()  # half of a surrogate pair, as JSON escapes it: exporters want UTF-8


def _without_secrets(plain: Any) -> Any:
    """Return plain JSON types with secrets replaced in every text and key."""
    if isinstance(plain, str):
        return redacted(plain)
    if isinstance(plain, Mapping):
        return {_without_secrets(key): _without_secrets(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_without_secrets(value) for value in plain]
    return plain


def _message(message: BaseMessage) -> dict[str, Any]:
    return {"role": ROLES.get(message.type, message.type), "parts": list(_parts(message))}


def _parts(message: BaseMessage) -> Iterator[dict[str, Any]]:
    if isinstance(message, ToolMessage):
        yield {"type": "tool_call_response", "id": message.tool_call_id, "response": str(message.text)}
        return
    if thought := message.additional_kwargs.get("reasoning_content"):
        yield {"type": "reasoning", "content": str(thought)}
    content: list[Any] = [message.content] if isinstance(message.content, str) else message.content
    for part in content:
        if isinstance(part, str):
            if part:
                yield {"type": "text", "content": part}
        elif part.get("type") == "text":
            yield {"type": "text", "content": part.get("text", "")}
        elif part.get("type") not in ("tool_use", "tool_call"):
            yield {"type": str(part.get("type"))}  # notes that there was an image, without the image
    if isinstance(message, AIMessage):
        for call in (*message.tool_calls, *message.invalid_tool_calls):
            yield {"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]}
