"""Parse responses and errors of an OpenAI-compatible server, as the SDK returns them.

Wire format: https://platform.openai.com/docs/api-reference/chat/object and ``.../chat/streaming``; errors:
https://platform.openai.com/docs/guides/error-codes
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from vinelm.backends.base import Counts, counted, seconds_of
from vinelm.backends.remote.response import Delta, ToolPiece, parses, stated_text
from vinelm.backends.remote.retry import AttemptFailed, retry_after_s, status_may_be_billed, was_sent
from vinelm.errors import FailureKind

FINISH_FAILURES: Mapping[str, FailureKind] = MappingProxyType({"length": "truncated", "content_filter": "content_filter"})

_BY_STATUS: Mapping[int, FailureKind] = MappingProxyType(
    {401: "auth", 403: "auth", 408: "timeout", 409: "server", 413: "context_length", 429: "rate_limit"}
)
_BY_CODE: Mapping[str, FailureKind] = MappingProxyType(
    {
        "context_length_exceeded": "context_length",
        "string_above_max_length": "context_length",
        "content_filter": "content_filter",
        "content_policy_violation": "content_filter",
        "invalid_api_key": "auth",
        "rate_limit_exceeded": "rate_limit",
        "insufficient_quota": "rate_limit",
    }
)
_TOO_LONG = re.compile(
    r"context (length|window)|maximum (context|model|sequence|input) (length|len)|too many (input )?tokens", re.I
)
_FILTERED = re.compile(r"content (filter|management policy)|safety (system|policy)", re.I)
_CODE = re.compile(r"[a-z][a-z0-9_]{0,40}")


def begun(headers: Mapping[str, str], *, is_streamed: bool) -> Delta:
    """Return the first piece, from the headers of a response; :class:`AttemptFailed` for an unexpected content type."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    wanted = "text/event-stream" if is_streamed else "application/json"
    if kind != wanted:
        raise AttemptFailed("malformed", f"the server answered with another content type than {wanted}: is api_base right?")
    latency_ms = seconds_of(headers.get("openai-processing-ms"))
    latency_s = None if latency_ms is None else latency_ms / 1000.0
    return Delta(request_id=headers.get("x-request-id"), provider_latency_s=latency_s)


@parses("chat completion")
def delta_of(response: Any, *, is_streamed: bool) -> Delta:
    """Parse a chunk of a stream or a whole completion; :class:`AttemptFailed` (malformed) if it is neither."""
    if not is_streamed and not response.choices:
        raise ValueError("no choices")
    counts = _counts(getattr(response, "usage", None))
    if not response.choices:  # the chunk with the usage
        return Delta(counts=counts, request_id=stated_text(response.id) or None)
    choice = response.choices[0]
    said = choice.delta if is_streamed else choice.message
    return Delta(
        text=stated_text(said.content),
        reasoning=stated_text(getattr(said, "reasoning_content", None) or getattr(said, "reasoning", None)),
        tools=[_tool(index, call) for index, call in enumerate(said.tool_calls or ())],
        is_refused=bool(stated_text(getattr(said, "refusal", None))),
        finish_reason=stated_text(choice.finish_reason) or None,
        counts=counts,
        request_id=None if is_streamed else stated_text(response.id) or None,
    )


def _tool(position: int, call: Any) -> ToolPiece:
    index = getattr(call, "index", None)
    function = call.function
    arguments = function.arguments if function is not None else None
    if isinstance(arguments, dict):  # some servers parse them already
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = function.name if function is not None else None
    return ToolPiece(position if index is None else int(index), stated_text(arguments), call.id, name)


def _counts(usage: Any) -> Counts | None:
    if usage is None:
        return None
    into, out = getattr(usage, "prompt_tokens_details", None), getattr(usage, "completion_tokens_details", None)
    cached, reasoning = getattr(into, "cached_tokens", None), getattr(out, "reasoning_tokens", None)
    asked, answered = getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)
    parts = [part for part in map(counted, (asked, answered, reasoning)) if part is not None]
    if len(parts) == 3 and getattr(usage, "total_tokens", None) == sum(parts):
        answered = parts[1] + parts[2]  # some servers count reasoning apart, and bill it all the same
    return Counts.stated(asked, answered, cached, reasoning)


def failed(error: Exception) -> AttemptFailed | None:
    """Translate an exception. Of the server's message, only a code of plain lower-case letters is repeated."""
    import openai

    if isinstance(error, openai.APIStatusError):
        return refused(error)
    if isinstance(error, openai.APITimeoutError):
        return AttemptFailed("timeout", "the server took too long", may_be_billed=was_sent(error))
    if isinstance(error, openai.APIConnectionError):
        return AttemptFailed("server", "the connection failed or broke off", may_be_billed=was_sent(error))
    if isinstance(error, openai.APIResponseValidationError):
        return AttemptFailed("malformed", "the server's answer is no chat completion")
    if isinstance(error, openai.APIError):
        code = _code_of(error)
        return AttemptFailed(_BY_CODE.get(code, "server"), f"the server reported an error in the stream{_said(code)}")
    if isinstance(error, ValueError):  # not JSON, not UTF-8
        return AttemptFailed("malformed", "the server's answer cannot be parsed")
    return _transport(error)


def refused(error: Any) -> AttemptFailed:
    """Translate a refusal: an error of the SDK, or what has the same attributes."""
    code, status = _code_of(error), error.status_code
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if kind is None and 400 <= status < 500:
        text = error.message if isinstance(error.message, str) else ""
        kind = "context_length" if _TOO_LONG.search(text) else "content_filter" if _FILTERED.search(text) else "malformed"
    kind = kind or "server"
    hint = {
        "auth": ": is the key in api_key_env right?",
        "malformed": ": does it have that model, and does it know the entry's options?",
    }.get(kind, "")
    final = kind == "malformed" or code == "insufficient_quota"
    wait_s = retry_after_s(error.response.headers)
    billed = status_may_be_billed(status, is_api_error=isinstance(error.body, dict))
    said = f"the server answered HTTP {status}{_said(code)}{hint}"
    return AttemptFailed(kind, said, retry_after_s=wait_s, is_final=final, may_be_billed=billed)


def _transport(error: Exception) -> AttemptFailed | None:
    """Recognise the HTTP client's errors, which older SDKs let through in a stream, by name: it is not a dependency."""
    names = {
        base.__name__
        for base in type(error).__mro__
        if base.__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2")
    }
    if "TimeoutException" in names:
        return AttemptFailed("timeout", "the server took too long", may_be_billed=was_sent(error))
    if names:
        return AttemptFailed("server", "the connection failed or broke off", may_be_billed=was_sent(error))
    return None


def _code_of(error: Any) -> str:
    for value in (error.code, error.type):
        if isinstance(value, str) and _CODE.fullmatch(value):
            return value
    return ""


def _said(code: str) -> str:
    return f" ({code})" if code else ""
