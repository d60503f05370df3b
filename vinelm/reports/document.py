"""What a report is made of, before it has a look: sections of tables and charts, and the figures' plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vinelm.evaluation import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line or cloud of a chart. ``low`` and ``high`` are interval ends of ``y``; ``hover`` holds one text per point."""

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
    """One figure. ``name`` identifies it within the page."""

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
    """One table row; ``role`` marks it with that policy's colour, ``detail`` stands small under the first cell."""

    cells: tuple[str, ...]
    role: Role | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table. ``text_columns`` are set left, the others right, as figures. A folded table opens on a click and in print."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    text_columns: tuple[int, ...] = (0,)
    note: str = ""
    is_folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with a paragraph and a list of findings, then its charts and tables in order."""

    title: str
    intro: str = ""
    findings: tuple[str, ...] = ()
    parts: tuple[Table | Chart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One page. ``simulated`` says in a line what was not real; it goes into the head and into every chart.

    ``summary`` stands under the headline: the whole page in a few rows.
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
