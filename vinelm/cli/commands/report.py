"""``vinelm report``: a self-contained HTML report of a store and its trie."""

from __future__ import annotations

from pathlib import Path

import click

from vinelm.cli.console import echo
from vinelm.cli.options import output_options, seed_option


@click.command("report", short_help="Write a self-contained HTML report of a store and its trie.")
@click.argument("store", type=click.Path(path_type=Path))
@click.argument("trie", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output-dir", type=click.Path(path_type=Path), default=Path("report"), show_default=True,
    help="Folder to write report.html to.",
)  # fmt: skip
@seed_option
@output_options
def command(*, store: Path, trie: Path, output_dir: Path, seed: int, as_json: bool, quiet: bool) -> None:
    """Write one self-contained HTML page about the observations in STORE and the TRIE estimated from them.

    Shows the estimated accuracy–cost and accuracy–latency frontiers of VineLM, the best static plan and the best single model,
    with bootstrap intervals, and the provenance of every figure. Calls no model.

    Example: vinelm report runs/nl2sql.db nl2sql.vine -o report/
    """
    from vinelm.cli.console import print_json, progress
    from vinelm.reports import store_page, write_page

    with progress(quiet=quiet) as start:
        page = store_page(store, trie, seed=seed, on_done=start("refit on resamples"))
    target = write_page(page, output_dir / "report.html")
    if as_json:
        print_json({"report": str(target), "headline": page.headline, "findings": page.findings, "simulated": page.simulated})
        return
    from vinelm.cli.console import say

    for line in (page.headline, *page.findings):
        say(line)
    echo(f"wrote {target}")
