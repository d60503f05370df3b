"""``vinelm trie reprice``: a trie at other prices, without a call."""

from __future__ import annotations

from pathlib import Path

import click

from vinelm.cli.commands.subcommands.trie_diff import show_difference
from vinelm.cli.console import echo
from vinelm.cli.options import json_option


@click.command("reprice", short_help="Write a trie at other prices, without a call.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DB",
    help="Store that the trie was estimated from: it has the tokens, which a trie does not hold.",
)
@click.option(
    "--models",
    type=click.Path(path_type=Path),
    required=True,
    metavar="TOML",
    help="Catalog with the new prices; it needs an entry for each model of the store.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="VINE", help="Trie file to write.")
@json_option
def command(*, file: Path, store: Path, models: Path, output: Path, as_json: bool) -> None:
    """Write the trie in FILE as it would be at the prices of --models, and show which plans change.

    The rows of the store are priced anew by their tokens and estimated again in the same way. Accuracies and seconds stay as
    they are. No model is called, and neither FILE nor the store is changed.

    Example: vinelm trie reprice nl2sql.vine --store runs/nl2sql.db --models new-prices.toml -o repriced.vine
    """
    from vinelm.catalog import Catalog
    from vinelm.cli.inputs import refuse_other_file, refuse_replacing
    from vinelm.evaluation.tries import compare_tries, repriced_trie
    from vinelm.vinefile import load_trie, save_trie

    refuse_replacing(output, file)
    refuse_replacing(output, store)
    refuse_other_file(output)
    before = load_trie(file)
    after = repriced_trie(before, store, Catalog.from_file(models), where=str(file))
    save_trie(output, after)
    if before.is_contingent:
        facts = {"trie": str(output), "repriced": after.meta["repriced"]}
        _tell(facts, as_json=as_json)
        return
    show_difference(compare_tries(before, after), as_json=as_json, top=0, more={"trie": str(output)})
    if not as_json:
        echo(f"wrote {output}")


def _tell(facts: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        from vinelm.cli.console import print_json

        print_json(facts)
    else:
        echo(f"wrote {facts['trie']}: see `vinelm trie show` and `vinelm plan`")
