"""Describes a comparison of two workflows, in tables and words."""

from __future__ import annotations

from collections.abc import Iterator

from vinelm.evaluation import OffPolicyEstimate
from vinelm.reports.document import Row, Table
from vinelm.reports.formatting import percent, thousand
from vinelm.verdicts.workflow_comparison import Taken, UnderPlan, WorkflowComparison


def comparison_tables(found: WorkflowComparison) -> tuple[Table, ...]:
    """Return one table for each plan, and a table of the calls of each stage under the first plan."""
    return (*(_under(found, one) for one in found.plans), _stages(found, found.plans[0]))


def comparison_lines(found: WorkflowComparison) -> list[str]:
    """Return the paragraphs that follow the tables, such as the number of shared requests and warnings."""
    lines = [f"By the rows of both stores. {found.shared:,} requests are in both. Nothing was called."]
    if not found.is_same_data:
        lines.append(
            "The two were profiled on files that differ: requests are paired by their ids alone. Check that these agree."
        )
    if any(not one.gain["accuracy"].is_identified for one in found.plans):
        lines.append("-: too few requests have run the plan in both stores.")
    if found.is_simulated:
        lines.append("Simulated models.")
    return lines


def _under(found: WorkflowComparison, one: UnderPlan) -> Table:
    first, second = one.sides
    whole = first.whole, second.whole
    rows = [
        (
            "right answers",
            percent(first.accuracy),
            percent(second.accuracy),
            _interval(one.gain["accuracy"], 100.0, "{} points"),
        ),
        ("$ per 1,000 requests", *(thousand(side.cost_usd) for side in whole), _interval(one.gain["cost"], -1000.0, "$ {}", 2)),
        ("seconds", *(f"{side.latency_s:.1f}" for side in one.sides), _interval(one.gain["latency"], -1.0, "{} s")),
        ("calls", *(f"{side.calls:.1f}" for side in whole), ""),
        *((what, *cells, "") for what, cells in _tokens(whole)),
    ]
    title = f"{one.plan}: {one.requests:,} requests with both"
    columns = ("per request", *(f"<{name}" for name in found.workflows), "<difference (95 %)")
    return Table(title=title, columns=columns, rows=tuple(Row(role="vinelm", cells=cells) for cells in rows))


def _interval(found: OffPolicyEstimate, by: float, unit: str, digits: int = 1) -> str:
    """Return a gain and its interval as text; "none" if both plans are the same, "-" if the gain cannot be estimated.

    Args:
        found: The gain with its interval.
        by: The factor by which the gain is multiplied before it is shown.
        unit: The text in which ``{}`` is replaced by the gain, such as ``"{} s"``.
        digits: The number of decimals.
    """
    if found.is_same or not found.is_identified:
        return "none" if found.is_same else "-"
    low, high = sorted((found.low * by, found.high * by))
    return f"{unit.format(f'{found.value * by:+,.{digits}f}')} ({low:+,.{digits}f} to {high:+,.{digits}f})"


def _tokens(sides: tuple[Taken, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for what, name in (("prompt tokens", "tokens_in"), ("completion tokens", "tokens_out")):
        yield what, tuple("-" if (count := getattr(side, name)) is None else f"{count:,.0f}" for side in sides)


def _stages(found: WorkflowComparison, one: UnderPlan) -> Table:
    rows = [
        (f"{workflow}: {stage}", f"{took.calls:.2f}", *(cells[0] for _, cells in _tokens((took,))), thousand(took.cost_usd))
        for workflow, side in zip(found.workflows, one.sides, strict=True)
        for stage, took in side.stages.items()
    ]
    columns = ("stage", "calls", "prompt tokens", "completion tokens", "$ / 1,000")
    return Table(
        title=f"By stage, {one.plan}, per request",
        columns=columns,
        rows=tuple(Row(role="vinelm", cells=cells) for cells in rows),
    )
