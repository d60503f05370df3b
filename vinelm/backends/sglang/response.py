"""Parse responses and errors of SGLang's ``/generate``.

Wire format: https://docs.sglang.io/basic_usage/native_api.html. A stream's events hold the whole text so far, unless the server
runs with ``--incremental-streaming-output``; the last one has a finish reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from vinelm.backends.base import Counts, seconds_of
from vinelm.backends.openai import response as openai_response
from vinelm.backends.remote.response import Delta, parses
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.errors import FailureKind

FINISH_FAILURES: Mapping[str, FailureKind] = MappingProxyType({"length": "truncated"})
_TOO_LONG = re.compile(r"longer than|context length|too long|exceeds? the (maximum|model)", re.I)
_FULL = re.compile(r"queue is full|too many|preempted|priority", re.I)


class SGLangStreamReader:
    """Parses the events of one attempt in order."""

    def __init__(self, *, is_incremental: bool = False) -> None:
        self._is_incremental = is_incremental
        self._seen = ""

    @parses("generation")
    def delta(self, response: Any) -> Delta:
        """Parse the next event or the whole answer; :class:`AttemptFailed` if it is malformed or the request was aborted."""
        facts = response["meta_info"]
        reason = facts.get("finish_reason")
        if isinstance(reason, Mapping) and reason.get("type") == "abort":
            raise _aborted(reason)
        return Delta(
            text=self._new(response["text"]),
            finish_reason=str(reason["type"]) if isinstance(reason, Mapping) else reason,
            counts=_counts(facts),
            request_id=facts.get("id"),
            provider_latency_s=seconds_of(facts.get("e2e_latency")),
        )

    def _new(self, text: Any) -> str:
        if not isinstance(text, str):
            raise TypeError("not a text")
        if self._is_incremental:
            return text
        if not text.startswith(self._seen):
            raise AttemptFailed(
                "malformed",
                "the stream is not cumulative: does the server run with --incremental-streaming-output? "
                "Then add options = { incremental_stream = true }",
                is_final=True,
            )
        new, self._seen = text[len(self._seen) :], text
        return new


def _counts(facts: Mapping[str, Any]) -> Counts | None:
    return Counts.stated(
        facts.get("prompt_tokens"), facts.get("completion_tokens"), facts.get("cached_tokens"), facts.get("reasoning_tokens")
    )


def _aborted(reason: Mapping[str, Any]) -> AttemptFailed:
    said, status = str(reason.get("message") or ""), reason.get("status_code")
    if _TOO_LONG.search(said):
        return AttemptFailed("context_length", "the engine aborted the request: the prompt is too long", may_be_billed=False)
    if status in (429, 503) or _FULL.search(said):
        return AttemptFailed("rate_limit", "the engine aborted the request: its queue is full")
    if status == 400:
        return AttemptFailed("malformed", "the engine aborted the request: does it know the entry's options?", is_final=True)
    return AttemptFailed("server", "the engine aborted the request")


def failed(error: Exception) -> AttemptFailed | None:
    """Translate an exception of the HTTP client. Nothing of the server's message is repeated."""
    import openai

    if isinstance(error, openai.APIError) and _TOO_LONG.search(str(error.message)):
        status = getattr(error, "status_code", None)
        if status is None or status == 400:
            refused = "the server refused the request: the prompt is too long"
            return AttemptFailed("context_length", refused, may_be_billed=status is None)
    return openai_response.failed(error)
