"""One profile: check that everything fits together, execute units into the store, return the result."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

from vinelm.adapters.langgraph.exits import resolved
from vinelm.catalog import Catalog
from vinelm.errors import DatasetError, StoreError
from vinelm.profiler.execution.fingerprint import SETTING, store_identity
from vinelm.profiler.execution.job import Worker
from vinelm.profiler.execution.ledger import Ledger, ProfileLimits
from vinelm.profiler.execution.replayed.runner import Units, make_units
from vinelm.profiler.execution.unit_adapter import UnitAdapter
from vinelm.profiler.executor import keeping, make_worker
from vinelm.profiler.growth import bring_up_to_date, request_digests, scoring_part, with_settings_of
from vinelm.profiler.sampling.priced_sampler import CONTINUED_SHARE
from vinelm.profiler.sampling.samplers import make_sampler
from vinelm.profiler.scheduling import interrupts
from vinelm.profiler.scheduling.config import ExecutionConfig
from vinelm.profiler.scheduling.first_rows import BROKEN_AFTER, FirstRows, only_failures
from vinelm.profiler.scheduling.pending_rows import PendingRows
from vinelm.profiler.scheduling.results import ProfileResult, Progress
from vinelm.profiler.scheduling.run_state import RunState
from vinelm.profiler.scheduling.scheduler import Scheduler
from vinelm.profiler.shown_rows import classify_new
from vinelm.requests.protocols import Backend, Sampler
from vinelm.requests.workflow import Request, Workflow
from vinelm.template import Template
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.growth.changes import differences
from vinelm.traces.growth.grow import retire_broken
from vinelm.traces.growth.plan import RequestDigest
from vinelm.traces.store.run_state import RunRecords
from vinelm.traces.store.shared_run import SharedRun, shared_run


def profile(
    workflow: Workflow,
    catalog: Catalog,
    backends: Mapping[str, Backend],
    store: ObservationStore,
    *,
    requests: Sequence[Request] | None = None,
    sampler: str | Sampler = "priced",
    coverage: float | None = None,
    budget_usd: float | None = None,
    budget_calls: int | None = None,
    seed: int = 0,
    execution: ExecutionConfig | None = None,
    keep_going: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    identity: StoreIdentity | None = None,
) -> ProfileResult:
    """Execute (request, prefix) cells and keep a row of each, until a limit is reached or every reached cell is executed.

    Calls the models, which spends money, and writes to ``store``. Every row is durable before the next stage of its request
    starts: the same call continues where an interrupted or killed one was. With models that repeat their answers the rows do
    not depend on ``execution``. Ctrl-C ends the run when the units in flight are written, a second Ctrl-C at once.

    Args:
        workflow: the workflow; its template need not be bound.
        catalog: the models.
        backends: one for each provider of the catalog.
        store: a store of this workflow; held exclusively during the run.
        requests: those to sample from; default: all of the workflow's.
        sampler: ``"priced"``, ``"cascade"``, ``"exhaustive"``, or any :class:`~vinelm.requests.protocols.Sampler`.
        coverage: stop at this fraction, in (0, 1], of the estimated dollars of executing every reached cell once.
        budget_usd: dollars that the store as a whole may cost, earlier runs included.
        budget_calls: model calls that the store as a whole may hold.
        seed: of a sampler that is given by name.
        execution: where units run and how many at a time; default: one at a time on this thread.
        keep_going: go on even if all first rows of a stage fail alike, whatever the model. By default such a run stops
            (``"broken"``), and the next one executes these rows again.
        on_progress: called after each row.
        on_note: called with one line if the store's last run had other settings: its rows count, and the sampler starts again.
            Also called with one line if the workflow, the dataset or the catalog changed: which rows stay, and which do not.
        identity: what the rows of this run are executed with (:func:`~vinelm.profiler.store_identity`); None makes it, with the
            settings that the store was made with.

    Returns:
        What ended the run, with coverage and costs.

    Raises:
        ConfigError: a limit, a sampler or an execution setting is invalid.
        DatasetError: there is no request.
        StoreError: the store belongs to another workflow, none of its rows would stay, or another run is writing to it.
        WorkflowError: the workflow cannot be profiled, its ``signal`` has too many values or raised, or ``agree`` is not
            symmetric or raised. Rows that are paid for are kept.
    """
    execution = execution or ExecutionConfig()
    limits = ProfileLimits(coverage=coverage, budget_usd=budget_usd, budget_calls=budget_calls)
    chosen = workflow.requests if requests is None else requests
    if not chosen:
        raise DatasetError("no request to profile: give at least one")
    workflow = resolved(workflow, UnitAdapter(catalog, backends, template=None))
    if identity is None:
        identity = with_settings_of(store_identity(workflow, catalog, backends), store)
    parts = {part: digest for part, digest in identity.fingerprint.items() if not part.startswith(SETTING)}
    digests = request_digests(workflow, chosen)
    sampler = _sampler_of(sampler, workflow, catalog, chosen, seed)
    units = make_units(workflow, catalog, backends)
    broken_after = None if keep_going else BROKEN_AFTER
    with interrupts.raised(), shared_run(store) as shared:
        worker = keeping(make_worker(execution, units, parts, on_note), store)
        try:
            with alone(shared, identity, settings_of(sampler, chosen)):
                bring_up_to_date(
                    store, identity, digests, units, requests=(*workflow.requests, *chosen), worker=worker,
                    workers=execution.workers, on_note=on_note,
                )  # fmt: skip
                _register(store, workflow, chosen, digests)
                state = _begin(
                    units, store, limits, chosen, worker=worker, workers=execution.workers,
                    settings=settings_of(sampler, chosen), broken_after=broken_after, on_note=on_note, shared=shared,
                )  # fmt: skip
            Scheduler(worker, sampler, state, execution, on_progress, may_go_on=units.can_go_on).run()
        finally:
            worker.close()
        with alone(shared):
            state.conclude()
            if state.executed:
                classify_new(store, units.signals, on_note)
        return _result(state)


@contextmanager
def alone(
    shared: SharedRun | None, identity: StoreIdentity | None = None, settings: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Begin or end a run while no other run on the store does.

    Raises:
        StoreError: another run is at work with another workflow, or with other settings.
    """
    if shared is None:
        yield
        return
    with shared.alone() as has_others:
        if has_others and identity is not None and settings is not None:
            _require_same(shared.store, identity, settings)
        yield


def _require_same(store: ObservationStore, identity: StoreIdentity, settings: Mapping[str, Any]) -> None:
    last = RunRecords(store).last_settings()
    changed = differences(store.identity, identity) or (None if last is None else difference(last, settings))
    if changed:
        raise StoreError(
            f"{store.path}: another run is at work on it, and differs: {changed}: run the same line as it, or wait for its end",
            code="run-differs",
        )


def _register(
    store: ObservationStore, workflow: Workflow, requests: Sequence[Request], digests: Mapping[str, RequestDigest]
) -> None:
    inputs = {request.id: digests[request.id].inputs for request in requests}
    store.register([scoring_part(workflow, request) for request in requests], inputs)


def _sampler_of(
    sampler: str | Sampler, workflow: Workflow, catalog: Catalog, requests: Sequence[Request], seed: int
) -> Sampler:
    if not isinstance(sampler, str):
        return sampler
    return make_sampler(
        sampler, workflow.template.bind(tuple(catalog)), [request.id for request in requests], seed,
        catalog=catalog, continued_share=continued_share(workflow),
    )  # fmt: skip


def continued_share(workflow: Workflow) -> float:
    """Return the share of the default sampler's paths that go on below a passed check: only signals tell what they are for."""
    return 0.0 if workflow.signals is None else CONTINUED_SHARE


def _begin(
    units: Units,
    store: ObservationStore,
    limits: ProfileLimits,
    requests: Sequence[Request],
    *,
    worker: Worker,
    workers: int,
    settings: Mapping[str, Any],
    broken_after: int | None,
    on_note: Callable[[str], None] | None,
    shared: SharedRun | None,
) -> RunState:
    """Open the ledger, judge rows that wait for it, note the run's settings in the store, and read its rows."""
    wrong = None if shared is None else shared.correct_totals()
    if wrong is not None and on_note is not None:
        on_note(wrong)
    ledger = Ledger(store, limits, shared=shared)
    records = RunRecords(store)
    if broken_after is not None:
        _retire_broken_rows(records, units.template, broken_after, on_note)
    if units.judging is not None:
        every = {request.id: request for request in (*units.workflow.requests, *requests)}
        PendingRows(store, ledger, worker, judging=units.judging, template=units.template, requests=every).judge(
            workers, on_note
        )
    last = records.last_settings()
    changed = None if last is None else difference(last, settings)
    if changed is not None and on_note is not None:
        on_note(
            f"the store's last run had other settings ({changed}): its {len(store):,} rows count and are not paid for again, "
            "the sampler starts again"
        )
    return RunState(
        store, ledger, units.template, units.catalog, requests,
        n_older=records.begin(settings), is_virtual_time=units.is_virtual_time, broken_after=broken_after,
        signals=units.signals, sampler=_word(settings["sampler"]), is_judged=units.judging is not None, shared=shared,
    )  # fmt: skip


def _retire_broken_rows(records: RunRecords, template: Template, after: int, on_note: Callable[[str], None] | None) -> None:
    """Retire the rows of a stage that was broken so far: the run executes them again, and what they cost stays.

    Also all rows, if each of them failed and the last profile ended with that.
    """
    store = records.store
    first_rows, rows = FirstRows(template, after), store.observations()
    for row in rows:
        first_rows.add(row)
    cells = first_rows.broken_cells()
    if records.forget_only_failures() and not cells and only_failures(rows) is not None:
        cells = [(row.request_id, row.prefix) for row in rows]
    if not cells:
        return
    retire_broken(store, cells)
    if on_note is not None:
        on_note(f"{len(cells)} rows of a stage that was broken are executed again; what they cost stays in the ledger")


def _result(state: RunState) -> ProfileResult:
    assert state.stopped_by is not None
    coverage = state.cells.coverage
    return ProfileResult(
        stopped_by=state.stopped_by,
        executed=state.executed,
        failures=dict(state.failures),
        counts=coverage.counts_per_depth,
        coverage=coverage.fraction,
        coverage_interval=coverage.interval(),  # of the final rows: the reported one is only refitted now and then
        spent_usd=coverage.spent_usd,
        exhaustive_usd=coverage.exhaustive_usd(),
        naive_usd=coverage.naive_usd(),
        committed_usd=state.store.committed_usd(),
        abandoned=state.ledger.abandoned,
        message=state.message,
    )


_STORED_ELSEWHERE = ("template", "catalog", "request_ids")  # the first two in the store's identity, the ids as a digest


def settings_of(sampler: Sampler, requests: Sequence[Request]) -> dict[str, Any]:
    """Return what decides the order of a run's cells, as plain JSON.

    The sampler's class, every public setting of it that is a plain value or a dataclass (as its text), and a digest of the
    request ids.
    """
    own = {name: value for name, value in getattr(sampler, "__dict__", {}).items() if name not in _STORED_ELSEWHERE}
    plain = {name: _plain(value) for name, value in own.items() if name[0] != "_" and _is_plain(value)}
    ids = hashlib.sha256("\n".join(request.id for request in requests).encode()).hexdigest()
    return {"seed": None, **plain, "sampler": type(sampler).__name__, "requests": ids}


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Describe how two runs' settings differ, in a few words; None if they do not. ``before`` was read from JSON."""
    names = [name for name in dict.fromkeys((*now, *before)) if before.get(name) != now.get(name)]
    words = [
        "other requests" if name == "requests" else f"{name} {_word(now.get(name))} instead of {_word(before.get(name))}"
        for name in sorted(names, key=lambda name: (name == "requests", name))
    ]
    return ", ".join(words) or None


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, int)) or (is_dataclass(value) and not isinstance(value, type))


def _plain(value: Any) -> Any:
    return str(value) if is_dataclass(value) else value


def _word(value: Any) -> str:
    return "none" if value is None else str(value).removesuffix("Sampler").lower()
