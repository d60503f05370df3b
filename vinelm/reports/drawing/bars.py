"""Stacked horizontal bars: what a whole is made of, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vinelm.reports.drawing.canvas import COLOURS, MODEL_COLOURS, Reading, new_figure, saved

if TYPE_CHECKING:
    from vinelm.reports.document import BarChart

LONGEST = 26
"""Characters of a label; longer ones are cut, and are whole in the table below and in what a point says."""


def draw_bars(chart: BarChart, size: tuple[int, int], name: str, *, note: str = "") -> tuple[str, list[Reading]]:
    """Return bars as SVG text, and the middle of each part. The height follows from the number of rows."""
    from matplotlib.ticker import MaxNLocator

    is_narrow = size[0] < 600
    keys = list(dict.fromkeys(key for row in chart.rows for key, _ in row.parts))
    legend_rows = -(-len(keys) // (2 if is_narrow else 4))
    size = (size[0], 64 + 34 * len(chart.rows) + 18 * legend_rows)
    figure = new_figure(size)
    axes = figure.subplots()
    middles = []
    for key in keys:
        colour = COLOURS[f"model-{chart.colour_of(key) % MODEL_COLOURS}"]
        lefts = [sum(value for other, value in row.parts if keys.index(other) < keys.index(key)) for row in chart.rows]
        widths = [sum(value for other, value in row.parts if other == key) for row in chart.rows]
        axes.barh(range(len(chart.rows)), widths, left=lefts, color=colour, height=0.62, label=short(key))
        middles += [
            (left + width / 2, i, key, width) for i, (left, width) in enumerate(zip(lefts, widths, strict=True)) if width
        ]
    axes.set_yticks(range(len(chart.rows)), [short(row.label, 16 if is_narrow else LONGEST) for row in chart.rows])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(4 if is_narrow else 8))
    axes.xaxis.set_major_formatter(lambda value, _: chart.amount(value))
    axes.set_xlabel(f"{chart.x_title}{f' ({note})' if note else ''}")
    if keys:
        figure.legend(loc="outside lower left", ncols=2 if is_narrow else 4, fontsize=11, handlelength=1.2)
    svg = saved(figure, name)
    readings = []
    for x, i, key, width in middles:
        across, up = axes.transData.transform((x, i))
        readings.append(Reading(float(across), size[1] - float(up), f"{chart.rows[i].label}\n{key}: {chart.amount(width)}"))
    return svg, readings


def short(text: str, longest: int = LONGEST) -> str:
    """Return a text, cut to a length."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
