"""Parse responses and errors of Bedrock's Converse, as boto3 returns them.

Wire format: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html; errors:
https://docs.aws.amazon.com/bedrock/latest/userguide/troubleshooting-api-error-codes.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from vinelm.backends.base import Counts, counted, seconds_of
from vinelm.backends.openai import response as openai_response
from vinelm.backends.remote.response import Delta, ToolPiece, parses
from vinelm.backends.remote.retry import AttemptFailed, retry_after_s, status_may_be_billed
from vinelm.errors import FailureKind

FINISH_FAILURES: Mapping[str, FailureKind] = MappingProxyType(
    {
        "max_tokens": "truncated",
        "model_context_window_exceeded": "context_length",
        "guardrail_intervened": "content_filter",
        "content_filtered": "content_filter",
        "malformed_model_output": "malformed",
        "malformed_tool_use": "malformed",
    }
)
_BY_CODE: Mapping[str, FailureKind] = MappingProxyType(
    {
        "AccessDeniedException": "auth",
        "UnrecognizedClientException": "auth",
        "InvalidSignatureException": "auth",
        "ExpiredTokenException": "auth",
        "MissingAuthenticationTokenException": "auth",
        "ThrottlingException": "rate_limit",
        "TooManyRequestsException": "rate_limit",
        "ServiceQuotaExceededException": "rate_limit",
        "ModelNotReadyException": "rate_limit",
        "ModelTimeoutException": "timeout",
        "ModelErrorException": "server",
        "ModelStreamErrorException": "server",
    }
)
_BY_STATUS: Mapping[int, FailureKind] = MappingProxyType(
    {401: "auth", 403: "auth", 408: "timeout", 413: "context_length", 424: "server", 429: "rate_limit"}
)
_TOO_LONG = re.compile(r"too long|context (length|window)|maximum (context|input|number of)|too many (input )?tokens", re.I)


def begun(response: Mapping[str, Any]) -> Delta:
    """Return the first piece: the server accepted the request."""
    return Delta(request_id=response.get("ResponseMetadata", {}).get("RequestId"))


@parses("conversation turn")
def whole(response: Mapping[str, Any]) -> Delta:
    """Parse a whole ``converse`` response; :class:`AttemptFailed` (malformed) if it is invalid."""
    content = response["output"]["message"]["content"]
    return Delta(
        text="".join(block["text"] for block in content if "text" in block),
        reasoning="".join(
            str(block["reasoningContent"].get("reasoningText", {}).get("text", ""))
            for block in content
            if "reasoningContent" in block
        ),
        tools=list(_tools(content)),
        finish_reason=response["stopReason"],
        counts=_counts(response.get("usage")),
        provider_latency_s=_latency_s(response),
    )


def _tools(content: list[Any]) -> Iterator[ToolPiece]:
    for index, block in enumerate(content):
        if "toolUse" in block:
            call = block["toolUse"]
            yield ToolPiece(index, json.dumps(call["input"], ensure_ascii=False), call["toolUseId"], call["name"])


@parses("event of a conversation")
def pieces(event: Mapping[str, Any]) -> Delta:
    """Parse one event of a stream; :class:`AttemptFailed` (malformed) if it is invalid."""
    if start := event.get("contentBlockStart"):
        call = start.get("start", {}).get("toolUse")
        return Delta(tools=[ToolPiece(start["contentBlockIndex"], "", call["toolUseId"], call["name"])] if call else ())
    if block := event.get("contentBlockDelta"):
        delta, index = block["delta"], block["contentBlockIndex"]
        tools = [ToolPiece(index, delta["toolUse"]["input"])] if "toolUse" in delta else ()
        return Delta(delta.get("text", ""), delta.get("reasoningContent", {}).get("text", ""), tools)
    if stop := event.get("messageStop"):
        return Delta(finish_reason=stop["stopReason"])
    if metadata := event.get("metadata"):
        return Delta(counts=_counts(metadata.get("usage")), provider_latency_s=_latency_s(metadata))
    return Delta()


def _counts(usage: Any) -> Counts | None:
    """Return the token counts. Unlike Converse's ``inputTokens``, ``tokens_in`` includes prompt cache reads and writes."""
    if not isinstance(usage, Mapping):
        return None
    read, written = usage.get("cacheReadInputTokens"), usage.get("cacheWriteInputTokens")
    parts = [counted(part) for part in (usage.get("inputTokens"), read or 0, written or 0)]
    if None in parts:
        return None
    kept = (_kept(usage.get("cacheDetails"), ttl) for ttl in ("5m", "1h"))
    split = dict(zip(("written_5m", "written_1h"), kept, strict=True))
    return Counts.stated(sum(part or 0 for part in parts), usage.get("outputTokens"), read, written=written, **split)


def _kept(details: Any, ttl: str) -> int:
    """Return the tokens that were written to a cache for so long."""
    parts = details if isinstance(details, list) else ()
    return sum(counted(part.get("inputTokens")) or 0 for part in parts if isinstance(part, Mapping) and part.get("ttl") == ttl)


def _latency_s(response: Mapping[str, Any]) -> float | None:
    metrics = response.get("metrics")
    milliseconds = seconds_of(metrics.get("latencyMs")) if isinstance(metrics, Mapping) else None
    return None if milliseconds is None else milliseconds / 1000.0


def failed(error: Exception) -> AttemptFailed | None:
    """Translate an exception of boto3. Of the server's message, only a known error code is repeated."""
    from botocore import eventstream, exceptions, parsers

    if isinstance(error, exceptions.ClientError):
        return _refused(error.response)
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError | exceptions.TokenRetrievalError):
        return AttemptFailed(
            "auth", "no AWS credentials found: set them, or AWS_BEARER_TOKEN_BEDROCK, in the environment", may_be_billed=False
        )
    if isinstance(error, exceptions.InvalidEndpointConfigurationError):
        return AttemptFailed("auth", "a Bedrock API key is only sent to an endpoint with https://", may_be_billed=False)
    if isinstance(error, exceptions.ParamValidationError):
        said = "Converse has no such request: does the entry's options fit it?"
        return AttemptFailed("malformed", said, is_final=True, may_be_billed=False)
    if isinstance(error, parsers.ResponseParserError | eventstream.ParserError | ValueError):
        return AttemptFailed("malformed", "the server's answer cannot be parsed")
    return openai_response.failed(error)


def _refused(response: Mapping[str, Any]) -> AttemptFailed:
    said = response.get("Error", {})
    code = str(said.get("Code", ""))
    code = code[:1].upper() + code[1:]
    metadata = response.get("ResponseMetadata", {})
    status = metadata.get("HTTPStatusCode")
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if kind is None and (code == "ValidationException" or (isinstance(status, int) and 400 <= status < 500)):
        kind = "context_length" if _TOO_LONG.search(str(said.get("Message", ""))) else "malformed"
    kind = kind or "server"
    shown = f" ({code})" if code in _BY_CODE or code in _SHOWN else ""
    where = "reported an error in the stream" if status in (None, 200) else f"answered HTTP {status}"
    hint = ": does the region have that model, and does it know the entry's options?" if kind == "malformed" else ""
    wait_s = retry_after_s(metadata.get("HTTPHeaders", {}))
    billed = status is None or status == 200 or status_may_be_billed(status, is_api_error=bool(shown))
    said = f"Bedrock {where}{shown}{hint}"
    return AttemptFailed(kind, said, retry_after_s=wait_s, is_final=kind == "malformed", may_be_billed=billed)


_SHOWN = frozenset(
    {"ValidationException", "ResourceNotFoundException", "InternalServerException", "ServiceUnavailableException"}
)
