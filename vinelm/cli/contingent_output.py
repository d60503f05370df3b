"""Prints plans in the terminal: a plan as a tree, the best plans as a table, and how often each branch is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from vinelm.cli.console import echo, say, show_table
from vinelm.reports import percent, seconds, usd

if TYPE_CHECKING:
    from vinelm.controller import Decision
    from vinelm.evaluation.plans.plans import PlanFrontier
    from vinelm.trie.annotated_trie import AnnotatedTrie

SHOWN_LINES = 40
"""How many lines of a plan are printed; ``--json`` has all of it."""
BOUND_TEXTS = {"min_accuracy": percent, "max_cost_usd": usd, "max_latency_s": seconds}
"""How the value of each bound is written."""


def show_tree(decision: Decision, title: str = "The plan") -> None:
    """Print a plan as an indented tree: each stage with its model, and the fraction of requests that take each branch."""
    say(f"{title} (percentages: how often the application takes each way)", bold=True)
    for line in decision.lines(SHOWN_LINES):
        echo(f"  {line}")
    echo()


def show_frontier(found: PlanFrontier) -> None:
    """Print a table of the best plans by cost and accuracy, and the most accurate of them as a tree if that plan branches."""
    columns = [name for name in _columns() if name in found.rows[0]]
    rows = [[_columns()[name].text(row[name]) for name in columns] for row in found.rows]
    title = f"Pareto frontier of accuracy and cost: {len(rows)} of {found.n_plans} {found.best.noun}s"
    caption = " ".join(_columns()[name].note for name in columns if _columns()[name].note)
    show_table(title, [_columns()[name].title for name in columns], rows, caption=caption)
    if len(found.best.lines(2)) > 1:
        show_tree(found.best, "The most accurate plan")


class _Column(NamedTuple):
    title: str
    text: Callable[[Any], str]
    note: str = ""


def _columns() -> dict[str, _Column]:
    """Return the columns of the table of best plans, keyed by the name of the field that a column shows.

    A column consists of a heading, a function that formats a value, and a note.
    """

    def half(width: float | None) -> str:
        return "-" if width is None else f"{100 * width:.1f}"

    def count(value: int | None) -> str:
        return "-" if value is None else f"{value:,}"

    return {
        "path": _Column("path", " > ".join),
        "plan": _Column("plan", str, "Or: depends on what happened before. The ends of a plan are taken to err alike."),
        "accuracy": _Column("accuracy", percent),
        "accuracy_half_width90": _Column("+/-", half, "+/-: half of the 90 % interval, in points."),
        "cost_usd": _Column("cost", usd),
        "latency_p90_s": _Column("p90", seconds, "p90: 90th percentile of the latency if every invocation runs."),
        "expected_latency_s": _Column("latency", seconds, "Latency: expected, at zero load."),
        "observations": _Column("rows", count),
    }


def show_arms(annotated: AnnotatedTrie) -> None:
    """Print one table for each stage after which the application chooses a branch.

    A table has one row for each model that can run the stage: the shares of requests that then take each branch.
    """
    from vinelm.evaluation.plans.arms import arm_shares

    for (stage, arms), found in groupby(arm_shares(annotated), key=lambda share: (share.stage, tuple(share.arms))):
        shares = list(found)
        has_ends, has_widths = any(share.ends > 0.0005 for share in shares), shares[0].half_width90 is not None
        rows = []
        for share in shares:
            cells = []
            for arm, value in share.arms.items():
                width = "" if share.half_width90 is None else f" {100 * share.half_width90[arm]:4.1f}"
                cells.append(percent(value) + width)
            count = "-" if share.observations is None else f"{share.observations:,}"
            rows.append((share.model, *cells, *([percent(share.ends)] if has_ends else []), count))
        caption = "After each percentage: half of its 90 % interval, in points." if has_widths else None
        columns = (f"after {stage} by", *arms, *(["end"] if has_ends else []), "rows")
        show_table(f"What follows {stage}", columns, rows, caption=caption)


def arm_facts(annotated: AnnotatedTrie) -> list[dict[str, Any]]:
    """Return the shares of requests that take each branch, as :func:`show_arms` prints them, as plain JSON types."""
    from vinelm.evaluation.plans.arms import arm_shares

    return [asdict(share) for share in arm_shares(annotated)]
