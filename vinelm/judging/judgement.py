"""A judge's verdict on one answer."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

JUDGED = "llm_judge"
"""The scorer of a judged store, in its fingerprint."""
REFUSED = "the budget did not allow the judge's call"
"""The detail of a judgement that was not paid for."""
_FENCE = re.compile(r"```(?:json)?\s*\n(.*)\n\s*```", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict of a judge (a model) on the answer after one call, and the verdict of the label if there is one.

    Attributes:
        judge: Hash of the judge's model, rubric and keys.
        asked: Hash of the judge's model and its prompt, which contains question and answer.
        correct: Whether the judge considers the answer right; None without a verdict.
        truth: Whether the answer is right according to the request's label; None without a label.
        label: Hash of the label and of the method that compares answers with it; None without a label.
        model: Name of the judge's model.
        cost_usd: Cost of the judge's calls in dollars, >= 0; 0 if an equal question had been asked before.
        calls: Number of the judge's calls.
        tokens_in, tokens_out: Number of tokens of these calls; None if unknown.
        detail: The reason why a verdict is missing, in one line.
    """

    judge: str
    asked: str
    correct: bool | None
    truth: bool | None
    label: str | None
    model: str
    cost_usd: float = 0.0
    calls: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
    detail: str | None = None

    @property
    def is_refused(self) -> bool:
        """Return whether the judge was not asked because the budget did not allow it."""
        return self.detail == REFUSED

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON types."""
        return asdict(self)


def verdict_of(reply: str) -> bool | None:
    """Return the verdict in a judge's reply, which must be one JSON object with ``correct`` true or false, and perhaps
    a ``reason``.

    The result is None for any other reply, such as one with surrounding text, other keys, a repeated key, or a
    ``correct`` of another type.
    """
    text = reply.strip()
    fenced = _FENCE.fullmatch(text)
    try:
        found = json.loads(fenced[1] if fenced else text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or set(found) - {"correct", "reason"} or not isinstance(found.get("reason", ""), str):
        return None
    correct = found.get("correct")
    return correct if isinstance(correct, bool) else None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key repeats")
    return dict(pairs)
