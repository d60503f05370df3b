"""What says nothing is left out of a page, and a sentence says so: charts of one point, columns without any figure."""

from __future__ import annotations

from dataclasses import replace

from vinelm.reports.document import Chart, Section, Table

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
