"""``vinelm store export``: writes the results of a store or the nodes of a trie as a table."""

from __future__ import annotations

from pathlib import Path

import click

from vinelm.cli.console import echo
from vinelm.cli.inputs import is_trie_file, refuse_replacing
from vinelm.cli.options import option, path_argument


@click.command("export", short_help="Write the rows of a store or the nodes of a trie to a table.")
@path_argument("source", metavar="STORE|TRIE")
@option(
    "-o --output TABLE",
    "File to write: .csv, .csv.gz or .parquet, for a trie also .json; an existing one is replaced.",
    Path,
    required=True,
)
def command(*, source: Path, output: Path) -> None:
    """Write all observations of a store, or one row per node of a trie, to a table for other tools.

    A store's checkpoints are not exported. Its workflow, models and requests go into TABLE.store.json, or into the Parquet
    file's metadata, so that `vinelm store import` can restore the store. The row of a node has its path, estimates and standard
    errors; JSON and Parquet files also have provenance and prices. Parquet needs the extra vinelm[parquet].

    Example: vinelm store export runs/nl2sql.db -o nl2sql.csv
    """
    refuse_replacing(output, source)
    if is_trie_file(source):
        from vinelm.vinefile import export_trie, load_trie

        count = export_trie(load_trie(source), output)
    else:
        from vinelm.traces.imports.export_import import export_store
        from vinelm.traces.store.store import ObservationStore

        with ObservationStore.open(source) as opened:
            count = export_store(opened, output)
    echo(f"wrote {count:,} rows to {output}")
