"""``vinelm trie export``: the nodes of a trie as a table."""

from __future__ import annotations

from pathlib import Path

import click

from vinelm.cli.console import echo


@click.command("export", short_help="Write the nodes of a trie to a table.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="TABLE",
    help="File to write: .csv, .csv.gz, .json or .parquet; an existing one is replaced.",
)
def command(*, file: Path, output: Path) -> None:
    """Write one row per node of the trie in FILE to a table for other tools: its path, estimates and standard errors.

    JSON and Parquet also hold the provenance and the prices. Parquet needs the extra vinelm[parquet].

    Example: vinelm trie export nl2sql.vine -o nl2sql.csv
    """
    from vinelm.cli.inputs import refuse_replacing
    from vinelm.vinefile import export_trie, load_trie

    refuse_replacing(output, file)
    count = export_trie(load_trie(file), output)
    echo(f"wrote {count:,} rows to {output}")
