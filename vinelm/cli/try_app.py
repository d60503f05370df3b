"""``vinelm try``: takes an application and its questions to a verdict, in one command."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo, print_json, say
from vinelm.cli.declared import declared
from vinelm.cli.options import output_options, resumable
from vinelm.cli.quantities import POINTS, InputFile
from vinelm.cli.verdict_output import show_verdict

if TYPE_CHECKING:
    from vinelm.cli.progress import EventKind
    from vinelm.trying import Trial


@click.command("try", short_help="Try VineLM on your own app: one command, one verdict.")
@click.argument("app", required=False, metavar="[APP]")
@declared("vinelm.trying.trial:try_app", models=("--models NAME,NAME", str), dataset=("--dataset FILE", InputFile()))
@output_options
@resumable
def command(*, app: str | None, as_json: bool, quiet: bool, **options: Any) -> None:
    """Read the graph of your app, profile the app, and say whether to switch to other models.

    On a terminal the first run asks how many points of accuracy a cheaper plan may lose, unless --max-loss says so.

    APP is FILE.py:ATTRIBUTE, or the graph of langgraph.json, as for `vinelm init`. The first run writes workflow.py and
    models.toml next to the app, as that command does. Existing files are kept, so you may change them and run the same command
    again. Then requests are run and their results stored, until the verdict is certain, no plan can be proven on these
    requests, or the budget is spent. First, today's models and every single model answer the same requests, and a table
    compares them; then come the plans that might replace today's models. The verdict is SWITCH, KEEP, UNDECIDED or NOT ENOUGH
    DATA.

    All results are stored in app.db, so the same command continues an interrupted run, and a larger budget adds results. Ctrl-C
    ends with the verdict of the results so far. Writes app.vine, the plan file for serving, and report/report.html. In Python:
    vinelm.try_app.

    Exit code 0 whatever the verdict, 2 for bad input.

    Example: vinelm try app.py:graph --dataset qa.csv --label-field answer --budget-usd 1

    Example: vinelm try app.py:graph --dataset qa.csv --models openai --today openai:gpt-5 --workers 16 --apply --dry-run

    Example: vinelm try app.py:graph --budget-usd 5 --max-loss 1 --keep-going --allow-unproven

    Example: vinelm try app.py:graph --traces calls.jsonl --budget-usd 5
    """
    from vinelm.cli.progress import at_step, live, noted, raced
    from vinelm.scaffold.target import place_of

    app = place_of(app, Path.cwd())
    if options["max_loss"] is None and not (quiet or as_json or options["dry_run"]):
        options["max_loss"] = _asked_max_loss(Path(app.rpartition(":")[0]).parent / "app.vine")
    if not quiet:
        at_step(f"reading {app}")  # the import that follows takes seconds
    from vinelm.trying import try_app

    kind: EventKind = "quiet" if quiet else "text"
    with live(kind) as on_progress:
        step = None if quiet else partial(at_step, after=on_progress)
        found = try_app(
            app, **options, on_step=step, on_progress=on_progress,
            on_single_models=raced(kind), on_note=noted(kind), on_verdict=partial(_show_verdict, as_json=as_json),
        )  # fmt: skip
    _show_end(found, as_json=as_json)
    if found.is_stopped:
        raise KeyboardInterrupt


def _asked_max_loss(trie: Path) -> float | None:
    """Ask the user how much accuracy a cheaper plan may lose, and return it as a fraction; None if the user is not asked.

    The user is not asked if ``trie`` of an earlier run exists, or if the command does not run in a terminal.
    """
    if trie.exists() or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    question = "Points of accuracy that a cheaper plan may lose"
    return float(click.prompt(question, default="3", value_proc=partial(POINTS.convert, param=None, ctx=None), err=True))


def _show_verdict(found: Trial, *, as_json: bool) -> None:
    from vinelm.cli.inputs import say_changed_prices

    assert found.trie is not None
    assert found.verdict is not None  # the estimate was checked
    say_changed_prices(found.trie.catalog)
    for warning in found.trie.meta.get("evidence", {}).get("warnings", ()):
        echo(f"warning: {warning}", err=True)
    if not as_json:
        show_verdict(found.verdict)


def _show_end(found: Trial, *, as_json: bool) -> None:
    from vinelm.cli.profile_output import print_forecast

    if found.forecast is not None:
        print_forecast(found.forecast, as_json=as_json)
        return
    if as_json:
        print_json(found.to_dict())
        return
    assert found.trie is not None
    meta = found.trie.meta
    simulated = " Simulated models." if meta["is_simulated"] else ""
    page = "" if found.report is None else f" Report: {os.path.relpath(found.report)}"
    say(f"{meta['requests']} requests, ${meta['spent_usd']:.3g} spent.{simulated}{page}")
    for line in found.lines:
        echo(f"  {line}")
