"""Command groups that answer a mistyped command with the nearest ones."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import click


class SuggestingGroup(click.Group):
    """A group whose error for an unknown command names the commands that may have been meant."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; :class:`click.UsageError` with suggestions if there is none of this name."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(f"No such command {name!r}.{_question(self.nearest(ctx, name))}", ctx)
        return super().resolve_command(ctx, args)

    def nearest(self, ctx: click.Context, name: str) -> list[str]:
        """Return the command that ``name`` may be a slip of, or nothing."""
        return get_close_matches(name, self.list_commands(ctx), n=1)


def _question(names: Iterable[str]) -> str:
    quoted = [repr(name) for name in names]
    return f" Did you mean {' or '.join(quoted)}?" if quoted else ""
