"""``vinelm try``: from an application and its questions to a verdict, in one command."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vinelm.cli.console import echo, print_json, say
from vinelm.cli.failures import EXIT_BUDGET as BUDGET_REACHED
from vinelm.cli.options import flag, option, output_options, resumable
from vinelm.cli.quantities import USD, Count, InputFile
from vinelm.cli.subcommand import run_command
from vinelm.cli.verdict_output import max_loss_option, show_verdict
from vinelm.errors import ConfigError
from vinelm.trie.verdict import MAX_LOSS, what_can_be_proven

STORE, TRIE, REPORT = "app.db", "app.vine", "report"
MODELS, WORKFLOW = "models.toml", "workflow.py"
MAX_ERROR = "0.15"


@click.command("try", short_help="Try VineLM on your own app: one command, one verdict.")
@click.argument("app", metavar="APP")
@option("--dataset FILE", "Requests with their right answers: CSV, JSON lines, Parquet, or an export.", InputFile())
@option("--label-field COLUMN", "Column with the right answer. Repeatable.", into="label_fields", multiple=True)
@option("--budget-usd USD", "Never spend more than this, earlier runs included.", USD)
@option("--models NAME,NAME", "Models to choose from, as `vinelm init` takes them [default: the app's, and others like them].")
@option("--today MODEL", "The model that your app runs today wherever its code does not say it, as PROVIDER:MODEL.")
@option("--workers N", "Calls at a time [default: 4].", Count(1), default=4)
@flag("--apply", "Put vine.around(...) around the models that the app makes.", into="is_applied")
@flag("--keep-going", "Go on even if none of the first ten answers is right, or all first rows of a stage fail alike.")
@flag("--allow-unproven", "Print the lines that serve the plan also where it is not proven: it may be worse.")
@flag("--dry-run", "Print what would be called, for how much and how long. Calls nothing.")
@max_loss_option
@output_options
@resumable
def command(
    *,
    app: str,
    dataset: str | None,
    label_fields: tuple[str, ...],
    budget_usd: float | None,
    models: str | None,
    today: str | None,
    workers: int,
    is_applied: bool,
    keep_going: bool,
    allow_unproven: bool,
    dry_run: bool,
    max_loss: float | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Go the whole way with your own application: read its graph, profile it, and say whether to switch or to keep.

    APP is FILE.py:ATTRIBUTE, as for `vinelm init`. The first time this writes workflow.py and models.toml next to it, as that
    command does; files that are there are kept, so that you may change them and run the same line again. Then it buys rows
    until it is certain, or the budget is spent: first what your app runs today and every single model on the same requests,
    whose table is shown, then the plans that would replace it. The verdict is SWITCH, KEEP, UNDECIDED or NOT ENOUGH DATA.

    What is bought is kept in app.db: the same line continues an interrupted run, and a larger budget adds to it. Writes
    app.vine, which serves, and report/report.html.

    Exit code 0 whatever the verdict, 2 for bad input.

    Example: vinelm try app.py:graph --dataset qa.csv --label-field answer --budget-usd 1
    """
    from vinelm.scaffold.applied import finish

    folder = Path.cwd()
    finish(folder)
    if not (folder / WORKFLOW).exists():
        folder = _begin(app, dataset, label_fields, models, today, is_applied=is_applied, quiet=quiet)
    checked = json.loads(run_command(folder, "check", "workflow:workflow", "--models", MODELS, "--json"))
    if checked["today"]:
        _note_today(folder / WORKFLOW, checked["today"])
    for item in checked["items"]:
        if item["is_doubtful"] and not (item["name"] == "today" and checked["today"]):
            echo(f"look  {item['name']}: {item['detail']}", err=True)
    asked = checked["questions"]
    if asked and not dry_run:
        raise ConfigError(f"{' '.join(asked)}, in {WORKFLOW}, and run the same line again: nothing is bought before")
    given = ["workflow:workflow", "--models", MODELS, "--store", STORE, "--max-error", MAX_ERROR, "--workers", str(workers)]
    given += [] if budget_usd is None else ["--budget-usd", str(budget_usd)]
    if dry_run:
        echo(run_command(folder, "profile", *given, "--dry-run", *(["--json"] if as_json else [])).rstrip("\n"))
        return
    if not quiet:
        echo(what_can_be_proven(checked["requests"], MAX_LOSS if max_loss is None else max_loss), err=True)
    given += ["--keep-going"] if keep_going else []
    quietly = ["--quiet"] if quiet else []
    # What was bought when the budget was reached may be enough: the verdict says so.
    run_command(folder, "profile", *given, *quietly, accepted=(0, BUDGET_REACHED))
    allowed = [] if max_loss is None else ["--max-loss", f"{100 * max_loss:.12g}"]
    run_command(folder, "estimate", STORE, "-o", TRIE, "--max-error", "1", *allowed)
    run_command(folder, "report", STORE, TRIE, "-o", REPORT, *quietly)
    _show(folder, as_json=as_json, allow_unproven=allow_unproven)


def _begin(
    app: str,
    dataset: str | None,
    labels: tuple[str, ...],
    models: str | None,
    today: str | None,
    *,
    is_applied: bool,
    quiet: bool,
) -> Path:
    """Write the project, unless it is there, and say what is to be done; returns its folder.

    The application is imported in another process: this one has to be there when it hangs, dies or prints.
    """
    from vinelm.scaffold.applied import finish
    from vinelm.scaffold.target import project_folder, root_of

    root = project_folder(root_of(app, Path.cwd()), Path.cwd())
    finish(root)
    if (root / WORKFLOW).exists():
        return root
    if dataset is None:
        raise ConfigError("a first run needs --dataset: requests with their right answers, 30 or better 100 of them")
    fields = [item for label in labels for item in ("--label-field", label)]
    chosen = [] if models is None else ["--models", models]
    named = [] if today is None else ["--today", today]
    line = ["init", app, "--dataset", dataset, *fields, *chosen, *named, "--yes", "--json"]
    planned = json.loads(run_command(Path.cwd(), *line, "--dry-run"))
    if not is_applied:
        edits = planned["to_change"]
        places = ", ".join(dict.fromkeys(edit.partition(": ")[0] for edit in edits))
        if edits:
            raise ConfigError(
                f"your app makes its own models ({places}), and VineLM chooses only where it is around them: run this line "
                "again with --apply, which adds vine.around(...) there, or add it as `vinelm init` says"
            )
    written = json.loads(run_command(Path.cwd(), *line, *(["--apply"] if is_applied else [])))
    if not quiet:
        _show_written(written)
    return root


def _note_today(file: Path, today: Mapping[str, str]) -> None:
    """Write into the workflow file what the application's own models said when a scripted request called them."""
    from vinelm.io.atomic import write_atomic
    from vinelm.scaffold.workflow_file import with_defaults

    text = file.read_text(encoding="utf-8")
    new = with_defaults(text, today)
    said = ", ".join(f"{stage} {model}" for stage, model in today.items())
    if new == text:
        raise ConfigError(f"write what runs today into the template of {WORKFLOW} ({said}), and run the same line again")
    write_atomic(file, new.encode())
    echo(f"today  {said}: so your app made its models; written into {WORKFLOW}", err=True)


def _show_written(written: Mapping[str, Any]) -> None:
    """What `vinelm init` has to say, on stderr: only a verdict is data."""
    for path in written["edited"]:
        echo(f"changed {os.path.relpath(path)}: vine.around(...) is around its models", err=True)
    for todo in written["todo"]:
        echo(f"to do  {WORKFLOW}:{todo['line']}: {todo['text']}", err=True)


def _show(folder: Path, *, as_json: bool, allow_unproven: bool) -> None:
    from vinelm.plans.recommendation import served_objective
    from vinelm.reports.plan_words import serving_lines
    from vinelm.vinefile import load_trie

    annotated = load_trie(folder / TRIE)
    found = annotated.verdict
    assert found is not None  # the estimate was checked
    page, objective = folder / REPORT / "report.html", served_objective(found)
    if as_json:
        print_json(
            {
                "verdict": found.to_dict(),
                "report": str(page),
                "objective": None if objective is None else objective.to_dict(),
                "is_simulated": annotated.meta["is_simulated"],
                "spent_usd": annotated.meta["spent_usd"],
                "requests": annotated.meta["requests"],
            }
        )
        return
    show_verdict(found)
    simulated = " Simulated models." if annotated.meta["is_simulated"] else ""
    spent = f"{annotated.meta['requests']} requests, ${annotated.meta['spent_usd']:.3g} spent"
    say(f"{spent}.{simulated} Report: {os.path.relpath(page)}")
    is_proven = found.advice == "switch"
    if objective is not None and (is_proven or allow_unproven):
        for line in serving_lines(objective, TRIE, is_proven=is_proven):
            echo(f"  {line}")
