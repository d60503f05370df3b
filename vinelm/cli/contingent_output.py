"""Plans in the terminal: the tree of a plan, and the frontier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from vinelm.cli.console import echo

if TYPE_CHECKING:
    from vinelm.controller import Decision
    from vinelm.evaluation.plans.plans import PlanFrontier

SHOWN_LINES = 40
"""Most lines of a plan that are printed; ``--json`` has all of it."""


def show_tree(decision: Decision, title: str = "The plan") -> None:
    """Print a plan as an indented tree: each stage with its model, and how often each arm follows."""
    from vinelm.cli.console import say

    say(f"{title} (percentages: how often the application takes each way)", bold=True)
    for line in decision.lines(SHOWN_LINES):
        echo(f"  {line}")
    echo()


def show_frontier(found: PlanFrontier) -> None:
    """Print an estimated frontier, and the most accurate plan of it as a tree where it is more than a path."""
    from vinelm.cli.console import show_table

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
    """The columns of a frontier's table, by the name of the row's item."""
    from vinelm.reports import percent, seconds, usd

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
