"""The commands of the command line and their options, as JSON; run by `house.py` with the interpreter of the checkout."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, list[str]]]:
    """Each command that is no group, with its options; ``--help`` is left out."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from leaves(inner, (*path, name))
        return
    options = [one for one in command.params if isinstance(one, click.Option) and one.name != "help"]
    yield " ".join(path), sorted(one.opts[0] for one in options)


def main() -> None:
    """Print them."""
    from vinelm.cli import main as module

    found = [value for value in vars(module).values() if isinstance(value, click.Group)]
    print(json.dumps(dict(leaves(found[0]))))


if __name__ == "__main__":
    main()
