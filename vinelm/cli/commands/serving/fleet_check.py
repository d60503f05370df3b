"""``vinelm fleet check``: a policy on recorded views."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vinelm.cli.options import json_option

if TYPE_CHECKING:
    from vinelm.controller import PolicyCheck

MOST_PROBLEMS = 5


@click.command("check", short_help="Try a policy on recorded views.")
@click.argument("policy", metavar="POLICY")
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Views that `vinelm fleet run --record FILE` or `vinelm fleet top --record FILE` wrote.",
)
@click.option(
    "--every", "period_s", type=click.FloatRange(min=0, min_open=True), default=0.25, show_default=True, metavar="S",
    help="Seconds that the policy may take, as for `vinelm fleet run`.",
)  # fmt: skip
@json_option
def command(*, policy: str, replay: Path, period_s: float, as_json: bool) -> int | None:
    """Run POLICY on each view in FILE, and say what it orders, how long it takes, and what of it would be refused.

    POLICY is what `vinelm fleet run --policy` takes: built-in names, or a file with a function `policy(view)` that returns
    vinelm.controller.Orders. Nothing is installed; no Redis is needed. Exit code 1 if orders for some view would be refused.

    Example: vinelm fleet check my_policy.py --replay run.jsonl
    """
    from vinelm.cli.console import print_json
    from vinelm.controller import check_policy, fleet_policy, recorded_views
    from vinelm.errors import InputError

    found = check_policy(fleet_policy(policy), recorded_views(replay), period_s)
    if not found.views:
        raise InputError(f"recorded views {str(replay)!r} show no serving process: record them while one runs")
    if as_json:
        print_json({"policy": policy, "replay": str(replay), **found.to_dict()})
    else:
        _show(policy, replay, found)
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
