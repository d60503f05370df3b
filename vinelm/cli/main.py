"""The ``vinelm`` command: it imports the module of a subcommand on first use, and maps errors to exit codes."""

from __future__ import annotations

import os
import re
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial, wraps
from importlib import import_module
from typing import Any

import click

from vinelm.catalog.secrets import redacted
from vinelm.cli.console import echo, one_json_object, output, print_json, stdout_apart
from vinelm.cli.failures import EXIT_FAILED, TRACEBACK_ENV, Failure, failure_of
from vinelm.cli.options import SuggestingGroup
from vinelm.cli.waiting import at_work
from vinelm.io import visible
from vinelm.io.file_kinds import STORE, TRIE, what_is
from vinelm.version import __version__

SECTIONS = {
    "Begin": ("replay", "label", "demo", "try", "check"),
    "Measure": ("profile", "estimate", "store"),
    "Decide": ("plan", "evaluate", "verify", "report"),
    "Serve": ("gateway", "keys", "autopilot", "batch", "drift"),
    "Advanced": ("init", "engine", "fleet", "tools"),
}
"""The subcommands grouped by purpose, as the help shows them."""
COMMANDS = tuple(name for names in SECTIONS.values() for name in names)
"""The subcommands in the order of use. Each is defined as ``vinelm.cli.commands.NAME.command``; see :func:`module_of`."""
OLD = {
    "explain": "plan --explain",
    "trie": "plan --show",
    "trie show": "plan --show",
    "trie diff": "plan --diff",
    "reprice": "store reprice",
    "export": "store export",
    "calibrate": "engine calibrate",
}
"""Hidden old names that still work, with their current names."""
GROUPS = ("keys", "store", "engine", "fleet", "tools", "autopilot")
"""The subcommands that have subcommands themselves."""
_APART: set[Callable[..., Any]] = set()
"""Functions of commands that run with separated stdout."""
_OPTION = re.compile(r"--?[a-z][a-z-]*")
_APPLICATION = re.compile(r"[\w./-]+\.py(:|$)|[a-z_][\w.]*:[a-zA-Z_]\w*$")
"""The forms FILE.py, FILE.py:ATTRIBUTE or MODULE:ATTRIBUTE."""
_WITHOUT_TRACEBACK = (click.Abort, KeyboardInterrupt, click.exceptions.NoArgsIsHelpError)

if not os.environ.keys() & {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}:
    # Set before numpy is first imported, which reads it. Our matrices are small, so threads only add overhead (tenfold on a
    # busy machine), and each process of a profile would start one thread per core.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"


def module_of(command: str) -> str:
    """Return the name of the module that defines a subcommand. It differs for ``try``, which is a Python keyword and cannot
    name a module.
    """
    return "vinelm.cli.try_app" if command == "try" else f"vinelm.cli.commands.{command}"


class LazyGroup(SuggestingGroup):
    """The command group ``vinelm``. It imports the module of a subcommand only when that subcommand is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands in the order in which users need them."""
        return list(COMMANDS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raise an error if any argument of any command is empty, because an empty path would mean the
        working folder.
        """
        for before, given in zip(["", *args], args, strict=False):
            option, has_value, value = given.partition("=")
            if not given or (has_value and not value and _OPTION.fullmatch(option)):
                name = option or (before if _OPTION.fullmatch(before) else "an argument")
                raise click.UsageError(f"{name} is empty: give a value, or leave it out", ctx)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the subcommand and its arguments for a command line. A command's old name is valid, too."""
        for words in (2, 1):
            if (today := OLD.get(" ".join(args[:words]))) is not None:
                args = [*today.split(), *args[words:]]
                break
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the subcommand; None if no subcommand has this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(module_of(cmd_name)).command
        _keep_apart(command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands to the help, divided into sections."""
        widest = max(map(len, COMMANDS))
        limit = formatter.width - 6 - widest
        for title, names in SECTIONS.items():
            found = ((name, self.get_command(ctx, name)) for name in names)
            rows = [(name.ljust(widest), one.get_short_help_str(limit)) for name, one in found if one is not None]
            with formatter.section(title):
                formatter.write_dl(rows)

    def nearest(self, ctx: click.Context, name: str) -> list[str]:
        """Return suggestions for an unknown command: the commands called ``name`` in subgroups, as ``GROUP NAME``.

        If there are none, return a list with the subcommand of the most similar name, if any.
        """
        groups = [group for group in map(partial(self.get_command, ctx), GROUPS) if isinstance(group, click.Group)]
        return [f"{group.name} {name}" for group in groups if name in group.commands] or super().nearest(ctx, name)

    def with_file(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the command line to suggest if the first argument is a file instead of a command: an application, a trie or a
        store.

        The list is empty for any other argument.
        """
        file = args[0]
        reader = {TRIE: "plan --show", STORE: "store info"}.get(what_is(file) or "")
        if _APPLICATION.match(file):
            reader = "try"
        return [] if reader is None else [f"vinelm {reader} {shlex.join(args)}"]


def _keep_apart(command: click.Command) -> None:
    """Change a command, or all commands of a group, so that only its own data reaches stdout while it runs, and the
    application's prints go to stderr.

    This applies to all commands, because nearly every command may run the application's code. Help and usage are printed to the
    real stdout before a command starts.
    """
    for one in command.commands.values() if isinstance(command, click.Group) else ():
        _keep_apart(one)
    run = command.callback
    if run is None or isinstance(command, click.Group) or run in _APART:
        return

    @wraps(run)
    def apart(*args: Any, **given: Any) -> Any:
        ctx = click.get_current_context()
        sign = nullcontext() if given.get("quiet") else at_work(_title(ctx))
        with stdout_apart(for_good=bool(ctx.find_root().obj)), sign:
            return run(*args, **given)

    _APART.add(apart)
    command.callback = apart


def _title(ctx: click.Context) -> str:
    """Return the name of the running command with its first argument, if any."""
    arguments = [ctx.params[one.name] for one in ctx.command.params if isinstance(one, click.Argument) and one.name]
    first = arguments[0] if arguments else None
    first = first[0] if isinstance(first, tuple) and first else first
    return visible(ctx.command_path if first is None else f"{ctx.command_path} {first}")


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="New here: `vinelm demo`. With your own app: `vinelm try app.py:graph`. Every COMMAND --help has an example.",
)
@click.version_option(__version__, "--version", prog_name="vinelm", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Find out which LLM calls of an app can run on a cheaper model, prove it on your own requests, and serve the cheaper plan.

    Start from the traces of an app in any language (`replay`), or from the app itself in Python (`try`); labels are not needed.
    A plan chooses the models: it has the lowest cost that reaches an accuracy, or the highest accuracy within a budget of
    dollars or seconds. It is served in your Python process, or to every client of OpenAI's API (`gateway`).

    Data goes to stdout, progress and errors to stderr. Exit codes: 0 success, 1 failure, 2 bad input, 3 budget reached (run
    the same command again to continue), 130 interrupted.
    """
    if ctx.invoked_subcommand is None:  # running `vinelm` alone to try it out is not a mistake
        echo(ctx.get_help())


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code.

    An error is one line on stderr. With ``--json`` it is also the key ``error`` of the object on stdout, next to any result:
    ``kind``, ``message``, ``exit_code`` and, if something helps, ``hint``.

    Args:
        args: The arguments without the program's name. None uses the arguments of the process. The process then ends after the
            command, so what the application prints at exit also goes to stderr.
    """
    code = _main(list(sys.argv[1:] if args is None else args), is_process=args is None)
    # If requests of a batch hang, the interpreter would wait for the threads that run their nodes.
    if args is None and any(thread.name.startswith("vinelm batch ") for thread in threading.enumerate()):
        with suppress(OSError):
            output().flush()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    return code


def _main(given: list[str], *, is_process: bool) -> int:
    try:
        if not _wants_json(given):
            return _run(given, is_process=is_process)[0]
        with one_json_object() as printed:
            code, failure = _run(given, is_process=is_process)
        if failure is not None:
            printed["error"] = failure.to_dict()
        if printed:
            print_json(printed)
        return code
    except BrokenPipeError:  # `vinelm plan ... | head`: the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), output().fileno())
        return EXIT_FAILED


def _wants_json(given: Sequence[str]) -> bool:
    """Return whether ``--json`` is among the arguments. This is checked before parsing, because parsing may fail."""
    options = given[: given.index("--")] if "--" in given else given
    return "--json" in options


def _run(given: list[str], *, is_process: bool) -> tuple[int, Failure | None]:
    """Run the command; ``is_process``: whether the process ends after the command. Return its exit code and, if it failed, the
    failure to show on stderr.
    """
    try:
        result = cli.main(args=given, prog_name="vinelm", standalone_mode=False, obj=is_process)
        return (result if isinstance(result, int) else 0), None
    except click.exceptions.Exit as error:
        return error.exit_code, None
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        failure = failure_of(error)
        if os.environ.get(TRACEBACK_ENV) and not isinstance(error, _WITHOUT_TRACEBACK):
            echo(redacted("".join(traceback.format_exception(error))), err=True)
        echo(failure.line, err=True)
        return failure.exit_code, failure


if __name__ == "__main__":
    sys.exit(main())
