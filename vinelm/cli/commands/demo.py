"""``vinelm demo``: profile, estimate, evaluate and report on bundled requests and simulated models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vinelm.cli.console import echo, print_json, progress, say, stdout
from vinelm.cli.inputs import load_inputs
from vinelm.cli.options import flag, limit_option, option, output_options, seed_option
from vinelm.reports import percent, usd

if TYPE_CHECKING:
    from vinelm.demo import DemoResult

GRAPH_COVERAGE = 0.06
"""Of graphqa's rows, which are many: each of its programs runs in a sandbox."""


@click.command("demo", short_help="Tour on simulated models: no API keys, no network.")
@click.argument("workflow", type=click.Choice(["nl2sql-2", "support", "graphqa"]), default="nl2sql-2")
@option("--output-dir PATH", "Folder for all files [default: runs/demo, or runs/demo-WORKFLOW of another one].", Path)
@option("--preset NAME", "Simulated models: paper-2, paper-4, paper (8) or one-wins.", default="paper-2")
@seed_option
@limit_option
@output_options
@flag("--details", "Print everything that vinelm evaluate prints, not the verdict alone.")
@click.option(
    "--open/--no-open",
    "opens",
    default=None,
    help="Open the report in the browser [default: on a terminal of a machine with a desktop].",
)
def command(
    *,
    workflow: str,
    output_dir: Path | None,
    as_json: bool,
    quiet: bool,
    details: bool,
    opens: bool | None,
    preset: str,
    seed: int,
    limit: int | None,
) -> None:
    """Profile, estimate, evaluate and report on a bundled WORKFLOW: no API keys, no network, less than a minute.

    nl2sql-2 (the default): two simulated models write SQL, which is really executed, and repair it while a check fails.

    support: a support desk, whose graph branches. A router sends each ticket to one of three desks; two of them look something
    up, and a reply follows. Plans are contingent: each desk has its own next model.

    graphqa: questions to the graphs of five databases. One program answers, or a plan, programs and reasoning take turns; the
    programs are really executed. It needs the extra graph.

    The steps are those for your own application: `vinelm profile`, `estimate`, `evaluate` and `report`. The verdict is that of
    evaluate: whether to switch from the strongest single model, and whether a fixed plan is enough. Writes demo.db, demo.vine
    and report.html; replaces those of an earlier demo.

    Example: vinelm demo support --seed 1 --output-dir runs/demo
    """
    from vinelm.demo import run_demo
    from vinelm.io.browser import has_desktop, open_page

    folder = output_dir or Path("runs/demo" if workflow == "nl2sql-2" else f"runs/demo-{workflow}")
    if sys.stderr.isatty() and not quiet:
        echo(f"Profile, estimate, evaluate and report on simulated models.\nAll files go to {folder}.", err=True)
    with progress(quiet=quiet) as advance:
        inputs = load_inputs(workflow, seed=seed, preset=preset, limit=limit)
        coverage = {"coverage": GRAPH_COVERAGE} if workflow == "graphqa" else {}
        found = run_demo(inputs.workflow, inputs.catalog, folder, seed=seed, advance=advance, **coverage)
    is_opened = (stdout().is_terminal and has_desktop() and not as_json if opens is None else opens) and open_page(found.page)
    _print(found, as_json=as_json, details=details, is_opened=is_opened)
    if opens and not is_opened:
        echo("No browser could be started: open the report yourself.", err=True)


def _print(found: DemoResult, *, as_json: bool, details: bool, is_opened: bool) -> None:
    from vinelm.cli.commands.evaluate import evaluation_facts, show_evaluation

    if as_json:
        files = {"report": str(found.page), "store": str(found.store), "trie": str(found.trie)}
        print_json({**files, **evaluation_facts(found.evaluation)})
        return
    profile = found.profiled
    say("Simulated models: answers, prices and latencies are not those of real models.", bold=True)
    say(
        f"Profiled {sum(profile.counts):,} rows of {found.evaluation.requests} requests for {usd(profile.spent_usd)}:"
        f" {percent(profile.coverage)} of the cost of all rows."
    )
    echo()
    show_evaluation(found.evaluation, is_short=not details)
    echo(f"Report: {found.page}{' (opened in the browser)' if is_opened else ''}")
    if not details:
        say(f"More: --details, or `vinelm evaluate {found.store} {found.trie}`.")
