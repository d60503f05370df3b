"""Defines the content of a report, independent of its format: sections with tables and pictures. Empty parts are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vinelm.evaluation.plans.plans import Role
from vinelm.reports.budgets import BudgetSlider

UNKNOWN = frozenset({"not identified", "too few", "-"})
"""The text of cells without a figure."""


def readable(section: Section) -> Section:
    """Return a section without empty table columns, and without charts that have fewer than two different points."""
    parts = [one for one in section.parts if not isinstance(one, Chart) or says_enough(one)]
    left_out = tuple(why_left_out(one) for one in section.parts if isinstance(one, Chart) and not says_enough(one))
    return replace(
        section,
        findings=(*section.findings, *left_out),
        parts=tuple(_without_unknown(one) if isinstance(one, Table) else one for one in parts),
    )


def says_enough(chart: Chart) -> bool:
    """Return whether a chart has points at two or more different places."""
    places = {(float(x), float(y)) for one in chart.series for x, y in zip(one.x, one.y, strict=True)}
    return len(places) > 1


def why_left_out(chart: Chart) -> str:
    """Return a sentence that says why a chart with too few points is left out."""
    has_points = any(len(one.x) for one in chart.series)
    why = "all of its points fall on one place" if has_points else "the rows tell no point of it well enough to draw it"
    return f"There is no chart “{chart.title}”: {why}."


def _without_unknown(table: Table) -> Table:
    """Return a table without the columns in which every figure is unknown; the table's note names these columns."""
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

    Attributes:
        name: The name in the legend.
        role: The policy that it shows, which sets the colour.
        x, y: The coordinates of the points, in the units of the chart's axes.
        low, high: The ends of the interval of each ``y``; empty without intervals.
        hover: One text per point, in lines; empty without texts.
        is_line: Whether the points are joined by a line.
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
    """One chart of lines and points.

    Attributes:
        name: A name that is unique within the page.
        title, caption: The texts above and below the chart.
        x_title, y_title: The titles of the axes.
        series: The lines and points. Percentages are given as fractions.
        x_prefix: A text before each number of the x axis, such as ``$``.
        x_is_log: Whether the x axis is logarithmic.
        x_is_percent, y_is_percent: Whether the axis shows fractions as percentages.
        has_diagonal: Whether the line of equal x and y is drawn.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A policy in a :class:`Scatter`.

    Attributes:
        name: The label of the dot.
        role: Sets the dot's colour; role ``vinelm`` is drawn as a diamond.
        usd: Dollars per 1,000 requests, > 0.
        accuracy: A fraction; ``low`` and ``high`` are the ends of its interval, equal to ``accuracy`` if no interval is
            drawn.
        hover: The text of the dot, in lines.
    """

    name: str
    role: Role
    usd: float
    accuracy: float
    low: float
    high: float
    hover: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """A picture of at least two policies as dots, placed by accuracy and cost; the cost axis is logarithmic."""

    name: str
    title: str
    caption: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure of a :class:`Card`, for the baseline and for the plan.

    Attributes:
        name: The name of the figure.
        before: The baseline's value. Without ``after`` it is the only value, or the reason why the figure is missing.
        after: The plan's value; empty without a plan.
        change: The difference between the two values; empty if it is not shown.
    """

    name: str
    before: str
    after: str = ""
    change: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The verdict at a glance: the part of a page above the fold.

    Attributes:
        word: The verdict's word, such as ``SWITCH``.
        rest: A few words that follow the word; may be empty.
        basis: The plans that are compared, and the number of requests that they are compared on.
        measures: Cost, accuracy and latency.
        plan: The plan in one line, with the share of the requests that takes each branch; empty without a plan.
        picture: Plans by accuracy and cost; None if they cannot be drawn.
        code: The plan as lines of Python, to be copied; empty if there is no plan to switch to.
        command: The command line that prints the plan, to be copied.
        data: The verdict as JSON types, to be saved.
    """

    word: str
    rest: str
    basis: str
    measures: tuple[Measure, ...]
    plan: str
    picture: Scatter | None
    code: str
    command: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleAnswer:
    """One policy's answer to one request.

    ``models`` and ``usd`` are texts for display; ``text`` is the answer itself, empty if it is not shown.
    """

    models: str
    is_right: bool
    usd: str
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One request with the answers of two policies: ``before``, such as the current setup, and ``after``."""

    request: str
    before: ExampleAnswer
    after: ExampleAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Requests on which two policies ran different models, or on which only one of the policies gave a right answer.

    Attributes:
        before: The name of the first policy.
        after: The name of the second policy.
        note: How the requests were chosen.
        shown: The requests with both answers.
    """

    before: str
    after: str
    note: str
    shown: tuple[Example, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One table row. ``role`` sets its colour; ``detail`` is small print under the first cell."""

    cells: tuple[str, ...]
    role: Role | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table.

    Attributes:
        title: The heading.
        columns: The headings of the columns.
        rows: The rows.
        text_columns: The indices of the columns that are aligned left; figures are aligned right.
        note: A text below the table; may be empty.
        is_folded: Whether the table is hidden until a click; it is always open in print.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    text_columns: tuple[int, ...] = (0,)
    note: str = ""
    is_folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of a report: a heading, a paragraph, a list of findings, then charts and tables."""

    title: str
    intro: str = ""
    findings: tuple[str, ...] = ()
    parts: tuple[Table | Chart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The content of one report page.

    Attributes:
        headline: The main result in one sentence.
        is_gain: Whether the headline advises to switch; sets its colour.
        card: The verdict at a glance, above the headline. With a card, everything below is folded.
        examples: Requests with the answers of the plan and of the baseline.
        budgets: The plans of a range of budgets.
        simulated: A note on what was simulated, shown in the head and in every picture; None if nothing was simulated.
        oracle: A note for figures that assume that requests stop at the first right answer (the ``oracle`` stop rule),
            shown in the head and in every picture; "" under the workflow's own stop rule.
        terms: (term, explanation) pairs, for a reader who meets them for the first time.
        provenance: (name, value) pairs on the origin of the figures, at the end of the page.
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
    card: Card | None = None
    examples: Examples | None = None
    budgets: BudgetSlider | None = None
    terms: tuple[tuple[str, str], ...] = ()
