"""``vinelm report``: writes a self-contained HTML report of a store and its trie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vinelm.cli.console import echo, print_json, progress, say
from vinelm.cli.declared import declared
from vinelm.cli.options import output_options, store_argument, trie_argument


@click.command("report", short_help="Write a self-contained HTML report of a store and its trie.")
@store_argument
@trie_argument
@declared("vinelm.reports.store.page:report", "evaluation", output_dir=("-o --output-dir PATH", Path))
@output_options
def command(*, store: Path, trie: Path, output_dir: Path, as_json: bool, quiet: bool, **given: Any) -> None:
    """Write one self-contained HTML page about the observations in STORE and the TRIE estimated from them.

    It begins with the verdict of `vinelm evaluate`: dollars, accuracy and latency before and after, and the plan. "Before" is
    the setup that --in-use names, if it is given. Sections that can be opened follow: examples; results for a range of cost
    budgets, accuracy floors and latency caps; the models and dollars of the plan; the workflow's own check; and what other
    prices would change. The results are those of VineLM, the best static plan, the best single model, a majority vote, and
    asking until two answers agree. Each is tested on requests that were not used to choose it. Calls no model.

    Example: vinelm report runs/nl2sql.db nl2sql.vine -o report/

    Example: vinelm report app.db app.vine --in-use gpt-5 --show-text --seed 1
    """
    from vinelm.reports import write_page
    from vinelm.reports.store.page import store_page

    with progress(quiet=quiet) as advance:
        page = store_page(store, trie, on_done=advance, **given)
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
