"""``vinelm engine``: launch an SGLang server with the flags that VineLM uses."""

from __future__ import annotations

from contextlib import suppress

import click

from vinelm.cli.console import echo, output
from vinelm.cli.options import flag
from vinelm.errors import MissingExtra

FLAGS = ("--enable-metrics", "--enable-priority-scheduling")
"""They enable ``/metrics``, for load reports of versions without ``/v1/loads``, and a catalog entry's option ``priority``."""


@click.command("engine", short_help="Launch an SGLang server for a model.", context_settings={"ignore_unknown_options": True})
@click.argument("model")
@flag("--print", "Print the command line instead of running it.", into="is_printed")
@click.argument("more", nargs=-1, type=click.UNPROCESSED)
def command(*, model: str, is_printed: bool, more: tuple[str, ...]) -> int:
    """Serve MODEL, a folder or a name on the model hub, with SGLang. Further arguments, such as --port, go to SGLang.

    Needs a GPU, and SGLang in this environment: pip install 'vinelm[sglang]' (several gigabytes). Runs until it is stopped.

    Example: vinelm engine meta-llama/Llama-3.1-8B-Instruct --port 30000 --tp 2
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
    with suppress(OSError, ValueError):  # the server's stdout is ours again
        os.dup2(ours.fileno(), 1)
    os.execv(line[0], line)  # the server replaces this process: it gets our signals, and its exit code is ours
