"""The profile loop: walk the sampler's paths, execute the cells that nobody ran before, stop at the first cap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from vinelm.catalog import Catalog
from vinelm.errors import BudgetExhausted, ConfigError, DatasetError, StoreError
from vinelm.observation import Observation
from vinelm.profiler.coverage import Coverage
from vinelm.profiler.ledger import Ledger, PriceBound
from vinelm.profiler.progress import ProfileResult, Progress, StoppedBy
from vinelm.profiler.sampling import Sampler, Walk, make_sampler
from vinelm.protocols import Backend
from vinelm.template import Template
from vinelm.traces.store import ObservationStore
from vinelm.workflow import Request, Workflow

Cell = tuple[str, tuple[str, ...]]
"""(request id, prefix)."""


class UnitOutcome(Protocol):
    """What a worker gives back (:class:`vinelm.profiler.unit.UnitResult`)."""

    @property
    def observation(self) -> Observation:
        """The row."""

    @property
    def checkpoint(self) -> bytes | None:
        """The state to go on from, if the unit left one."""


class Worker(Protocol):
    """Runs units, here or elsewhere."""

    def run(self, request: Request, prefix: tuple[str, ...], parent: bytes | None) -> UnitOutcome:
        """See :meth:`vinelm.profiler.unit.UnitWorker.run`."""


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
    on_progress: Callable[[Progress], None] | None = None,
) -> ProfileResult:
    """Execute cells until ``coverage`` (a fraction of all reached cells' dollars), a budget or the whole is reached.

    Calls the models and writes to ``store``: spends money. One process, one unit at a time. Every row is durable before the
    next unit starts; run again with the same arguments, it goes on where it was. The caps hold for the store as a whole.
    ``requests`` are those to sample from (default: all of the workflow's). Ctrl-C ends it in good order. :class:`StoreError` if
    the store is another workflow's or in another run's hands, :class:`ConfigError` for a cap or a sampler that makes no sense.
    """
    from vinelm.profiler.fingerprint import SETTING, store_identity
    from vinelm.profiler.unit import UnitWorker

    chosen = workflow.requests if requests is None else requests
    _check(chosen, coverage)
    identity = store_identity(workflow, catalog, backends)
    settings = {part: value for part, value in store.identity.fingerprint.items() if part.startswith(SETTING)}
    difference = store.identity.difference(replace(identity, fingerprint={**identity.fingerprint, **settings}))
    if difference:
        raise StoreError(f"{store.path}: {difference}: give another store")
    template = workflow.template.bind(tuple(catalog))
    if isinstance(sampler, str):
        sampler = make_sampler(sampler, template, [request.id for request in chosen], seed)
    worker = UnitWorker(workflow, catalog, backends)
    with store.exclusive():
        ledger = Ledger(store, budget_usd=budget_usd, budget_calls=budget_calls)
        run = _Run(worker, store, ledger, chosen, template=template, catalog=catalog, target=coverage, on_progress=on_progress)
        return run.through(sampler)


def _check(requests: Sequence[Request], coverage: float | None) -> None:
    if not requests:
        raise DatasetError("no request to profile: give at least one")
    if coverage is not None and not 0.0 < coverage <= 1.0:
        raise ConfigError(f"coverage is {coverage}: it must be a fraction in (0, 1]")


class _Stop(Exception):
    """A cap is reached."""

    def __init__(self, by: StoppedBy) -> None:
        self.by: StoppedBy = by


class _Run:
    """One call of :func:`profile`."""

    def __init__(
        self,
        worker: Worker,
        store: ObservationStore,
        ledger: Ledger,
        requests: Sequence[Request],
        *,
        template: Template,
        catalog: Catalog,
        target: float | None,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.template = template
        self.worker = worker
        self.store = store
        self.ledger = ledger
        self.target = target
        self.on_progress = on_progress
        self.catalog = catalog
        self.requests = {request.id: request for request in requests}
        self.executed = 0
        self.failures: Counter[str] = Counter()
        store.register(requests)
        self._load()

    def _load(self) -> None:
        """Take the account from the store's rows, in the order they were bought."""
        self.known: dict[Cell, Observation] = {}
        self.account = Coverage(self.template, len(self.requests))
        self.bound = PriceBound(self.catalog)
        for observation in self.store.observations():
            if observation.request_id in self.requests:
                self._keep(observation)

    def _keep(self, observation: Observation) -> None:
        self.known[observation.request_id, observation.prefix] = observation
        self.account.add(observation)
        self.bound.add(observation)

    # -- the loop ----------------------------------------------------------------------------------------------

    def through(self, sampler: Sampler) -> ProfileResult:
        """Walk until something stops it."""
        message = ""
        try:
            self._stop_if_done()
            by = self._rounds(sampler)
        except _Stop as stop:
            by = stop.by
        except BudgetExhausted as error:
            by, message = "budget", str(error)
        except KeyboardInterrupt:
            self.store.abandon_open()
            self._load()  # the interrupt may have come between a row and its account
            by = "interrupted"
        return self._result(by, message)

    def _rounds(self, sampler: Sampler) -> StoppedBy:
        visited: dict[Cell, Observation] = {}
        round_ = 0
        while True:
            is_empty = True
            for walk in sampler.walks(round_, tuple(visited.values())):
                is_empty = False
                self._walk(walk, visited)
            if is_empty:
                return "sampler"
            round_ += 1

    def _walk(self, walk: Walk, visited: dict[Cell, Observation]) -> None:
        for length in range(1, len(walk.path) + 1):
            cell = (walk.request_id, walk.path[:length])
            observation = self.known.get(cell)
            if observation is None:
                observation = self._execute(*cell)
                visited[cell] = observation
                self._stop_if_done()
            else:
                visited[cell] = observation
            if observation.ended(self.template.stop):
                return

    def _stop_if_done(self) -> None:
        if self.account.is_complete:
            raise _Stop("complete")
        if self.target is not None and self.account.fraction >= self.target:
            raise _Stop("coverage")

    def _execute(self, request_id: str, prefix: tuple[str, ...]) -> Observation:
        """Reserve, run, write; nothing of it is in memory only when this returns."""
        parent = self.store.checkpoint(request_id, prefix[:-1]) if len(prefix) > 1 else None
        if len(prefix) > 1 and parent is None:
            raise StoreError(
                f"{self.store.path}: request {request_id!r} has no checkpoint after {'/'.join(prefix[:-1])}: "
                "its row was imported, or the file is damaged: give another store"
            )
        upper_usd = self.bound.usd(self.template.invocations[len(prefix) - 1].name, prefix[-1])
        entry = self.ledger.reserve(request_id, prefix, upper_usd)
        outcome = self.worker.run(self.requests[request_id], prefix, parent)
        observation = outcome.observation
        if observation.failure == "auth":  # no property of the model, and every further call would fail alike
            self.store.settle(entry, observation.cost_usd)
            raise ConfigError(f"model {prefix[-1]!r}: {self._key_hint(prefix[-1])}")
        checkpoint = None if observation.ended(self.template.stop) else outcome.checkpoint  # nobody goes on from an end
        self.ledger.settle(entry, upper_usd, observation, checkpoint)
        self._keep(observation)
        self.executed += 1
        if observation.failure is not None:
            self.failures[observation.failure] += 1
        self._report()
        return observation

    def _key_hint(self, model: str) -> str:
        variable = self.catalog[model].api_key_env
        mend = f"check the environment variable {variable}" if variable else "check its credentials"
        return f"the provider refused the key: {mend}"

    # -- telling -----------------------------------------------------------------------------------------------

    def _report(self) -> None:
        if self.on_progress is not None:
            failures, account = sum(self.failures.values()), self.account
            budget = self.ledger.budget_usd
            self.on_progress(Progress(self.executed, failures, account.fraction, self.target, account.spent_usd, budget))

    def _result(self, by: StoppedBy, message: str) -> ProfileResult:
        return ProfileResult(
            stopped_by=by,
            executed=self.executed,
            failures=dict(self.failures),
            counts=self.account.counts_per_depth,
            coverage=self.account.fraction,
            spent_usd=self.account.spent_usd,
            exhaustive_usd=self.account.exhaustive_usd(),
            naive_usd=self.account.naive_usd(),
            committed_usd=self.store.committed_usd(),
            abandoned=self.ledger.abandoned,
            message=message,
        )
