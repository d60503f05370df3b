"""Makes the worker for an :class:`~vinelm.profiler.scheduling.settings.ExecutionConfig`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress

from vinelm.backends.remote.equal_calls import EqualCalls
from vinelm.catalog import Catalog
from vinelm.errors import StoreError
from vinelm.io.operating_system import can_fork
from vinelm.profiler.execution.job import Job, TopUp, UnitOutcome, UnitSetup, Worker
from vinelm.profiler.execution.replayed.runner import Units
from vinelm.profiler.execution.unit import LocalWorker
from vinelm.profiler.scheduling.settings import ProfileSettings
from vinelm.requests.protocols import Backend, RateLimiter
from vinelm.traces import CheckpointPlace, ObservationStore

DEFAULT_TIMEOUT_S = 600.0
DEFAULT_MEMORY_MB = 2048


NO_FORK = (
    "this system cannot fork processes: the units run in threads of this one, so that a crash ends the run, and a unit's time "
    "and memory are not limited"
)
"""The message of a run that asks for processes on a system that cannot fork."""


def make_worker(
    settings: ProfileSettings,
    units: Units,
    fingerprint: Mapping[str, str],
    equal: EqualCalls | None = None,
) -> Worker:
    """Return a worker that runs the jobs of a profile: in this process, in forked processes, or on cluster nodes.

    Args:
        settings: where the jobs run. ``on_note`` is called with one line when a cluster node is lost, and with :data:`NO_FORK`
            if this system cannot fork the requested processes. Without ``on_note``, :data:`NO_FORK` is issued as a warning.
        units: the runner of jobs in this process.
        fingerprint: digests of the workflow's parts; a fresh process that builds a different workflow causes an error.
        equal: the cache for equal calls; None calls the model every time. Cluster nodes do not use the cache.
    """
    execution = settings.execution
    if equal is not None:
        units.control.models.equal = equal
    if execution.isolation != "process":
        return LocalWorker(units)
    if execution.cluster is None and not can_fork():
        (settings.on_note or _warn)(NO_FORK)
        return LocalWorker(units)
    assert execution.source is not None
    setup = UnitSetup(
        source=execution.source,
        template=units.template,
        fingerprint=dict(fingerprint),
        timeout_s=DEFAULT_TIMEOUT_S if execution.timeout_s is None else execution.timeout_s,
        memory_mb=DEFAULT_MEMORY_MB if execution.memory_mb is None else execution.memory_mb,
        is_virtual_time=units.is_virtual_time,
    )
    if execution.cluster is not None:
        from vinelm.profiler.cluster.starting import cluster_worker

        models = [model for catalog, _ in _sources(units) for model in catalog.models]
        return cluster_worker(execution.cluster, setup, models, _rate_limiters(units), settings.on_note, verb="profile")
    from vinelm.profiler.isolation.process_worker import ProcessWorker

    return ProcessWorker(setup, _rate_limiters(units), equal)


def _sources(units: Units) -> list[tuple[Catalog, Mapping[str, Backend]]]:
    """Return the catalogs of all models that a run calls, including the judge, with their backends."""
    judge = None if units.judging is None else units.judging.models
    return [(units.catalog, units.backends), *([] if judge is None else [(judge.catalog, judge.backends)])]


def _rate_limiters(units: Units) -> dict[str, RateLimiter]:
    """Return the rate limiters, keyed by model name.

    If requests control a model's prompt cache, its limiter also tracks what is cached.
    """
    from vinelm.backends.registry import prompt_admissions_of, rate_limiters_of

    found: dict[str, RateLimiter] = {}
    for catalog, backends in _sources(units):
        found |= rate_limiters_of(catalog, backends)
        found |= prompt_admissions_of(backends)
    return found


class KeepingWorker:
    """A worker that stores a job's checkpoint as soon as the job ends, on the job's thread.

    Otherwise the run would write checkpoints one after another inside its transactions, which block other writers.

    Args:
        worker: the worker that runs the jobs.
        place: the folder or address where the contents of checkpoints are stored.
    """

    def __init__(self, worker: Worker, place: CheckpointPlace) -> None:
        self._worker, self._place = worker, place

    def run(self, job: Job, top_up: TopUp) -> UnitOutcome:
        """Run one job to its end, store its checkpoint, and return its outcome.

        If the checkpoint cannot be written, no error is raised here; the error is raised when the result is written.
        """
        outcome = self._worker.run(job, top_up)
        if outcome.checkpoint is not None:
            with suppress(StoreError):
                self._place.write(outcome.checkpoint)
        return outcome

    def close(self) -> None:
        """Stop every job that is still running. Idempotent."""
        self._worker.close()


def keeping(worker: Worker, store: ObservationStore) -> Worker:
    """Return a worker that also writes each job's checkpoint, if the store keeps checkpoints outside of its own file.

    Otherwise return ``worker`` itself.
    """
    return worker if store.checkpoint_place is None else KeepingWorker(worker, store.checkpoint_place)


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)
