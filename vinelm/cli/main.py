"""The ``vinelm`` command. It loads a subcommand's module when it is needed, and maps errors to exit codes."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from vinelm.catalog import redacted
from vinelm.cli.console import echo
from vinelm.cli.hints import message_with_hint
from vinelm.errors import BudgetExhausted, InputError, VineLMError
from vinelm.version import __version__

COMMANDS = (
    "demo",
    "engine",
    "doctor",
    "check",
    "profile",
    "store",
    "estimate",
    "trie",
    "plan",
    "explain",
    "evaluate",
    "verify",
    "calibrate",
    "report",
)
"""The subcommands in the order of use. Each is defined as ``vinelm.cli.commands.NAME.command``."""

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_BUDGET, EXIT_INTERRUPTED = 1, 2, 3, 130
_OPTION = re.compile(r"--?[a-z][a-z-]*")
TRACEBACK_ENV = "VINELM_TRACEBACK"

if not os.environ.keys() & {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}:
    # numpy reads it when it is first imported. Our matrices are small: threads only add overhead (tenfold on a busy machine),
    # and each process of a profile would start one thread per core.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"


class LazyGroup(click.Group):
    """A group that imports a subcommand's module when the subcommand is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the subcommands in the order of use."""
        return list(COMMANDS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse empty arguments, here for all commands: an empty path would mean the working folder."""
        for before, given in zip(["", *args], args, strict=False):
            option, has_value, value = given.partition("=")
            if not given or (has_value and not value and _OPTION.fullmatch(option)):
                name = option or (before if _OPTION.fullmatch(before) else "an argument")
                raise click.UsageError(f"{name} is empty: give a value, or leave it out", ctx)
        return super().parse_args(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the subcommand; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"vinelm.cli.commands.{cmd_name}").command
        return command


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with `vinelm demo`: no API keys, no network, about a minute. `vinelm COMMAND --help` shows an example.",
)
@click.version_option(__version__, "--version", prog_name="vinelm", message="%(prog)s %(version)s")
def cli() -> None:
    """Choose the model of every stage invocation of a LangGraph application.

    Profile a workflow on your own labelled requests, estimate the accuracy, cost and latency of every sequence of model
    choices, and plan for an objective: the lowest cost that reaches an accuracy, or the highest accuracy within a budget of
    dollars or seconds.

    Data goes to stdout, progress and errors to stderr. Exit codes: 0 success, 1 failure, 2 bad input, 3 budget reached (run
    the same command again to continue), 130 interrupted.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. Prints an error as one line on stderr.

    Args:
        args: The arguments without the program's name; None for those of the process.
    """
    try:
        result = cli.main(args=None if args is None else list(args), prog_name="vinelm", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        echo(error.format_message(), err=True)
        return EXIT_BAD_INPUT
    except click.ClickException as error:
        return _fail(_usage_line(error), error, error.exit_code)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        echo("interrupted", err=True)
        return EXIT_INTERRUPTED
    except InputError as error:
        return _fail(f"error: {message_with_hint(error)}", error, EXIT_BAD_INPUT)
    except BudgetExhausted as error:
        return _fail(f"stopped: {message_with_hint(error)}", error, EXIT_BUDGET)
    except VineLMError as error:
        return _fail(f"error: {message_with_hint(error)}", error, EXIT_FAILED)
    except BrokenPipeError:  # `vinelm plan ... | head`: the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except Exception as error:
        line = f"error: unexpected {type(error).__name__}: {error} (set {TRACEBACK_ENV}=1 for the traceback)"
        return _fail(line, error, EXIT_FAILED)


def _fail(line: str, error: BaseException, code: int) -> int:
    """Print the error as one line, after the traceback if the environment asks for it; returns the exit code."""
    if os.environ.get(TRACEBACK_ENV):
        echo(redacted("".join(traceback.format_exception(error))), err=True)
    echo(redacted(" ".join(line.split())), err=True)
    return code


def _usage_line(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "vinelm"
    return f"error: {message}: see `{path} --help`"


if __name__ == "__main__":
    sys.exit(main())
