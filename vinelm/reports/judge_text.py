"""What a reader must know of accuracies that a judge scored, in one paragraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vinelm.reports.formatting import usd


def judge_words(facts: Mapping[str, Any], *, is_contingent: bool = False) -> str:
    """Return how the judge agrees with labels, and whether its errors are in the accuracies and their intervals.

    Args:
        facts: ``meta["judge"]`` of a trie.
        is_contingent: Whether plans over the trie are contingent, whose intervals do not hold the judge's error.
    """
    cost = f"it gave {facts['verdicts']:,} verdicts for {usd(facts['cost_usd'])}"
    if facts["unscored"]:
        cost += f", and none for {facts['unscored']:,} rows, which count as not labelled"
    name = f"Scored by a judge ({facts['model']})"
    if not facts["is_corrected"]:
        return (
            f"{name}: {cost}. No answer of a labelled request was judged, so it is taken at its word, and the intervals do not "
            "hold its errors: give some requests a label, and llm_judge(label=...)."
        )
    held = "their intervals hold its errors"
    if is_contingent:
        held = "their intervals do not hold the uncertainty of that correction, which is common to all arms"
    return (
        f"{name}: agrees with {100 * facts['agreement']:.0f} % of {facts['labels']:,} labels; it calls "
        f"{_rate(facts['sensitivity'])} of right answers correct and {_rate(_complement(facts['specificity']))} of wrong ones; "
        f"{cost}. Accuracies are corrected for that, and {held}."
    )


def _complement(rate: Sequence[float]) -> list[float]:
    share, low, high = rate
    return [1.0 - share, 1.0 - high, 1.0 - low]


def _rate(rate: Sequence[float]) -> str:
    share, low, high = (100 * value for value in rate)
    return f"{share:.0f} % (90 % interval {low:.0f} to {high:.0f})"


__all__ = ["judge_words"]
