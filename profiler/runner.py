"""One profile: check that everything fits together, run the schedule over the store, say how it stands."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, DatasetError, StoreError
from vinelm.profiler.budget.ledger import Ledger, check_caps
from vinelm.profiler.executor import ExecutionConfig
from vinelm.profiler.results import ProfileResult, Progress
from vinelm.profiler.samplers import make_sampler
from vinelm.profiler.scheduling.run_state import Account
from vinelm.protocols import Backend, Sampler
from vinelm.traces import ObservationStore, RunRecords
from vinelm.workflow import Request, Workflow


def profile(
    workflow: Workflow,
    catalog: Catalog,
    backends: Mapping[str, Backend],
    store: ObservationStore,
    *,
    requests: Sequence[Request] | None = None,
    sampler: str | Sampler = "cascade",
    coverage: float | None = None,
    budget_usd: float | None = None,
    budget_calls: int | None = None,
    seed: int = 0,
    workplace: ExecutionConfig | None = None,
    checkpoints: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> ProfileResult:
    """Execute cells until ``coverage`` (a fraction of all reached cells' dollars), a budget or the whole is reached.

    Calls the models and writes to ``store``: spends money. ``workplace`` says where units run and how many at a time (default:
    one, here); with models that answer alike each time, the rows are the same whatever it says. Every row is durable before the
    next stage of its request starts; run again with the same arguments, it goes on where it was. The caps hold for the store as
    a whole. ``requests`` are those to sample from (default: all of the workflow's). Ctrl-C ends it when the units in flight are
    written, a second one at once. Without ``checkpoints`` every leaf path is run from its start and paid in full, which only
    the exhaustive sampler can do. ``on_note`` hears, in one line, if the store's last run was another one (sampler, goal, seed,
    requests): its rows count, and the walks begin anew. :class:`StoreError` if the store is another workflow's or in another
    run's hands, :class:`ConfigError` for a cap, a sampler or a workplace that makes no sense.
    """
    from vinelm.profiler.config import Terms
    from vinelm.profiler.execution.replay import Straight
    from vinelm.profiler.execution.unit import UnitWorker
    from vinelm.profiler.scheduling.run_state import Books
    from vinelm.profiler.scheduling.scheduler import Scheduler

    workplace = workplace or ExecutionConfig()
    chosen = workflow.requests if requests is None else requests
    if not chosen:
        raise DatasetError("no request to profile: give at least one")
    check_terms(sampler, coverage, budget_usd, budget_calls, checkpoints=checkpoints)
    parts = _same_workflow(workflow, catalog, backends, store)
    template = workflow.template.bind(tuple(catalog))
    if isinstance(sampler, str):
        sampler = make_sampler(sampler, template, [request.id for request in chosen], seed)
    units = UnitWorker(workflow, catalog, backends)
    with store.exclusive():
        ledger = Ledger(store, budget_usd=budget_usd, budget_calls=budget_calls)
        records = RunRecords(store)
        store.register(chosen)
        older = _begin(records, settings_of(sampler, chosen), len(store), on_note)
        account = Account(store.observations(), older, chosen, template, catalog)
        _drop_used_up(records, account)
        worker = workplace.worker(units, parts)
        run: Books | Straight
        try:
            if checkpoints:
                virtual = units.control.models.is_virtual_time
                terms = Terms(template, catalog, coverage, workplace.threads, virtual, on_progress)
                run = Books(store, ledger, account, terms)
                Scheduler(worker, sampler, run).run()
            else:
                run = Straight(worker, store, ledger, account, catalog, workers=workplace.workers, on_progress=on_progress)
                run.run(sampler.walks(0, ()))
        finally:
            worker.close()
        if run.stopped_by == "interrupted":  # it may have come between a row and its account
            account = Account(store.observations(), older, chosen, template, catalog).all_counted()
        elif not account.has_gap:
            records.end()
        return _result(run, store, ledger, account)


def check_terms(
    sampler: str | Sampler,
    coverage: float | None,
    budget_usd: float | None,
    budget_calls: int | None,
    *,
    checkpoints: bool = True,
) -> None:
    """:class:`ConfigError` for what :func:`profile` would refuse: so that it can be said before a store is made."""
    if coverage is not None and not 0.0 < coverage <= 1.0:
        raise ConfigError(f"coverage is {coverage}: it must be a fraction in (0, 1]")
    check_caps(budget_usd, budget_calls)
    if not checkpoints and (sampler != "exhaustive" or coverage is not None):
        raise ConfigError("without checkpoints every path is run in full: use --sampler exhaustive, and no coverage")


def _same_workflow(
    workflow: Workflow, catalog: Catalog, backends: Mapping[str, Backend], store: ObservationStore
) -> Mapping[str, str]:
    """The fingerprint's parts; :class:`StoreError` names those that the store was not made with."""
    from vinelm.profiler.fingerprint import SETTING, store_identity

    identity = store_identity(workflow, catalog, backends)
    settings = {part: value for part, value in store.identity.fingerprint.items() if part.startswith(SETTING)}
    difference = store.identity.difference(replace(identity, fingerprint={**identity.fingerprint, **settings}))
    if difference:
        raise StoreError(f"{store.path}: {difference}: give another store, or start over with --force-rerun")
    return identity.fingerprint


def _begin(records: RunRecords, settings: Mapping[str, Any], rows: int, on_note: Callable[[str], None] | None) -> int:
    """How many of the store's rows are older than this run; says if it is not the one that made them."""
    before = records.last_settings()
    changed = None if before is None else difference(before, settings)
    if changed is not None and on_note is not None:
        on_note(f"not the store's last run ({changed}): its {rows:,} rows count and are not bought again, the walks begin anew")
    return records.begin(settings)


def _drop_used_up(records: RunRecords, account: Account) -> None:
    """States that nobody goes on from any more, left by an earlier version or a merge."""
    used_up = [cell for cell in records.checkpoint_cells() if account.used_up(cell)]
    with records.together():
        for cell in used_up:
            records.drop_checkpoint(*cell)


def _result(run: Any, store: ObservationStore, ledger: Ledger, account: Account) -> ProfileResult:
    coverage = account.coverage
    return ProfileResult(
        stopped_by=run.stopped_by,
        executed=run.executed,
        failures=dict(run.failures),
        counts=coverage.counts_per_depth,
        coverage=coverage.fraction,
        coverage_interval=coverage.interval(),  # of this very account: the one shown meanwhile is refitted now and then
        spent_usd=coverage.spent_usd,
        exhaustive_usd=coverage.exhaustive_usd(),
        naive_usd=coverage.naive_usd(),
        committed_usd=store.committed_usd(),
        abandoned=ledger.abandoned,
        message=run.message,
    )


_ELSEWHERE = ("template", "catalog", "request_ids")  # the store's identity has the first two, the digest the third


def settings_of(sampler: Sampler, requests: Sequence[Request]) -> dict[str, Any]:
    """Plain JSON: the sampler's class and every public setting of it that is a plain value or a dataclass (as its text), and
    a digest of the requests.
    """
    own = {name: value for name, value in getattr(sampler, "__dict__", {}).items() if name not in _ELSEWHERE}
    plain = {name: _plain(value) for name, value in own.items() if name[0] != "_" and _is_plain(value)}
    ids = hashlib.sha256("\n".join(request.id for request in requests).encode()).hexdigest()
    return {"seed": None, **plain, "sampler": type(sampler).__name__, "requests": ids}


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """What is set otherwise, in a few words; None if nothing is. ``before`` came from JSON."""
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
