"""The steps of a demo: profile, estimate, plan, serve, replay and compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.dataset import split_requests
from vinelm.demo.ground_truth import StepProgress, table_in_background
from vinelm.demo.result import (
    BranchingDemoResult,
    DemoResult,
    DemoSettings,
    Frontiers,
    FullProfilePlans,
    StopRuleResult,
    TrainingProfile,
)
from vinelm.errors import ConfigError, DatasetError
from vinelm.evaluation import (
    NAMES,
    Plans,
    PolicyComparison,
    Role,
    compare,
    frontiers_on,
    plans_over,
    replayed_comparison,
    replayed_run,
    showcase,
)
from vinelm.io import require_regular
from vinelm.objective import Objective
from vinelm.recorded_table import RecordedTable
from vinelm.template import StopRule
from vinelm.workflow import Request

ESTIMATOR = "latent"


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


def profile_training(
    settings: DemoSettings, training: Sequence[Request], step: StepProgress, stop: StopRule = "oracle"
) -> TrainingProfile:
    """Profile a sample of the training split into ``demo.db``, which must not exist.

    By default the profile uses the oracle stop: labels decide how far a request goes, and every row also records whether the workflow's
    own check accepted the answer. One profile then serves both stop rules (see :func:`estimate_trie`).

    Raises:
        KeyboardInterrupt: The profile was interrupted.
    """
    from vinelm.profiler import profile, store_identity
    from vinelm.reports import usd
    from vinelm.traces import ObservationStore

    path = settings.output_dir / "demo.db"
    settings = with_stop_rule(settings, stop)
    workflow, catalog, backends = settings.workflow, settings.catalog, settings.backends
    identity = store_identity(workflow, catalog, backends, settings={"seed": settings.seed})
    with ObservationStore.create(path, identity) as store:
        result = profile(
            workflow, catalog, backends, store, requests=training, coverage=settings.coverage, seed=settings.seed,
            on_progress=lambda now: step(now.coverage, settings.coverage, f"{now.executed:,} rows, {usd(now.spent_usd)}"),
        )  # fmt: skip
        spend = dict(store.spend("model"))
    if result.stopped_by == "interrupted":  # the profiler returns normally; a demo of a part of the rows would mislead
        raise KeyboardInterrupt
    return TrainingProfile(result=result, store=path, spend_by_model={str(model): item for model, item in spend.items()})


def estimate_trie(settings: DemoSettings, profiled: TrainingProfile, stop: StopRule) -> AnnotatedTrie:
    """Estimate the trie of one stop rule and write it to ``demo-STOP.vine``.

    Under the workflow's own stop, only the rows that it would have reached are used. The profile lacks requests whose right
    answer the check rejects, because the oracle stop ended them; the report states how rare they are.
    """
    from vinelm.api import estimate_store
    from vinelm.vinefile import save_trie

    annotated = estimate_store(profiled.store, estimator=ESTIMATOR, stop=stop)
    save_trie(settings.output_dir / f"demo-{stop}.vine", annotated)
    return annotated


def serve_held_out(
    settings: DemoSettings,
    annotated: AnnotatedTrie,
    held_out: Sequence[Request],
    objectives: Sequence[Objective],
    step: StepProgress,
) -> list[PolicyComparison]:
    """Serve the held-out requests through the LangGraph application under every policy and objective."""
    from vinelm.evaluation import HeldOutServing

    serving = HeldOutServing(settings.workflow, plans_over(annotated), settings.backends, held_out)
    return serving.compare(objectives, step)


def replay_held_out(annotated: AnnotatedTrie, held_out: RecordedTable) -> list[PolicyComparison]:
    """Replay every policy on the complete held-out table, for each objective that all of them can meet."""
    plans = Plans(annotated)
    comparisons = (replayed_comparison(plans, held_out, objective) for objective in showcase(plans))
    return [comparison for comparison in comparisons if comparison is not None]


def evaluate_stop_rule(
    annotated: AnnotatedTrie, comparisons: Sequence[PolicyComparison], tables: tuple[RecordedTable, RecordedTable], seed: int
) -> StopRuleResult:
    """Compare the policies under one stop rule, sweep the budgets, and plan with the complete training table.

    ``tables`` are the complete (training, held-out) tables under that rule.
    """
    training, held_out = tables
    full = training.annotate()
    cost, latency = frontiers_on(held_out, annotated, full, seed=seed)
    full_plans = tuple(full_profile_plans(Plans(full), held_out, comparison.objective) for comparison in comparisons)
    frontiers = Frontiers(cost=cost, latency=latency)
    return StopRuleResult(annotated=annotated, verdict=compare(comparisons, seed=seed), frontiers=frontiers, full=full_plans)


def full_profile_plans(plans: Plans, held_out: RecordedTable, objective: Objective) -> FullProfilePlans:
    """Replay the plans that the three policies make with a fully profiled trie."""
    shown_as: dict[Role, Role] = {"vinelm": "full", "static": "static", "single": "single"}
    found = [(replayed_run(plans, held_out, objective, role, NAMES[role]), shown) for role, shown in shown_as.items()]
    return FullProfilePlans(objective=objective, runs=tuple((run, role) for run, role in found if run is not None))


def replay_agreement(plans: Plans, held_out: RecordedTable, comparisons: Sequence[PolicyComparison]) -> tuple[int, int]:
    """Return (requests that VineLM served with exactly the replay's result, all requests that it served)."""
    same = total = 0
    for comparison in comparisons:
        served = comparison.vinelm
        again = replayed_run(plans, held_out, comparison.objective, "vinelm", served.policy)
        total += len(served)
        if again is not None:
            same += int(((served.success == again.success) & (abs(served.cost_usd - again.cost_usd) < 1e-12)).sum())
    return same, total


def run_demo(settings: DemoSettings, start: Callable[[str], StepProgress]) -> DemoResult:
    """Run a demo. Writes a store and two tries into ``output_dir``; spends money with real models.

    Args:
        settings: What to run on.
        start: Starts a progress bar with this title and returns its callback.
    """
    assert settings.recorded_table is not None
    training, held_out = split(settings)
    _prepare_folder(settings.output_dir)  # first: a folder that cannot be written to is refused before a process is started
    with table_in_background(settings.recorded_table, [request.id for request in (*training, *held_out)]) as table:
        profiled = profile_training(settings, training, start("profile training requests"))
        oracle_trie, workflow_trie = (estimate_trie(settings, profiled, rule) for rule in ("oracle", "workflow"))
        plans = Plans(oracle_trie)
        serving = start("serve held-out requests")
        served = serve_held_out(with_stop_rule(settings, "oracle"), oracle_trie, held_out, showcase(plans), serving)
        both = table.wait(start("compute all outcomes"))
    training_table, held_out_table = both.rows(range(len(training))), both.rows(range(len(training), len(both.request_ids)))
    by_rule = {rule: (training_table.with_stop(rule), held_out_table.with_stop(rule)) for rule in ("oracle", "workflow")}
    replayed = replay_held_out(workflow_trie, by_rule["workflow"][1])
    return DemoResult(
        settings=settings,
        training=training,
        held_out=held_out,
        profiled=profiled,
        held_out_table=by_rule["workflow"][1],
        oracle_stop=evaluate_stop_rule(oracle_trie, served, by_rule["oracle"], settings.seed),
        own_check=evaluate_stop_rule(workflow_trie, replayed, by_rule["workflow"], settings.seed),
        agreed=replay_agreement(plans, by_rule["oracle"][1], served),
    )


def run_branching_demo(settings: DemoSettings, start: Callable[[str], StepProgress]) -> BranchingDemoResult:
    """Run a demo of a workflow that branches. Writes a store and a trie into ``output_dir``; spends money with real models.

    The workflow's own edges end each request, in the profile and in serving.

    Args:
        settings: What to run on.
        start: Starts a progress bar with this title and returns its callback.
    """
    training, held_out = split(settings)
    _prepare_folder(settings.output_dir)
    profiled = profile_training(settings, training, start("profile training requests"), "workflow")
    annotated = estimate_trie(settings, profiled, "workflow")
    objectives = showcase(plans_over(annotated))
    served = serve_held_out(settings, annotated, held_out, objectives, start("serve held-out requests"))
    return BranchingDemoResult(
        settings=settings, training=training, held_out=held_out, profiled=profiled, annotated=annotated,
        verdict=compare(served, seed=settings.seed),
    )  # fmt: skip
