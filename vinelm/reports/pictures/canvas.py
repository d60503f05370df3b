"""Converts a Matplotlib figure to inline SVG with the theme's colours, unique ids, and points with texts."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from vinelm.extras import require_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE, NARROW = (880, 400), (380, 380)
"""Width and height of a picture in CSS pixels: on a laptop and in print, and on a phone."""
MODEL_COLOURS = 8
"""Number of colours for models, ``--model-0`` and so on; further models reuse them."""
LONGEST = 26
"""How many characters of a label are shown; the table and the point's text have it in full."""
ROLES = ("vinelm", "paths", "full", "static", "single", "model", "vote", "two_agree")

_NAMES = ("ink", "muted", "rule", "paper", "chosen", *ROLES, *(f"model-{i}" for i in range(MODEL_COLOURS)))
COLOURS: Mapping[str, str] = {name: f"#{0xA1B000 + i:06x}" for i, name in enumerate(_NAMES)}
"""A placeholder for each of the page's colours: Matplotlib draws with it, and the page's own variable replaces it."""


class Reading(NamedTuple):
    """A point of a picture that shows a text if the reader points at it.

    Args:
        x, y: The point's place in pixels from the top left.
        text: The text of the point, in lines.
    """

    x: float
    y: float
    text: str


@contextmanager
def plotting() -> Iterator[None]:
    """Set Matplotlib's options inside a ``with`` block: text in SVG stays text, and dollar signs do not begin formulas."""
    require_extra("report", "a report", "matplotlib")
    import matplotlib as mpl

    settings = {
        "svg.fonttype": "none",
        "text.parse_math": False,
        "font.family": "DejaVu Sans",
        "font.size": 12,
        "text.color": COLOURS["ink"],
        "axes.labelcolor": COLOURS["ink"],
        "axes.edgecolor": COLOURS["rule"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": COLOURS["rule"],
        "grid.linewidth": 0.7,
        "xtick.color": COLOURS["rule"],
        "ytick.color": COLOURS["rule"],
        "xtick.labelcolor": COLOURS["ink"],
        "ytick.labelcolor": COLOURS["ink"],
        "legend.frameon": False,
    }
    with mpl.rc_context(settings):  # type: ignore[arg-type]
        yield


def new_figure(size: tuple[int, int]) -> Figure:
    """Return an empty figure with automatic layout; ``size`` is its width and height in pixels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size[0] / 72, size[1] / 72), dpi=72, layout="constrained")
    figure.patch.set_alpha(0.0)
    return figure


def saved(figure: Figure, name: str) -> str:
    """Return the figure as SVG text. Its ids begin with ``name``, so that several pictures fit on one page."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return buffer.getvalue()


def as_inline(svg: str, name: str, kind: str, label: str, readings: list[Reading]) -> str:
    """Return SVG text for use inside a page.

    Args:
        svg: The result of :func:`saved`.
        name: The beginning of every id.
        kind: A class of the element: ``wide`` or ``narrow``.
        label: A description of the picture for screen readers.
        readings: Points to add, which readers can point at or reach by the arrow keys.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r'\b(id|gid)="([^"]+)"', rf'\1="{name}-\2"', body)
    body = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", body)
    body = re.sub(r"font-family: [^;\"]*|(font: [^;\"]*?) '[^;\"]*", lambda m: (m[1] and f"{m[1]} sans-serif") or "", body)
    for colour, stand_in in COLOURS.items():
        body = body.replace(stand_in, f"var(--{colour})")
    body = re.sub(r"\n\s*", "\n", body)
    box = re.search(r'viewBox="([^"]+)"', body)
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    head = f'<svg class="{kind}" viewBox="{box[1] if box else ""}" role="img" aria-label="{escape(label)}"'
    body = re.sub(r"^<svg\b[^>]*>", f"{head} {spaces}>", body)
    hits = "".join(
        f'<circle class="hit" cx="{one.x:.1f}" cy="{one.y:.1f}" r="9" data-tip="{escape(one.text)}"/>' for one in readings
    )
    return body.strip().removesuffix("</svg>") + hits + "</svg>"


def short(text: str, longest: int = LONGEST) -> str:
    """Return a text, shortened to at most ``longest`` characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
