"""Charts of accuracy against cost and latency, as Plotly figures, and the tables of their data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vinelm.evaluation import PolicyFrontier, Role, SweepPoint
from vinelm.reports.document import Chart, Row, Series, Table
from vinelm.reports.formatting import percent, percent_interval, seconds, usd

BANDS = "Bands and bars: 95 % bootstrap intervals over the held-out requests, for given plans."


def cost_chart(name: str, frontiers: Sequence[PolicyFrontier], *, note: str = "") -> Chart:
    """Plot accuracy against the dollars spent per request. The hover text has the budget that led to each point."""
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
    steps = point.plan.replace(", ", "<br>→ ")
    at = f" at {bound} {cap}" if frontier.role != "model" or bound == "cap" else ""
    return (
        f"<b>{frontier.name}</b>{at}<br>{percent(point.utility.value)} ({percent_interval(point.utility)})<br>"
        f"{usd(point.cost_usd)}, {seconds(point.latency_s)} per request<br>{steps}"
    )


DASH: dict[Role, str] = {
    "vinelm": "solid", "paths": "dot", "full": "dot", "static": "dash", "single": "dashdot", "vote": "dot",
    "two_agree": "dashdot", "model": "solid", "hindsight": "longdash",
}  # fmt: skip
SYMBOL: dict[Role, str] = {
    "vinelm": "circle", "paths": "circle-open", "full": "circle-open", "static": "square", "single": "diamond",
    "vote": "triangle-down-open", "two_agree": "star-open", "model": "x-thin-open", "hindsight": "triangle-up-open",
}  # fmt: skip


def figure(chart: Chart, *, note: str = "") -> dict[str, Any]:
    """Return ``{"data": [...], "layout": {...}}`` for ``Plotly.newPlot``, in plain JSON types.

    ``note`` is printed inside the chart, so that an exported picture still has it.
    """
    traces: list[dict[str, Any]] = []
    for series in chart.series:
        if series.is_line and len(series.low) and series.role in ("vinelm", "static"):
            traces.append(_band(series))
        traces.append(_trace(series))
    return {"data": traces, "layout": {**_layout(chart), "annotations": [_note(note)] if note else []}}


def _trace(series: Series) -> dict[str, Any]:
    colour = f"--{series.role}"
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers" if series.is_line else "markers",
        "name": series.name,
        "x": list(series.x),
        "y": list(series.y),
        "line": {"color": colour, "dash": DASH[series.role], "width": 2.5 if series.role == "vinelm" else 2, "shape": "linear"},
        "marker": {"color": colour, "symbol": SYMBOL[series.role], "size": 8, "line": {"color": colour, "width": 1.5}},
        "text": list(series.hover),
        "hovertemplate": "%{text}<extra></extra>" if series.hover else None,
    }
    if not series.is_line and len(series.low):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [high - y for high, y in zip(series.high, series.y, strict=True)],
            "arrayminus": [y - low for low, y in zip(series.low, series.y, strict=True)],
            "color": colour,
            "thickness": 1,
            "width": 2,
        }
    return trace


def _note(text: str) -> dict[str, Any]:
    place = {"xref": "paper", "yref": "paper", "x": 0.01, "y": 0.99, "xanchor": "left", "yanchor": "top"}
    return {**place, "text": text, "showarrow": False, "font": {"size": 12, "color": "--note"}}


def _band(series: Series) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*series.x, *reversed(series.x)],
        "y": [*series.high, *reversed(series.low)],
        "fill": "toself",
        "fillcolor": f"--{series.role}-band",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _layout(chart: Chart) -> dict[str, Any]:
    axis = {
        "gridcolor": "--rule",
        "linecolor": "--rule",
        "zeroline": False,
        "automargin": True,
        "ticks": "outside",
        "tickcolor": "--rule",
    }
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": "--ink"},
        "margin": {"l": 8, "r": 12, "t": 8, "b": 8},
        "xaxis": {
            **axis,
            "title": {"text": chart.x_title, "standoff": 12},
            "type": "log" if chart.x_is_log else "linear",
            "tickprefix": chart.x_prefix,
            **({"dtick": "D2", "tickformat": ".2~r"} if chart.x_is_log else {"rangemode": "tozero"}),
        },
        "yaxis": {**axis, "title": {"text": chart.y_title, "standoff": 8}, "tickformat": ".0%"},
        "legend": {"orientation": "h", "yanchor": "top", "y": -0.22, "xanchor": "left", "x": 0, "bgcolor": "rgba(0,0,0,0)"},
        "hoverlabel": {"align": "left", "bgcolor": "--paper", "bordercolor": "--rule", "font": {"color": "--ink", "size": 12}},
        "hovermode": "closest",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "--model", "activecolor": "--ink"},
    }
