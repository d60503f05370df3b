"""Describes, in sentences, a judge's scores, missing labels, and the classes of equal answers in a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vinelm.reports.formatting import usd

if TYPE_CHECKING:
    from vinelm.traces.store.shown import SignalRecord


def judge_words(facts: Mapping[str, Any], *, has_common_error: bool = True) -> str:
    """Return sentences on a model as judge: how well it agrees with labels, and whether accuracies and intervals account
    for its errors.

    Args:
        facts: ``meta["judge"]`` of a trie.
        has_common_error: Whether the intervals include the judge's error (``AnnotatedTrie.reading``).
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
    if not has_common_error:
        held = "their intervals do not hold the uncertainty of that correction, which is common to all arms"
    return (
        f"{name}: agrees with {100 * facts['agreement']:.0f} % of {facts['labels']:,} labels; it calls "
        f"{_rate(facts['sensitivity'])} of right answers correct and {_rate(_complement(facts['specificity']))} of wrong ones; "
        f"{cost}. Accuracies are corrected for that, and {held}."
    )


def today_words(facts: Mapping[str, Any]) -> str:
    """Return sentences that say how many requests have no label, and that their answers count as right if they equal
    today's answers.

    Args:
        facts: ``meta["as_today"]`` of a trie: the numbers of requests with and without labels, and of people's answers.
    """
    asked = f"persons have said of {facts['asked']:,} answers which are right" if facts["asked"] else "no person was asked yet"
    return (
        f"As today's answers count: {facts['requests']:,} of {facts['registered']:,} requests have no label, and {asked}."
        " Accuracies here are shares of answers that are right or the same as today's. How often what runs today is right is"
        " not known."
    )


def _complement(rate: Sequence[float]) -> list[float]:
    share, low, high = rate
    return [1.0 - share, 1.0 - high, 1.0 - low]


def _rate(rate: Sequence[float]) -> str:
    share, low, high = (100 * value for value in rate)
    return f"{share:.0f} % (90 % interval {low:.0f} to {high:.0f})"


def shown_lines(record: SignalRecord, rows: int, answers: int | None = None) -> Iterator[str]:
    """Yield sentences on the number of a store's answers, and on problems of their classes (groups of equal answers).

    Args:
        record: The settings with which the answers and classes were recorded.
        rows: Number of rows of the store.
        answers: Number of rows with an answer; None leaves out the sentence with this number.
    """
    if record.answer and answers is not None:
        yield f"Answers ({', '.join(record.answer)}) of {answers:,} rows."
    if record.answer and record.rows != rows:
        yield "Their classes are not up to date: the next `vinelm profile` computes them, without a call."
    elif record.intransitive:
        pairs = f"{record.intransitive:,} of {record.compared:,} pairs of answers"
        yield f"agree is not transitive: {pairs} contradict the classes."
    if record.unknown:
        yield (
            f"The classes of {record.unknown:,} requests cannot be computed: of some of their answers only a digest is kept."
        )
    if record.without_state:
        yield f"{record.without_state:,} rows show less than is declared, since the state after them is not kept."
