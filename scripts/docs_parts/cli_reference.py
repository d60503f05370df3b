"""The reference of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from vinelm.cli.main import cli

EXAMPLE = "For example:"


def cli_reference() -> str:
    """A section for each command, and one for each command of a group."""
    return "\n\n".join(_sections(cli, click.Context(cli, info_name="vinelm"))) + "\n"


def _sections(command: click.Command, ctx: click.Context) -> Iterator[str]:
    if ctx.parent is not None:
        yield from _section(command, ctx)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            if below is not None and not below.hidden:
                yield from _sections(below, click.Context(below, info_name=name, parent=ctx))


def _section(command: click.Command, ctx: click.Context) -> Iterator[str]:
    path = ctx.command_path
    yield f"{'#' * (path.count(' ') + 1)} `{path}`"
    pieces = list(_paragraphs(f"{command.help or ''}\n\n{command.epilog or ''}"))
    yield from (piece for piece in pieces if not piece.startswith(EXAMPLE))
    yield f"```\n{path} {' '.join(command.collect_usage_pieces(ctx))}\n```"
    rows = [row for parameter in command.params if (row := parameter.get_help_record(ctx)) and row[1]]
    if rows:
        yield "| option | meaning |\n| --- | --- |\n" + "\n".join(
            f"| {_names(names)} | {_cell(text)} |" for names, text in rows
        )
    yield from (piece for piece in pieces if piece.startswith(EXAMPLE))


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a help text; one that click must not wrap is a block, as is an example."""
    for paragraph in inspect.cleandoc(text).partition("\f")[0].split("\n\n"):
        words = " ".join(paragraph.split())
        kept = paragraph.removeprefix("\b\n")
        if example := re.match(r"Examples?: *(vinelm .*)", words):
            yield f"{EXAMPLE}\n\n```\n{example[1]}\n```"
        elif kept != paragraph:
            yield f"```\n{kept}\n```"
        elif words:
            yield _escaped(words)


def _names(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is; what is in backticks stays code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else re.sub(r"([*_<\[\]])", r"\\\1", piece) for piece in pieces)
