"""Writes SVG directly, for pictures of boxes, lines, dots and words: small, and in the colours of the page's theme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from textwrap import wrap

from vinelm.reports.pictures.canvas import MODEL_COLOURS

CHARACTER = 0.56
"""Width of a character relative to its font size, with some room: fonts are not measured, as each device has its own."""
ARROW = 5.0

ColourOf = Callable[[str], int]
"""Returns the index of a model's colour."""


class Sketch:
    """A picture under construction, as SVG. All text is escaped. A text that was cut is shown in full if the reader points
    at its box.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._boxes: list[str] = []
        self._hits: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        room: float = 1e9,
        size: float = 13,
        colour: str = "ink",
        anchor: str = "",
        is_bold: bool = False,
    ) -> None:
        """Write words whose base line begins at (``x``, ``y``) in pixels, cut to fit ``room`` pixels.

        ``colour`` is a colour of the page; ``anchor`` is SVG's ``text-anchor``, such as ``middle``.
        """
        extras = f' font-size="{size:g}"' if size != 13 else ""
        extras += f' fill="var(--{colour})"' if colour != "ink" else ""
        extras += f' text-anchor="{anchor}"' if anchor else ""
        extras += ' font-weight="600"' if is_bold else ""
        self._boxes.append(f'<text x="{x:.0f}" y="{y:.0f}"{extras}>{escape(fitted(words, room, size))}</text>')

    def box(self, x: float, y: float, width: float, height: float, *, fill: str = "card", edge: str = "rule") -> None:
        """Draw a box with round corners, whose top left corner is at (``x``, ``y``).

        ``fill`` and ``edge`` are colours of the page.
        """
        radius = min(6.0, width / 2, height / 2)
        across, down = width - 2 * radius, height - 2 * radius
        arc = f"a{radius:g} {radius:g} 0 0 1"
        path = (
            f"M{x + radius:.1f} {y:.1f}h{across:.1f}{arc} {radius:g} {radius:g}v{down:.1f}{arc} -{radius:g} {radius:g}"
            f"h{-across:.1f}{arc} -{radius:g} -{radius:g}v{-down:.1f}{arc} {radius:g} -{radius:g}z"
        )
        stroke = f' stroke="var(--{edge})"' if edge else ""
        self._boxes.append(f'<path d="{path}" fill="var(--{fill})"{stroke}/>')

    def bar(self, x: float, y: float, width: float, height: float, colour: int) -> None:
        """Draw a filled rectangle in the colour of a model; ``colour`` is the index of that colour."""
        self._boxes.append(
            f'<path d="M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z" fill="var(--model-{colour % MODEL_COLOURS})"/>'
        )

    def line(self, points: Sequence[tuple[float, float]], *, has_arrow: bool = False, width: float = 1.4) -> None:
        """Draw a line of ``width`` pixels through the points, with an arrow at its end if ``has_arrow``."""
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        stroke = f' stroke-width="{width:.1f}"' if width != 1.4 else ""
        self._lines.append(f'<path d="{path}"{stroke}/>')
        if has_arrow:
            (x0, y0), (x, y) = points[-2:]
            dx, dy = (x > x0) - (x < x0), (y > y0) - (y < y0)
            if dx and dy:  # an arrow keeps the direction of the graph, also at the end of a slanted line
                dy = 0
            back = x - ARROW * dx, y - ARROW * dy
            one, two = (back[0] + ARROW * dy, back[1] + ARROW * dx), (back[0] - ARROW * dy, back[1] - ARROW * dx)
            self._lines.append(f'<path d="M{one[0]:.1f} {one[1]:.1f}L{x:.1f} {y:.1f}L{two[0]:.1f} {two[1]:.1f}"/>')

    def rule(self, one: tuple[float, float], other: tuple[float, float], *, colour: str = "rule") -> None:
        """Draw a thin line between the points ``one`` and ``other`` in a colour of the page, for a grid or an interval."""
        path = f"M{one[0]:.1f} {one[1]:.1f}L{other[0]:.1f} {other[1]:.1f}"
        self._boxes.append(f'<path d="{path}" stroke="var(--{colour})" stroke-width="1.2"/>')

    def dot(self, x: float, y: float, *, is_end: bool = False) -> None:
        """Draw the dot that marks the start of the graph or, if ``is_end``, an end of the graph."""
        ring = "a5 5 0 1 1 10 0a5 5 0 1 1 -10 0z"
        fill = "var(--muted)" if not is_end else "var(--paper)"
        self._boxes.append(f'<path d="M{x - 5:.1f} {y:.1f}{ring}" fill="{fill}" stroke="var(--muted)" stroke-width="2"/>')

    def mark(self, x: float, y: float, colour: str, *, is_diamond: bool = False) -> None:
        """Draw a point of a chart in a colour of the page: a disc or, if ``is_diamond``, a larger diamond."""
        shape = (
            f"M{x:.1f} {y - 9:.1f}l9 9l-9 9l-9 -9z" if is_diamond else f"M{x - 6:.1f} {y:.1f}a6 6 0 1 1 12 0a6 6 0 1 1 -12 0z"
        )
        self._boxes.append(f'<path d="{shape}" fill="var(--{colour})"/>')

    def says(self, x: float, y: float, width: float, height: float, words: str) -> None:
        """Add an invisible rectangle that shows the text ``words`` when readers point at it or reach it by the arrow keys."""
        self._hits.append(
            f'<rect class="hit" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" data-tip="{escape(words)}"/>'
        )

    def svg(self, width: float, height: float, kind: str, label: str, note: str = "") -> str:
        """Return the picture as an SVG element; ``kind`` is ``wide`` or ``narrow``.

        ``width`` and ``height`` are in pixels. ``label`` describes the picture for screen readers. ``note`` is printed
        inside the picture, so that an exported picture still has it.
        """
        if note:
            self.text(4, height + 12, note, size=11, colour="muted")
            height += 18
        return (  # with a pixel around it, so that lines at the edges are drawn whole
            f'<svg class="{kind}" viewBox="0 0 {width + 2:.0f} {height + 2:.0f}" role="img" aria-label="{escape(label)}" '
            'xmlns="http://www.w3.org/2000/svg" font-size="13" fill="var(--ink)">'
            f'<g transform="translate(1 1)"><g fill="none" stroke="var(--muted)" stroke-width="1.4">{"".join(self._lines)}</g>'
            f"{''.join(self._boxes)}{''.join(self._hits)}</g></svg>"
        )


def fitted(words: str, room: float, size: float = 13) -> str:
    """Return words, cut to fit ``room`` pixels; ``size`` is the font's size in pixels."""
    most = max(int(room / (CHARACTER * size)), 2)
    return words if len(words) <= most else f"{words[: most - 1].rstrip()}…"


def wrapped(words: str, room: float, size: float = 13) -> list[str]:
    """Return words in at most two lines of ``room`` pixels, cut if they do not fit; ``size`` is the font's size in pixels."""
    first, *rest = wrap(words, max(int(room / (CHARACTER * size)), 2))
    return [first, fitted(" ".join(rest), room, size)] if rest else [first]
