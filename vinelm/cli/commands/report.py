"""``vinelm report``: a self-contained HTML report of a store and its trie."""

from __future__ import annotations

from pathlib import Path

import click

from vinelm.cli.console import echo, print_json, progress, say
from vinelm.cli.options import flag, option, output_options, store_argument, trie_argument


@click.command("report", short_help="Write a self-contained HTML report of a store and its trie.")
@store_argument
@trie_argument
@option("-o --output-dir PATH", "Folder to write report.html to.", Path, default=Path("report"))
@option("--in-use MODEL|JSON", "What you run today: a model, or a file of `vinelm plan --json`: the verdict compares with it.")
@flag("--show-text", "Show the answers in the examples: whoever gets the page reads them.")
@output_options
def command(
    *, store: Path, trie: Path, output_dir: Path, in_use: str | None, show_text: bool, as_json: bool, quiet: bool
) -> None:
    """Write one self-contained HTML page about the observations in STORE and the TRIE estimated from them.

    It begins with the verdict of `vinelm evaluate` as a card, against the plan in use with --in-use: dollars, accuracy and
    latency before and after, and the plan. Folded below it are examples; for a range of cost budgets, accuracy floors and
    latency caps, what VineLM, the best static plan, the best single model, a vote and asking until two agree achieve, each
    judged by requests that did not choose it; the models and dollars of the plan; the workflow's own check; and what other
    prices would change. Calls no model.

    Example: vinelm report runs/nl2sql.db nl2sql.vine -o report/
    """
    from vinelm.reports import write_page
    from vinelm.reports.store.page import store_page

    with progress(quiet=quiet) as advance:
        page = store_page(store, trie, in_use=in_use, show_text=show_text, on_done=advance)
    target = write_page(page, output_dir / "report.html")
    if as_json:
        print_json(
            {
                "report": str(target),
                "headline": page.headline,
                "findings": page.findings,
                "simulated": page.simulated,
                "oracle": page.oracle,
            }
        )
        return
    for line in filter(None, (page.headline, page.oracle, *page.findings)):
        say(line)
    echo(f"wrote {target}")
