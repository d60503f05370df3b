"""``vinelm store reprice``: a copy of a store in which rows count at other prices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vinelm.cli.console import echo
from vinelm.cli.options import json_option

if TYPE_CHECKING:
    from vinelm.traces import Repriced


@click.command("reprice", short_help="Write a copy of a store at other prices, without a call.")
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "--models",
    type=click.Path(path_type=Path),
    required=True,
    metavar="TOML",
    help="Catalog with the new prices; it needs an entry for each model of the store.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="DB", help="Store to create; must not exist."
)
@json_option
def command(*, store: Path, models: Path, output: Path, as_json: bool) -> None:
    """Write a copy of STORE in which the dollars of every row follow from its tokens and the prices of --models.

    No model is called, and STORE is not changed. The copy keeps what each row was charged, and the ledger of what was paid.
    Estimate from the copy to plan at the new prices. Of the catalog, only prices are used.

    Example: vinelm store reprice runs/nl2sql.db --models new-prices.toml -o repriced.db
    """
    from vinelm.catalog import Catalog
    from vinelm.traces import reprice_store

    found = reprice_store(store, output, Catalog.from_file(models))
    if as_json:
        from dataclasses import asdict

        from vinelm.cli.console import print_json

        print_json({"store": str(store), "output": str(output), **asdict(found)})
    else:
        _show(found, output)


def _show(found: Repriced, output: Path) -> None:
    from vinelm.cli.console import say, show_table
    from vinelm.reports import usd

    rows = []
    for model in found.models:
        change = f"{100 * (model.after_usd / model.before_usd - 1):+.1f} %" if model.before_usd > 0 else "-"
        rows.append(
            (
                model.name,
                "yes" if model.has_new_price else "no",
                f"{model.rows:,}",
                usd(model.before_usd),
                usd(model.after_usd),
                change,
            )
        )
    show_table(
        "Dollars of the rows, by model", ("model", "<new price", "rows", "in the store", "at the new prices", "change"), rows
    )
    say(f"{found.repriced:,} of {found.rows:,} rows changed. The ledger did not: {usd(found.paid_usd)} was paid.")
    echo(f"wrote {output}")
    echo(f"Next: vinelm estimate {output}")
