"""Charts of accuracy against cost and latency, and the tables of their data."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.evaluation.plans.sweep import PolicyFrontier, SweepPoint
from vinelm.reports.document import Chart, Row, Series, Table
from vinelm.reports.formatting import percent, percent_interval, seconds, usd

BANDS = "Bands and bars: 95 % bootstrap intervals over the held-out requests, for given plans."


def cost_chart(name: str, frontiers: Sequence[PolicyFrontier], *, note: str = "") -> Chart:
    """Plot accuracy against the dollars spent per request. What a point says has the budget that led to it."""
    return Chart(
        name=name,
        title="Accuracy–cost frontier",
        caption="Each point maximises accuracy under one budget per request, on average. Horizontal axis: dollars spent per "
        f"request. {BANDS} {note}".strip(),
        x_title="mean cost per request, US$ (log scale)",
        y_title="accuracy",
        x_prefix="$",
        x_is_log=True,
        series=tuple(_series(f, [p.cost_usd for p in f.points], "budget", usd) for f in frontiers if f.points),
    )


def latency_chart(name: str, frontiers: Sequence[PolicyFrontier], *, note: str = "") -> Chart:
    """Plot the fraction of right answers in time against the latency cap. A late answer counts as wrong for every policy."""
    return Chart(
        name=name,
        title="Accuracy–latency frontier",
        caption="Each point maximises accuracy under one latency cap; an answer after the cap counts as wrong. "
        f"{BANDS} {note}".strip(),
        x_title="latency cap per request, s",
        y_title="right answers within the cap",
        series=tuple(_series(f, [p.cap for p in f.points], "cap", seconds) for f in frontiers if f.points),
    )


def frontier_table(title: str, frontiers: Sequence[PolicyFrontier], bound_name: str, *, is_cost: bool) -> Table:
    """Return the data of a chart as a table, one row per policy and cap."""
    rows = tuple(
        Row(role=frontier.role, cells=_cells(frontier, point, is_cost=is_cost), detail=point.plan)
        for frontier in frontiers
        for point in frontier.points
    )
    counted = ("accuracy",) if is_cost else ("accuracy", "right in time")
    columns = ("policy", bound_name, *counted, "95 % interval", "mean cost", "mean latency", *(() if is_cost else ("late",)))
    return Table(title=title, columns=columns, rows=rows, is_folded=True)


def _cells(frontier: PolicyFrontier, point: SweepPoint, *, is_cost: bool) -> tuple[str, ...]:
    figures = (percent_interval(point.utility), usd(point.cost_usd), seconds(point.latency_s))
    if is_cost:
        return (frontier.name, usd(point.cap), percent(point.utility.value), *figures)
    found = (percent(point.accuracy), percent(point.utility.value))
    return (frontier.name, seconds(point.cap), *found, *figures, percent(point.late))


def _series(frontier: PolicyFrontier, x: list[float], bound: str, unit: object) -> Series:
    format_cap = usd if unit is usd else seconds
    return Series(
        name=frontier.name,
        role=frontier.role,
        x=x,
        y=[p.utility.value for p in frontier.points],
        low=[p.utility.low for p in frontier.points],
        high=[p.utility.high for p in frontier.points],
        hover=[_hover(frontier, p, bound, format_cap(p.cap)) for p in frontier.points],
        is_line=frontier.role != "model",
    )


def _hover(frontier: PolicyFrontier, point: SweepPoint, bound: str, cap: str) -> str:
    steps = point.plan.replace(", ", "\n→ ")
    at = f" at {bound} {cap}" if frontier.role != "model" or bound == "cap" else ""
    return (
        f"{frontier.name}{at}\n{percent(point.utility.value)} ({percent_interval(point.utility)})\n"
        f"{usd(point.cost_usd)}, {seconds(point.latency_s)} per request\n{steps}"
    )
