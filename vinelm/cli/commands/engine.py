"""``vinelm engine``: launches an SGLang server with the flags that VineLM uses, and measures its slowdown under load."""

from __future__ import annotations

from contextlib import suppress

import click

from vinelm.cli.commands.calibrate import command as calibrate_command
from vinelm.cli.console import echo, output
from vinelm.cli.options import SuggestingGroup, flag
from vinelm.errors import MissingExtra

FLAGS = ("--enable-metrics", "--enable-priority-scheduling")
"""These enable ``/metrics``, for load reports of versions without ``/v1/loads``, and a catalog entry's option ``priority``."""


class _EngineGroup(SuggestingGroup):
    """The command group `vinelm engine`, in which `vinelm engine MODEL` is short for `vinelm engine launch MODEL`."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the command and its arguments for a command line. An unknown first word is taken as the model to
        launch.
        """
        return super().resolve_command(ctx, args if args[0] in self.commands else ["launch", *args])


@click.group(
    "engine",
    cls=_EngineGroup,
    short_help="Launch an engine of your own, and measure it under load.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def command() -> None:
    """Launch an SGLang server for a model, and measure how an engine slows down under load.

    Example: vinelm engine launch meta-llama/Llama-3.1-8B-Instruct --port 30000 --tp 2
    """


@command.command("launch", short_help="Launch an SGLang server for a model.", context_settings={"ignore_unknown_options": True})
@click.argument("model")
@flag("--print", "Print the command line instead of running it.", into="is_printed")
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
def launch(*, model: str, is_printed: bool, more: tuple[str, ...]) -> int:
    """Serve MODEL, a folder or a name on the model hub, with SGLang. Further arguments, such as --port, go to SGLang.

    Needs a GPU, and SGLang in this environment: pip install 'vinelm[sglang]' (several gigabytes). Runs until it is stopped.

    Example: vinelm engine launch meta-llama/Llama-3.1-8B-Instruct --port 30000 --tp 2
    """
    import os
    import shlex
    import sys
    from importlib.util import find_spec

    line = [sys.executable, "-m", "sglang.launch_server", "--model-path", model, *FLAGS, *more]
    if is_printed:
        echo(shlex.join(["python", *line[1:]]))
        return 0
    if find_spec("sglang") is None:
        raise MissingExtra(
            "SGLang is not installed: run pip install 'vinelm[sglang]' on a host with a GPU, in a separate environment"
        )
    ours = output()
    ours.flush()
    with suppress(OSError, ValueError):  # the server inherits our stdout
        os.dup2(ours.fileno(), 1)
    os.execv(line[0], line)  # the server replaces this process: it receives our signals, and its exit code is ours


command.add_command(calibrate_command)
