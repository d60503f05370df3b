"""``vinelm fleet top``: the fleet at the moment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vinelm.cli.commands.serving.fleet_options import name_option, redis_option
from vinelm.cli.options import flag, json_option, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vinelm.controller.fleet.loop.status import FleetStatus

PERIOD_S = 1.0
"""Time from one table to the next."""


@click.command("top", short_help="Show what all serving processes have under way.")
@redis_option(required=True)
@name_option
@flag("--once", "Print one table and end, as with --json or where the output is not a terminal.")
@option("--record FILE", "Append a view a second to FILE, for `vinelm fleet run --dry-run`.", Path)
@json_option
def command(*, url: str, name: str, once: bool, record: Path | None, as_json: bool) -> None:
    """Show, for each engine, the live invocations of all processes: running, queued, late, and the weight that orders give it.

    Ctrl-C ends it.

    Example: vinelm fleet top --redis redis://localhost:6379 --once
    """
    from contextlib import ExitStack

    from vinelm.cli.console import print_json, show_table, stdout, watch_table
    from vinelm.controller import FleetReader, RedisLink
    from vinelm.controller.fleet.loop.recording import ViewRecorder
    from vinelm.controller.fleet.loop.status import fleet_status

    link = RedisLink(url, name)
    with ExitStack() as stack:
        recorder = None if record is None else ViewRecorder(record)
        if recorder is not None:
            stack.callback(recorder.close)
        reader = FleetReader(link)
        stack.callback(reader.close)

        def status() -> FleetStatus:
            view = reader.view()
            if recorder is not None:
                recorder(view)
            return fleet_status(link, view, reader.catalogs())

        if as_json:
            print_json({"fleet": name, **status().to_dict()})
        elif once or not stdout().is_terminal:
            show_table(*_table(name, status()))
        else:
            watch_table(lambda: _table(name, status()), PERIOD_S)


def _table(name: str, status: FleetStatus) -> tuple[str, Sequence[str], Sequence[Sequence[str]]]:
    """Title, columns and rows."""
    from vinelm.reports import seconds, usd

    rows = [
        (
            one.engine,
            f"{one.running:,}",
            f"{one.queued:,}",
            seconds(one.longest_wait_s) if one.queued else "",
            seconds(one.mean_run_s) if one.running else "",
            f"{one.late:,}",
            usd(one.rest_usd),
            f"{one.weight:.2f}",
        )
        for one in status.engines
    ]
    return _head(name, status), ("engine", "running", "queued", "longest wait", "mean run", "late", "rest", "weight"), rows


def _head(name: str, status: FleetStatus) -> str:
    processes = "1 process" if status.processes == 1 else f"{status.processes:,} processes"
    orders = f"orders {status.version:,}" if status.version else "no orders"
    head = f"fleet {name}: {processes}, {status.live:,} live invocations; {orders}"
    if status.leader:
        head += f"\n{status.leader} leads"
    if status.catalogs > 1:
        head += f"\n{status.catalogs} different catalogs: each process goes by its own"
    return head
