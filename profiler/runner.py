"""Runs a profile: checks that the inputs fit together, executes jobs, writes results to the store, returns the result."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from vinelm.adapters.langgraph.exits import resolved
from vinelm.backends.remote.batches import BatchGate
from vinelm.backends.remote.equal_calls import EqualCalls
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, DatasetError, WorkflowError
from vinelm.io.interrupts import interrupts_raised
from vinelm.judging import AsToday
from vinelm.profiler.execution.batch_api import BatchApiWorker, batched_models, gate_of, through
from vinelm.profiler.execution.fingerprint import SETTING, store_identity
from vinelm.profiler.execution.ledger import Ledger
from vinelm.profiler.execution.replayed.runner import Units, make_units
from vinelm.profiler.execution.unit_adapter import UnitAdapter
from vinelm.profiler.executor import keeping, make_worker
from vinelm.profiler.growth import bring_up_to_date, classify_new, kinds_of, request_digests, scoring_part, with_settings_of
from vinelm.profiler.sampling.deciding_sampler import DecidingSampler
from vinelm.profiler.sampling.priced_sampler import CONTINUED_SHARE
from vinelm.profiler.sampling.samplers import make_sampler
from vinelm.profiler.scheduling.kept_rows import KeptRows, PendingRows
from vinelm.profiler.scheduling.observed_cells import CutOff, FirstRows, only_failures
from vinelm.profiler.scheduling.results import ProfileResult
from vinelm.profiler.scheduling.run_state import RunState
from vinelm.profiler.scheduling.scheduler import Scheduler
from vinelm.profiler.scheduling.settings import ProfileSettings
from vinelm.requests.protocols import Backend, Sampler
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template
from vinelm.traces import ObservationStore
from vinelm.traces.growth.grow import retire_broken
from vinelm.traces.growth.plan import RequestDigest
from vinelm.traces.served.kept_calls import KeptCalls
from vinelm.traces.store.batches import BatchRecords
from vinelm.traces.store.run_state import RunRecords


def profile(
    workflow: Workflow,
    catalog: Catalog,
    backends: Mapping[str, Backend],
    store: ObservationStore,
    settings: ProfileSettings | None = None,
) -> ProfileResult:
    """Execute calls and store their results, until a limit is reached or no call is left.

    Each call is given by a request and a sequence of models.

    Calls the models, which spends money, and writes to ``store``. Every result is durable before the next stage of its request
    starts, so calling this again continues a run that was interrupted or killed. With deterministic models the results do not
    depend on ``settings.execution``. Ctrl-C ends the run once the jobs in flight are written; a second Ctrl-C ends it at once.

    Args:
        workflow: the workflow; its template need not be bound to the models.
        catalog: the models.
        backends: one for each provider of the catalog.
        store: a store of this workflow; the run locks it.
        settings: sample, limits, place of execution and callbacks; default: all calls, one job at a time.

    Returns:
        What ended the run, with coverage and costs.

    Raises:
        ConfigError: a limit, a sampler or an execution setting is invalid.
        DatasetError: there are no requests.
        StoreError: the store belongs to another workflow, none of its results would remain valid, or another run is writing to
            it.
        WorkflowError: the workflow cannot be profiled, its ``signal`` has too many values or raised, or ``agree`` is not
            symmetric or raised. Results written so far are kept.
    """
    settings = settings or ProfileSettings()
    if settings.recorded is not None and (settings.batch_prices is not None or settings.execution.cluster is not None):
        raise ConfigError("recorded calls have no effect in batches or on a cluster: leave one of the two out")
    requests = workflow.requests if settings.requests is None else settings.requests
    if not requests:
        raise DatasetError("no request to profile: give at least one")
    workflow = resolved(workflow, UnitAdapter(catalog, backends, template=None))
    _require_reference(workflow, workflow.template.bind(tuple(catalog)))
    identity = settings.identity or with_settings_of(store_identity(workflow, catalog, backends), store)
    parts = {part: digest for part, digest in identity.fingerprint.items() if not part.startswith(SETTING)}
    digests, kinds = request_digests(workflow, requests), kinds_of(workflow, requests)
    sampler = _sampler_of(settings, workflow, catalog, requests, kinds)
    noted = settings_of(sampler, requests)
    gate = _gate(settings, workflow, catalog, backends, store)
    units = make_units(workflow, catalog, backends if gate is None else through(gate, backends))
    with interrupts_raised(), store.exclusive():
        is_alone = gate is not None or settings.execution.cluster is not None  # calls in batches and on nodes share nothing
        equal = None if is_alone else _equal_calls(store, units, settings)
        worker = keeping(make_worker(settings, units, parts, equal), store)
        if gate is not None:
            worker = BatchApiWorker(worker, gate, BatchRecords(store))
        try:
            rows = KeptRows(store, units, worker, settings, (*workflow.requests, *requests))
            bring_up_to_date(rows, identity, digests, kinds)
            _register(store, workflow, requests, digests)
            state = _begin(rows, requests, noted, gate)
            if gate is not None:
                gate.start(BatchRecords(store))
            Scheduler(worker, sampler, state, settings, may_go_on=units.can_go_on).run()
            if state.stopped_by == "none-right":
                state.message += _beside_label(rows, state.cells.first_answers.wrong.values())
        finally:
            worker.close()
            if settings.recorded is not None and equal is not None:
                settings.recorded.hits += equal.recorded_hits
        state.conclude()
        if state.executed:
            classify_new(store, units.signals, settings.on_note)
        return _result(state, sampler, settings)


def _equal_calls(store: ObservationStore, units: Units, settings: ProfileSettings) -> EqualCalls:
    """Return the cache for the run's equal calls, which reads its answers from the store.

    The answers that were recorded in a trace (``settings.recorded``), if there are any, are added to the store.
    """
    kept = KeptCalls(store)
    if settings.recorded is not None:
        kept.keep_all(settings.recorded.answers(units.catalog))
    return EqualCalls(kept, units.control.adapter.deterministic, has_recorded=settings.recorded is not None)


def _beside_label(rows: KeptRows, wrong: Iterable[Cell]) -> str:
    """Return a line that helps to see why answers are wrong: a request's label, and where its final state has that value.

    The final state is one of the stored states of the ``wrong`` answers. Empty if none is stored.
    """
    states = ((cell, rows.store.checkpoint(*cell)) for cell in wrong)
    cell, state = next(((cell, state) for cell, state in states if state is not None), (None, None))
    if cell is None:
        return ""
    shown = rows.evaluated(rows.job(cell, state, None, judged={})).shown
    return f": {shown}" if shown else ""


def _register(
    store: ObservationStore, workflow: Workflow, requests: Sequence[Request], digests: Mapping[str, RequestDigest]
) -> None:
    inputs = {request.id: digests[request.id].inputs for request in requests}
    store.register([scoring_part(workflow, request) for request in requests], inputs)


def _sampler_of(
    settings: ProfileSettings, workflow: Workflow, catalog: Catalog, requests: Sequence[Request], kinds: Mapping[str, str]
) -> Sampler:
    if not isinstance(settings.sampler, str):
        return settings.sampler
    return make_sampler(
        settings.sampler, workflow.template.bind(tuple(catalog)), [request.id for request in requests], settings.seed,
        catalog=catalog, limits=settings.sampled_for, continued_share=continued_share(workflow), candidates=settings.candidates,
        kinds=kinds, few_rounds=settings.batch_prices is not None,
    )  # fmt: skip


def continued_share(workflow: Workflow) -> float:
    """Return the share of the default sampler's paths that continue after an answer that passed the workflow's check.

    The share is in [0, 1). It is 0 if the workflow declares no signals, because then no plan continues after such an answer.
    """
    return CONTINUED_SHARE if workflow.signals else 0.0


def _gate(
    settings: ProfileSettings, workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend], store: ObservationStore
) -> BatchGate | None:
    """Return the gate that collects model calls into batches; None if ``settings.batch_prices`` is None.

    Raises:
        ConfigError: a model does not support batches.
    """
    if settings.batch_prices is None:
        return None
    return gate_of(batched_models(workflow, catalog, backends), catalog, backends, settings.batch_prices)


def _begin(rows: KeptRows, requests: Sequence[Request], noted: Mapping[str, Any], gate: BatchGate | None) -> RunState:
    """Prepare the store for the run, and return the run's state.

    Opens the ledger, retires (no longer uses) the results of broken stages, lets the workflow's judge score the results that it
    has not scored, and records the run's settings. ``noted`` has these settings, as plain JSON.
    """
    store, units, settings = rows.store, rows.units, rows.settings
    ledger = Ledger(store, settings.limits, batches=None if gate is None else BatchRecords(store))
    records = RunRecords(store)
    if not settings.keep_going:
        settings.note(_retired_broken_rows(records, units.template))
    if units.judging is not None:
        settings.note(PendingRows(rows, ledger, units.judging).judge())
    last = records.last_settings()
    # Changed limits alone are not reported: the race and the shares follow the new ones.
    changed = None if last is None else difference(_without_limits(last), _without_limits(noted))
    if changed is not None:
        settings.note(
            f"the store's last run had other settings ({changed}): its {len(store):,} rows count and are not paid for again, "
            "the sampler starts again"
        )
    return RunState(
        store, ledger, units, requests,
        n_older=records.begin(noted), keep_going=settings.keep_going, stops_cut_off=settings.stops_cut_off,
        sampler=_word(noted["sampler"]),
        batched=() if gate is None else gate.models,
    )  # fmt: skip


def _retired_broken_rows(records: RunRecords, template: Template) -> str | None:
    """Retire (no longer use) the results of broken stages, so that they are executed again. Their cost stays booked.

    Retires all results if all failed and the last profile ended for that reason. Also retires the last results of requests that
    an earlier, shorter template cut off.

    Returns:
        A line with the number of results of broken stages; None if there were none.
    """
    store = records.store
    first_rows, cut_off, rows = FirstRows(template), CutOff(), store.observations()
    for row in rows:
        first_rows.add(row)
        cut_off.add(row)
    if outgrown := cut_off.outgrown(template, {(row.request_id, row.prefix): row for row in rows}):
        retire_broken(store, outgrown)  # a longer template defines what comes next, which these rows lack
    cells = first_rows.broken_cells()
    if records.forget_only_failures() and not cells and only_failures(rows) is not None:
        cells = [(row.request_id, row.prefix) for row in rows]
    if not cells:
        return None
    retire_broken(store, cells)
    return f"{len(cells)} rows of a stage that was broken are executed again; what they cost stays in the ledger"


def _require_reference(workflow: Workflow, template: Template) -> None:
    """Raise :class:`WorkflowError` if answers must be compared with those of the current setup, but cannot be.

    They must be compared if the scorer is :class:`AsToday` and some request has no label. Comparing is impossible under the
    oracle stop rule (a right answer ends a request), or if the current setup is unknown. It is also impossible unless exactly
    one of ``as_today`` and the workflow's ``answer`` declares how an answer is read.
    """
    reference = workflow.score
    if not isinstance(reference, AsToday) or all(reference.is_labelled(request) for request in workflow.requests):
        return
    template.rule.require_served(
        WorkflowError("the oracle stop ends where the answer is right, which only a label can tell: use stop='workflow'")
    )
    if template.today is None:
        raise WorkflowError(
            "requests have no label, and it is not known what runs today: say it with Stage(..., default=NAME) in the template"
        )
    if (reference.answer is None) != bool(workflow.answer):
        twice = "as_today(...) and answer= both say" if workflow.answer else "neither as_today(...) nor answer= says"
        raise WorkflowError(f"{twice} what an answer is: give as_today a function of the state, or Workflow answer=, not both")


def _result(state: RunState, sampler: Sampler, settings: ProfileSettings) -> ProfileResult:
    assert state.stopped_by is not None
    coverage = state.cells.coverage
    rows: Sequence[Observation] = [row for row in state.cells.rows.values() if row.request_id in state.requests]
    rows = rows if settings.compared is None else settings.compared(rows)
    return ProfileResult(
        stopped_by=state.stopped_by,
        executed=state.executed,
        failures=dict(state.failures),
        counts=coverage.counts_per_depth,
        coverage=coverage.fraction,
        coverage_interval=coverage.interval(),  # of the final rows: the reported one is refitted only now and then
        spent_usd=coverage.spent_usd,
        exhaustive_usd=coverage.exhaustive_usd(),
        naive_usd=coverage.naive_usd(),
        committed_usd=state.store.committed_usd(),
        abandoned=state.ledger.abandoned,
        message=state.message,
        single_models=sampler.single_models(rows, settings.counted) if isinstance(sampler, DecidingSampler) else None,
    )


_STORED_ELSEWHERE = ("template", "catalog", "request_ids")  # the first two in the store's identity, the ids as a digest


def settings_of(sampler: Sampler, requests: Sequence[Request]) -> dict[str, Any]:
    """Return the settings that determine the order of a run's calls, as plain JSON.

    They are the name of the sampler's class, the sampler's public settings (numbers, texts, and dataclasses as text), and a
    digest of the request ids.
    """
    own = {name: value for name, value in getattr(sampler, "__dict__", {}).items() if name not in _STORED_ELSEWHERE}
    plain = {name: _plain(value) for name, value in own.items() if name[0] != "_" and _is_plain(value)}
    ids = hashlib.sha256("\n".join(request.id for request in requests).encode()).hexdigest()
    return {"seed": None, **plain, "sampler": type(sampler).__name__, "requests": ids}


def _without_limits(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "limits"}


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """Return a short text on how the settings of two runs differ; None if they are equal. ``before`` was read from JSON."""
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
