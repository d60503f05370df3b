"""``vinelm profile``: run a sample of (request, path) cells and keep every row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.options import output_options, stop_option, workflow_inputs

if TYPE_CHECKING:
    from vinelm.cli.inputs import Inputs
    from vinelm.profiler.progress import ProfileResult
    from vinelm.traces.store import ObservationStore

DEFAULT_COVERAGE = 0.02


@click.command("profile", short_help="Run a sample of requests down a sample of paths.")
@click.argument("workflow")
@workflow_inputs
@click.option(
    "--store", type=click.Path(path_type=Path), metavar="DB", help="Store to write or go on with [default: runs/WORKFLOW.db]."
)
@click.option(
    "--coverage", type=float, metavar="FRACTION",
    help="Stop at this share of the dollars that running everything once would cost [default: 0.02, without a budget].",
)  # fmt: skip
@click.option("--budget-usd", type=float, metavar="USD", help="Never spend more than this, earlier runs on the store included.")
@click.option(
    "--sampler", default="cascade", show_default=True, metavar="NAME", help="cascade, or exhaustive with --coverage 1."
)
@stop_option
@output_options
def command(*, workflow: str, store: Path | None, as_json: bool, quiet: bool, **settings: Any) -> int | None:
    """Run a sample of WORKFLOW's requests down a sample of its paths, and keep what each invocation showed.

    WORKFLOW is the name of a bundled workflow (nl2sql, nl2sql-2) or MODULE:ATTRIBUTE for your own. Every row is on disk
    before the next call is made: an interrupted run goes on when the same line is run again.

    Example: vinelm profile nl2sql --models models.toml --store runs/nl2sql.db --coverage 0.02 --budget-usd 50
    """
    from vinelm.cli.inputs import load_inputs
    from vinelm.errors import BudgetExhausted

    names = ("models", "preset", "dataset", "limit", "seed", "stop")
    inputs = load_inputs(workflow, **{name: settings[name] for name in names})
    _require_cap(inputs, settings)
    path = store or Path("runs") / f"{inputs.workflow.name}.db"
    if inputs.note and not quiet:
        click.echo(inputs.note, err=True)
    with _open(path, inputs, settings["seed"], is_default=store is None) as opened:
        result = _run(inputs, opened, settings, quiet=quiet)
        (_print_json if as_json else _show)(result, opened, inputs)
    if result.stopped_by == "budget":
        raise BudgetExhausted(f"{result.message or 'the budget is reached'}: raise --budget-usd and run the same line to go on")
    return 130 if result.stopped_by == "interrupted" else None


def _require_cap(inputs: Inputs, settings: dict[str, Any]) -> None:
    """Offline models cost nothing; everything else needs a budget that a person wrote down."""
    from vinelm.errors import ConfigError

    if settings["coverage"] is None and settings["budget_usd"] is None:
        settings["coverage"] = DEFAULT_COVERAGE
    if settings["budget_usd"] is None and inputs.spends_money:
        raise ConfigError("these models cost money: give --budget-usd, the most that this store may ever cost")


def _open(path: Path, inputs: Inputs, seed: int, *, is_default: bool) -> ObservationStore:
    """The store, made if it is not there. Everything that can be wrong with the graph is found before a file is written."""
    from vinelm.adapters.langgraph import GraphControl, build_graph
    from vinelm.profiler.fingerprint import store_identity
    from vinelm.traces.store import ObservationStore

    build_graph(inputs.workflow, GraphControl(inputs.catalog, inputs.backends, template=inputs.workflow.template))
    settings = {"seed": seed} if inputs.is_simulated else None
    identity = store_identity(inputs.workflow, inputs.catalog, inputs.backends, settings=settings)
    if is_default:
        path.parent.mkdir(exist_ok=True)
    return ObservationStore.open_or_create(path, identity)


def _run(inputs: Inputs, store: ObservationStore, settings: dict[str, Any], *, quiet: bool) -> ProfileResult:
    from vinelm.cli.console import progress
    from vinelm.profiler.progress import Progress
    from vinelm.profiler.runner import profile
    from vinelm.report.words import usd

    with progress(quiet=quiet) as start:
        advance = start(f"profile {inputs.workflow.name}")

        def on_progress(now: Progress) -> None:
            shares = [
                now.coverage / now.target if now.target else 0.0,
                now.spent_usd / now.budget_usd if now.budget_usd else 0.0,
            ]
            advance(max(shares), 1.0, f"{now.executed:,} rows, {usd(now.spent_usd)}")

        caps = {name: settings[name] for name in ("coverage", "budget_usd", "sampler", "seed")}
        return profile(inputs.workflow, inputs.catalog, inputs.backends, store, on_progress=on_progress, **caps)


def _show(result: ProfileResult, store: ObservationStore, inputs: Inputs) -> None:
    from vinelm.cli.console import say
    from vinelm.report.words import percent, usd

    _spend_table("model", store.spend("model"), result.spent_usd)
    _spend_table("depth", store.spend("depth"), result.spent_usd)
    failed = f", {sum(result.failures.values())} failed calls" if result.failures else ""
    say(f"{len(store):,} rows ({result.executed:,} new{failed}), {usd(result.spent_usd)}, stopped by {result.stopped_by}.")
    say(f"Coverage: {percent(result.coverage)} of {usd(result.exhaustive_usd)}, the estimated cost of every reached cell once.")
    if result.spent_usd:
        say(
            f"Saved {result.exhaustive_usd / result.spent_usd:.1f}x against running everything with checkpoints, "
            f"{result.naive_usd / result.spent_usd:.1f}x against running every path anew."
        )
    if inputs.is_simulated:
        say("Simulated models: prices and answers are not those of real ones.")
    click.echo(f"Next: vinelm estimate {store.path}")


def _spend_table(title: str, spend: Mapping[str | int, Any], total: float) -> None:
    from vinelm.cli.console import show_table
    from vinelm.report.words import percent, usd

    rows = [
        (
            str(key),
            f"{item.rows:,}",
            f"{item.calls:,}",
            str(item.failures),
            usd(item.cost_usd),
            percent(item.cost_usd / total if total else 0.0),
        )
        for key, item in spend.items()
    ]
    show_table(f"Cost by {title}", (title, "rows", "calls", "failed", "cost", "share"), rows)


def _print_json(result: ProfileResult, store: ObservationStore, inputs: Inputs) -> None:
    from dataclasses import asdict

    from vinelm.cli.console import print_json

    spend = {by: {str(k): asdict(v) for k, v in store.spend(by).items()} for by in ("model", "depth")}
    facts = {"workflow": inputs.workflow.name, "store": str(store.path), "is_simulated": inputs.is_simulated}
    print_json({**facts, **asdict(result), "spend": spend})
