"""Bring a store up to date with a changed workflow, dataset or catalog before a run, and say what that means.

See docs/profiling.md#growing-a-store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from vinelm.judging import LLMJudge
from vinelm.profiler.execution.fingerprint import SETTING
from vinelm.profiler.execution.job import Job, Worker, run_job
from vinelm.profiler.execution.replayed.runner import Units
from vinelm.profiler.shown_rows import renew_shown
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Cell
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.growth.grow import Growth, grow
from vinelm.traces.growth.plan import RequestDigest
from vinelm.traces.growth.rescoring import RowsToScore, RowToScore


def request_digests(workflow: Workflow, requests: Iterable[Request] = ()) -> dict[str, RequestDigest]:
    """Return the digests of the workflow's requests, and of further ones, by id.

    Args:
        workflow: its ``inputs`` is called with each request; where it raises, the input is unknown.
        requests: further requests.
    """
    every = {request.id: request for request in (*workflow.requests, *requests)}
    return {
        key: RequestDigest(scoring_part(workflow, request).digest(), _input_digest(workflow, request))
        for key, request in every.items()
    }


def scoring_part(workflow: Workflow, request: Request) -> Request:
    """Return the request with what decides its rows: without labels where a judge scores them, which are compared apart."""
    judge = workflow.score
    if not isinstance(judge, LLMJudge):
        return request
    hidden = {judge.label, *workflow.labels}
    return Request(request.id, {key: value for key, value in request.data.items() if key not in hidden})


def _input_digest(workflow: Workflow, request: Request) -> str | None:
    try:
        text = json.dumps([request.id, workflow.graph_input(request)], sort_keys=True)
    except Exception:  # the application's code, or an input that is not plain
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def with_settings_of(identity: StoreIdentity, store: ObservationStore) -> StoreIdentity:
    """Return the identity with the settings (such as a seed) that the store was made with, where it has none of its own."""
    settings = {part: value for part, value in store.identity.fingerprint.items() if part.startswith(SETTING)}
    return replace(identity, fingerprint={**settings, **identity.fingerprint})


def grow_store(
    store: ObservationStore,
    identity: StoreIdentity,
    wanted: dict[str, RequestDigest],
    *,
    requests: Sequence[Request],
    worker: Worker,
    workers: int,
    is_judged: bool = False,
) -> Growth | None:
    """Give the store the identity of the run that begins; score rows again whose success another scorer or label decides.

    Writes to the store, and makes no call of a model.

    Args:
        store: held by the caller.
        identity: of the run.
        wanted: the digests of all requests.
        requests: all requests.
        worker: scores states.
        workers: how many states are scored at a time.
        is_judged: a judge scores the answers. None is asked here: the rows stay, and are judged when money may be spent.

    Returns:
        What happened; None if nothing has changed.

    Raises:
        StoreError: none of the store's rows would stay.
    """
    growth = grow(store, identity, wanted)
    waiting = RowsToScore(store, wanted)
    if not waiting.is_pending:
        return growth
    lost = _score_again(store, waiting, {request.id: request for request in requests}, worker, workers, is_judged=is_judged)
    if growth is None or not growth.rescored:
        return growth
    failed = sum(lost.values()) - sum(growth.retired.values())
    return replace(growth, kept=growth.kept - failed, rescored=growth.rescored - failed, retired=lost)


def _score_again(
    store: ObservationStore,
    waiting: RowsToScore,
    requests: dict[str, Request],
    worker: Worker,
    workers: int,
    *,
    is_judged: bool,
) -> dict[str, int]:
    """Score wave after wave; returns reason to the number of rows that do not hold after all."""
    with ThreadPoolExecutor(workers) as pool:
        while wave := waiting.wave():
            stopped = _stopped(store, wave)
            jobs = [_job(row, requests[row.request_id], stopped) for row in wave]
            scores = pool.map(lambda job: _score(job, worker, is_judged=is_judged), jobs)
            waiting.record([(row, *score) for row, score in zip(wave, scores, strict=True)])
    return dict(waiting.finish())


def _stopped(store: ObservationStore, wave: Sequence[RowToScore]) -> Mapping[Cell, bool]:
    """Whether the workflow's own check passed an answer, by cell; of no use where no row lies below one."""
    if not any(row.is_continued for row in wave):
        return {}
    return {(row.request_id, row.prefix): row.stopped is True for row in store.observations()}


def _job(row: RowToScore, request: Request, stopped: Mapping[Cell, bool]) -> Job:
    before = (row.prefix[:length] for length in range(1, len(row.prefix)))
    passed = tuple(stopped.get((row.request_id, prefix), False) for prefix in before) if row.is_continued else ()
    return Job(request, row.prefix, row.state, 0.0, is_scoring=True, passed=passed)


def _score(job: Job, worker: Worker, *, is_judged: bool) -> tuple[bool | float | None, str]:
    """The success of a row, or why it cannot be decided. No call of a model is paid for."""
    finished = run_job(worker, job, _allow_none)
    if finished.problem is not None:
        raise finished.problem
    outcome = finished.outcome
    if outcome is None or outcome.observation is None:
        return None, "scoring them again asks for calls after the loop"
    if is_judged and outcome.observation.failure is None:
        return False, ""  # until it is judged; an estimate reads judgements only
    if outcome.observation.success is None:
        return None, "scoring them again failed"
    return outcome.observation.success, ""


def _allow_none(_upper_usd: float) -> bool:
    return False


def bring_up_to_date(
    store: ObservationStore,
    identity: StoreIdentity,
    wanted: dict[str, RequestDigest],
    units: Units,
    *,
    requests: Sequence[Request],
    worker: Worker,
    workers: int,
    on_note: Callable[[str], None] | None,
) -> None:
    """Give the store the identity of the run that begins, score rows again and make anew what they show where that is needed.

    Writes to the store, and makes no call of a model.

    Args:
        store: held by the caller.
        identity: of the run.
        wanted: the digests of all requests.
        units: of the workflow.
        requests: all requests.
        worker: evaluates states.
        workers: how many states are evaluated at a time.
        on_note: called with one line for each change that had an effect.

    Raises:
        StoreError: none of the store's rows would stay.
        WorkflowError: see :func:`~vinelm.profiler.shown_rows.renew_shown`.
    """
    rows_before = len(store)
    growth = grow_store(
        store, identity, wanted, requests=requests, worker=worker, workers=workers, is_judged=units.judging is not None
    )
    if growth is not None and (growth.has_effect or growth.is_reshaped) and on_note is not None:
        on_note(growth.describe())
    renew_shown(
        store, units.signals, units.template, requests={request.id: request for request in requests}, worker=worker,
        workers=workers, has_restored=len(store) > rows_before or _restores(growth), on_note=on_note,
    )  # fmt: skip


def _restores(growth: Growth | None) -> bool:
    """Whether rows that did not hold, or waited to be scored again, are current."""
    return growth is not None and bool(growth.restored or growth.rescored)
