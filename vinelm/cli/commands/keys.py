"""``vinelm keys``: manages the keys of a gateway's callers."""

from __future__ import annotations

from pathlib import Path

import click

from vinelm.cli.commands.gateway import keys_option
from vinelm.cli.console import echo, print_json, say, show_table
from vinelm.cli.options import SuggestingGroup, json_option, option
from vinelm.cli.quantities import USD, Count
from vinelm.reports import usd


@click.group("keys", cls=SuggestingGroup, short_help="Keys of those who may call a gateway, with dollars a day.")
def command() -> None:
    """Create, list and revoke the keys of callers of `vinelm gateway`.

    The file has only a hash of each key, and what the key has spent. So the key itself is shown only once, when it is created.
    A running gateway that needs keys notices new and revoked ones at once.

    Example: vinelm keys add alice --usd-per-day 5 --calls-per-min 60
    """


@command.command("add")
@click.argument("name")
@option("--tenant NAME", "Whose key it is: keys of one tenant share its caps [default: a tenant of its own].")
@option("--usd-per-day USD", "Most dollars of a UTC day [default: no cap].", USD)
@option("--calls-per-min N", "Most calls of a minute, of each gateway [default: no limit].", Count(1))
@keys_option
def add(*, name: str, tenant: str | None, usd_per_day: float | None, calls_per_min: int | None, keys: Path) -> None:
    """Create the key NAME and print it, the only time that it is shown.

    Example: vinelm keys add alice --usd-per-day 5 --calls-per-min 60
    """
    from vinelm.gateway.keys import KeyBook

    book = KeyBook(keys)
    echo(book.add(name, tenant=tenant, daily_usd=usd_per_day, calls_per_min=calls_per_min))
    echo(f"Key {name} is in {keys}, as a hash. Give its owner the line above: it cannot be shown again.", err=True)


@command.command("list")
@keys_option
@json_option
def list_keys(*, keys: Path, as_json: bool) -> None:
    """List the keys with today's spending (UTC). The column "reserved" has dollars for calls in flight, or for calls of a
    gateway that was killed.

    Example: vinelm keys list
    """
    from vinelm.errors import ConfigError
    from vinelm.gateway.keys import KeyBook

    if not keys.exists():
        raise ConfigError(f"{keys}: there are no keys: `vinelm keys add NAME` makes one")
    found = KeyBook(keys).today()
    if as_json:
        rows = [
            {
                "name": day.key.name, "tenant": day.key.tenant, "daily_usd": day.key.daily_usd,
                "calls_per_min": day.key.calls_per_min, "is_revoked": day.key.is_revoked, "spent_usd": day.spent_usd,
                "reserved_usd": day.reserved_usd, "calls": day.calls,
            }
            for day in found
        ]  # fmt: skip
        print_json({"keys": rows})
        return
    cells = [
        (
            day.key.name, day.key.tenant, "none" if day.key.daily_usd is None else usd(day.key.daily_usd),
            "none" if day.key.calls_per_min is None else f"{day.key.calls_per_min:,}", usd(day.spent_usd),
            usd(day.reserved_usd), f"{day.calls:,}", "revoked" if day.key.is_revoked else "good",
        )
        for day in found
    ]  # fmt: skip
    columns = ("key", "<tenant", "$ a day", "calls a minute", "spent today", "reserved", "calls", "<state")
    show_table("Keys", columns, cells)


@command.command("revoke")
@click.argument("name")
@keys_option
def revoke(*, name: str, keys: Path) -> None:
    """Revoke the key NAME, so that it can start no further call. Its calls in flight are finished.

    Example: vinelm keys revoke alice
    """
    from vinelm.errors import ConfigError
    from vinelm.gateway.keys import KeyBook

    if not keys.exists():
        raise ConfigError(f"{keys}: there are no keys: `vinelm keys add NAME` makes one")
    KeyBook(keys).revoke(name)
    say(f"Key {name} is revoked.")
