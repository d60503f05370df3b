"""Draws a chart of lines and points, with their intervals as bands and bars."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from vinelm.reports.pictures.canvas import COLOURS, Reading, new_figure, saved, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vinelm.reports.document import Chart, Series

DASHES: dict[str, Any] = {
    "vinelm": "-", "paths": "-", "full": ":", "static": "--", "single": "-.", "model": "-", "vote": (0, (1, 1.5)),
    "two_agree": (0, (5, 1.5, 1, 1.5)),
}  # fmt: skip
MARKERS: dict[str, str] = {
    "vinelm": "o", "paths": "*", "full": "o", "static": "s", "single": "D", "model": "x", "vote": "v", "two_agree": "P",
}  # fmt: skip


def plot_lines(chart: Chart, size: tuple[int, int], name: str, *, note: str = "") -> tuple[str, list[Reading]]:
    """Return a chart as SVG text, and those of its points that show a text if the reader points at them.

    Args:
        chart: The chart.
        size: Width and height in pixels.
        name: The beginning of the picture's ids.
        note: A text printed inside the picture, so that an exported picture still has it.
    """
    figure = new_figure(size)
    axes = figure.subplots()
    for series in chart.series:
        _plot(axes, series, is_banded=series.role in ("vinelm", "static"))  # with more bands they would hide each other
    _dress(axes, chart, is_narrow=size[0] < 600)
    if note:
        axes.text(0.01, 0.98, note, transform=axes.transAxes, va="top", color=COLOURS["muted"], size=11)
    if axes.get_legend_handles_labels()[0]:  # a store may be too small for any point
        figure.legend(loc="outside lower left", ncols=2 if size[0] < 600 else 4, fontsize=11, handlelength=2.6)
    svg = saved(figure, name)
    readings = [
        Reading(float(place[0]), size[1] - float(place[1]), text)
        for series in chart.series
        for x, y, text in zip(series.x, series.y, series.hover, strict=False)
        if np.isfinite(place := axes.transData.transform((x, y))).all()
    ]
    return svg, readings


def _plot(axes: Axes, series: Series, *, is_banded: bool) -> None:
    colour, order = COLOURS[series.role], 4 if series.role == "vinelm" else 3
    x, y = np.asarray(series.x, float), np.asarray(series.y, float)
    style: dict[str, Any] = {
        "color": colour,
        "marker": MARKERS[series.role],
        "markersize": 9 if series.role == "paths" else 6,
        "label": short(series.name, 30),
        "zorder": order,
    }
    if not series.is_line and len(series.low):
        reach = np.abs(np.stack([y - np.asarray(series.low, float), np.asarray(series.high, float) - y]))
        axes.errorbar(x, y, yerr=reach, linestyle="none", elinewidth=1, capsize=2, **style)
        return
    if is_banded and len(series.low):
        axes.fill_between(x, series.low, series.high, color=colour, alpha=0.14, linewidth=0, zorder=1)
    line = DASHES[series.role] if series.is_line else "none"
    axes.plot(x, y, linestyle=line, linewidth=2.4 if series.role == "vinelm" else 1.7, **style)


def _dress(axes: Axes, chart: Chart, *, is_narrow: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    axes.set_xlabel(chart.x_title)
    axes.set_ylabel(chart.y_title)
    if chart.has_diagonal:
        low, high = max(axes.get_xlim()[0], axes.get_ylim()[0]), min(axes.get_xlim()[1], axes.get_ylim()[1])
        axes.plot(
            [low, high],
            [low, high],
            color=COLOURS["muted"],
            linewidth=1.2,
            linestyle=(0, (4, 3)),
            label="as promised",
            zorder=2,
        )
    values = [x for series in chart.series for x in series.x if np.isfinite(x)]
    if chart.x_is_log and values and min(values) > 0.0:
        decades = float(np.log10(max(values) / min(values)))
        axes.set_xscale("log")
        many: tuple[float, ...] = (1.0,) if decades > 3 or (is_narrow and decades > 1.5) else (1.0, 2.0, 5.0)
        if decades < 1.2:
            many = (1.0, 2.0, 3.0, 5.0) if is_narrow else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
        axes.xaxis.set_major_locator(LogLocator(subs=many, numticks=20))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
        if decades < 0.5:
            axes.xaxis.set_major_locator(MaxNLocator(4 if is_narrow else 7))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4 if is_narrow else 8))
    axes.xaxis.set_major_formatter(FuncFormatter(_amount(chart.x_prefix, chart.x_is_percent)))
    axes.yaxis.set_major_formatter(FuncFormatter(_amount("", chart.y_is_percent)))


def _amount(prefix: str, is_percent: bool) -> Callable[[float, object], str]:
    def text(value: float, _: object) -> str:
        return f"{100 * value:.4g} %" if is_percent else f"{prefix}{value:.6g}"

    return text
