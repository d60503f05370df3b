"""``vinelm fleet``: run a policy over all serving processes, and watch them."""

from __future__ import annotations

import click

from vinelm.cli.commands.serving.fleet_run import command as run_command
from vinelm.cli.commands.serving.fleet_top import command as top_command
from vinelm.cli.groups import SuggestingGroup


@click.group("fleet", cls=SuggestingGroup, short_help="Steer and watch the processes that serve together.")
def command() -> None:
    """Steer and watch the processes that serve together: those with VineLM(..., fleet="redis://...").

    Needs the extra `fleet`. Calls no model.

    Example: vinelm fleet top --redis redis://localhost:6379
    """


command.add_command(run_command)
command.add_command(top_command)
