"""Charts as plain Plotly figures. Colours are names of CSS variables: the page resolves them for light, dark and print."""

from __future__ import annotations

from typing import Any

from vinelm.reports.document import Chart, Role, Series

DASH: dict[Role, str] = {
    "vinelm": "solid", "full": "dot", "static": "dash", "single": "dashdot", "model": "solid", "hindsight": "longdash",
}  # fmt: skip
SYMBOL: dict[Role, str] = {
    "vinelm": "circle", "full": "circle-open", "static": "square", "single": "diamond", "model": "x-thin-open",
    "hindsight": "triangle-up-open",
}  # fmt: skip


def figure(chart: Chart, *, note: str = "") -> dict[str, Any]:
    """``{"data": [...], "layout": {...}}`` for ``Plotly.newPlot``, plain JSON types. ``note`` stands inside the chart, so that
    it goes along where the picture alone is passed on.
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
