"""``vinelm autopilot``: how a service with an autopilot stands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vinelm.cli.console import print_json, say, show_table
from vinelm.cli.options import SuggestingGroup, json_option, option, store_argument
from vinelm.errors import ConfigError


@click.group("autopilot", cls=SuggestingGroup, short_help="What a service under an autopilot has proven, serves and saves.")
def command() -> None:
    """Show how a service with an autopilot stands.

    VineLM(models, autopilot=Autopilot("pilot.db")) begins one, or `vinelm gateway --autopilot pilot.db`.

    Example: vinelm autopilot status pilot.db
    """


def autopilot_of(store: str, asked: Mapping[str, Any]) -> Any:
    """Return the autopilot of a service that a command starts; the loss in ``asked`` is a fraction."""
    from vinelm.autopilot import Autopilot

    points = {"max_loss": 100.0 * asked["max_loss"]} if "max_loss" in asked else {}
    return Autopilot(store, **{**asked, **points})


@command.command("status")
@store_argument
@json_option
@option("--report HTML", "Write a page, too: one file, without texts of prompts.", Path, into="page")
def status(*, store: Path, as_json: bool, page: Path | None) -> None:
    """Show what runs where, what is proven, what was saved in 30 days, and which questions wait. Changes nothing.

    STORE is the autopilot's own, whether or not its service runs.

    Example: vinelm autopilot status pilot.db

    Example: vinelm autopilot status pilot.db --report autopilot.html
    """
    from vinelm.autopilot import page as text
    from vinelm.autopilot.status import status_of

    found = status_of(store)
    if page is not None:
        from vinelm.reports.drawing.html import require_page, write_page

        if page.resolve() == store.resolve():
            raise ConfigError(f"--report is {page}, which holds the answers: name another file")
        require_page(page)
        written = write_page(text.status_page(found, str(store)), page)
    if as_json:
        print_json(found.to_dict())
        return
    if found.steps:
        title = "Autopilot" + (", simulated models" if found.is_simulated else "")
        show_table(title, text.COLUMNS, text.step_rows(found), caption=text.NOTE)
        lines = [line for one in found.steps for line in text.step_lines(one)]
        for line in (*lines, text.money_line(found), text.waiting_line(found, str(store))):
            if line is not None:
                say(line)
    else:
        say("No call was recorded yet.")
    if page is not None:
        say(f"Wrote {written}")
