"""The content of a report, independent of its format: sections with tables and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vinelm.evaluation import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line or set of points in a chart.

    ``low`` and ``high`` are the ends of the interval of each ``y``; ``hover`` holds one text per point.
    """

    name: str
    role: Role
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    hover: Sequence[str] = ()
    is_line: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart. ``name`` identifies it within the page."""

    name: str
    title: str
    caption: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    x_prefix: str = ""
    x_is_log: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One table row. ``role`` sets its colour; ``detail`` is small print under the first cell."""

    cells: tuple[str, ...]
    role: Role | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table. ``text_columns`` are aligned left, figures right. A folded table opens on a click, and in print."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    text_columns: tuple[int, ...] = (0,)
    note: str = ""
    is_folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with a paragraph and a list of findings, followed by charts and tables."""

    title: str
    intro: str = ""
    findings: tuple[str, ...] = ()
    parts: tuple[Table | Chart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One page.

    Attributes:
        headline: The main result in one sentence.
        is_gain: Whether the headline reports a gain; sets its colour.
        summary: The main results as a table under the headline.
        simulated: What was simulated, shown in the head and in every chart; None if nothing was.
        provenance: (name, value) pairs at the end of the page.
    """

    title: str
    subtitle: str
    headline: str
    is_gain: bool
    findings: tuple[str, ...]
    sections: tuple[Section, ...]
    provenance: tuple[tuple[str, str], ...]
    simulated: str | None = None
    summary: Table | None = None
