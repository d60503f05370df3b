"""Bring a store up to date before a run: what changed since the last one decides which rows hold and what they show."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vinelm.profiler.execution.job import Worker
from vinelm.profiler.execution.units import Units
from vinelm.profiler.growth import grow_store
from vinelm.profiler.shown_rows import renew_shown
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.growth.grow import Growth
from vinelm.traces.growth.plan import RequestDigest
from vinelm.workflow import Request


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


__all__ = ["bring_up_to_date"]
