"""``vinelm store reprice``: copies a store or a trie at other prices, without a call."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vinelm.cli.console import echo, print_json, say, show_table
from vinelm.cli.inputs import is_trie_file, refuse_other_file, refuse_replacing
from vinelm.cli.options import json_option, option, path_argument
from vinelm.errors import ConfigError
from vinelm.reports import usd

if TYPE_CHECKING:
    from vinelm.traces.growth.reprice_store import Repriced


@click.command("reprice", short_help="Write a copy of a store or a trie at other prices.")
@path_argument("source", metavar="STORE|TRIE")
@option("--models TOML", "Catalog with the new prices; it needs an entry for each model of the store.", Path, required=True)
@option("--store DB", "For a trie: the store that it was estimated from, which has the tokens.", Path)
@option("-o --output FILE", "File to write.", Path, required=True)
@json_option
def command(*, source: Path, models: Path, store: Path | None, output: Path, as_json: bool) -> None:
    """Write a copy of a store or a trie in which all dollars are computed from tokens at the prices of --models.

    The copy of a store keeps the original charge of each row, and the ledger of payments. The file of the copy must not
    exist yet. A trie (.vine) is estimated again from the rows of --store at the new prices: accuracies and seconds stay the
    same, and the output shows which plans change. No model is called, and no input is changed. Only the prices of the catalog
    are used.

    Example: vinelm store reprice runs/nl2sql.db --models new-prices.toml -o repriced.db, and of a trie
    vinelm store reprice nl2sql.vine --store runs/nl2sql.db --models new-prices.toml -o new.vine
    """
    if is_trie_file(source):
        if store is None:
            raise ConfigError(f"{source}: a trie holds no tokens: name the store that it was estimated from with --store")
        _reprice_trie(source, store, models, output, as_json=as_json)
        return
    if store is not None:
        raise ConfigError(f"{source}: not a trie file: --store belongs to a trie; leave it out to reprice a store")
    _reprice_store(source, models, output, as_json=as_json)


def _reprice_store(store: Path, models: Path, output: Path, *, as_json: bool) -> None:
    from vinelm.catalog.catalog import Catalog
    from vinelm.traces.growth.reprice_store import reprice_store

    found = reprice_store(store, output, Catalog.from_file(models))
    if as_json:
        print_json({"store": str(store), "output": str(output), **asdict(found)})
    else:
        _show_store(found, output)


def _reprice_trie(file: Path, store: Path, models: Path, output: Path, *, as_json: bool) -> None:
    from vinelm.api.estimation import repriced_trie
    from vinelm.catalog.catalog import Catalog
    from vinelm.cli.commands.trie_diff import show_difference
    from vinelm.evaluation.tries import compare_tries
    from vinelm.vinefile import load_trie, save_trie

    refuse_replacing(output, file)
    refuse_replacing(output, store)
    refuse_other_file(output)
    before = load_trie(file)
    after = repriced_trie(before, store, Catalog.from_file(models), where=str(file))
    save_trie(output, after)
    show_difference(compare_tries(before, after), as_json=as_json, top=0, more={"trie": str(output)})
    if not as_json:
        echo(f"wrote {output}")


def _show_store(found: Repriced, output: Path) -> None:
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
