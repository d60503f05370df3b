"""Formats figures for people: dollars, seconds, percentages. An unknown value is shown as a dash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from math import floor, isfinite, log10
from typing import TYPE_CHECKING

from vinelm.objective import Objective
from vinelm.prompts.shape import CACHE_MINIMUM

if TYPE_CHECKING:
    from vinelm.evaluation.plans.arms import PlanOfKind
    from vinelm.evaluation.plans.plans import Interval
    from vinelm.prompts.layout import PromptLayout, StagePrompts


KINDS_TITLE = "The plan by kind of request"
KIND_COLUMNS = ("kind", "share", "accuracy", "$ per 1,000", "first model")
KINDS_NOTE = "Estimated from all rows, before anything comes off for having chosen the best plan."


def usd(value: float | None) -> str:
    """Format dollars with at least three significant digits and at least two decimals."""
    if value is None or not isfinite(value):
        return "-"
    if value == 0:
        return "$0"
    digits = max(2, 2 - floor(log10(abs(value))))
    return f"{'-' if value < 0.0 else ''}${abs(value):,.{min(digits, 9)}f}"


def thousand(value: float) -> str:
    """Format a cost in dollars per request as dollars per 1,000 requests; negative costs count as 0."""
    return usd(1000.0 * max(value, 0.0))


def seconds(value: float | None) -> str:
    """Format seconds with one decimal and the unit."""
    return "-" if value is None or not isfinite(value) else f"{value:,.1f} s"


def percent(value: float | None) -> str:
    """Format a fraction as a percentage with one decimal."""
    return "-" if value is None or not isfinite(value) else f"{100 * value:.1f} %"


PROMPT_TITLE = "Prompts: tokens of a call, on the mean"
PROMPT_COLUMNS = ("stage", "calls", "tokens", "static", "shared", "request", "own", "<static part is cached")
"""Headings of a table of :class:`~vinelm.prompts.layout.StagePrompts`; tokens are means per call."""


def prompt_row(prompts: StagePrompts) -> tuple[str, ...]:
    """Return a stage's row in the table with columns :data:`PROMPT_COLUMNS`.

    It has the stage's name, its number of calls, and the mean number of prompt tokens with its parts, such as static tokens.
    The last cell says whether the static part is long enough for caches.
    """
    tokens = [f"{count:,.0f}" for count in (prompts.tokens.total, *astuple(prompts.tokens))]
    is_cached = "yes" if prompts.is_static_cached else f"no: below {CACHE_MINIMUM:,}"
    return prompts.stage, f"{prompts.calls:,}", *tokens, is_cached


def prompt_words(layout: PromptLayout) -> list[str]:
    """Return one or two sentences: which share of the prompt tokens a cache could reuse, and how to raise this share.

    The second sentence names a message that could be moved to an earlier place in the prompt, if that would help.
    """
    share, least = f"{100 * layout.reusable:.0f} %", f"{CACHE_MINIMUM:,}"
    found = [f"Reusable: {share} of the tokens, in prefixes of {least} or more that an earlier call has sent to one model."]
    if (move := layout.move) is not None:
        gain = f"would make {100 * move.reusable:.0f} % reusable instead of {share}"
        found.append(
            f"Moving `{move.moved}` before `{move.before}` {gain} (in {', '.join(move.stages)}). "
            "This changes the prompt, and perhaps the answers: profile again after it."
        )
    return found


def percent_interval(interval: Interval | None) -> str:
    """Format an interval of fractions in percent, such as ``58.2 to 67.9``; a dash if the interval or one of its ends
    is unknown.
    """
    if interval is None or not isfinite(interval.low) or not isfinite(interval.high):
        return "-"
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f}"


def prompt_cache_words(rate: float | None) -> str | None:
    """Return a sentence on how warm prompt caches are assumed to be between requests, for the costs of a trie.

    ``rate`` is the trie's :attr:`~vinelm.AnnotatedTrie.calls_per_hour`, the number of requests per hour for which the costs
    hold. At 0 the caches are cold. The result is None if ``rate`` is None.
    """
    if rate is None:
        return None
    how = f"as warm as {rate:,.3g} calls per hour keep them" if rate else "cold (`vinelm estimate --calls-per-hour`)"
    return f"Prompt caches: between requests {how}."


_BY_STOP: Mapping[str, tuple[str, str]] = {
    "workflow": ("", ""),
    "oracle": (
        ", oracle stop",
        "Oracle stop: a request ends when its answer is right, which no service can see. These figures are a bound, not what "
        "serving reaches.",
    ),
}
"""For each stop rule, the addition to a table's title, and the note below its figures."""


def oracle_words(stop: str) -> str:
    """Return a sentence that explains figures under the stop rule ``"oracle"``; empty for ``"workflow"``.

    ``stop`` is the rule that decides when a request ends.
    """
    return _BY_STOP[stop][1]


def under_oracle(stop: str) -> str:
    """Return the words that a table's title adds for figures under the stop rule ``"oracle"``; empty for ``"workflow"``."""
    return _BY_STOP[stop][0]


def objective_words(objective: Objective) -> str:
    """Return an objective (what a plan optimizes, and its limits) as a title, such as ``Maximize accuracy, cost <=
    $0.00213``.
    """
    return _sentence(objective.describe(accuracy=percent, usd=usd, seconds=seconds))


def page_objective_words(objective: Objective) -> str:
    """Return an objective as a title of a page; the limit on mean cost is in dollars per 1,000 requests."""
    each = objective.cost_budget == "per_request"
    return _sentence(
        objective.describe(accuracy=percent, usd=usd if each else lambda value: f"{thousand(value)} per 1,000", seconds=seconds)
    )


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def kind_cells(found: Iterable[PlanOfKind]) -> list[tuple[str, ...]]:
    """Return one row for each request type, with a plan's figures as texts in the columns :data:`KIND_COLUMNS`."""

    def models(one: PlanOfKind) -> str:
        often = {name: share for name, share in one.first.items() if percent(share) != percent(0.0)}
        return ", ".join(name if len(often) == 1 else f"{name} {percent(share)}" for name, share in often.items())

    return [(one.kind, percent(one.share), percent(one.accuracy), thousand(one.cost_usd), models(one)) for one in found]
