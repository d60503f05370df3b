"""Tries a fleet policy on recorded views, and prints its orders, for ``vinelm fleet run --dry-run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vinelm.controller.fleet.loop.policy_runs import PolicyCheck

MOST_PROBLEMS = 5


def try_policy(text: str, replay: Path, period_s: float, *, as_json: bool) -> int | None:
    """Run the policy on each recorded view and print the result; the exit code is 1 if orders would be refused."""
    from vinelm.cli.console import print_json
    from vinelm.controller.fleet.loop.policy_runs import check_policy
    from vinelm.controller.fleet.loop.recording import recorded_views
    from vinelm.controller.fleet.policies.finding import fleet_policy
    from vinelm.errors import InputError

    found = check_policy(fleet_policy(text), recorded_views(replay), period_s)
    if not found.views:
        raise InputError(f"recorded views {str(replay)!r} show no serving process: record them while one runs")
    if as_json:
        print_json({"policy": text, "replay": str(replay), **found.to_dict()})
    else:
        _show(text, replay, found)
    return 1 if found.problems else None


def _show(policy: str, replay: Path, found: PolicyCheck) -> None:
    from statistics import median

    from vinelm.cli.console import echo, say, show_table

    rows = [
        (kind, f"{said.most:,}", *(f"{value + 0.0:.2f}" if kind != "pins" else "" for value in (said.least, said.greatest)))
        for kind, said in found.said.items()
        if said.most
    ]
    views = "1 view" if found.views == 1 else f"{found.views:,} views"
    say(f"{policy} on {views} of {replay}, with up to {found.most_rows:,} live invocations")
    if rows:
        show_table("What it orders", ("of", "most at once", "from", "to"), rows)
    else:
        say("It orders nothing.")
    took = f"{1000 * median(found.seconds):.1f} ms a view, {1000 * max(found.seconds):.1f} ms at worst"
    say(f"It took {took}; a round has {1000 * found.period_s:g} ms.")
    if not found.problems:
        say("All of its orders can be installed.")
        return
    for number, problem in list(found.problems.items())[:MOST_PROBLEMS]:
        echo(f"view {number}: {problem}")
    say(f"{len(found.problems):,} of {views}: refused. The orders before would stay.")
