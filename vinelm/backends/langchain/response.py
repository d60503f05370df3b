"""Parse the messages of a LangChain chat model as pieces of an answer, and translate its exceptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.outputs import ChatGeneration, ChatResult

from vinelm.backends.base import Counts
from vinelm.backends.remote.response import Delta, ToolPiece
from vinelm.backends.remote.retry import AttemptFailed, retry_after_s, status_may_be_billed, was_sent
from vinelm.errors import FailureKind, VineLMError

FINISH_FAILURES: Mapping[str, FailureKind] = MappingProxyType(
    {
        "length": "truncated",
        "max_tokens": "truncated",
        "MAX_TOKENS": "truncated",
        "max_output_tokens": "truncated",
        "model_context_window_exceeded": "context_length",
        "content_filter": "content_filter",
        "content_filtered": "content_filter",
        "guardrail_intervened": "content_filter",
        "refusal": "content_filter",
        "SAFETY": "content_filter",
        "PROHIBITED_CONTENT": "content_filter",
        "RECITATION": "content_filter",
        "MALFORMED_FUNCTION_CALL": "malformed",
    }
)
"""Failures by finish reason, in the spelling of each of LangChain's providers."""
NOT_REPORTED = "not_reported"
_REASON_KEYS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
_BY_STATUS: Mapping[int, FailureKind] = MappingProxyType(
    {401: "auth", 403: "auth", 408: "timeout", 413: "context_length", 429: "rate_limit"}
)


class LangChainStreamReader:
    """Parses the chunks of one attempt in order, or its whole result; sums the token counts and numbers the tool calls."""

    def __init__(self) -> None:
        self._usage: UsageMetadata | None = None
        self._has_reason = False
        self._tools = 0

    def chunk(self, chunk: ChatGeneration) -> Delta:
        """Parse the next chunk; :class:`AttemptFailed` (malformed) if it is invalid.

        Integrations put the finish reason into the message, or beside it: only LangChain's ``invoke`` and ``stream``, which are
        not called here, bring the two together.
        """
        return self._checked(chunk, {})

    def whole(self, result: ChatResult) -> Delta:
        """Parse a whole answer; :class:`AttemptFailed` (malformed) if it is invalid."""
        return self._checked(result.generations[0], result.llm_output or {})

    def _checked(self, generation: ChatGeneration, more: Mapping[str, Any]) -> Delta:
        try:
            message: Any = generation.message
            return self._delta(message, {**more, **(generation.generation_info or {}), **message.response_metadata})
        except (AttributeError, TypeError, ValueError, KeyError):
            pass  # their message may quote the answer
        raise AttemptFailed("malformed", "the chat model's answer is no AIMessage")

    @property
    def has_reason(self) -> bool:
        """True if the model gave a finish reason."""
        return self._has_reason

    def last(self, *, always_has_reason: bool) -> Delta:
        """Return the last piece: with a substitute finish reason for a model that never gives one.

        If a model that otherwise gives a finish reason gives none, the response was cut off, and none is added.
        """
        reason = None if self._has_reason or always_has_reason else NOT_REPORTED
        return Delta(finish_reason=reason, counts=_counts(self._usage))  # LangChain's usages add up: the sum is the last word

    def _delta(self, message: Any, metadata: Mapping[str, Any]) -> Delta:
        if message.usage_metadata:
            self._add(message.usage_metadata)
        reason = _reason(metadata)
        self._has_reason |= reason is not None
        return Delta(
            text=str(message.text),
            reasoning=str(message.additional_kwargs.get("reasoning_content") or ""),
            tools=self._pieces(message),
            is_refused=bool(message.additional_kwargs.get("refusal")),
            finish_reason=None if reason is None else str(getattr(reason, "name", reason)),
            counts=_counts(self._usage) if message.usage_metadata else None,
        )

    def _add(self, usage: Any) -> None:
        """Add the usage of a piece. What cannot be added is no usage, and then nothing is known of the whole."""
        try:
            self._usage = add_usage(self._usage, usage)
        except (AttributeError, TypeError, ValueError, KeyError):
            self._usage = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)

    def _pieces(self, message: Any) -> list[ToolPiece]:
        if isinstance(message, AIMessageChunk):
            return [self._piece(chunk) for chunk in message.tool_call_chunks]
        calls = [(call, json.dumps(call["args"], ensure_ascii=False)) for call in message.tool_calls]
        calls += [(call, call["args"] or "") for call in message.invalid_tool_calls]
        return [ToolPiece(index, text, call["id"], call["name"]) for index, (call, text) in enumerate(calls)]

    def _piece(self, chunk: Any) -> ToolPiece:
        index = chunk.get("index")
        if not isinstance(index, int):  # a call of its own, or more of the last one
            self._tools += bool(chunk.get("id") or chunk.get("name")) or not self._tools
            index = self._tools - 1
        return ToolPiece(index, chunk.get("args") or "", chunk.get("id"), chunk.get("name"))


def _reason(metadata: Mapping[str, Any]) -> Any:
    """Return the finish reason; None if there is none. OpenAI's Responses API has a status, and why it is incomplete."""
    incomplete = metadata.get("incomplete_details")
    if isinstance(incomplete, Mapping) and incomplete.get("reason"):
        return incomplete["reason"]
    found = next((metadata[key] for key in _REASON_KEYS if metadata.get(key)), None)
    return found or ("completed" if metadata.get("status") == "completed" else None)


def _counts(usage: UsageMetadata | None) -> Counts | None:
    """Return the token counts; None also for zero prompt tokens, which must not be accounted as free."""
    if not isinstance(usage, Mapping) or not usage.get("input_tokens"):
        return None
    parts: list[Any] = [usage.get("input_token_details"), usage.get("output_token_details")]
    into, out = [part if isinstance(part, Mapping) else {} for part in parts]
    # Anthropic's and Amazon's integrations state either the sum or, with 0 for the sum, how long the parts are kept.
    return Counts.stated(
        usage.get("input_tokens"),
        usage.get("output_tokens"),
        into.get("cache_read"),
        out.get("reasoning"),
        written=into.get("cache_creation"),
        written_5m=into.get("ephemeral_5m_input_tokens"),
        written_1h=into.get("ephemeral_1h_input_tokens"),
    )


def failed(error: Exception) -> AttemptFailed | None:
    """Translate an exception by its SDK or HTTP status. Only the name of its class is repeated, nothing of its message."""
    if isinstance(error, VineLMError):
        return None
    return _by_sdk(error) or _by_status(error) or _by_name(error)


def _by_sdk(error: Exception) -> AttemptFailed | None:
    home = type(error).__module__.partition(".")[0]
    if home == "openai":
        from vinelm.backends.openai import response as openai_response

        return openai_response.failed(error)
    if home == "botocore":
        from vinelm.backends.bedrock import response as bedrock_response

        return bedrock_response.failed(error)
    return None


def _by_status(error: Any) -> AttemptFailed | None:
    response = getattr(error, "response", None)
    statuses = (getattr(error, "status_code", None), getattr(response, "status_code", None), getattr(error, "code", None))
    status = next((status for status in statuses if isinstance(status, int) and 400 <= status < 600), None)
    if status is None:
        return None
    kind = _BY_STATUS.get(status) or ("malformed" if status < 500 else "server")
    headers = getattr(response, "headers", None)
    wait_s = retry_after_s(headers) if isinstance(headers, Mapping) else None
    billed = status_may_be_billed(status)
    said = f"the server answered HTTP {status}"
    return AttemptFailed(kind, said, retry_after_s=wait_s, is_final=kind == "malformed", may_be_billed=billed)


def _by_name(error: Exception) -> AttemptFailed:
    names = " ".join(base.__name__ for base in type(error).__mro__)
    if "Timeout" in names:
        return AttemptFailed("timeout", "the server took too long", may_be_billed=was_sent(error))
    if "RateLimit" in names or "ResourceExhausted" in names:
        return AttemptFailed("rate_limit", "the server asks to slow down", may_be_billed=False)
    if isinstance(error, OSError) or "Connect" in names or "NetworkError" in names or "ProtocolError" in names:
        return AttemptFailed("server", "the connection failed or broke off", may_be_billed=was_sent(error))
    name = type(error).__name__
    if isinstance(error, ValueError | TypeError | NotImplementedError):  # a content, an argument that its integration refuses
        said = f"the chat model cannot take the call ({name}): call it directly to see why"
        return AttemptFailed("malformed", said, is_final=True)
    return AttemptFailed("unknown", f"the chat model raised {name}: call it directly to see why", is_final=True)
