"""Decorators that declare command-line options, and a command group that suggests similar names."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from vinelm.cli.failures import Resumable
from vinelm.cli.quantities import FRACTION, SECONDS, USD, OneOf

Command = TypeVar("Command", bound=Callable[..., Any])


class SuggestingGroup(click.Group):
    """A command group whose error message for an unknown command suggests similar names.

    Args:
        for_file: The subcommand that takes one file. It is suggested to a user who names a file instead of a subcommand.
        **more: Further arguments of :class:`click.Group`.
    """

    def __init__(self, *args: Any, for_file: str | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.for_file = for_file

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name, the subcommand and its arguments for a command line. Raise :class:`click.UsageError` with
        suggestions if no subcommand has this name.
        """
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            near = " or ".join(map(repr, self.nearest(ctx, name) or self.with_file(ctx, args)))
            question = f" Did you mean {near}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{question}", ctx)
        return super().resolve_command(ctx, args)

    def nearest(self, ctx: click.Context, name: str) -> list[str]:
        """Return a list with the command whose name is most similar to ``name``; the list is empty if none is similar."""
        return get_close_matches(name, self.list_commands(ctx), n=1)

    def with_file(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the command line to suggest for a file given instead of a subcommand, or an empty list."""
        is_file = bool(Path(args[0]).suffix) or os.path.lexists(args[0])
        return [f"{ctx.command_path} {self.for_file} {shlex.join(args)}"] if self.for_file and is_file else []


def resumable(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a command that can be resumed: after Ctrl-C its message says that running the same command continues the work.

    For a command without any work to continue (``--dry-run``, `vinelm evaluate` without ``--serve``), the message only states
    that it was interrupted.
    """

    @wraps(run)
    def said(**given: Any) -> Any:
        try:
            return run(**given)
        except (KeyboardInterrupt, click.Abort) as error:
            if given.get("dry_run") or ("serve" in given and given["serve"] is None):
                raise
            raise Resumable from error

    return said


def option(usage: str, help: str, kind: Any = str, *, into: str | None = None, **more: Any) -> Callable[[Command], Command]:
    """Return the decorator of an option that takes a value.

    Args:
        usage: The option's names and placeholder as the help shows them: ``"-o --output DB"``.
        help: What the option does.
        kind: The value's type: ``Path``, a tuple of the values to choose from, or a type of click.
        into: The name of the command's parameter that gets the value; None derives it from the option's name.
        **more: Further arguments of :func:`click.option`. If there is a default, the help shows it.
    """
    words = usage.split()
    names = [word for word in words if word.startswith("-")]
    metavar = " ".join(word for word in words if not word.startswith("-")) or None
    if kind is Path:
        kind = click.Path(path_type=Path)
    elif isinstance(kind, tuple):
        kind = OneOf(kind)
    # A help text that states its default itself gets no second one.
    shown = {"show_default": "[default:" not in help} if more.get("default") is not None else {}
    return click.option(*names, *([into] if into else []), type=kind, metavar=metavar, help=help, **{**shown, **more})


def flag(usage: str, help: str, *, into: str | None = None, default: bool = False) -> Callable[[Command], Command]:
    """Return the decorator of an option without a value, such as ``"-q --quiet"`` or ``"--check/--no-check"``.

    Takes ``usage``, ``help`` and ``into`` as :func:`option` does.
    """
    return click.option(*usage.split(), *([into] if into else []), is_flag=True, default=default, help=help)


def path_argument(name: str, **more: Any) -> Callable[[Command], Command]:
    """Return the decorator of an argument that is a file path."""
    return click.argument(name, type=click.Path(path_type=Path), **more)


def stacked(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator that applies these decorators as if they were stacked in this order."""

    def apply(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


store_argument = path_argument("store")
trie_argument = path_argument("trie")

json_option = flag("--json", "Print one JSON object instead of tables.", into="as_json")
quiet_option = flag("-q --quiet", "Show no progress bars.")

cluster_options = stacked(
    option(
        "--engine WHERE",
        "Machines that do the work: this-machine, or the nodes of a Ray cluster: ray://HOST:PORT, ray://auto (the one that "
        "this machine belongs to) or ray://local (starts one for this run).",
        default="this-machine",
    ),
    flag("--ship", "With ray://: copy the current folder, without .env, to the nodes."),
)
output_options = stacked(json_option, quiet_option)
objective_options = stacked(
    option("--maximize accuracy", "What to maximize."),
    option("--minimize cost|latency", "What to minimize."),
    option("--min-accuracy FRACTION", "Lowest accuracy, on average over requests: 0.8 is 80 %.", FRACTION),
    option("--max-cost-usd USD", "Most dollars per request, on average over requests.", USD),
    option("--max-latency-s S", "Most seconds from a request's arrival to its answer.", SECONDS),
    option(
        "--cost-budget",
        "What --max-cost-usd bounds: the average over requests, or the cost of every request.",
        ("population", "per_request"),
        default="population",
    ),
    option(
        "--risk",
        "How --max-latency-s is checked: by the mean, by the mean plus z standard deviations, or by a stochastic dynamic "
        "program over the remaining time.",
        ("mean", "mean+sd", "dp"),
        default="mean",
    ),
    option(
        "--objective FILE",
        "Further fields of the objective, such as confidence, z and late_weight: a .toml or .json file.",
        Path,
    ),
)
"""The common fields of an :class:`~vinelm.objective.Objective`, under their own names; a file has the others."""
