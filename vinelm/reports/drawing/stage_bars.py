"""Bars by stage: what each plan spends there, made of its models, with the name and the amount written out."""

from __future__ import annotations

from vinelm.reports.budgets import StageBars
from vinelm.reports.drawing.graph import NARROW, WIDE
from vinelm.reports.drawing.sketch import ColourOf, Sketch

_BAR, _ROW, _HEAD = 14.0, 22.0, 24.0


def draw_stage_bars(bars: StageBars, colour_of: ColourOf, kind: str, label: str, note: str = "") -> str:
    """Return the bars as an SVG element of this kind, ``wide`` or ``narrow``."""
    room = WIDE if kind == "wide" else NARROW
    names = 130.0 if kind == "wide" else 92.0
    length = room - names - 76.0
    sketch, y = Sketch(), 0.0
    for stage, plans in bars.stages:
        sketch.text(0, y + 16, stage, room=room, is_bold=True)
        y += _HEAD
        for name, parts in plans:
            x, total = names, sum(amount for _, amount in parts)
            sketch.text(0, y + 12, name, room=names - 6, size=12, colour="muted")
            for model, amount in parts:
                width = length * amount / bars.most if bars.most > 0.0 else 0.0
                sketch.bar(x, y + 1, width, _BAR, colour_of(model))
                x += width
            sketch.text(x + 6, y + 12, bars.amount(total), size=12)
            lines = [f"{stage}, {name}: {bars.amount(total)}", *(f"{model}: {bars.amount(part)}" for model, part in parts)]
            sketch.says(names, y, max(x - names, 18.0), _BAR + 2, "\n".join(lines))
            y += _ROW
        y += 6
    keys = list(dict.fromkeys(model for _, plans in bars.stages for _, parts in plans for model, _ in parts))
    columns = 4 if kind == "wide" else 2
    for i, model in enumerate(keys):
        at = (i % columns) * room / columns
        sketch.bar(at, y + 5, 10, 10, colour_of(model))
        sketch.text(at + 15, y + 14, model, room=room / columns - 20, size=12)
        y += 18 if i % columns == columns - 1 or i == len(keys) - 1 else 0
    return sketch.svg(room, y + 6, kind, label, note)
