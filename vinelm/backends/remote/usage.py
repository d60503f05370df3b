"""Token counts of an attempt, as LangChain states them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages.ai import UsageMetadata, add_usage

from vinelm.backends.base import Counts, counted

TIERS = ("priority", "flex")
"""Service tiers by which langchain-openai prefixes the parts of its counts."""
_PREFIXES = tuple(f"{tier}_" for tier in TIERS)


class UsageSum:
    """Adds up what the pieces of an answer state: some providers count the prompt first, and the answer at its end."""

    def __init__(self) -> None:
        self._sum: UsageMetadata | None = None

    def add(self, usage: Any) -> Counts | None:
        """Add a piece's usage; returns the counts so far. After what cannot be added, nothing is known of the whole."""
        try:
            self._sum = add_usage(self._sum, usage)
        except (AttributeError, TypeError, ValueError, KeyError):
            self._sum = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
        return counts_of(self._sum)


def counts_of(usage: Any) -> Counts | None:
    """Return the token counts; None also for zero prompt tokens, which must not be accounted as free.

    Tokens that only the total shows are output: some servers leave reasoning out of the answer's count, and bill it.
    """
    if not isinstance(usage, Mapping) or not usage.get("input_tokens"):
        return None
    into, out = (_details(usage.get(key)) for key in ("input_token_details", "output_token_details"))
    asked, answered, total = (usage.get(key) for key in ("input_tokens", "output_tokens", "total_tokens"))
    whole, prompt, said = counted(total), counted(asked), counted(answered)
    if whole is not None and prompt is not None and said is not None:
        answered = max(said, whole - prompt)
    # Anthropic's and Amazon's packages state either the sum or, with 0 for the sum, how long the parts are kept.
    return Counts.stated(
        asked,
        answered,
        into.get("cache_read"),
        out.get("reasoning"),
        written=into.get("cache_creation"),
        written_5m=into.get("ephemeral_5m_input_tokens"),
        written_1h=into.get("ephemeral_1h_input_tokens"),
    )


def _details(parts: Any) -> Mapping[str, Any]:
    """The parts of a count, whichever tier served them."""
    if not isinstance(parts, Mapping):
        return {}
    if not any(key.startswith(_PREFIXES) for key in parts):
        return parts
    plain = {key: value for key, value in parts.items() if not key.startswith(_PREFIXES)}
    for tier in TIERS:
        plain |= {key.removeprefix(f"{tier}_"): value for key, value in parts.items() if key.startswith(f"{tier}_")}
    return plain
