"""What comes back from a remote model, piece by piece, whatever the provider: pure, no network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, UsageMetadata
from langchain_core.messages.tool import default_tool_parser, tool_call_chunk

from vinelm.backends.base import Counts


@dataclass(frozen=True, slots=True)
class ToolPiece:
    """A piece of the tool call number ``index``; arguments arrive as pieces of a JSON text."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer. The first one of an attempt may be empty: it says that the server began to answer.

    ``is_refused`` says that the model declined in the provider's own field for that.
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
        """Something that the model wrote."""
        return bool(self.text or self.reasoning or self.tools)

    def chunk(self) -> AIMessageChunk:
        """The piece as LangChain streams it."""
        tools = [tool_call_chunk(name=t.name, args=t.arguments, id=t.id, index=t.index) for t in self.tools]
        more = {"reasoning_content": self.reasoning} if self.reasoning else {}
        return AIMessageChunk(content=self.text, additional_kwargs=more, tool_call_chunks=tools)


@dataclass(slots=True)
class ResponseBuilder:
    """The pieces of one attempt so far."""

    has_begun: bool = False
    is_refused: bool = False
    finish_reason: str | None = None
    counts: Counts | None = None
    request_id: str | None = None
    provider_latency_s: float | None = None
    _text: list[str] = field(default_factory=list)
    _reasoning: list[str] = field(default_factory=list)
    _tools: dict[int, list[ToolPiece]] = field(default_factory=dict)

    def add(self, delta: Delta) -> None:
        """Take the next piece. Of what comes more than once, the last one counts."""
        self.has_begun = True
        if delta.text:
            self._text.append(delta.text)
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
        for piece in delta.tools:
            self._tools.setdefault(piece.index, []).append(piece)
        self.is_refused |= delta.is_refused
        self.finish_reason = delta.finish_reason or self.finish_reason
        self.counts = delta.counts or self.counts
        self.request_id = delta.request_id or self.request_id
        if delta.provider_latency_s is not None:
            self.provider_latency_s = delta.provider_latency_s

    @property
    def is_empty(self) -> bool:
        """Neither text nor a tool call; what a model only thought is no answer."""
        return not self._tools and not any(piece.strip() for piece in self._text)

    @property
    def chars(self) -> int:
        """Characters that the model wrote, thoughts and arguments included."""
        arguments = (piece.arguments for pieces in self._tools.values() for piece in pieces)
        return sum(map(len, self._text)) + sum(map(len, self._reasoning)) + sum(map(len, arguments))

    def message(self, model_name: str) -> AIMessage:
        """The whole answer. A tool call whose arguments are no JSON object is in ``invalid_tool_calls``."""
        calls, invalid = default_tool_parser([_tool(pieces) for _, pieces in sorted(self._tools.items())])
        not_objects = [call for call in calls if not isinstance(call["args"], dict)]
        more = {"reasoning_content": "".join(self._reasoning)} if self._reasoning else {}
        return AIMessage(
            content="".join(self._text),
            additional_kwargs=more,
            tool_calls=[call for call in calls if call not in not_objects],
            invalid_tool_calls=[*invalid, *(_invalid(call) for call in not_objects)],
            usage_metadata=self.usage_metadata(),
            response_metadata=self.metadata(model_name),
        )

    def last_chunk(self, model_name: str) -> AIMessageChunk:
        """What ends a stream: no text, but usage and finish reason."""
        chunk = AIMessageChunk(content="", response_metadata=self.metadata(model_name), chunk_position="last")
        chunk.usage_metadata = self.usage_metadata()
        return chunk

    def metadata(self, model_name: str) -> dict[str, Any]:
        """LangChain's ``response_metadata``."""
        return {"model_name": model_name, "finish_reason": self.finish_reason}

    def usage_metadata(self) -> UsageMetadata | None:
        """LangChain's form of the counts; None where the provider gave none."""
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
        if counts.reasoning is not None:
            usage["output_token_details"] = {"reasoning": counts.reasoning}
        return usage


def _tool(pieces: Sequence[ToolPiece]) -> dict[str, Any]:
    name = "".join(piece.name or "" for piece in pieces)
    call_id = next((piece.id for piece in pieces if piece.id), None)
    arguments = "".join(piece.arguments for piece in pieces) or "{}"
    return {"id": call_id, "function": {"name": name, "arguments": arguments}}


def _invalid(call: Any) -> Any:
    return {"type": "invalid_tool_call", "name": call["name"], "args": str(call["args"]), "id": call["id"], "error": None}
