"""The content of a report, independent of its format: sections with tables and pictures, without those that say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vinelm.evaluation.plans.plans import Role
from vinelm.reports.budgets import BudgetSlider

UNKNOWN = frozenset({"not identified", "too few", "-"})
"""Cells that have no figure."""


def readable(section: Section) -> Section:
    """Return a section without charts that would be empty or have one point, and without columns that have no figure."""
    parts = [one for one in section.parts if not isinstance(one, Chart) or says_enough(one)]
    left_out = tuple(why_left_out(one) for one in section.parts if isinstance(one, Chart) and not says_enough(one))
    return replace(
        section,
        findings=(*section.findings, *left_out),
        parts=tuple(_without_unknown(one) if isinstance(one, Table) else one for one in parts),
    )


def says_enough(chart: Chart) -> bool:
    """Return whether a chart has points at two places at least."""
    places = {(float(x), float(y)) for one in chart.series for x, y in zip(one.x, one.y, strict=True)}
    return len(places) > 1


def why_left_out(chart: Chart) -> str:
    """Return the sentence in the place of a chart."""
    has_points = any(len(one.x) for one in chart.series)
    why = "all of its points fall on one place" if has_points else "the rows tell no point of it well enough to draw it"
    return f"There is no chart “{chart.title}”: {why}."


def _without_unknown(table: Table) -> Table:
    """A table without the columns in which no row has a figure; its note names those of them that are not known."""
    cells = [{row.cells[i] for row in table.rows} for i in range(len(table.columns))]
    empty = [i for i, each in enumerate(cells) if i and each and each <= UNKNOWN]
    if not empty:
        return table
    kept = [i for i in range(len(table.columns)) if i not in empty]
    named = [f"“{table.columns[i]}”" for i in empty if cells[i] != {"-"}]
    note = ""
    if named:
        columns = "The columns" if len(named) > 1 else "The column"
        note = (
            f" {columns} {' and '.join(named)} {'are' if len(named) > 1 else 'is'} left out: too few rows were bought for it."
        )
    return replace(
        table,
        columns=tuple(table.columns[i] for i in kept),
        rows=tuple(replace(row, cells=tuple(row.cells[i] for i in kept)) for row in table.rows),
        text_columns=tuple(kept.index(i) for i in table.text_columns if i in kept),
        note=f"{table.note}{note}".strip(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line or set of points in a chart.

    ``low`` and ``high`` are the ends of the interval of each ``y``; ``hover`` holds one text per point, in lines.
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
class Mark:
    """A ring around a place in a chart, named in its legend."""

    x: float
    y: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart of lines and points. ``name`` identifies it within the page; percentages are given as fractions."""

    name: str
    title: str
    caption: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    x_prefix: str = ""
    x_is_log: bool = False
    x_is_percent: bool = False
    y_is_percent: bool = True
    has_diagonal: bool = False
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowBand:
    """Requests that go from ``source`` to ``target`` after ``depth`` invocations; None: the start, and the end."""

    depth: int
    source: str | None
    target: str | None
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowChart:
    """The flow of requests through a plan. Nodes are named ``stage: model``; ``colours`` are the models in order."""

    name: str
    title: str
    caption: str
    flows: tuple[FlowBand, ...]
    colours: tuple[str, ...]

    def colour_of(self, label: str) -> int:
        """Return the number of the colour of a node: that of its model."""
        model = label.split(": ", 1)[-1]
        return self.colours.index(model) if model in self.colours else len(self.colours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A policy in a :class:`Scatter`: dollars per 1,000 requests, > 0; accuracy and the ends of its interval, fractions."""

    name: str
    role: Role
    usd: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Policies by accuracy and dollars (on a logarithmic axis). The dot of role ``vinelm`` is a diamond."""

    name: str
    title: str
    caption: str
    dots: tuple[Dot, ...]


Picture = Chart | FlowChart | Scatter


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
    """A heading with a paragraph and a list of findings, followed by pictures and tables."""

    title: str
    intro: str = ""
    findings: tuple[str, ...] = ()
    parts: tuple[Table | Picture, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One page.

    Attributes:
        headline: The main result in one sentence.
        is_gain: Whether the headline is to switch; sets its colour.
        budgets: The plans of a range of budgets, right below the headline.
        hero: The picture of the main result, below them.
        simulated: What was simulated, shown in the head and in every picture; None if nothing was.
        oracle: What the oracle stop means, shown likewise; "" under the workflow's own stop.
        terms: (term, explanation) pairs, for a reader who meets them for the first time.
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
    oracle: str = ""
    budgets: BudgetSlider | None = None
    hero: Picture | None = None
    terms: tuple[tuple[str, str], ...] = ()
