"""The flow of requests through a plan, as bands between columns: a Sankey picture."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from vinelm.reports.drawing.canvas import COLOURS, MODEL_COLOURS, Reading, new_figure, saved, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vinelm.reports.document import FlowChart

END = "answer returned"
_GAP, _BAR = 0.06, 0.035
Place = tuple[int, str]


def draw_flows(chart: FlowChart, size: tuple[int, int], name: str, *, note: str = "") -> tuple[str, list[Reading]]:
    """Return the flows as SVG text, and the nodes. Columns are invocations; where requests end, they stay.

    On a narrow picture the columns have short labels; what a node says has the whole one.
    """
    figure = new_figure(size)
    axes = figure.subplots()
    axes.set_axis_off()
    boxes = _boxes(chart)
    columns = max(column for column, _ in boxes) + 1
    room = 0.62 if size[0] < 600 else 0.72  # of the last column, for its labels
    axes.set_xlim(-0.05, columns - 1 + room)
    bottom = max(top + height for top, height in boxes.values())
    axes.set_ylim(bottom + 0.1, -0.12)
    _draw_bands(axes, chart, boxes)
    longest = 13 if size[0] < 600 else 24
    readings_at = []
    for (column, label), (top, height) in boxes.items():
        colour = COLOURS["muted"] if label == END else COLOURS[f"model-{chart.colour_of(label) % MODEL_COLOURS}"]
        axes.fill_between([column, column + _BAR], top, top + height, color=colour, linewidth=0, zorder=3)
        text = f"{short(_model(label), longest)}\n{100 * height * _total(chart):.0f} %"
        axes.text(column + _BAR + 0.02, top + height / 2, text, va="center", size=11, zorder=4)
        whole = f"{label}\n{100 * height * _total(chart):.1f} % of all requests"
        readings_at.append((column + _BAR / 2, top + height / 2, whole))
    for column in range(columns):
        words = "end" if all(label == END for at, label in boxes if at == column) else f"invocation {column + 1}"
        axes.text(column, -0.07, words, color=COLOURS["muted"], size=11)
    if note:
        axes.text(0.0, bottom + 0.09, note, color=COLOURS["muted"], size=11)
    svg = saved(figure, name)
    readings = []
    for x, y, whole in readings_at:
        across, up = axes.transData.transform((x, y))
        readings.append(Reading(float(across), size[1] - float(up), whole))
    return svg, readings


def _total(chart: FlowChart) -> float:
    return max(sum(flow.share for flow in chart.flows if flow.depth == 0), 1e-9)


def _model(label: str) -> str:
    """A node's label without its stage: the caption of the page has the stages."""
    return label.split(": ", 1)[-1]


def _boxes(chart: FlowChart) -> dict[Place, tuple[float, float]]:
    """Top and height of each node, all requests being 1 high. Requests that end stand below the models of their column."""
    sizes: dict[Place, float] = defaultdict(float)
    for flow in chart.flows:
        place = flow.depth, flow.target or END
        sizes[place] += flow.share / _total(chart)
    found: dict[Place, tuple[float, float]] = {}
    for column in sorted({column for column, _ in sizes}):
        inside = sorted((place for place in sizes if place[0] == column), key=lambda place: (place[1] == END, -sizes[place]))
        top = 0.0
        for place in inside:
            found[place] = (top, sizes[place])
            top += sizes[place] + _GAP
    return found


def _draw_bands(axes: Axes, chart: FlowChart, boxes: dict[Place, tuple[float, float]]) -> None:
    import numpy as np

    left: dict[Place, float] = {place: top for place, (top, _) in boxes.items()}
    right = dict(left)
    s = np.linspace(0.0, 1.0, 24)
    ease = s * s * (3.0 - 2.0 * s)
    ordered = sorted(chart.flows, key=lambda flow: (flow.depth, boxes[flow.depth, flow.target or END][0]))
    for flow in ordered:  # from top to bottom, so that bands that leave one node do not cross
        if flow.source is None:
            continue
        start, end = (flow.depth - 1, flow.source), (flow.depth, flow.target or END)
        height = flow.share / _total(chart)
        top, bottom = right[start] + 0 * s, left[end] + 0 * s
        upper = top + (bottom - top) * ease
        colour = COLOURS[f"model-{chart.colour_of(flow.source) % MODEL_COLOURS}"]
        x = start[0] + _BAR + (end[0] - start[0] - _BAR) * s
        axes.fill_between(x, upper, upper + height, color=colour, alpha=0.28, linewidth=0, zorder=1)
        right[start] += height
        left[end] += height
