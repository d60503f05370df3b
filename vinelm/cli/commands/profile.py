"""``vinelm profile``: runs a sample of requests on a sample of paths, and stores every result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.declared import declared
from vinelm.cli.options import cluster_options, option, output_options, resumable
from vinelm.cli.quantities import DURATION, SECONDS, Count
from vinelm.errors import BudgetExhausted, ConfigError

if TYPE_CHECKING:
    from vinelm.profiler import ExecutionConfig, ProfileResult

DEFAULT_WORKERS = 4


@click.command("profile", short_help="Run a sample of requests along a sample of paths.")
@click.argument("workflow")
@declared("vinelm.api.profiling:profile", "requests", "execution", "recorded")
@option(
    "--traces PATH", "Recorded LLM calls, as `vinelm replay` reads them: an equal call has the recorded answer, for $0.", Path
)
@option(
    "--wait TIME",
    "How long to wait for one batch, such as 90m or 24h, with --batch-prices [default: 24h].",
    DURATION,
    into="wait_s",
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
@option("--unit-timeout-s S", "End a unit after this long, processes only [default: 600].", SECONDS, into="timeout_s")
@option("--memory-mb MIB", "Memory of a unit on top of its imports, processes only [default: 2048].", int)
@output_options
@resumable
def command(*, workflow: str, as_json: bool, quiet: bool, **given: Any) -> int | None:
    """Run a sample of WORKFLOW's requests along a sample of its paths, and store the result of each invocation.

    WORKFLOW is the name of a bundled workflow (nl2sql, nl2sql-2, support) or MODULE:ATTRIBUTE for your own. A path is a
    sequence of models, one for each invocation. Every result is stored before the next stage of its request starts, so an
    interrupted run continues when the same command is run again.

    Example: vinelm profile nl2sql --models models.toml --store runs/nl2sql.db --coverage 0.02 --budget-usd 50

    Example: vinelm profile app.py:workflow --models models.toml --dataset qa.jsonl --column label.answer=gold --stop oracle
    --max-error 0.1 --budget-usd 20 --workers 8 --unit-timeout-s 60 --memory-mb 4096 --checkpoints s3://bucket/app --keep-going

    Example: vinelm profile app.py:workflow --models models.toml --budget-usd 20 --batch-prices --wait 12h

    Example: vinelm profile app.py:workflow --models models.toml --budget-usd 20 --sampler exhaustive --engine ray://auto --ship

    Example: vinelm profile app.py:workflow --models models.toml --budget-usd 20 --traces traces/
    """
    from vinelm.api.profiling import profile, require_sound
    from vinelm.cli.profile_output import print_forecast, print_result, show
    from vinelm.cli.progress import live, noted, raced
    from vinelm.traces import ObservationStore

    execution = _execution(given)
    if (traces := given.pop("traces")) is not None:
        from vinelm.replay import Traces

        given["recorded"] = Traces.read(traces)
    if (wait_s := given.pop("wait_s")) is not None:
        if not given["batch_prices"]:
            raise ConfigError("--wait has no effect without --batch-prices: give it, or leave --wait out")
        from vinelm.backends.remote.batches import BatchTimes

        given["batch_prices"] = BatchTimes(wait_s=wait_s)
    kind: Any = "quiet" if quiet else "json" if as_json else "text"
    with live(kind) as on_progress:
        result = profile(
            workflow, execution=execution, on_progress=on_progress, on_single_models=raced(kind), on_note=noted(kind), **given
        )
    if result.forecast is not None:
        print_forecast(result.forecast, as_json=as_json)
        return None
    assert result.store is not None
    with ObservationStore.open(result.store) as store:
        (print_result if as_json else show)(result, store, max_error=given["max_error"])
        require_sound(result, store, keep_going=given["keep_going"])
    return _exit_code(result)


def _exit_code(result: ProfileResult) -> int | None:
    """Return the exit code of a run: 130 if the user interrupted it, else None for success.

    Raises:
        BudgetExhausted: The run reached its budget.
    """
    from vinelm.cli.profile_output import print_interrupted

    if result.stopped_by == "budget":
        raise BudgetExhausted(
            f"{result.message or 'the budget is reached'}: raise the budget and run the same line to continue"
        )
    if result.stopped_by == "interrupted":
        print_interrupted(result)
        return 130
    return None


def _execution(given: dict[str, Any]) -> ExecutionConfig:
    """Return the settings for where and how the runs of requests are executed, from the command's options."""
    from vinelm.api.profiling import BATCH_WORKERS
    from vinelm.profiler import ExecutionConfig, RayCluster

    limits = {name: given.pop(name) for name in ("timeout_s", "memory_mb")}
    workers, cluster = given.pop("workers"), RayCluster.of(given.pop("engine"), ship=given.pop("ship"))
    is_batched = given["batch_prices"]
    isolation: Any = given.pop("isolation") or ("thread" if is_batched else "process")
    if is_batched and (isolation != "thread" or cluster is not None):
        raise ConfigError("calls go in batches where all units are in one process, in threads", code="batches-need-threads")
    if workers is None:
        workers = 1 if isolation == "inline" else BATCH_WORKERS if is_batched else DEFAULT_WORKERS
    return ExecutionConfig(isolation=isolation, workers=workers, cluster=cluster, **limits)
