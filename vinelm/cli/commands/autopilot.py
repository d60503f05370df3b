"""``vinelm autopilot``: how a service with an autopilot stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from vinelm.cli.console import print_json, say, show_table
from vinelm.cli.options import SuggestingGroup, json_option, store_argument
from vinelm.reports import usd


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
def status(*, store: str, as_json: bool) -> None:
    """Show what runs where, what is proven, what was saved in 30 days, and which questions wait. Changes nothing.

    STORE is the autopilot's own, whether or not its service runs.

    Example: vinelm autopilot status pilot.db
    """
    from vinelm.autopilot.status import status_of

    found = status_of(store)
    if as_json:
        print_json(found.to_dict())
        return
    if not found.steps:
        say("No call was recorded yet.")
        return
    cells = [
        (
            one.step, one.today, f"{one.recorded:,}", f"{100 * one.share:.0f} %",
            "-" if one.proven is None else f"{100 * one.saves:.0f} %", "-" if one.proven is None else f"{100 * one.proven:g}",
            usd(one.saved_usd),
        )
        for one in found.steps
    ]  # fmt: skip
    columns = ("step", "<today", "recorded", "on plan", "plan saves", "loses at most", "saved, 30 days")
    caption = "Loses at most: points of accuracy (95 %, at any look). Recorded: calls that today's model answered."
    show_table("Autopilot" + (", simulated models" if found.is_simulated else ""), columns, cells, caption=caption)
    for one in found.steps:
        plan = "" if one.plan is None else f" {one.plan}"
        say(f"{one.step}: {one.says}{':' if plan else ''}{plan}.")
        for day, why in one.alarms[-3:]:
            say(f"  {day}: back to {one.today}: {why}.")
    say(
        f"Learning has cost {usd(found.learning_usd)}, {usd(found.today_usd)} of it today (UTC); plans have saved "
        f"{usd(found.saved_usd)} in 30 days."
    )
    if found.waiting:
        say(f"{found.waiting} {'questions wait' if found.waiting > 1 else 'question waits'}: vinelm label {store}")
