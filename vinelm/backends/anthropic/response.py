"""Parse responses and errors of Anthropic's Messages API, as the SDK returns them.

Wire format: https://platform.claude.com/docs/en/build-with-claude/streaming; errors:
https://platform.claude.com/docs/en/api/errors
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from vinelm.backends.anthropic.messages import Thinking
from vinelm.backends.base import Counts, counted
from vinelm.backends.openai import response as openai_response
from vinelm.backends.remote.response import Delta, ToolPiece, parses, stated_text
from vinelm.backends.remote.retry import AttemptFailed, retry_after_s, status_may_be_billed, was_sent
from vinelm.backends.turns import CallMemory
from vinelm.errors import FailureKind

FINISH_FAILURES: Mapping[str, FailureKind] = MappingProxyType(
    {
        "max_tokens": "truncated",
        "refusal": "content_filter",
        "model_context_window_exceeded": "context_length",
        "pause_turn": "malformed",
    }
)
_BY_TYPE: Mapping[str, FailureKind] = MappingProxyType(
    {
        "authentication_error": "auth",
        "permission_error": "auth",
        "billing_error": "rate_limit",
        "rate_limit_error": "rate_limit",
        "request_too_large": "context_length",
        "not_found_error": "malformed",
        "timeout_error": "timeout",
        "api_error": "server",
        "overloaded_error": "server",
    }
)
_BY_STATUS: Mapping[int, FailureKind] = MappingProxyType(
    {401: "auth", 402: "rate_limit", 403: "auth", 404: "malformed", 408: "timeout", 413: "context_length", 429: "rate_limit"}
)
_TOO_LONG = re.compile(r"prompt is too long|context (length|window|limit)|exceed.{0,40}maximum", re.I)
_NO_CREDIT = re.compile(r"credit balance", re.I)


class MessageReader:
    """Parses the events of one attempt in order, or its whole message, and remembers thinking that belongs to tool calls."""

    def __init__(self, model_id: str, known: CallMemory[Thinking]) -> None:
        self._model_id, self._known = model_id, known
        self._usage: dict[str, Any] = {}
        self._thinking: dict[int, dict[str, Any]] = {}
        self._calls: list[str] = []

    @parses("message of Anthropic's API")
    def whole(self, message: Any) -> Delta:
        """Parse a whole message; :class:`AttemptFailed` (malformed) if it is none."""
        if message.type != "message":
            raise ValueError("no message")
        self._see_usage(message.usage)
        blocks = list(enumerate(message.content))
        pieces = [self._begun(index, block, is_whole=True) for index, block in blocks]
        self._remember()
        return Delta(
            text="".join(piece.text for piece in pieces),
            reasoning="".join(piece.reasoning for piece in pieces),
            tools=[tool for piece in pieces for tool in piece.tools],
            finish_reason=stated_text(message.stop_reason) or None,
            counts=self._counts(),
        )

    @parses("message of Anthropic's API")
    def delta(self, event: Any) -> Delta:
        """Parse the next event; :class:`AttemptFailed` (malformed) if it is invalid."""
        if event.type == "message_start":
            self._see_usage(event.message.usage)
            return Delta()
        if event.type == "content_block_start":
            return self._begun(int(event.index), event.content_block, is_whole=False)
        if event.type == "content_block_delta":
            return self._piece(int(event.index), event.delta)
        if event.type == "message_delta":
            self._see_usage(event.usage)
            self._remember()
            return Delta(finish_reason=stated_text(event.delta.stop_reason) or None, counts=self._counts())
        if event.type in ("content_block_stop", "message_stop", "ping"):
            return Delta()
        raise ValueError("no event of a message")

    def _begun(self, index: int, block: Any, *, is_whole: bool) -> Delta:
        if block.type == "text":
            return Delta(text=stated_text(block.text))
        if block.type == "thinking":
            self._thinking[index] = {
                "type": "thinking",
                "thinking": stated_text(block.thinking),
                "signature": stated_text(block.signature),
            }
            return Delta(reasoning=stated_text(block.thinking))
        if block.type == "redacted_thinking":
            self._thinking[index] = {"type": "redacted_thinking", "data": stated_text(block.data)}
            return Delta()
        if block.type == "tool_use":
            self._calls.append(stated_text(block.id))
            arguments = json.dumps(block.input, ensure_ascii=False) if is_whole else ""
            return Delta(tools=[ToolPiece(index, arguments, stated_text(block.id), stated_text(block.name))])
        raise ValueError("no block that was asked for")

    def _piece(self, index: int, delta: Any) -> Delta:
        if delta.type == "text_delta":
            return Delta(text=stated_text(delta.text))
        if delta.type == "input_json_delta":
            return Delta(tools=[ToolPiece(index, stated_text(delta.partial_json))])
        if delta.type == "thinking_delta":
            self._thinking[index]["thinking"] += stated_text(delta.thinking)
            return Delta(reasoning=stated_text(delta.thinking))
        if delta.type == "signature_delta":
            self._thinking[index]["signature"] += stated_text(delta.signature)
            return Delta()
        if delta.type == "citations_delta":
            return Delta()
        raise ValueError("no piece of a message")

    def _remember(self) -> None:
        blocks = [block for _, block in sorted(self._thinking.items())]
        for call_id in self._calls:
            self._known.put(self._model_id, call_id, tuple(blocks))

    def _see_usage(self, usage: Any) -> None:
        """Later counts replace earlier ones: they are cumulative."""
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            if (value := getattr(usage, name, None)) is not None:
                self._usage[name] = value
        for name, part, key in (
            ("minutes", "cache_creation", "ephemeral_5m_input_tokens"),
            ("hour", "cache_creation", "ephemeral_1h_input_tokens"),
            ("thinking", "output_tokens_details", "thinking_tokens"),
        ):
            if (value := getattr(getattr(usage, part, None), key, None)) is not None:
                self._usage[name] = value

    def _counts(self) -> Counts | None:
        """The token counts. Unlike Anthropic's ``input_tokens``, ``tokens_in`` includes what a cache served or stored."""
        usage = self._usage
        cached, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
        parts = [counted(part) for part in (usage.get("input_tokens"), cached or 0, written or 0)]
        if None in parts:
            return None
        return Counts.stated(
            sum(part or 0 for part in parts),
            usage.get("output_tokens"),
            cached,
            usage.get("thinking"),
            written=written,
            written_5m=usage.get("minutes"),
            written_1h=usage.get("hour"),
        )


def begun(headers: Mapping[str, str], *, is_streamed: bool) -> Delta:
    """Return the first piece, from the headers of a response; :class:`AttemptFailed` for an unexpected content type."""
    openai_response.begun(headers, is_streamed=is_streamed)
    return Delta(request_id=headers.get("request-id"))


def failed(error: Exception) -> AttemptFailed | None:
    """Translate an exception of the SDK. Of the server's message, only a known error type is repeated."""
    import anthropic

    if isinstance(error, anthropic.APIStatusError):
        return refused(error)
    if isinstance(error, anthropic.APITimeoutError):
        return AttemptFailed("timeout", "the server took too long", may_be_billed=was_sent(error))
    if isinstance(error, anthropic.APIConnectionError):
        return AttemptFailed("server", "the connection failed or broke off", may_be_billed=was_sent(error))
    if isinstance(error, anthropic.APIError):
        return AttemptFailed("malformed", "the server's answer is no message of Anthropic's API")
    return openai_response.failed(error)


def refused(error: Any) -> AttemptFailed:
    """Translate a refusal: an error of the SDK, or what has the same attributes."""
    status, (said, message) = error.status_code, _error_of(error.body)
    kind = _BY_TYPE.get(said) or _BY_STATUS.get(status)
    is_out_of_credit = bool(_NO_CREDIT.search(message)) or said == "billing_error"
    if is_out_of_credit:
        kind = "rate_limit"
    elif kind is None:
        is_refused = said == "invalid_request_error" or 400 <= status < 500
        kind = "context_length" if _TOO_LONG.search(message) else "malformed" if is_refused else "server"
    hint = {
        "auth": ": is the key in api_key_env right?",
        "malformed": ": does it have that model, and does it know the entry's options?",
    }.get(kind, "")
    shown = f" ({said})" if said in _BY_TYPE or said == "invalid_request_error" else ""
    where = f"answered HTTP {status}" if status >= 400 else "reported an error in the stream"
    wait_s = retry_after_s(error.response.headers)
    is_final = kind == "malformed" or is_out_of_credit
    is_turned_down = status >= 400 and said == "overloaded_error"
    billed = not is_turned_down and status_may_be_billed(status, is_api_error=isinstance(error.body, dict))
    text = f"Anthropic {where}{shown}{hint}"
    return AttemptFailed(kind, text, retry_after_s=wait_s, is_final=is_final, may_be_billed=billed)


def _error_of(body: Any) -> tuple[str, str]:
    """Type and message of an error's body; empty if it has none."""
    inner = body.get("error") if isinstance(body, Mapping) else None
    if not isinstance(inner, Mapping):
        return "", ""
    return str(inner.get("type") or ""), str(inner.get("message") or "")
