"""Parse responses and errors of Gemini, as google-genai returns them.

Wire format: https://ai.google.dev/api/generate-content; errors: https://ai.google.dev/gemini-api/docs/troubleshooting
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from vinelm.backends.base import Counts, counted
from vinelm.backends.gemini.request import ModelSignatures
from vinelm.backends.openai import response as openai_response
from vinelm.backends.remote.response import Delta, ToolPiece, parses
from vinelm.backends.remote.retry import AttemptFailed, retry_after_s, status_may_be_billed
from vinelm.errors import FailureKind

FINISH_FAILURES: Mapping[str, FailureKind] = MappingProxyType(
    {
        "MAX_TOKENS": "truncated",
        "SAFETY": "content_filter",
        "RECITATION": "content_filter",
        "LANGUAGE": "content_filter",
        "BLOCKLIST": "content_filter",
        "PROHIBITED_CONTENT": "content_filter",
        "SPII": "content_filter",
        "BLOCKED": "content_filter",
        "MALFORMED_FUNCTION_CALL": "malformed",
        "MALFORMED_RESPONSE": "malformed",
        "UNEXPECTED_TOOL_CALL": "malformed",
        "TOO_MANY_TOOL_CALLS": "malformed",
        "MISSING_THOUGHT_SIGNATURE": "malformed",
        "OTHER": "server",
    }
)
_BY_STATUS: Mapping[int, FailureKind] = MappingProxyType(
    {401: "auth", 403: "auth", 408: "timeout", 413: "context_length", 429: "rate_limit", 504: "timeout"}
)
_TOO_LONG = re.compile(r"maximum number of tokens|token count|too long|context (length|window)", re.I)
_KEY = re.compile(r"API[ _]key", re.I)
_SHOWN = frozenset(
    {
        "INVALID_ARGUMENT", "FAILED_PRECONDITION", "PERMISSION_DENIED", "UNAUTHENTICATED", "NOT_FOUND", "RESOURCE_EXHAUSTED",
        "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED",
    }
)  # fmt: skip
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


class GeminiStreamReader:
    """Parses the chunks of one attempt in order. Each tool call arrives whole and gets the next index."""

    def __init__(self, signatures: ModelSignatures) -> None:
        self._signatures = signatures
        self._tools = 0

    @parses("generated content")
    def delta(self, response: Any) -> Delta:
        """Parse the next chunk or the whole answer; :class:`AttemptFailed` (malformed) if it is invalid."""
        counts = _counts(response.usage_metadata)
        if not response.candidates:
            is_blocked = response.prompt_feedback is not None and response.prompt_feedback.block_reason is not None
            if not is_blocked and counts is None:
                raise ValueError("no candidates")
            return Delta(finish_reason="BLOCKED" if is_blocked else None, counts=counts, request_id=response.response_id)
        candidate = response.candidates[0]
        parts = (candidate.content.parts or []) if candidate.content is not None else []
        reason = candidate.finish_reason
        return Delta(
            text="".join(part.text for part in parts if part.text and not part.thought),
            reasoning="".join(part.text for part in parts if part.text and part.thought),
            tools=list(self._calls(parts)),
            finish_reason=None if reason is None else str(getattr(reason, "value", reason)),
            counts=counts,
            request_id=response.response_id,
        )

    def _calls(self, parts: Any) -> Iterator[ToolPiece]:
        for part in parts:
            if part.function_call is not None:
                call = part.function_call
                arguments = json.dumps(call.args or {}, ensure_ascii=False)
                call_id = call.id or f"call_{uuid4().hex}"
                self._signatures.remember(call_id, part.thought_signature)
                yield ToolPiece(self._tools, arguments, call_id, call.name)
                self._tools += 1


def _counts(usage: Any) -> Counts | None:
    """Return the token counts. Unlike ``candidatesTokenCount``, ``tokens_out`` includes thoughts, which are billed alike."""
    if usage is None or usage.prompt_token_count is None:
        return None
    thoughts, fetched = usage.thoughts_token_count, usage.tool_use_prompt_token_count
    parts = (usage.prompt_token_count, fetched or 0, usage.candidates_token_count or 0, thoughts or 0)
    if any(counted(part) is None for part in parts):
        return None
    return Counts.stated(parts[0] + parts[1], parts[2] + parts[3], usage.cached_content_token_count, thoughts)


def failed(error: Exception) -> AttemptFailed | None:
    """Translate an exception of google-genai. Of the server's message, only a known status is repeated."""
    from google.genai import errors

    if isinstance(error, errors.APIError):
        return refused(error)
    return _unauthorized(error) or openai_response.failed(error)


@contextmanager
def billed_once_begun(responses: Sequence[Any]) -> Iterator[None]:
    """Note that an error which the server reports after HTTP 200, whatever code it names, may have been billed for.

    Args:
        responses: the HTTP responses of the attempt; the last one counts.
    """
    from google.genai import errors

    try:
        yield
    except errors.APIError as error:
        has_begun = bool(responses) and 200 <= responses[-1].status_code < 300
        if not has_begun:
            raise
        known = refused(error)
        told = AttemptFailed(known.kind, known.detail, retry_after_s=known.retry_after_s, is_final=known.is_final)
        raise told from None  # the error's text may hold the prompt


def _unauthorized(error: Exception) -> AttemptFailed | None:
    """Translate an error of Google's credentials (Vertex)."""
    from google.auth import exceptions

    if isinstance(error, exceptions.TransportError) or getattr(error, "retryable", False) is True:
        return AttemptFailed("server", "Google's token endpoint cannot be reached", may_be_billed=False)
    if isinstance(error, exceptions.GoogleAuthError):
        return AttemptFailed("auth", "Google's credentials were rejected: check that they are still valid", may_be_billed=False)
    return None


def refused(error: Any) -> AttemptFailed:
    """Translate a refusal: an error of the SDK, or what has the same attributes."""
    said, status = str(error.message or ""), error.code
    kind = _BY_STATUS.get(status)
    if kind is None and isinstance(status, int) and 400 <= status < 500:
        kind = "auth" if _KEY.search(said) else "context_length" if _TOO_LONG.search(said) else "malformed"
    kind = kind or "server"
    hint = {
        "auth": ": is the key (or the account) right, and may it use that model?",
        "malformed": ": does it have that model, and does it know the entry's options?",
    }.get(kind, "")
    shown = f" ({error.status})" if error.status in _SHOWN else ""
    where = f"answered HTTP {status}" if isinstance(status, int) else "reported an error in the stream"
    billed = status_may_be_billed(status, is_api_error=isinstance(error.details, Mapping) and "error" in error.details)
    said = f"Gemini {where}{shown}{hint}"
    return AttemptFailed(kind, said, retry_after_s=_wait_s(error), is_final=kind == "malformed", may_be_billed=billed)


def _wait_s(error: Any) -> float | None:
    """Return the seconds to wait, from the headers or from Google's ``RetryInfo`` in the body; None if neither has it."""
    headers = getattr(error.response, "headers", None)
    asked_s = retry_after_s(headers) if headers is not None else None
    body = error.details.get("error", error.details) if isinstance(error.details, Mapping) else {}
    details = body.get("details") if isinstance(body, Mapping) else None
    for detail in details if isinstance(details, list) else ():
        found = _DELAY.fullmatch(str(detail.get("retryDelay", ""))) if isinstance(detail, Mapping) else None
        if found is not None:
            return max(float(found[1]), asked_s or 0.0)
    return asked_s
