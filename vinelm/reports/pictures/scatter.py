"""Draws a picture of policies by accuracy and cost, without a chart library."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

from vinelm.reports.document import Dot, Scatter
from vinelm.reports.pictures.sketch import CHARACTER, Sketch

_SIZES = {"wide": (560.0, 330.0), "narrow": (360.0, 228.0)}
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 16.0, 14.0, 42.0
_NEAR = 24.0
_ORDER = {"vinelm": 0, "in_use": 1}
"""The order in which dots choose the place of their name."""
_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Candidate distances between accuracy lines; the first that gives at most six lines is used."""


def plot_scatter(scatter: Scatter, kind: str, label: str, note: str = "") -> str:
    """Return the picture as an SVG element; ``kind`` is ``wide`` or ``narrow``.

    Each dot's name is written on a side where there is room, and its interval is drawn as a line. ``label`` describes the
    picture for screen readers; ``note`` is printed inside.
    """
    (width, tall), sketch = _SIZES[kind], Sketch()
    dots = sorted(scatter.dots, key=lambda dot: dot.usd)
    x_low, x_high = log10(dots[0].usd) - 0.12, log10(dots[-1].usd) + 0.12
    step = next((one for one in _STEPS if _lines(dots, one) <= 6), _STEPS[-1])
    y_low = floor(min(dot.low for dot in dots) / step) * step
    y_high = max(ceil(max(dot.high for dot in dots) / step) * step, y_low + step)

    def x_of(usd: float) -> float:
        return _LEFT + (log10(usd) - x_low) / (x_high - x_low) * (width - _LEFT - _RIGHT)

    def y_of(accuracy: float) -> float:
        return _TOP + (y_high - accuracy) / (y_high - y_low) * (tall - _TOP - _BOTTOM)

    for i in range(round((y_high - y_low) / step) + 1):
        level = y_low + i * step
        sketch.rule((_LEFT, y_of(level)), (width - _RIGHT, y_of(level)))
        sketch.text(_LEFT - 8, y_of(level) + 4, f"{100 * level:.0f} %", size=12, colour="muted", anchor="end")
    for usd in _amounts(x_low, x_high, most=7 if kind == "wide" else 5):
        sketch.rule((x_of(usd), _TOP), (x_of(usd), tall - _BOTTOM))
        sketch.text(x_of(usd), tall - _BOTTOM + 17, f"${usd:g}", size=12, colour="muted", anchor="middle")
    sketch.text(_LEFT, tall - 6, "dollars per 1,000 requests (log)", size=12)
    places = [(x_of(dot.usd), y_of(dot.accuracy)) for dot in dots]
    taken = {dot.name: (x - 8, y - 8, x + 8, y + 8) for dot, (x, y) in zip(dots, places, strict=True)}
    for dot in sorted(dots, key=lambda one: _ORDER.get(one.role, len(_ORDER))):
        x, y, is_own = x_of(dot.usd), y_of(dot.accuracy), dot.role == "vinelm"
        if dot.high > dot.low:
            sketch.rule((x, y_of(dot.low)), (x, y_of(dot.high)), colour=dot.role)
        sketch.mark(x, y, dot.role, is_diamond=is_own)
        others = [box for name, box in taken.items() if name != dot.name]
        length = len(dot.name) * CHARACTER * 12 * (1.12 if is_own else 1.0)  # it is bold
        is_left = any(
            0.0 <= other - x < _NEAR and abs(height - y) < _NEAR for other, height in places if (other, height) != (x, y)
        )
        place = _place(x, y, length, width, others, floor_y=tall - _BOTTOM, is_left=is_left, is_wanted=dot.role != "model")
        if place is not None:
            left, base = place
            taken[f"name of {dot.name}"] = (left, base - 10, left + length, base + 2)
            sketch.text(left, base, dot.name, size=12, is_bold=is_own)
        sketch.says(x - 10, y - 10, 20, 20, dot.hover)
    return sketch.svg(width, tall, kind, label, note)


def _lines(dots: list[Dot], step: float) -> int:
    return ceil(max(dot.high for dot in dots) / step) - floor(min(dot.low for dot in dots) / step) + 1


def _amounts(low: float, high: float, most: int) -> list[float]:
    """Return round dollar amounts for a logarithmic axis, at most ``most`` if possible.

    ``low`` and ``high`` are the decimal logarithms of the axis's ends.
    """
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [digit * 10.0**power for power in range(floor(low), ceil(high) + 1) for digit in digits]
        found = [usd for usd in found if low <= log10(usd) <= high]
        if len(found) <= most:
            break
    return found


def _place(
    x: float,
    y: float,
    length: float,
    width: float,
    taken: Sequence[tuple[float, float, float, float]],
    *,
    floor_y: float,
    is_left: bool,
    is_wanted: bool,
) -> tuple[float, float] | None:
    """Return where to write a dot's name: (its left end, its base line) in pixels.

    The place is right, left, above or below the dot, where the name overlaps the fewest boxes.

    Args:
        x: The dot's distance from the left in pixels.
        y: The dot's distance from the top in pixels.
        length: The length of the name in pixels.
        width: The width of the picture in pixels.
        taken: Boxes that are covered already, as (left, top, right, bottom).
        floor_y: The lowest allowed base line.
        is_left: Whether names on the right are not allowed, because another dot is close there.
        is_wanted: Whether the name is written even if it overlaps a box.

    Returns:
        None if every place overlaps a box and ``is_wanted`` is False; the name is then only in the dot's text and in
            the table.
    """
    right = [] if is_left else [(x + 13, y + 4), (x + 9, y - 8), (x + 9, y + 17)]
    left = [(x - 13 - length, y + 4), (x - 9 - length, y - 8), (x - 9 - length, y + 17)]
    middle = [(x - length / 2, y + down) for down in (-14, 24, -26, 36)]
    middle = [(max(_LEFT, min(begin, width - length)), base) for begin, base in middle]
    fits = [
        (begin, base)
        for begin, base in (*right, *left, *middle)
        if begin >= _LEFT - 4 and begin + length <= width and _TOP - 2 <= base <= floor_y
    ]

    def covered(place: tuple[float, float]) -> int:
        begin, base = place
        return sum(x0 < begin + length and x1 > begin and y0 < base + 2 and y1 > base - 10 for x0, y0, x1, y1 in taken)

    best = min(fits or middle, key=covered)
    return best if is_wanted or not covered(best) else None
