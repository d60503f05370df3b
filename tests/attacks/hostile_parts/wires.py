"""The wire formats of the providers, as a server writes them: what LangChain's packages read."""

from __future__ import annotations

import json
import struct
from binascii import crc32
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TEXT = "four"
MODEL = "model-1"


@dataclass(frozen=True)
class Wire:
    """One provider: its catalog entry's fields, and how its server writes an answer.

    ``usage`` holds what the usage of a correct answer says; a lie replaces it.
    """

    name: str
    usage: Mapping[str, Any]
    fields: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    stream_type: str = "text/event-stream"
    model_id: str = MODEL

    def whole(self, text: str = TEXT, usage: Any = None, finish: bool = True) -> bytes:
        """Return a whole answer."""
        return json.dumps(self._answer(text, self.usage if usage is None else usage, finish, is_whole=True)).encode()

    def piece(self, text: str, usage: Any = None) -> bytes:
        """Return an event with a piece of text, and what the usage is so far."""
        return self.event(self._answer(text, usage, False, is_whole=False))

    def few(self) -> Any:
        """Return a usage of one token."""
        return {
            name: 1 if "ompletion" in name or "utput" in name or "andidates" in name else n for name, n in self.usage.items()
        }

    def error(self, code: int) -> bytes:
        """Return an event that reports an error, in the middle of a stream."""
        return self.event({"error": {"code": code, "message": "no", "status": "UNAVAILABLE", "type": "server_error"}})

    def end(self, usage: Any = None) -> bytes:
        """Return the events that end an answer: the finish reason and the usage."""
        return self.event(self._answer("", self.usage if usage is None else usage, True, is_whole=False))

    def finished(self) -> bytes:
        """Return an event with the finish reason, without usage."""
        return self.event(self._answer("", None, True, is_whole=False))

    def event(self, payload: Any) -> bytes:
        """Return one server-sent event."""
        return b"data: " + (payload if isinstance(payload, bytes) else json.dumps(payload).encode()) + b"\n\n"

    def idle(self) -> bytes:
        """Return what keeps a stream open without saying anything."""
        return b": keep-alive\n\n"

    def _answer(self, text: str, usage: Any, finish: bool, *, is_whole: bool) -> Any:
        raise NotImplementedError


class OpenAIWire(Wire):
    """Chat completions."""

    def _answer(self, text: str, usage: Any, finish: bool, *, is_whole: bool) -> Any:
        said = {"role": "assistant", "content": text}
        choice = {"index": 0, "message" if is_whole else "delta": said, "finish_reason": "stop" if finish else None}
        kind = "chat.completion" if is_whole else "chat.completion.chunk"
        return {"id": "c1", "object": kind, "created": 1, "model": MODEL, "choices": [choice], "usage": usage}


class AnthropicWire(Wire):
    """The Messages API."""

    def whole(self, text: str = TEXT, usage: Any = None, finish: bool = True) -> bytes:
        """Return a whole answer."""
        stop = "end_turn" if finish else None
        return json.dumps(self._message([{"type": "text", "text": text}], stop, usage)).encode()

    def piece(self, text: str, usage: Any = None) -> bytes:
        """Return the events up to the end of the text."""
        block = {"index": 0, "content_block": {"type": "text", "text": ""}}
        return b"".join(
            (
                self._named("message_start", {"message": self._message([], None, usage)}),
                self._named("content_block_start", block),
                self._named("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": text}}),
                self._named("content_block_stop", {"index": 0}),
            )
        )

    def end(self, usage: Any = None) -> bytes:
        """Return the events that end an answer."""
        delta = {"delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": self._used(usage)}
        return self._named("message_delta", delta) + self._named("message_stop", {})

    def finished(self) -> bytes:
        """Return the event with the finish reason, without the usage that belongs there."""
        return self._named("message_delta", {"delta": {"stop_reason": "end_turn", "stop_sequence": None}})

    def error(self, code: int) -> bytes:
        """Return an event that reports an error, in the middle of a stream."""
        kind = "rate_limit_error" if code == 429 else "overloaded_error"
        return self._named("error", {"error": {"type": kind, "message": "no"}})

    def idle(self) -> bytes:
        """Return what keeps a stream open without saying anything."""
        return self._named("ping", {})

    def _used(self, usage: Any) -> Any:
        return dict(self.usage) if usage is None else usage

    def _message(self, content: list[Any], stop: str | None, usage: Any = None) -> dict[str, Any]:
        facts = {"id": "c1", "type": "message", "role": "assistant", "model": MODEL, "stop_sequence": None}
        return {**facts, "content": content, "stop_reason": stop, "usage": self._used(usage)}

    def _named(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        return f"event: {kind}\n".encode() + self.event({"type": kind, **fields})


class GeminiWire(Wire):
    """``generateContent``, also on Vertex AI."""

    def idle(self) -> bytes:
        """google-genai takes a comment for a broken answer."""
        return b"\n\n"

    def _answer(self, text: str, usage: Any, finish: bool, *, is_whole: bool) -> Any:
        candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}
        if finish:
            candidate["finishReason"] = "STOP"
        answer = {"candidates": [candidate], "modelVersion": MODEL, "responseId": "c1"}
        return answer if usage is None else {**answer, "usageMetadata": usage}


class BedrockWire(Wire):
    """Converse and ConverseStream, with AWS's framing of events."""

    def piece(self, text: str, usage: Any = None) -> bytes:
        """Return an event with a piece of text, and one with the usage so far."""
        said = frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}})
        return said if usage is None else said + frame("metadata", {"usage": usage, "metrics": {}})

    def error(self, code: int) -> bytes:
        """Return an exception of the event stream."""
        return frame("serviceUnavailableException", {"message": "no"}, is_exception=True)

    def end(self, usage: Any = None) -> bytes:
        """Return the events that end an answer."""
        return self.finished() + frame("metadata", {"usage": self.usage if usage is None else usage, "metrics": {}})

    def finished(self) -> bytes:
        """Return an event with the finish reason."""
        return frame("messageStop", {"stopReason": "end_turn"})

    def event(self, payload: Any) -> bytes:
        """Return one event, a piece of text by its name."""
        return frame("contentBlockDelta", payload)

    def idle(self) -> bytes:
        """Return an event that the API does not have."""
        return frame("ping", {})

    def _answer(self, text: str, usage: Any, finish: bool, *, is_whole: bool) -> Any:
        output = {"message": {"role": "assistant", "content": [{"text": text}]}}
        return {"output": output, "stopReason": "end_turn" if finish else None, "usage": usage, "metrics": {}}


def frame(kind: str, payload: Any, *, is_exception: bool = False) -> bytes:
    """Return one message of ``application/vnd.amazon.eventstream``."""
    head, word = b"", "exception" if is_exception else "event"
    for key, value in ((f"{word}-type", kind), ("content-type", "application/json"), ("message-type", word)):
        name, text = f":{key}".encode(), value.encode()
        head += struct.pack("!B", len(name)) + name + struct.pack("!BH", 7, len(text)) + text
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    prelude = struct.pack("!II", 16 + len(head) + len(body), len(head))
    prelude += struct.pack("!I", crc32(prelude))
    return prelude + head + body + struct.pack("!I", crc32(prelude + head + body))


_KEY = {"api_key_env": "VINELM_HOSTILE_KEY"}
_OPENAI_USAGE = {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}
_GEMINI_USAGE = {"promptTokenCount": 20, "candidatesTokenCount": 7, "totalTokenCount": 27}
WIRES: tuple[Wire, ...] = (
    OpenAIWire("openai", _OPENAI_USAGE, _KEY, path="/v1"),
    OpenAIWire("azure", _OPENAI_USAGE, {**_KEY, "options": {"api_version": "2025-04-01-preview"}}),
    AnthropicWire("anthropic", {"input_tokens": 20, "output_tokens": 7}, _KEY),
    OpenAIWire("sglang", _OPENAI_USAGE, _KEY),
    GeminiWire("gemini", _GEMINI_USAGE, _KEY),
    GeminiWire("vertex", _GEMINI_USAGE, _KEY),
    BedrockWire(
        "bedrock",
        {"inputTokens": 20, "outputTokens": 7, "totalTokens": 27},
        {"options": {"region": "us-east-1"}},
        stream_type="application/vnd.amazon.eventstream",
        model_id="amazon.nova-pro-v1:0",  # langchain-aws streams nothing of a maker that it does not know
    ),
)
