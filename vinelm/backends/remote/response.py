"""Responses of remote models, independent of the provider: pieces of an answer, and how to assemble them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec

from langchain_core.messages import AIMessage, AIMessageChunk, UsageMetadata
from langchain_core.messages.tool import default_tool_parser, invalid_tool_call, tool_call_chunk

from vinelm.backends.base import Counts
from vinelm.backends.remote.retry import AttemptFailed
from vinelm.catalog.secrets import redacted

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class ToolPiece:
    """A piece of the tool call number ``index``. Its arguments are a fragment of a JSON text.

    Secrets in id and name are replaced: they go into checkpoints and traces, and a server may echo a key.
    """

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for field_name in ("id", "name"):
            text = getattr(self, field_name)
            if isinstance(text, str):  # anything else is refused where the piece is added
                object.__setattr__(self, field_name, redacted(text))


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer. The first one of an attempt may be empty: it marks the start of the response.

    ``is_refused``: the model refused, by the provider's own field for refusals.
    """

    text: str = ""
    reasoning: str = ""
    tools: Sequence[ToolPiece] = ()
    is_refused: bool = False
    finish_reason: str | None = None
    counts: Counts | None = None
    request_id: str | None = None
    provider_latency_s: float | None = None

    @property
    def is_token(self) -> bool:
        """True if the piece holds output of the model."""
        return bool(self.text or self.reasoning or self.tools)

    @property
    def is_text(self) -> bool:
        """True if everything that must be a text is one: SDKs do not check what a server sends."""
        texts: list[object] = [self.text, self.reasoning]
        for piece in self.tools:
            texts += [piece.arguments, piece.id or "", piece.name or ""]
        return all(isinstance(text, str) for text in texts)

    def chunk(self) -> AIMessageChunk:
        """Convert the piece to a LangChain chunk."""
        tools = [tool_call_chunk(name=t.name, args=t.arguments, id=t.id, index=t.index) for t in self.tools]
        more = {"reasoning_content": _encodable(self.reasoning)} if self.reasoning else {}
        return AIMessageChunk(content=_encodable(self.text), additional_kwargs=more, tool_call_chunks=tools)


def parses(kind: str) -> Callable[[Callable[P, Delta]], Callable[P, Delta]]:
    """Return a decorator for functions that parse a piece of an answer, of a server or SDK that may send anything.

    What they raise on something else than they expect becomes :class:`AttemptFailed` (malformed): "the server's answer is no
    ``kind``". The original exception is dropped, because its message may quote the answer.
    """

    def decorate(parse: Callable[P, Delta]) -> Callable[P, Delta]:
        @wraps(parse)
        def checked(*given: P.args, **named: P.kwargs) -> Delta:
            try:
                return parse(*given, **named)
            except (AttributeError, TypeError, ValueError, KeyError, IndexError):
                pass
            raise AttemptFailed("malformed", f"the server's answer is no {kind}")

        return checked

    return decorate


def stated_text(value: Any) -> str:
    """Return a text as a server states it, "" for null; :class:`TypeError` for anything else."""
    if value is not None and not isinstance(value, str):
        raise TypeError("not a text")
    return value or ""


@dataclass(slots=True)
class ResponseBuilder:
    """Assembles the pieces of one attempt."""

    has_begun: bool = False
    is_refused: bool = False
    finish_reason: str | None = None
    counts: Counts | None = None
    counts_are_final: bool = False
    """True if the counts came with the finish reason or after it. Earlier ones may be of a part of the answer."""
    request_id: str | None = None
    provider_latency_s: float | None = None
    _stated_id: str | None = None
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _tools: dict[int, list[ToolPiece]] = field(default_factory=dict)

    def add(self, delta: Delta) -> None:
        """Add the next piece. Of values that arrive more than once, the last one counts.

        Raises:
            AttemptFailed: It is malformed: something is not a text that must be one.
        """
        self.has_begun = True
        if not delta.is_text:
            raise AttemptFailed("malformed", "the server's answer has something else where a text belongs")
        if delta.text:
            self._text.append(delta.text)
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
        for piece in delta.tools:
            self._tools.setdefault(piece.index, []).append(piece)
        self.is_refused |= delta.is_refused
        if delta.finish_reason:
            self.finish_reason = _label(delta.finish_reason) or self.finish_reason
        if delta.is_token and self.counts_are_final and not delta.counts:
            self.counts_are_final = False  # what came after the count is not in it
        if delta.counts:
            self.counts = delta.counts
            self.counts_are_final = self.finish_reason is not None
        if delta.request_id and delta.request_id != self._stated_id:  # each piece of a stream repeats it
            self._stated_id = delta.request_id
            self.request_id = _label(delta.request_id) or self.request_id
        if delta.provider_latency_s is not None:
            self.provider_latency_s = delta.provider_latency_s

    def whole_call(self, index: int) -> tuple[str, dict[str, Any]] | None:
        """Return the name and the arguments of a tool call whose last piece has completed them; None if it has not."""
        pieces = self._tools[index]
        if not pieces[-1].arguments.rstrip().endswith("}"):
            return None
        call = _parsed(_tool(pieces))
        return (call["name"], call["args"]) if call["type"] == "tool_call" else None

    @property
    def is_empty(self) -> bool:
        """True if there is neither text nor a tool call. Reasoning alone is not an answer."""
        return not self._tools and not any(piece.strip() for piece in self._text)

    @property
    def chars(self) -> int:
        """Number of characters of the output, including reasoning and tool arguments."""
        arguments = (piece.arguments for pieces in self._tools.values() for piece in pieces)
        return sum(map(len, self._text)) + sum(map(len, self._reasoning)) + sum(map(len, arguments))

    def message(self, model_name: str) -> AIMessage:
        """Return the whole answer. A tool call whose arguments are not a JSON object goes to ``invalid_tool_calls``."""
        parsed = [_parsed(_tool(pieces)) for _, pieces in sorted(self._tools.items())]
        more = {"reasoning_content": _encodable("".join(self._reasoning))} if self._reasoning else {}
        return AIMessage(
            content=_encodable("".join(self._text)),
            additional_kwargs=more,
            tool_calls=[call for call in parsed if call["type"] == "tool_call"],
            invalid_tool_calls=[call for call in parsed if call["type"] != "tool_call"],
            usage_metadata=self.usage_metadata(),
            response_metadata=self.metadata(model_name),
        )

    def last_chunk(self, model_name: str) -> AIMessageChunk:
        """Return the last chunk of a stream: usage and finish reason, without text."""
        chunk = AIMessageChunk(content="", response_metadata=self.metadata(model_name), chunk_position="last")
        chunk.usage_metadata = self.usage_metadata()
        return chunk

    def metadata(self, model_name: str) -> dict[str, Any]:
        """The ``response_metadata`` of the LangChain message."""
        return {"model_name": model_name, "finish_reason": self.finish_reason}

    def usage_metadata(self) -> UsageMetadata | None:
        """The ``usage_metadata`` of the LangChain message; None if the provider reported no counts."""
        counts = self.counts
        if counts is None:
            return None
        usage: UsageMetadata = {
            "input_tokens": counts.tokens_in,
            "output_tokens": counts.tokens_out,
            "total_tokens": counts.tokens_in + counts.tokens_out,
        }
        if counts.cached is not None:
            usage["input_token_details"] = {"cache_read": counts.cached}
        if counts.written:
            usage.setdefault("input_token_details", {})["cache_creation"] = counts.written
        if counts.reasoning is not None:
            usage["output_token_details"] = {"reasoning": counts.reasoning}
        return usage


def _tool(pieces: Sequence[ToolPiece]) -> dict[str, Any]:
    name = redacted(_encodable("".join(piece.name or "" for piece in pieces)))
    call_id = next((_encodable(piece.id) for piece in pieces if piece.id), None)
    arguments = _encodable("".join(piece.arguments for piece in pieces)) or "{}"
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def _parsed(raw: dict[str, Any]) -> Any:
    """Parse one tool call. What is no JSON object, or JSON that cannot be read, becomes an invalid call."""
    given = raw["function"]
    try:
        calls, invalid = default_tool_parser([raw])
    except (ValueError, RecursionError):  # a number of 5,000 digits, lists 1,000 deep
        return invalid_tool_call(name=given["name"], args=given["arguments"], id=raw["id"])
    if invalid:
        return invalid[0]
    (call,) = calls
    arguments: Any = call["args"]
    if isinstance(arguments, dict):
        return call
    return invalid_tool_call(name=given["name"], args=str(arguments), id=raw["id"])


def _label(value: object) -> str | None:
    """Return an id or a finish reason, without secrets; None for what is not a short text of visible characters."""
    return redacted(value) if isinstance(value, str) and _LABEL.fullmatch(value) else None


def _encodable(text: str) -> str:
    """Replace halves of surrogate pairs, which JSON can state and no file or database can keep; join those that fit."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_LABEL = re.compile(r"[!-~]{1,200}")
_SURROGATE = re.compile("[\ud800-\udfff]")
