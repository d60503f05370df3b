"""The steps of a demo: profile, estimate, plan, serve, replay and compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.dataset import split_requests
from vinelm.demo.ground_truth import StepProgress, table_in_background
from vinelm.demo.halves import ESTIMATOR, halves_of, rows_of
from vinelm.demo.oracle_stop import oracle_halves, oracle_result, oracle_trie
from vinelm.demo.own_check import OwnCheck, estimated_half
from vinelm.demo.result import (
    BranchingDemoResult,
    DemoResult,
    DemoSettings,
    TrainingProfile,
)
from vinelm.errors import ConfigError, DatasetError
from vinelm.evaluation.contingent.plans import plans_over
from vinelm.evaluation.sweep import showcase
from vinelm.evaluation.verdicts.verdict import PolicyComparison, compare
from vinelm.io.atomic import require_regular
from vinelm.objective import Objective
from vinelm.observation import Observation
from vinelm.template import StopRule
from vinelm.workflow import Request


def split(settings: DemoSettings) -> tuple[tuple[Request, ...], tuple[Request, ...]]:
    """Split the workflow's requests into (training, held-out).

    Raises:
        DatasetError: One of the two would be empty.
    """
    training, held_out = split_requests(settings.workflow.requests, settings.held_out, settings.seed)
    if not training or not held_out:
        raise DatasetError(
            f"{len(settings.workflow.requests)} requests are too few to split: use more requests", code="too-few-requests"
        )
    return tuple(training), tuple(held_out)


def with_stop_rule(settings: DemoSettings, stop: StopRule) -> DemoSettings:
    """Return the settings with the workflow under another stop rule."""
    return replace(settings, workflow=replace(settings.workflow, template=settings.workflow.template.with_stop(stop)))


def _prepare_folder(folder: Path) -> None:
    """Create the folder and delete the store of an earlier demo, if whatever the demo writes there can be replaced."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("report.html", "demo.db", "demo-oracle.vine", "demo-workflow.vine"):
            require_regular(folder / name)
        for tail in ("", "-wal", "-shm", ".lock"):
            (folder / f"demo.db{tail}").unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder}: cannot write to this folder ({error.strerror}): choose another folder",
            code="output-not-writable",
        ) from error


def profile_sample(settings: DemoSettings, requests: Sequence[Request], step: StepProgress) -> TrainingProfile:
    """Profile a sample of these requests into ``demo.db``, which must not exist.

    Raises:
        KeyboardInterrupt: The profile was interrupted.
    """
    from vinelm.profiler import profile
    from vinelm.profiler.execution.fingerprint import store_identity
    from vinelm.reports import usd
    from vinelm.traces import ObservationStore

    path = settings.output_dir / "demo.db"
    workflow, catalog, backends = settings.workflow, settings.catalog, settings.backends
    identity = store_identity(workflow, catalog, backends, settings={"seed": settings.seed})
    with ObservationStore.create(path, identity) as store:
        result = profile(
            workflow, catalog, backends, store, requests=requests, coverage=settings.coverage, seed=settings.seed,
            on_progress=lambda now: step(now.coverage, settings.coverage, f"{now.executed:,} rows, {usd(now.spent_usd)}"),
        )  # fmt: skip
        spend = dict(store.spend("model"))
    if result.stopped_by == "interrupted":  # the profiler returns normally; a demo of a part of the rows would mislead
        raise KeyboardInterrupt
    return TrainingProfile(result=result, store=path, spend_by_model={str(model): item for model, item in spend.items()})


def estimate_trie(settings: DemoSettings, profiled: TrainingProfile, stop: StopRule) -> AnnotatedTrie:
    """Estimate the trie of all rows and write it to ``demo-STOP.vine``."""
    from vinelm.api.estimation import estimate_store

    annotated = estimate_store(profiled.store, estimator=ESTIMATOR, stop=stop)
    _write_trie(settings, annotated, stop)
    return annotated


def _write_trie(settings: DemoSettings, annotated: AnnotatedTrie, stop: StopRule) -> None:
    from vinelm.vinefile import save_trie

    save_trie(settings.output_dir / f"demo-{stop}.vine", annotated)


def stored_rows(profiled: TrainingProfile) -> list[Observation]:
    """Return all rows of the profile."""
    from vinelm.traces import ObservationStore

    with ObservationStore.open(profiled.store) as store:
        return store.observations()


def serve_held_out(
    settings: DemoSettings,
    annotated: AnnotatedTrie,
    held_out: Sequence[Request],
    objectives: Sequence[Objective],
    step: StepProgress,
) -> list[PolicyComparison]:
    """Serve the held-out requests through the LangGraph application under every policy and objective."""
    from vinelm.evaluation.serving import HeldOutServing

    serving = HeldOutServing(settings.workflow, plans_over(annotated), settings.backends, held_out)
    return serving.compare(objectives, step)


def run_demo(settings: DemoSettings, start: Callable[[str], StepProgress]) -> DemoResult:
    """Run a demo. Writes a store and two tries into ``output_dir``; spends money with real models.

    Every request is used twice: its rows make plans for the other half, and it judges the plans of the other half's rows.

    Args:
        settings: What to run on.
        start: Starts a progress bar with this title and returns its callback.
    """
    recorded_table, answers = settings.recorded_table, settings.answers
    assert recorded_table is not None
    assert answers is not None
    settings = with_stop_rule(settings, "workflow")
    first, second = halves_of(settings)
    _prepare_folder(settings.output_dir)  # first: a folder that cannot be written to is refused before a process is started
    with table_in_background(recorded_table, [request.id for request in (*first, *second)]) as pending:
        profiled = profile_sample(settings, (*first, *second), start("profile requests"))
        estimate_trie(settings, profiled, "workflow")
        rows = stored_rows(profiled)
        table = pending.wait(start("compute all outcomes"))
    tables = table.rows(range(len(first))), table.rows(range(len(first), len(table.request_ids)))
    halves = (
        estimated_half(settings, first, tables[0], rows_of(rows, second)),
        estimated_half(settings, second, tables[1], rows_of(rows, first)),
    )
    own = OwnCheck(settings, halves, answers)
    served = own.served(start("serve requests"))
    own_check = own.result(served, start("replay other budgets"))
    _write_trie(settings, oracle_trie(settings, table), "oracle")
    oracle = oracle_halves(settings, (first, second), tables)
    return DemoResult(
        settings=settings,
        profiled=profiled,
        own_check=own_check,
        oracle_stop=oracle_result(settings, oracle, tables, start("replay the oracle stop")),
        table=table,
        agreed=own.agreement(served),
    )


def run_branching_demo(settings: DemoSettings, start: Callable[[str], StepProgress]) -> BranchingDemoResult:
    """Run a demo of a workflow that branches. Writes a store and a trie into ``output_dir``; spends money with real models.

    The workflow's own edges end each request, in the profile and in serving.

    Args:
        settings: What to run on.
        start: Starts a progress bar with this title and returns its callback.
    """
    settings = with_stop_rule(settings, "workflow")
    training, held_out = split(settings)
    _prepare_folder(settings.output_dir)
    profiled = profile_sample(settings, training, start("profile training requests"))
    annotated = estimate_trie(settings, profiled, "workflow")
    objectives = showcase(plans_over(annotated))
    served = serve_held_out(settings, annotated, held_out, objectives, start("serve held-out requests"))
    return BranchingDemoResult(
        settings=settings, training=training, held_out=held_out, profiled=profiled, annotated=annotated,
        verdict=compare(served, seed=settings.seed),
    )  # fmt: skip
