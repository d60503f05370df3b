"""The whole idea in a minute: profile → estimate → plan → serve → report, on the bundled NL2SQL requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.dataset import split_requests
from vinelm.demo.ground_truth import LoadProgress, table_beside
from vinelm.demo.result import DemoResult, DemoSettings, Frontiers, FullChoice, Judged, Profiled
from vinelm.errors import ConfigError, DatasetError
from vinelm.evaluation import (
    NAMES,
    Plans,
    PolicyComparison,
    Role,
    compare,
    frontiers_on,
    replayed_contest,
    replayed_run,
    showcase,
)
from vinelm.objective import Objective
from vinelm.recorded_table import RecordedTable
from vinelm.template import StopRule
from vinelm.workflow import Request

ESTIMATOR = "latent"


def split(settings: DemoSettings) -> tuple[tuple[Request, ...], tuple[Request, ...]]:
    """(training, held-out) requests; :class:`DatasetError` if either side is empty."""
    training, held_out = split_requests(settings.workflow.requests, settings.held_out, settings.seed)
    if not training or not held_out:
        raise DatasetError(f"{len(settings.workflow.requests)} requests are too few to split: use more (--limit)")
    return tuple(training), tuple(held_out)


def under(settings: DemoSettings, stop: StopRule) -> DemoSettings:
    """The same demo with the workflow under another stop rule."""
    return replace(settings, workflow=replace(settings.workflow, template=settings.workflow.template.with_stop(stop)))


def _emptied(folder: Path) -> Path:
    """The folder, made, and without the store of an earlier demo; :class:`ConfigError` if that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for tail in ("", "-wal", "-shm", ".lock"):
            (folder / f"demo.db{tail}").unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot write there: {error.strerror}: choose another --output-dir") from error
    return folder


def profile_training(settings: DemoSettings, training: Sequence[Request], step: LoadProgress) -> Profiled:
    """Profile ``coverage`` of the training split into ``demo.db``; an earlier one is replaced. Ctrl-C ends the demo, too.

    Under the oracle stop: labels decide how far a request goes, and every row keeps the verdict of the workflow's own check
    beside the truth. One profile then serves both stop rules (see :func:`estimated`).
    """
    from vinelm.profiler import profile, store_identity
    from vinelm.reports import usd
    from vinelm.traces import ObservationStore

    path = _emptied(settings.output_dir) / "demo.db"
    settings = under(settings, "oracle")
    workflow, catalog, backends = settings.workflow, settings.catalog, settings.backends
    identity = store_identity(workflow, catalog, backends, settings={"seed": settings.seed})
    with ObservationStore.create(path, identity) as store:
        result = profile(
            workflow, catalog, backends, store, requests=training, coverage=settings.coverage, seed=settings.seed,
            on_progress=lambda now: step(now.coverage, settings.coverage, f"{now.executed:,} rows, {usd(now.spent_usd)}"),
        )  # fmt: skip
        spend = dict(store.spend("model"))
    if result.stopped_by == "interrupted":  # the profiler ends in order, and keeps its rows: a demo of them would mislead
        raise KeyboardInterrupt
    return Profiled(result=result, store=path, spend_by_model={str(model): item for model, item in spend.items()})


def estimated(settings: DemoSettings, profiled: Profiled, stop: StopRule) -> AnnotatedTrie:
    """The trie of one stop rule from the one profile, written to ``demo-STOP.vine``.

    Under the workflow's own stop only rows that it would have reached count. What such a profile never saw is a request whose
    right answer the check sends back: the page says how rare that is.
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
    step: LoadProgress,
) -> list[PolicyComparison]:
    """Every policy through the real LangGraph application."""
    from vinelm.evaluation import Service

    service = Service(settings.workflow, Plans(annotated), settings.backends, held_out)
    return service.contests(objectives, step)


def replayed(annotated: AnnotatedTrie, held_out: RecordedTable) -> list[PolicyComparison]:
    """Every policy on the complete held-out table."""
    plans = Plans(annotated)
    contests = (replayed_contest(plans, held_out, objective) for objective in showcase(plans))
    return [contest for contest in contests if contest is not None]


def judged(
    annotated: AnnotatedTrie, contests: Sequence[PolicyComparison], tables: tuple[RecordedTable, RecordedTable], seed: int
) -> Judged:
    """Verdict and frontiers of one stop rule, and what its complete (training, held-out) tables would have chosen."""
    training, held_out = tables
    full = training.annotate()
    cost, latency = frontiers_on(held_out, annotated, full, seed=seed)
    apart = tuple(full_choice(Plans(full), held_out, contest.objective) for contest in contests)
    return Judged(
        annotated=annotated, verdict=compare(contests, seed=seed), frontiers=Frontiers(cost=cost, latency=latency), full=apart
    )


def full_choice(plans: Plans, held_out: RecordedTable, objective: Objective) -> FullChoice:
    """What the three policies would do if everything had been profiled."""
    shown_as: dict[Role, Role] = {"vinelm": "full", "static": "static", "single": "single"}
    found = [(replayed_run(plans, held_out, objective, role, NAMES[role]), shown) for role, shown in shown_as.items()]
    return FullChoice(objective=objective, runs=tuple((run, role) for run, role in found if run is not None))


def agreement(plans: Plans, held_out: RecordedTable, contests: Sequence[PolicyComparison]) -> tuple[int, int]:
    """(served requests of VineLM that show exactly what the replay shows, all of them)."""
    same = total = 0
    for contest in contests:
        served = contest.vinelm
        again = replayed_run(plans, held_out, contest.objective, "vinelm", served.policy)
        total += len(served)
        if again is not None:
            same += int(((served.success == again.success) & (abs(served.cost_usd - again.cost_usd) < 1e-12)).sum())
    return same, total


def run_demo(settings: DemoSettings, start: Callable[[str], LoadProgress]) -> DemoResult:
    """Everything but the page, one progress bar per step. Writes a store and two tries into ``output_dir``."""
    training, held_out = split(settings)
    with table_beside(settings.load, [request.id for request in (*training, *held_out)]) as table:
        profiled = profile_training(settings, training, start("profile training requests"))
        perfect, own = (estimated(settings, profiled, rule) for rule in ("oracle", "workflow"))
        plans = Plans(perfect)
        serving = start("serve held-out requests")
        served = serve_held_out(under(settings, "oracle"), perfect, held_out, showcase(plans), serving)
        both = table.wait(start("complete table, to judge by"))
    learnt, kept = both.rows(range(len(training))), both.rows(range(len(training), len(both.request_ids)))
    by_rule = {rule: (learnt.with_stop(rule), kept.with_stop(rule)) for rule in ("oracle", "workflow")}
    return DemoResult(
        settings=settings,
        training=training,
        held_out=held_out,
        profiled=profiled,
        held_out_table=by_rule["workflow"][1],
        perfect=judged(perfect, served, by_rule["oracle"], settings.seed),
        own=judged(own, replayed(own, by_rule["workflow"][1]), by_rule["workflow"], settings.seed),
        agreed=agreement(plans, by_rule["oracle"][1], served),
    )
