"""Reads the token counts of an attempt from LangChain's usage metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from langchain_core.messages.ai import UsageMetadata, add_usage

from vinelm.backends.base import Counts, counted

TIERS = ("priority", "flex")
"""Service tiers, which langchain-openai uses as prefixes of its token counts."""
_PREFIXES = tuple(f"{tier}_" for tier in TIERS)


class UsageSum:
    """Adds up the usage of an answer's chunks, since some providers report the prompt's tokens first and the answer's tokens at
    the end.

    Other providers state the total so far with each chunk. Usage that counts the prompt again, with no count lower than before,
    is such a total and replaces the previous usage. Any other usage is added, which is the more expensive interpretation.
    """

    def __init__(self) -> None:
        self._sum: UsageMetadata | None = None
        self._is_unknown = False

    def add(self, usage: Any) -> Counts | None:
        """Add a chunk's usage, and return the token counts so far. Return None, also for all further chunks, once a chunk's
        usage cannot be added.
        """
        try:
            # An invalid count (negative, not whole, true) could be hidden by the sum with others. Only the prompt count of the
            # previous chunk may be lowered, as langchain-google-genai does.
            asked, answered = (usage[key] for key in _COUNTS)
            is_lowered = self._sum is not None and type(asked) is int and self._sum["input_tokens"] + asked > 0
            self._is_unknown |= counted(answered) is None or (counted(asked) is None and not is_lowered)
            self._sum = _restated(self._sum, usage) or add_usage(self._sum, usage)
        except (AttributeError, TypeError, ValueError, KeyError):
            self._is_unknown = True
        return None if self._is_unknown else counts_of(self._sum)


_COUNTS = ("input_tokens", "output_tokens")
_DETAILS = ("input_token_details", "output_token_details")


def _restated(before: Any, usage: Any) -> UsageMetadata | None:
    """Return the new total if ``usage`` states the total so far, so that it replaces ``before``. Return None if ``usage`` has
    to be added to ``before``.

    Detailed counts, such as tokens written to a cache, are the higher of both counts, or the only one stated. Tokens read from
    a cache, which are cheaper, are those of ``usage``.
    """
    if before is None or not before["input_tokens"] or any(usage[key] < before[key] for key in _COUNTS):
        return None
    made: dict[str, Any] = {**usage, "total_tokens": max(before.get("total_tokens") or 0, usage.get("total_tokens") or 0)}
    for name in _DETAILS:
        old, new = before.get(name) or {}, usage.get(name) or {}
        made[name] = {
            key: new.get(key) if key.endswith("cache_read") else max(old.get(key) or 0, new.get(key) or 0)
            for key in {*old, *new}
        }
    return cast("UsageMetadata", made)


def counts_of(usage: Any) -> Counts | None:
    """Return the token counts of LangChain's usage metadata. Return None if they are unknown, or if the prompt has zero tokens,
    because such a call must not count as free.

    If the stated total exceeds the sum of prompt and answer, the rest counts as output. Some servers omit reasoning from the
    answer's count, but bill it.
    """
    if not isinstance(usage, Mapping) or not usage.get("input_tokens"):
        return None
    into, out = (_details(usage.get(key)) for key in ("input_token_details", "output_token_details"))
    asked, answered, total = (usage.get(key) for key in ("input_tokens", "output_tokens", "total_tokens"))
    whole, prompt, said = counted(total), counted(asked), counted(answered)
    if whole is not None and prompt is not None and said is not None:
        answered = max(said, whole - prompt)
    # Anthropic's and Amazon's packages state either the sum, or a sum of 0 and the parts by how long they are kept.
    return Counts.stated(
        asked,
        answered,
        into.get("cache_read"),
        out.get("reasoning"),
        written=into.get("cache_creation"),
        written_5m=into.get("ephemeral_5m_input_tokens"),
        written_1h=into.get("ephemeral_1h_input_tokens"),
        audio=into.get("audio"),
        audio_out=out.get("audio"),
    )


def _details(parts: Any) -> Mapping[str, Any]:
    """Return the detailed token counts by name, such as ``cache_read``; empty without details.

    If a name begins with a service tier, as in ``flex_cache_read``, the tier is removed.
    """
    if not isinstance(parts, Mapping):
        return {}
    if not any(key.startswith(_PREFIXES) for key in parts):
        return parts
    plain = {key: value for key, value in parts.items() if not key.startswith(_PREFIXES)}
    for tier in TIERS:
        plain |= {key.removeprefix(f"{tier}_"): value for key, value in parts.items() if key.startswith(f"{tier}_")}
    return plain
