"""The pictures of a page, each drawn wide and narrow."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.reports.drawing.bars import draw_bars
from vinelm.reports.drawing.canvas import NARROW, WIDE, Reading, as_inline, drawing
from vinelm.reports.drawing.flows import draw_flows
from vinelm.reports.drawing.lines import draw_lines
from vinelm.reports.page.document import BarChart, FlowChart, Picture


def draw(picture: Picture, *, note: str = "") -> str:
    """Return a picture as two SVG elements for a page: a wide one for laptops and print, and a narrow one for phones.

    Args:
        picture: What to draw.
        note: Printed inside, so that an exported picture still has it.
    """
    label = f"{picture.title}: the figures are in the table below"
    with drawing():
        found = []
        for kind, size in (("wide", WIDE), ("narrow", NARROW)):
            name = f"{picture.name}-{kind}"
            svg, readings = _drawn(picture, size, name, note)
            found.append(as_inline(svg, name, kind, label, _in_order(readings)))
    return "\n".join(found)


def _drawn(picture: Picture, size: tuple[int, int], name: str, note: str) -> tuple[str, list[Reading]]:
    if isinstance(picture, FlowChart):
        return draw_flows(picture, size, name, note=note)
    if isinstance(picture, BarChart):
        return draw_bars(picture, size, name, note=note)
    return draw_lines(picture, size, name, note=note)


def _in_order(readings: Sequence[Reading]) -> list[Reading]:
    return sorted(readings, key=lambda one: (one.x, one.y))
