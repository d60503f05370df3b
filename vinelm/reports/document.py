"""The content of a report, independent of its format: sections with tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vinelm.evaluation.plans.roles import Role
from vinelm.reports.budgets import BudgetSlider


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


Picture = Chart | FlowChart


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
        dollars: The dollars at equal quality in one sentence; empty where nothing is known of them.
        is_gain: Whether the headline reports a gain; sets its colour.
        budgets: The plans of a range of budgets, right below the headline.
        hero: The picture of the main result, below them.
        simulated: What was simulated, shown in the head and in every picture; None if nothing was.
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
    dollars: str = ""
    budgets: BudgetSlider | None = None
    hero: Picture | None = None
    terms: tuple[tuple[str, str], ...] = ()
