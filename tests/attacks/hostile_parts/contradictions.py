"""Servers whose usage contradicts itself: parts beyond their whole, totals beyond their parts, less at the end than before it.

Whatever the dearest reading of it is has to be booked: the kinds say how many tokens that are, by wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .lies import KINDS, Kind, answer, begin
from .lying_server import Asked, Out
from .wires import Wire

Bill = tuple[int, int, int, int]
"""Tokens of the prompt, of the answer, and of the prompt those that were read from a cache and written to it."""
_OPENAI, _GEMINI = ("openai", "azure", "sglang"), ("gemini", "vertex")


def _by_wire(**by: Any) -> dict[str, Any]:
    """Spread what holds of a family over its wires."""
    families = {"openai": _OPENAI, "gemini": _GEMINI}
    return {wire: one for name, one in by.items() for wire in families.get(name, (name,))}


def _odd(name: str, changes: Mapping[str, Mapping[str, Any]], bill: Bill) -> None:
    async def lie(wire: Wire, asked: Asked, out: Out) -> None:
        await answer(wire, asked, out, {**wire.usage, **changes.get(wire.name, {})})

    KINDS.append(Kind(name, lie, "open", bill=dict.fromkeys(changes, bill)))


_odd(
    "reasoning_beyond_the_answer",
    _by_wire(
        openai={"completion_tokens_details": {"reasoning_tokens": 500}},
        gemini={"thoughtsTokenCount": 500, "totalTokenCount": 527},
    ),
    (20, 507, 0, 0),
)
_odd(
    "a_total_beyond_its_parts",
    _by_wire(openai={"total_tokens": 527}, gemini={"totalTokenCount": 527}, bedrock={"totalTokens": 527}),
    (20, 507, 0, 0),
)
_odd(
    "more_read_from_a_cache_than_there_was_prompt",
    _by_wire(
        openai={"prompt_tokens_details": {"cached_tokens": 5000}},
        gemini={"cachedContentTokenCount": 5000},
        bedrock={"cacheReadInputTokens": 5000},
        anthropic={"cache_read_input_tokens": 5000},
    ),
    (5020, 7, 5000, 0),
)
_odd(
    "more_written_to_a_cache_than_there_was_prompt",
    _by_wire(bedrock={"cacheWriteInputTokens": 5000}, anthropic={"cache_creation_input_tokens": 5000}),
    (5020, 7, 0, 5000),
)
_MUCH = _by_wire(
    openai={"prompt_tokens": 60, "completion_tokens": 50, "total_tokens": 110},
    gemini={"promptTokenCount": 60, "candidatesTokenCount": 50, "totalTokenCount": 110},
    bedrock={"inputTokens": 60, "outputTokens": 50, "totalTokens": 110},
    anthropic={"input_tokens": 60, "output_tokens": 50},
)


async def _less_at_the_end(wire: Wire, asked: Asked, out: Out) -> None:
    await begin(wire, asked, out)
    await out.chunk(wire.piece("four", _MUCH[wire.name]))
    await out.chunk(wire.end())
    await out.chunk(b"")


# Gemini's last count of a prompt is the one that holds; langchain-anthropic reads an answer's tokens at its end only.
KINDS.append(
    Kind(
        "less_at_the_end_than_before_it",
        _less_at_the_end,
        "open",
        "stream",
        bill=_by_wire(openai=(60, 50, 0, 0), gemini=(20, 50, 0, 0), bedrock=(60, 50, 0, 0), anthropic=(20, 7, 0, 0)),
    )
)
