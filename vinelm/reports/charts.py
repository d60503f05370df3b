"""Frontiers as charts, and the table behind them."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.evaluation.sweep import Frontier, Point
from vinelm.reports.document import Chart, Row, Series, Table
from vinelm.reports.formatting import percent, percent_interval, seconds, usd

BANDS = "Bands and bars are 95 % bootstrap intervals over the held-out requests, each plan taken as given."


def cost_chart(name: str, frontiers: Sequence[Frontier], *, note: str = "") -> Chart:
    """Accuracy over the dollars really spent per request; the cap that led to a point is in its hover text."""
    return Chart(
        name=name,
        title="Accuracy–cost frontier",
        caption="Each point maximises accuracy under one average budget; across: dollars really spent per request. "
        f"{BANDS} {note}".strip(),
        x_title="mean cost per request, US$ (log scale)",
        y_title="accuracy",
        x_prefix="$",
        x_is_log=True,
        series=tuple(_series(f, [p.cost_usd for p in f.points], "budget", usd) for f in frontiers if f.points),
    )


def latency_chart(name: str, frontiers: Sequence[Frontier], *, note: str = "") -> Chart:
    """Right answers in time over the latency cap: an answer after its cap counts as wrong, for every policy alike."""
    return Chart(
        name=name,
        title="Accuracy–latency frontier",
        caption="Each point maximises accuracy under one latency cap; an answer after the cap counts as wrong. "
        f"{BANDS} {note}".strip(),
        x_title="latency cap per request, s",
        y_title="right and within the cap",
        series=tuple(_series(f, [p.cap for p in f.points], "cap", seconds) for f in frontiers if f.points),
    )


def frontier_table(title: str, frontiers: Sequence[Frontier], bound_name: str, *, is_cost: bool) -> Table:
    """The figures behind a chart, one row per policy and cap."""
    rows = tuple(
        Row(role=frontier.role, cells=_cells(frontier, point, is_cost=is_cost), detail=point.plan)
        for frontier in frontiers
        for point in frontier.points
    )
    counted = ("accuracy",) if is_cost else ("accuracy", "right in time")
    columns = ("policy", bound_name, *counted, "95 % interval", "mean cost", "mean latency", *(() if is_cost else ("late",)))
    return Table(title=title, columns=columns, rows=rows, is_folded=True)


def _cells(frontier: Frontier, point: Point, *, is_cost: bool) -> tuple[str, ...]:
    figures = (percent_interval(point.worth), usd(point.cost_usd), seconds(point.latency_s))
    if is_cost:
        return (frontier.name, usd(point.cap), percent(point.worth.value), *figures)
    found = (percent(point.accuracy), percent(point.worth.value))
    return (frontier.name, seconds(point.cap), *found, *figures, percent(point.late))


def _series(frontier: Frontier, x: list[float], bound: str, unit: object) -> Series:
    spoken = usd if unit is usd else seconds
    return Series(
        name=frontier.name,
        role=frontier.role,
        x=x,
        y=[p.worth.value for p in frontier.points],
        low=[p.worth.low for p in frontier.points],
        high=[p.worth.high for p in frontier.points],
        hover=[_hover(frontier, p, bound, spoken(p.cap)) for p in frontier.points],
        is_line=frontier.role != "model",
    )


def _hover(frontier: Frontier, point: Point, bound: str, cap: str) -> str:
    steps = point.plan.replace(", ", "<br>→ ")
    at = f" at {bound} {cap}" if frontier.role != "model" or bound == "cap" else ""
    return (
        f"<b>{frontier.name}</b>{at}<br>{percent(point.worth.value)} ({percent_interval(point.worth)})<br>"
        f"{usd(point.cost_usd)}, {seconds(point.latency_s)} per request<br>{steps}"
    )
