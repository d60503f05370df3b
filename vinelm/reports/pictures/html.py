"""Renders a report as one self-contained HTML file: script, styles and pictures are inlined, nothing is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from vinelm.errors import ConfigError
from vinelm.io.atomic import write_atomic
from vinelm.reports.budgets import BudgetSlider
from vinelm.reports.document import Chart, Report, Scatter
from vinelm.reports.pictures.budgets import budget_data, budget_table, plotted_budgets
from vinelm.reports.pictures.canvas import NARROW, WIDE, as_inline, plotting
from vinelm.reports.pictures.lines import plot_lines
from vinelm.reports.pictures.scatter import plot_scatter

_SECONDS = re.compile(r"(\d) s\b")


def render(report: Report) -> str:
    """Return the report as HTML. Every text is escaped, in tables and pictures."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    note = ", ".join([*(["simulated models"] if report.simulated else []), *(["oracle stop"] if report.oracle else [])])
    environment = Environment(
        loader=PackageLoader("vinelm.reports", "pictures"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        finalize=_typeset,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["filename"] = _filename
    environment.filters["finite"] = _finite
    pictures = {picture.name: _plot(picture, note=note) for picture in _pictures(report)}
    budgets = {} if report.budgets is None else _budgets(report.budgets, note)
    return environment.get_template("report.html").render(report=report, pictures=pictures, **{"slider": None, **budgets})


def _budgets(slider: BudgetSlider, note: str) -> dict[str, Any]:
    """Return the HTML template's data about the plans of several budgets: ``slider``, ``parts``, ``data`` and ``budget_table``.

    ``note`` is printed inside each picture.
    """
    slider, parts = plotted_budgets(slider, note)
    data = budget_data(slider, parts, _typeset)
    return {"slider": slider, "parts": parts, "data": data, "budget_table": budget_table(slider)}


def _pictures(report: Report) -> Iterator[Chart | Scatter]:
    if report.card is not None and report.card.picture is not None:
        yield report.card.picture
    for section in report.sections:
        yield from (part for part in section.parts if isinstance(part, Chart))


def _plot(picture: Chart | Scatter, *, note: str = "") -> str:
    """Return a picture as two SVG elements: a wide one for laptops and print, and a narrow one for phones.

    ``note`` is printed inside the picture, so that an exported picture still has it.
    """
    label = f"{picture.title}: arrow keys read out its points"
    if isinstance(picture, Scatter):
        return "\n".join(plot_scatter(picture, kind, label, note) for kind in ("wide", "narrow"))
    with plotting():
        found = []
        for kind, size in (("wide", WIDE), ("narrow", NARROW)):
            name = f"{picture.name}-{kind}"
            svg, readings = plot_lines(picture, size, name, note=note)
            found.append(as_inline(svg, name, kind, label, sorted(readings, key=lambda one: (one.x, one.y))))
    return "\n".join(found)


def _finite(value: Any) -> Any:
    """Return a value of JSON types in which NaN and infinity are replaced by None, because browsers cannot read them."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


def _filename(title: str) -> str:
    """Return a title as the name of a file: letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60] or "table"


def _typeset(value: object) -> object:
    """Return a text with typographic signs, and with each figure and its unit kept on one line; markup stays unchanged."""
    if type(value) is not str:
        return value
    for plain, typeset in (("<= ", "≤\N{NO-BREAK SPACE}"), (">= ", "≥\N{NO-BREAK SPACE}"), (" %", "\N{NO-BREAK SPACE}%")):
        value = value.replace(plain, typeset)
    return _SECONDS.sub("\\1\N{NO-BREAK SPACE}s", value)


def require_page(path: Path) -> None:
    """Raise if the file at ``path`` exists and is not an HTML page.

    Raises:
        ConfigError: The file is not an HTML page, and writing would overwrite it.
    """
    if not path.is_file():  # missing, or reported when writing: opening a pipe would wait for its writer
        return
    try:
        with path.open("rb") as file:
            head = file.read(256).lstrip().lower()
    except OSError:  # the error is reported when writing
        return
    if head and not head.startswith((b"<!doctype html", b"<html")):
        raise ConfigError(f"{path}: exists, and is no HTML page: use another name for the report", code="output-not-writable")


def write_page(report: Report, path: str | Path) -> Path:
    """Write the report as an HTML file, atomically, and return its path.

    Raises:
        ConfigError: The file cannot be written, or is not a page and would be overwritten.
    """
    target = Path(path)
    require_page(target)
    text = render(report)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, text.encode())
    except OSError as error:
        raise ConfigError(
            f"{target}: cannot write the report ({error.strerror}): choose another folder", code="output-not-writable"
        ) from error
    return target
