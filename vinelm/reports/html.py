"""Render a report as one self-contained HTML file: scripts, styles and charts are inlined, nothing is loaded."""

from __future__ import annotations

import re
from pathlib import Path

from vinelm.errors import ConfigError
from vinelm.io import write_atomic
from vinelm.reports.charts import figure
from vinelm.reports.document import Chart, Report

_SECONDS = re.compile(r"(\d) s\b")


def render(report: Report) -> str:
    """Return the report as HTML. Plotly's script is inlined once; every text is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
    from plotly.offline import get_plotlyjs

    note = "simulated models" if report.simulated else ""
    environment = Environment(
        loader=PackageLoader("vinelm.reports", "."),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        finalize=_typeset,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    charts = [part for section in report.sections for part in section.parts if isinstance(part, Chart)]
    figures = {chart.name: figure(chart, note=note) for chart in charts}
    page = environment.get_template("report.html")
    return page.render(report=report, figures=figures, plotly_js=get_plotlyjs() if figures else "")


def _typeset(value: object) -> object:
    """Use typographic signs in texts, and keep figures and their units on one line; markup stays as it is."""
    if type(value) is not str:
        return value
    for plain, typeset in (("<= ", "≤\N{NO-BREAK SPACE}"), (">= ", "≥\N{NO-BREAK SPACE}"), (" %", "\N{NO-BREAK SPACE}%")):
        value = value.replace(plain, typeset)
    return _SECONDS.sub("\\1\N{NO-BREAK SPACE}s", value)


def write_page(report: Report, path: str | Path) -> Path:
    """Write the report as an HTML file, atomically, and return its path.

    Raises:
        ConfigError: The file cannot be written.
    """
    target = Path(path)
    text = render(report)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target, text.encode())
    except OSError as error:
        raise ConfigError(
            f"{target}: cannot write the report ({error.strerror}): choose another folder", code="output-not-writable"
        ) from error
    return target
