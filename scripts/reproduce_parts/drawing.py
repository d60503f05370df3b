"""Pictures as SVG files that any browser or paper takes: panels of lines or bars with one legend.

Plotly, which the reports use, draws in a browser only; its SVG export would need another one to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 400, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 34, 46
LEGEND_ROW = 18
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8d6a9f", "#e08e2b", "#5c6b73", "#00798c", "#9a6324", "#000000")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
INK, RULE = "#333333", "#dddddd"


@dataclass(frozen=True)
class Panel:
    """One chart.

    Args:
        title: above it.
        x_title: of the horizontal axis; of bars it is left out.
        y_title: of the vertical axis.
        lines: name to points (x, y); points without a value are left out.
        bars: name to value, instead of lines.
        is_log_x: logarithmic horizontal axis.
        is_log_y: logarithmic vertical axis.
    """

    title: str
    x_title: str
    y_title: str
    lines: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    bars: dict[str, float] = field(default_factory=dict)
    is_log_x: bool = False
    is_log_y: bool = False


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    is_log: bool
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], is_log: bool, start: float, end: float) -> _Axis:
        known = [value for value in values if math.isfinite(value) and (value > 0 or not is_log)] or [1.0]
        low, high = min(known), max(known)
        if is_log:
            low, high = low / 1.15, high * 1.15
        else:
            room = 0.05 * (high - low) or 0.5
            low, high = (0.0 if low >= 0 and low < 0.4 * high else low - room), high + room
        return cls(low, high, is_log, start, end)

    def at(self, value: float) -> float:
        """The place of a value in pixels."""
        ease: Callable[[float], float] = math.log if self.is_log else float
        share = (ease(value) - ease(self.low)) / (ease(self.high) - ease(self.low))
        return round(self.start + share * (self.end - self.start), 1)

    @property
    def ticks(self) -> list[float]:
        """Four to eight round values."""
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            digits = (1,) if len(powers) > 4 else (1, 2, 5)
            return [t for p in powers for digit in digits if self.low <= (t := digit * 10.0**p) <= self.high]
        rough = (self.high - self.low) / 5
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
        first = math.ceil(self.low / step)
        return [i * step for i in range(first, math.floor(self.high / step) + 1)]


def picture(title: str, panels: Sequence[Panel], columns: int = 3) -> str:
    """The text of an SVG file: the panels in rows, and one legend of all lines."""
    columns = min(columns, len(panels)) or 1
    rows = -(-len(panels) // columns)
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    bar_names = list(dict.fromkeys(name for panel in panels for name in panel.bars))
    legend_rows = -(-len(names) // (2 * columns))
    width, height = columns * WIDTH, 34 + rows * HEIGHT + legend_rows * LEGEND_ROW + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="system-ui, sans-serif" font-size="11" fill="{INK}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(12, 22, title, size=14, weight="bold"),
    ]
    for i, panel in enumerate(panels):
        parts.append(f'<g transform="translate({i % columns * WIDTH} {34 + i // columns * HEIGHT})">')
        parts += _bars(panel, bar_names) if panel.bars else _lines(panel, names)
        parts.append("</g>")
    parts += _legend(names, 34 + rows * HEIGHT + 12, 2 * columns)
    return "\n".join([*parts, "</svg>", ""])


def _lines(panel: Panel, names: Sequence[str]) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    x = _Axis.over([point[0] for point in points], panel.is_log_x, LEFT, WIDTH - RIGHT)
    y = _Axis.over([point[1] for point in points], panel.is_log_y, HEIGHT - BOTTOM, TOP)
    parts = _frame(panel, y)
    for tick in x.ticks:
        parts.append(_text(x.at(tick), HEIGHT - BOTTOM + 16, f"{tick:.4g}", anchor="middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, panel.x_title, anchor="middle"))
    for name, line in panel.lines.items():
        places = [(x.at(a), y.at(b)) for a, b in line if (a > 0 or not x.is_log) and (b > 0 or not y.is_log)]
        style = _style(names.index(name))
        parts.append(f'<polyline points="{" ".join(f"{a},{b}" for a, b in places)}" fill="none" {style}/>')
        if len(places) == 1:
            parts.append(f'<circle cx="{places[0][0]}" cy="{places[0][1]}" r="3" fill="none" {style}/>')
    return parts


def _bars(panel: Panel, names: Sequence[str]) -> list[str]:
    y = _Axis.over([0.0, *panel.bars.values()] if not panel.is_log_y else list(panel.bars.values()), panel.is_log_y,
                   HEIGHT - BOTTOM, TOP)  # fmt: skip
    parts = _frame(panel, y)
    step = (WIDTH - LEFT - RIGHT) / len(panel.bars)
    floor = HEIGHT - BOTTOM if panel.is_log_y else y.at(0.0)
    for i, (name, value) in enumerate(panel.bars.items()):
        top = y.at(value) if value > 0 or not panel.is_log_y else floor
        left = round(LEFT + (i + 0.15) * step, 1)
        parts.append(
            f'<rect x="{left}" y="{min(top, floor)}" width="{round(0.7 * step, 1)}" height="{round(abs(floor - top), 1)}" '
            f'fill="{COLOURS[names.index(name) % len(COLOURS)]}"/>'
        )
        middle = round(left + 0.35 * step, 1)
        parts.append(_text(middle, min(top, floor) - 3, f"{value:.3g}", anchor="middle", size=9))
        parts.append(_text(middle, HEIGHT - BOTTOM + (14 if i % 2 == 0 else 28), name, anchor="middle", size=9))
    return parts


def _frame(panel: Panel, y: _Axis) -> list[str]:
    parts = [_text(LEFT, TOP - 12, panel.title, weight="bold")]
    for tick in y.ticks:
        at = y.at(tick)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}" stroke="{RULE}"/>')
        parts.append(_text(LEFT - 6, at + 4, f"{tick:.4g}", anchor="end"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{escape(panel.y_title)}</text>'
    return [*parts, turned]


def _legend(names: Sequence[str], top: float, columns: int) -> list[str]:
    parts = []
    for i, name in enumerate(names):
        x, y = 20 + i % columns * WIDTH / 2, top + i // columns * LEGEND_ROW
        parts.append(f'<line x1="{x}" x2="{x + 26}" y1="{y - 4}" y2="{y - 4}" {_style(i)}/>')
        parts.append(_text(x + 32, y, name))
    return parts


def _style(index: int) -> str:
    dash = DASHES[index // len(COLOURS) % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="2"{dashed}'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">{escape(text)}</text>'
