"""The whole idea in a minute: profile → estimate → plan → serve → report, on the bundled NL2SQL requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from vinelm.annotated import AnnotatedTrie
from vinelm.errors import DatasetError
from vinelm.objective import Objective
from vinelm.outcomes import OutcomeTable
from vinelm.report.content import Role
from vinelm.report.demo_result import DemoResult, DemoSettings, Frontiers, FullChoice, Judged, Profiled
from vinelm.report.objectives import showcase
from vinelm.report.plans import NAMES, Plans
from vinelm.report.replays import frontiers_on, replayed_contest, replayed_run
from vinelm.report.verdict import Contest, judge
from vinelm.template import StopRule
from vinelm.workflow import Request, split_requests

ESTIMATOR = "cascade-svd"


class Step(Protocol):
    """Progress of one step of the demo."""

    def __call__(self, done: float, total: float, detail: str = "") -> None:
        """``done`` of ``total``."""


def split(settings: DemoSettings) -> tuple[tuple[Request, ...], tuple[Request, ...]]:
    """(training, held-out) requests; :class:`DatasetError` if either side is empty."""
    training, held_out = split_requests(settings.workflow.requests, settings.held_out, settings.seed)
    if not training or not held_out:
        raise DatasetError(f"{len(settings.workflow.requests)} requests are too few to split: use more (--limit)")
    return tuple(training), tuple(held_out)


def under(settings: DemoSettings, stop: StopRule) -> DemoSettings:
    """The same demo with the workflow under another stop rule."""
    return replace(settings, workflow=replace(settings.workflow, template=settings.workflow.template.with_stop(stop)))


def profile_training(settings: DemoSettings, training: Sequence[Request], name: str, step: Step) -> Profiled:
    """Profile ``coverage`` of the training split into ``NAME.db`` and estimate ``NAME.vine``; earlier ones are replaced."""
    from vinelm.profiler.fingerprint import store_identity
    from vinelm.profiler.runner import profile
    from vinelm.report.estimation import estimate_store
    from vinelm.report.words import usd
    from vinelm.traces.store import ObservationStore
    from vinelm.vinefile import save_trie

    settings.output_dir.mkdir(parents=True, exist_ok=True)
    path = settings.output_dir / f"{name}.db"
    for old in (path.with_name(f"{name}.db{tail}") for tail in ("", "-wal", "-shm", ".lock")):
        old.unlink(missing_ok=True)
    workflow, catalog, backends = settings.workflow, settings.catalog, settings.backends
    identity = store_identity(workflow, catalog, backends, settings={"seed": settings.seed})
    with ObservationStore.create(path, identity) as store:
        result = profile(
            workflow, catalog, backends, store, requests=training, coverage=settings.coverage, seed=settings.seed,
            on_progress=lambda now: step(now.coverage, settings.coverage, f"{now.executed:,} rows, {usd(now.spent_usd)}"),
        )  # fmt: skip
        spend = dict(store.spend("model"))
    annotated = estimate_store(path, estimator=ESTIMATOR)
    save_trie(settings.output_dir / f"{name}.vine", annotated)
    return Profiled(result=result, annotated=annotated, spend_by_model={str(model): item for model, item in spend.items()})


def complete_table(settings: DemoSettings, requests: Sequence[Request], step: Step) -> OutcomeTable:
    """What every request shows on every path under the stop rule: ground truth to judge by, which no profiler could afford."""
    from vinelm.workflows.nl2sql.exact import exact_table

    stop = settings.workflow.template.stop
    return exact_table(settings.workflow, settings.catalog, settings.backends, requests, only_reached=stop, progress=step)


def serve_held_out(
    settings: DemoSettings, annotated: AnnotatedTrie, held_out: Sequence[Request], objectives: Sequence[Objective], step: Step
) -> list[Contest]:
    """Every policy through the real LangGraph application."""
    from vinelm.report.served import Service

    service = Service(settings.workflow, Plans(annotated), settings.backends, held_out)
    return service.contests(objectives, step)


def judged_replay(settings: DemoSettings, annotated: AnnotatedTrie, held_out: OutcomeTable) -> Judged:
    """Plan from the sample and replay on the complete held-out table; nothing is served."""
    plans = Plans(annotated)
    contests = [replayed_contest(plans, held_out, objective) for objective in showcase(plans)]
    return judged(annotated, [c for c in contests if c is not None], held_out, None, settings.seed)


def judged(
    annotated: AnnotatedTrie, contests: Sequence[Contest], held_out: OutcomeTable, training: OutcomeTable | None, seed: int
) -> Judged:
    """Verdict and frontiers of one stop rule; with the complete ``training`` table also what it would have chosen."""
    full = None if training is None else training.annotate()
    cost, latency = frontiers_on(held_out, annotated, full, seed=seed)
    apart = () if full is None else tuple(full_choice(Plans(full), held_out, contest.objective) for contest in contests)
    return Judged(
        annotated=annotated, verdict=judge(contests, seed=seed), frontiers=Frontiers(cost=cost, latency=latency), full=apart
    )


def full_choice(plans: Plans, held_out: OutcomeTable, objective: Objective) -> FullChoice:
    """What the three policies would do if everything had been profiled."""
    shown_as: dict[Role, Role] = {"vinelm": "full", "static": "static", "single": "single"}
    found = [(replayed_run(plans, held_out, objective, role, NAMES[role]), shown) for role, shown in shown_as.items()]
    return FullChoice(objective=objective, runs=tuple((run, role) for run, role in found if run is not None))


def agreement(plans: Plans, held_out: OutcomeTable, contests: Sequence[Contest]) -> tuple[int, int]:
    """(served requests of VineLM that show exactly what the replay shows, all of them)."""
    same = total = 0
    for contest in contests:
        served = contest.vinelm
        again = replayed_run(plans, held_out, contest.objective, "vinelm", served.policy)
        total += len(served)
        if again is not None:
            same += int(((served.success == again.success) & (abs(served.cost_usd - again.cost_usd) < 1e-12)).sum())
    return same, total


def run_demo(settings: DemoSettings, start: Callable[[str], Step]) -> DemoResult:
    """Everything but the page, one progress bar per step. Writes stores and tries into ``output_dir``."""
    training, held_out = split(settings)
    profiled = profile_training(settings, training, "demo", start("profile training requests"))
    plans = Plans(profiled.annotated)
    contests = serve_held_out(settings, profiled.annotated, held_out, showcase(plans), start("serve held-out requests"))
    both = complete_table(settings, [*training, *held_out], start("complete table, to judge by"))
    tables = both.rows(range(len(training))), both.rows(range(len(training), len(both.request_ids)))
    perfect = under(settings, "oracle")
    sampled = profile_training(perfect, training, "demo-oracle", start("profile, oracle stop"))
    oracle_table = complete_table(perfect, held_out, start("held-out table, oracle stop"))
    return DemoResult(
        settings=settings,
        training=training,
        held_out=held_out,
        profiled=profiled,
        tables=tables,
        served=judged(profiled.annotated, contests, tables[1], tables[0], settings.seed),
        oracle=judged_replay(perfect, sampled.annotated, oracle_table),
        agreed=agreement(plans, tables[1], contests),
    )
