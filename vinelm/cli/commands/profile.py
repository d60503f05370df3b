"""``vinelm profile``: run a sample of (request, path) cells and keep every row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo
from vinelm.cli.inputs import cluster_of, load_inputs
from vinelm.cli.options import cluster_options, flag, option, output_options, resumable, stop_option, workflow_inputs
from vinelm.cli.quantities import FRACTION, SECONDS, USD, Count
from vinelm.errors import BudgetExhausted, ConfigError, StoreError

if TYPE_CHECKING:
    from vinelm.api.profiling import Inputs
    from vinelm.profiler import ExecutionConfig, ProfileResult
    from vinelm.profiler.execution.batching import BatchPrices
    from vinelm.traces import ObservationStore

DEFAULT_WORKERS = 4
BATCH_WORKERS = 500
"""With batches: each unit that waits is a thread, and the more wait together, the fewer batches there are."""
LIMITS = ("coverage", "budget_usd", "budget_calls")
INPUTS = ("models", "preset", "dataset", "limit", "seed", "stop", "columns")


@click.command("profile", short_help="Run a sample of requests along a sample of paths.")
@click.argument("workflow")
@workflow_inputs
@option(
    "--store DB",
    "Store to create or continue: a file, or postgresql://user@host/database [default: runs/WORKFLOW.db].",
    Path,
)
@option(
    "--coverage FRACTION",
    "Stop at this share of the dollars of executing every reached cell once [default: 0.02, without a budget].",
    FRACTION,
)
@option("--budget-usd USD", "Never spend more than this, earlier runs on the store included.", USD)
@option("--budget-calls N", "Never make more calls than this, earlier runs included.", Count())
@option(
    "--max-error FRACTION",
    "Stop as soon as `vinelm estimate` accepts the rows at this --max-error, for example 0.15. --coverage and the budgets "
    "end the run in any case.",
    FRACTION,
)
@option(
    "--sampler NAME",
    "deciding (a race of all models, then what changes the plan), priced (cheap models more often), cascade (uniform), or "
    "exhaustive.",
    default="deciding",
)
@option(
    "--checkpoints URL",
    "Keep the contents of checkpoints in this folder or under this fsspec URL, in later runs too [default: in the store].",
)
@option(
    "--isolation HOW",
    "Where units run: process (a fresh one each), thread or inline (trusted code) [default: process; thread with "
    "--batch-prices].",
)
@option(
    "--workers N", "Units at a time; never changes which rows are made [default: 4, inline 1, --batch-prices 500].", Count()
)
@cluster_options
@option("--unit-timeout-s S", "End a unit after this long, processes only [default: 600].", SECONDS)
@option("--memory-mb MIB", "Memory of a unit on top of its imports, processes only [default: 2048].", int)
@flag(
    "--batch-prices",
    "Buy in the batches of OpenAI, Anthropic and Gemini: half the price, each wave of calls within 24 h. A killed run fetches "
    "what it has bought.",
)
@option("--wait TIME", "How long to wait for one batch, such as 90m or 24h, with --batch-prices [default: 24h].")
@flag(
    "--keep-going",
    "Go on even if all first rows of a stage fail alike, none of the first ten answers is right, or nothing can be proven.",
)
@flag("--dry-run", "Print what would be called, for how much and how long. Calls nothing.")
@stop_option
@output_options
@resumable
def command(*, workflow: str, store: Path | None, as_json: bool, quiet: bool, **settings: Any) -> int | None:
    """Run a sample of WORKFLOW's requests along a sample of its paths, and keep a row of each invocation.

    WORKFLOW is the name of a bundled workflow (nl2sql, nl2sql-2, support) or MODULE:ATTRIBUTE for your own. Every row is on
    disk before the next stage of its request starts: an interrupted run continues when the same line is run again.

    Example: vinelm profile nl2sql --models models.toml --store runs/nl2sql.db --coverage 0.02 --budget-usd 50
    """
    from vinelm.api.forecasting import forecast_run
    from vinelm.api.profiling import require_sound
    from vinelm.backends.diagnostics import require_keys
    from vinelm.cli.profile_output import print_forecast, print_result, show
    from vinelm.profiler import ProfileLimits
    from vinelm.profiler.sampling.samplers import require_sampler
    from vinelm.traces import CheckpointPlace, ObservationStore

    inputs = load_inputs(workflow, **{name: settings[name] for name in INPUTS})
    execution = _execution(workflow, settings)
    settings["batch_prices"] = _batch_prices(inputs, settings)
    sampler = settings["sampler"]
    require_sampler(sampler)
    _require_limits(inputs, settings)
    limits = ProfileLimits(**{name: settings[name] for name in LIMITS})
    path = store or Path("runs") / f"{inputs.workflow.name}.db"
    if inputs.note and not quiet:
        echo(inputs.note, err=True)
    if settings["dry_run"]:
        with _can_be_put_aside():
            found = forecast_run(
                inputs, path, limits, sampler=sampler, workers=execution.workers, max_error=settings["max_error"],
                batch_prices=settings["batch_prices"], on_note=None if quiet else partial(echo, err=True),
            )  # fmt: skip
        print_forecast(found, as_json=as_json)
        return None
    require_keys(inputs.catalog.models)
    # Both before a file is made.
    place = None if settings["checkpoints"] is None else CheckpointPlace(settings["checkpoints"])
    identity = inputs.identity
    if store is None:
        path.parent.mkdir(exist_ok=True)
    with _can_be_put_aside(), ObservationStore.open_or_create(path, identity) as opened:
        if place is not None:
            opened.keep_checkpoints_under(place)
        kind = "quiet" if quiet else "json" if as_json else "text"
        result = _run(inputs, opened, {**settings, "sampler": sampler, "identity": identity}, execution, kind)
        (print_result if as_json else show)(result, opened, inputs, max_error=settings["max_error"])
        require_sound(result, opened, keep_going=settings["keep_going"])
    return _exit_code(result)


def _exit_code(result: ProfileResult) -> int | None:
    """Return the exit code of a run, or raise that its budget is reached."""
    from vinelm.cli.profile_output import print_interrupted

    if result.stopped_by == "budget":
        raise BudgetExhausted(
            f"{result.message or 'the budget is reached'}: raise the budget and run the same line to continue"
        )
    if result.stopped_by == "interrupted":
        print_interrupted(result)
        return 130
    return None


def _execution(workflow: str, settings: dict[str, Any]) -> ExecutionConfig:
    from vinelm.profiler import ExecutionConfig, WorkflowSource

    arguments = {name: str(value) if isinstance(value := settings[name], Path) else value for name in INPUTS}
    is_batched, cluster = settings["batch_prices"], cluster_of(settings["engine"], ship=settings["ship"])
    isolation: Any = settings["isolation"] or ("thread" if is_batched else "process")
    if is_batched and (isolation != "thread" or cluster is not None):
        raise ConfigError("calls go in batches where all units are in one process, in threads", code="batches-need-threads")
    workers = 1 if isolation == "inline" else BATCH_WORKERS if is_batched else DEFAULT_WORKERS
    return ExecutionConfig(
        cluster=cluster,
        isolation=isolation,
        workers=settings["workers"] if settings["workers"] is not None else workers,
        source=WorkflowSource(function="vinelm.cli.inputs:load_inputs", arguments={"spec": workflow, **arguments}),
        timeout_s=settings["unit_timeout_s"],
        memory_mb=settings["memory_mb"],
    )


def _batch_prices(inputs: Inputs, settings: dict[str, Any]) -> BatchPrices | None:
    """The terms of a run that buys in batches; None for one that does not. Refuses what cannot be bought that way."""
    from vinelm.backends.remote.batches import BatchTimes
    from vinelm.profiler.execution.batching import BatchPrices, batched_models

    wait = settings["wait"]
    if not settings["batch_prices"]:
        if wait is not None:
            raise ConfigError("--wait has no effect without --batch-prices: give it, or leave --wait out")
        return None
    prices = BatchPrices(times=BatchTimes() if wait is None else BatchTimes(wait_s=_seconds(wait)))
    batched_models(inputs.workflow, inputs.catalog, inputs.backends)  # refuses what cannot be bought that way
    return prices


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)(s|m|h|d)", text)
    if found is None:
        raise ConfigError(f"--wait {text!r} is no time: write a number and s, m, h or d, such as 90m or 24h")
    return float(found[1]) * {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}[found[2]]


def _require_limits(inputs: Inputs, settings: dict[str, Any]) -> None:
    """Require an explicit budget where models cost money; without any limit, set the default coverage."""
    from vinelm.api.estimation import require_max_error
    from vinelm.api.profiling import DEFAULT_COVERAGE

    if settings["max_error"] is not None:
        require_max_error(settings["max_error"])
    has_budget = any(settings[name] is not None for name in ("budget_usd", "budget_calls", "max_error"))
    if settings["coverage"] is None and not has_budget:
        settings["coverage"] = DEFAULT_COVERAGE
    if not settings["dry_run"]:
        inputs.require_budget(settings["budget_usd"])


@contextmanager
def _can_be_put_aside() -> Iterator[None]:
    """Errors about a store that does not match get the hint that belongs to this command."""
    try:
        yield
    except StoreError as error:
        if error.code == "store-mismatch":
            raise StoreError(str(error), code="profile-store-mismatch") from error
        raise


def _run(
    inputs: Inputs, store: ObservationStore, settings: dict[str, Any], execution: ExecutionConfig, kind: Any
) -> ProfileResult:
    from vinelm.api.profiling import run_profile
    from vinelm.cli.progress import live, noted, raced
    from vinelm.profiler import ProfileSettings

    with live(kind) as on_progress:
        named = {name: settings[name] for name in (*LIMITS, "sampler", "seed", "identity", "keep_going", "batch_prices")}
        asked = ProfileSettings(
            execution=execution, on_progress=on_progress, on_single_models=raced(kind), on_note=noted(kind), **named
        )  # fmt: skip
        return run_profile(inputs, store, asked, max_error=settings["max_error"])
