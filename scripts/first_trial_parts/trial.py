"""One application through everything: check, profile, estimate, plan, serve."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import vinelm
from vinelm import Catalog, EvidenceError, Objective, Request, load_workflow
from vinelm.profiler import check_workflow

PROFILED, SERVED = 80, 60


@dataclass
class Trial:
    """What was found; ``failed`` is empty where everything worked. Seconds of the wall, fractions in [0, 1]."""

    app: str
    refused: str = ""
    failed: list[str] = field(default_factory=list)
    profiles: int = 0
    rows: int = 0
    failed_rows: int = 0
    calls_per_s: float = 0.0
    profile_usd: float = 0.0
    coverage: float = 0.0
    plan: str = ""
    promised: float | None = None
    interval: tuple[float, float] | None = None
    served: float | None = None
    served_requests: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON types."""
        return asdict(self)


def try_app(name: str, models: Path, folder: Path, budget_usd: float) -> Trial:
    """Run one application through all steps; a step that fails is noted and ends the trial of this application."""
    trial, started = Trial(name), time.perf_counter()
    spec = f"trial_apps.{name}:workflow"
    store, trie = folder / f"{name}.db", folder / f"{name}.vine"
    steps: list[tuple[str, Callable[[], None]]] = [
        ("check", lambda: _check(trial, spec, models)),
        ("profile", lambda: _profile(trial, spec, models, store, budget_usd)),
        ("estimate", lambda: _estimate(store, trie, lambda: _profile(trial, spec, models, store, 2 * budget_usd))),
        ("plan", lambda: _plan(trial, trie)),
        ("serve", lambda: _serve(trial, name, trie)),
    ]
    for step, run in steps:
        try:
            run()
        except Exception as error:
            trial.failed.append(f"{step}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
            (folder / f"{name}-{step}.txt").write_text("".join(traceback.format_exception(error)))
            break
        if trial.refused:
            break
    trial.seconds = round(time.perf_counter() - started, 1)
    return trial


def _check(trial: Trial, spec: str, models: Path) -> None:
    report = check_workflow(load_workflow(spec), Catalog.from_file(models))
    wrong = [f"{item.name}: {item.detail}" for item in report.items if not item.is_ok]
    trial.refused = wrong[0] if wrong else ""


def _profile(trial: Trial, spec: str, models: Path, store: Path, budget_usd: float) -> None:
    started = time.perf_counter()
    requests = load_workflow(spec).requests[:PROFILED]
    result = vinelm.profile(spec, models, store, requests=requests, budget_usd=budget_usd)
    seconds = time.perf_counter() - started
    with vinelm.ObservationStore.open(store) as opened:
        rows = opened.observations()
    trial.rows, trial.failed_rows = len(rows), sum(row.failure is not None for row in rows)
    trial.profiles += 1
    if trial.profiles == 1:
        trial.calls_per_s = round(sum(row.calls for row in rows) / seconds, 1)
    trial.profile_usd, trial.coverage = round(result.committed_usd, 5), round(result.coverage, 3)
    if trial.failed_rows:
        kinds = sorted({f"{row.stage}: {row.failure} {row.detail}" for row in rows if row.failure is not None})
        trial.failed.append(f"profile: {trial.failed_rows} of {len(rows)} rows failed ({'; '.join(kinds)[:300]})")


def _estimate(store: Path, trie: Path, profile_more: Callable[[], None]) -> None:
    """Where the evidence is too thin, profile more, as the message says."""
    try:
        annotated = vinelm.estimate(store)
    except EvidenceError:
        profile_more()
        annotated = vinelm.estimate(store)
    vinelm.save_trie(trie, annotated)


def _plan(trial: Trial, trie: Path) -> None:
    decision = vinelm.plan(trie, OBJECTIVE)
    trial.plan, trial.promised = " > ".join(decision.path), round(decision.accuracy, 4)
    low, high = decision.intervals["accuracy"]
    trial.interval = (round(low, 4), round(high, 4))


OBJECTIVE = Objective(maximize="accuracy")


def _serve(trial: Trial, name: str, trie: Path) -> None:
    module = import_module(f"trial_apps.{name}")
    workflow, vine, app = module.workflow, module.vine, module.app
    vine.load(trie)
    requests = workflow.requests[-SERVED:]
    turns = -(-SERVED // getattr(module, "THREADS", SERVED))
    groups = [requests[i : i + turns] for i in range(0, SERVED, turns)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda group: [_ask(module, vine, app, request, group[0].id) for request in group], groups))
    outcomes = [outcome for group in answers for outcome in group]
    errors = sorted({outcome for outcome in outcomes if isinstance(outcome, str)})
    if errors:
        number = sum(isinstance(outcome, str) for outcome in outcomes)
        trial.failed.append(f"serve: {number} of {len(outcomes)} requests failed ({'; '.join(errors)[:300]})")
    trial.served_requests = len(outcomes)
    trial.served = round(sum(outcome is True for outcome in outcomes) / len(outcomes), 4)


def _ask(module: Any, vine: Any, app: Any, request: Request, thread: str) -> bool | str:
    """Whether the answer is right; the error as text."""
    from langgraph.types import Command

    workflow = module.workflow
    config: dict[str, Any] = {"configurable": {"thread_id": thread}}
    resumes = hasattr(module, "RESUMES_WITH")
    given = workflow.graph_input(request) | ({"is_watched": True} if resumes else {})
    try:
        state = app.invoke(given, config, context=vine.context(OBJECTIVE))
        if resumes:
            state = app.invoke(Command(resume=module.RESUMES_WITH), config, context=vine.context(OBJECTIVE))
        return bool(workflow.score(request, state))
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
