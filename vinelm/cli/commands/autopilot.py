"""``vinelm autopilot``: shows the status of a service with an autopilot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import print_json, say, show_table
from vinelm.cli.options import SuggestingGroup, json_option, option, store_argument
from vinelm.errors import ConfigError
from vinelm.reports import usd

if TYPE_CHECKING:
    from vinelm.autopilot.status import PilotStatus, StepStatus
    from vinelm.reports.document import Report

_COLUMNS = ("step", "<today", "recorded", "on plan", "plan saves", "loses at most", "saved, 30 days")
_NOTE = "Loses at most: points of accuracy (95 %, at any look). Recorded: calls that today's model answered."
_SIMULATED = "The answers of this service are those of simulated models, not of real ones."


@click.group("autopilot", cls=SuggestingGroup, short_help="What a service under an autopilot has proven, serves and saves.")
def command() -> None:
    """Show the status of a service with an autopilot, which tests cheaper models and switches to them while it serves.

    An autopilot is started in Python by VineLM(models, autopilot=Autopilot("pilot.db")), or by `vinelm gateway --autopilot
    pilot.db`.

    Example: vinelm autopilot status pilot.db
    """


def autopilot_of(store: str, asked: Mapping[str, Any]) -> Any:
    """Return the :class:`~vinelm.autopilot.Autopilot` for a service that a command starts.

    Args:
        store: The autopilot's store.
        asked: Further arguments of the class, by name. Here ``max_loss`` is a fraction; the class takes percentage points.
    """
    from vinelm.autopilot import Autopilot

    points = {"max_loss": 100.0 * asked["max_loss"]} if "max_loss" in asked else {}
    return Autopilot(store, **{**asked, **points})


@command.command("status")
@store_argument
@json_option
@option("--report HTML", "Write a page, too: one file, without texts of prompts.", Path, into="page")
def status(*, store: Path, as_json: bool, page: Path | None) -> None:
    """Show for each step which model serves it, what is proven and what was saved in 30 days, and the open questions. Changes
    nothing.

    STORE is the autopilot's store. Its service need not be running.

    Example: vinelm autopilot status pilot.db

    Example: vinelm autopilot status pilot.db --report autopilot.html
    """
    from vinelm.autopilot.status import status_of

    found = status_of(store)
    if page is not None:
        from vinelm.reports.pictures.html import require_page, write_page

        if page.resolve() == store.resolve():
            raise ConfigError(f"--report is {page}, which holds the answers: name another file")
        require_page(page)
        written = write_page(_status_page(found, str(store)), page)
    if as_json:
        print_json(found.to_dict())
        return
    if found.steps:
        title = "Autopilot" + (", simulated models" if found.is_simulated else "")
        show_table(title, _COLUMNS, _step_rows(found), caption=_NOTE)
        lines = [line for one in found.steps for line in _step_lines(one)]
        for line in (*lines, _money_line(found), _waiting_line(found, str(store))):
            if line is not None:
                say(line)
    else:
        say("No call was recorded yet.")
    if page is not None:
        say(f"Wrote {written}")


def _step_rows(found: PilotStatus) -> list[tuple[str, ...]]:
    """Return one row for each step of the application: the cells of the status table, whose headings are ``_COLUMNS``."""
    return [
        (
            one.step, one.today, f"{one.recorded:,}", f"{100 * one.share:.0f} %",
            "-" if one.proven is None else f"{100 * one.saves:.0f} %", "-" if one.proven is None else f"{100 * one.proven:g}",
            usd(one.saved_usd),
        )
        for one in found.steps
    ]  # fmt: skip


def _step_lines(one: StepStatus) -> Iterator[str]:
    """Yield a line with the status of a step, and a line for each of its last three alarms."""
    plan = "" if one.plan is None else f" {one.plan}"
    yield f"{one.step}: {one.says}{':' if plan else ''}{plan}."
    for day, why in one.alarms[-3:]:
        yield f"  {one.step}, {day}: back to {one.today}: {why}."


def _money_line(found: PilotStatus) -> str:
    """Return one line with the dollars spent on testing cheaper models, and the dollars that plans have saved in 30 days."""
    return (
        f"Learning has cost {usd(found.learning_usd)}, {usd(found.today_usd)} of it today (UTC); plans have saved "
        f"{usd(found.saved_usd)} in 30 days."
    )


def _waiting_line(found: PilotStatus, store: str) -> str | None:
    """Return a line on how to answer the open questions; None without open questions."""
    if not found.waiting:
        return None
    return f"{found.waiting} {'questions wait' if found.waiting > 1 else 'question waits'}: vinelm label {store}"


def _status_page(found: PilotStatus, store: str) -> Report:
    """Return the HTML page that shows an autopilot's status.

    Args:
        found: The autopilot's status.
        store: The name of the autopilot's store, as on the command line.
    """
    from vinelm.reports.document import Report, Row, Section, Table

    serving = [one for one in found.steps if one.share]
    waits = _waiting_line(found, store)
    lines = tuple(line.strip() for one in found.steps for line in _step_lines(one))
    table = Table(
        title="Steps",
        columns=tuple(name.removeprefix("<") for name in _COLUMNS),
        rows=tuple(Row(cells=cells) for cells in _step_rows(found)),
        text_columns=(0, 1),
        note=_NOTE,
    )
    return Report(
        title="Autopilot",
        subtitle=f"{len(found.steps)} steps, {sum(one.recorded for one in found.steps):,} recorded calls",
        headline=f"Proven plans serve {len(serving)} of {len(found.steps)} steps: {usd(found.saved_usd)} saved in 30 days",
        is_gain=bool(serving),
        findings=(_money_line(found), *(() if waits is None else (waits,))),
        sections=(Section(title="What runs where", findings=lines, parts=(table,)),),
        provenance=(
            ("store", store),
            ("proofs begun", str(found.attempts)),
            ("questions answered", str(found.answered)),
        ),
        simulated=_SIMULATED if found.is_simulated else None,
    )
