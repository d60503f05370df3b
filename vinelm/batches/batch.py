"""Answers a data set with an application, within dollars and hours that all requests share."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from vinelm.api.profiling import require_budget
from vinelm.backends import create_backends
from vinelm.backends.remote.batches import BatchTimes
from vinelm.batches.batch_api_run import BatchApiRun, gate_for, in_batches, require_repeatable, rest_s
from vinelm.batches.requests import DatasetRequests, requests_of
from vinelm.batches.result import BatchResult, require_own, write_lines
from vinelm.batches.run import INTERRUPTED, DatasetApplication, DatasetRun
from vinelm.batches.steering import DatasetForecast, Finish, Steering
from vinelm.catalog import Catalog
from vinelm.datasets import Columns
from vinelm.errors import BudgetExhausted, ConfigError, InfeasibleError
from vinelm.io.atomic import draft_path, require_regular
from vinelm.objective import Objective
from vinelm.profiler import RayCluster
from vinelm.profiler.execution.batch_api import CODE, PART
from vinelm.requests.protocols import Backend
from vinelm.requests.workflow import Workflow
from vinelm.running.hosts import Server, serving
from vinelm.running.request_ledger import RequestLedger
from vinelm.running.serving_record import digest_of_plans, opened_record
from vinelm.traces import ObservationStore, StoreIdentity
from vinelm.traces.databases import opening
from vinelm.traces.databases.address import StoreAddress, address_of
from vinelm.traces.served.answers import Answers
from vinelm.traces.served.kept_calls import AGE_S, kept_in
from vinelm.traces.store.batches import BatchRecords
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.vinefile import load_trie
from vinelm.workflows import load_workflow

WORKERS = 8


def batch(
    workflow: Workflow | str,
    trie: AnnotatedTrie | str | Path,
    objective: Objective,
    *,
    output: str | Path,
    dataset: str | Path | None = None,
    columns: Columns | Iterable[str] | None = None,
    models: Catalog | str | Path | None = None,
    budget_usd: float | None = None,
    deadline_s: float | None = None,
    finish: Finish = "all",
    workers: int = WORKERS,
    store: str | Path | None = None,
    cache: str | Path | None = None,
    cache_age_s: float | None = None,
    seed: int = 0,
    batch_prices: bool | BatchTimes = False,
    dry_run: bool = False,
    engine: str = "this-machine",
    ship: bool = False,
    on_done: Callable[[int, int], None] = lambda done, total: None,
    on_note: Callable[[str], None] | None = None,
) -> BatchResult:
    """Answer every request of a data set with the application, each with a plan that fits the remaining money and time.

    Calls the models, so it spends money unless they are simulated. The cost of every model call is reserved in the store before
    the call is made, and every answer is stored before the next request begins. So after a crash, calling this function again
    with the same arguments continues, and repeats at most the requests that were in progress. Equal requests are answered once.
    A failed request is a result, and is not tried again.

    Args:
        workflow: The workflow, the name of a bundled one, or ``"module:attribute"``.
        trie: The annotated trie, or the path of its file.
        objective: The objective of the plans.
        output: The file of answers, JSON lines in the order of the data set; written when the batch ends or is interrupted.
        dataset: Requests: CSV, JSON lines, Parquet, or an export. Labels are not needed. None: the workflow's.
        columns: Column of the dataset to use: input.KEY=COLUMN, label.KEY=COLUMN (the graph never sees labels) or id=COLUMN. A
            path such as outputs.answer leads into a column. Repeatable. In Python several such texts, or
            :class:`vinelm.datasets.Columns`. None: the format decides.
        models: Catalog of models with prices. In Python also a :class:`~vinelm.Catalog`. None: simulated models of the trie.
        budget_usd: Never spend more than this on all requests, interrupted runs included. In Python required for models that
            cost money.
        deadline_s: When all should be answered, from the first start: 7h, 90m, 1h30m. In Python seconds.
        finish: Near the end of the money or the time: ``all`` switches to cheaper plans, to answer all requests if possible;
            ``good`` keeps the plans, and the rest stays unanswered.
        workers: Requests in progress at a time.
        store: Store of answers and costs, a file or postgresql://...; a later run with the same arguments continues it. None:
            the output with .db.
        cache: Store of answers to calls, or postgresql://..., which several runs share one after the other: a call equal to an
            earlier one costs nothing (docs/batch.md#equal-calls). None: this batch's own store.
        cache_age_s: Answers to calls that are older are not used again: 7d, 12h. In Python seconds. None: 7d.
        seed: Seed of samples, splits and simulated answers.
        batch_prices: Buy calls in the providers' batches, at half the price. Each call of a request may then take up to a day;
            calls for which ``deadline_s`` leaves too little time are made directly. In Python also how long to wait for
            batches.
        dry_run: Print what would be answered, for how much and how long. Calls nothing.
        engine: Machines that do the work: this-machine, or the nodes of a Ray cluster: ray://HOST:PORT, ray://auto (the one
            that this machine belongs to) or ray://local (starts one for this run). In Python the workflow has to be named.
        ship: With ``engine=ray://...``: copy the current folder, without .env, to the nodes.
        on_done: Called now and then as ``on_done(done, total)``, with the numbers of ended and of all distinct requests.
        on_note: Called with one line when a node is lost, or a new node cannot be used; from any thread.

    Returns:
        The counts; its ``lines()`` method yields the lines of the file.

    Raises:
        ConfigError: The arguments do not fit together, models cost money and no budget is given, the deadline has passed, the
            output cannot be written, the store is of another batch, or a model or a node cannot be run at batch prices.
        DatasetError: A row is invalid; nothing was spent.
        InfeasibleError: No plan meets the objective's limits, or money and time do not suffice for all requests.
        StoreError: The store cannot be used, or another process is using it.
        StageBroken: The first requests all failed.
        WorkerDied: No node is left, or the connection to the cluster is lost. The same call continues.
        VineLMError: A provider's batch has not ended in time (code ``batches-left``): the same call continues to wait.

    Examples:
        >>> import vinelm
        >>> best = vinelm.Objective(maximize="accuracy")
        >>> found = vinelm.batch("my_app:workflow", "my-app.vine", best, output="answers.jsonl", budget_usd=2)
        >>> found.is_complete, next(found.lines())["status"]
        (True, 'ok')
    """
    output, name = Path(output), workflow
    if columns is not None and not isinstance(columns, Columns):
        columns = Columns.parse(columns)
    workflow = load_workflow(workflow, dataset=dataset, columns=columns, labelled=False)
    if deadline_s is not None and not (deadline_s > 0 and math.isfinite(deadline_s)):
        raise ConfigError(f"the deadline is {deadline_s} s: it must be a number of seconds > 0")
    if workers < 1:
        raise ConfigError(f"workers is {workers}: at least one request must be under way")
    cluster = RayCluster.of(engine, ship=ship)
    if cluster is not None and batch_prices:
        raise ConfigError("calls at batch prices wait for their provider and need no cluster: leave one of the two out")
    cache_age_s = AGE_S if cache_age_s is None else cache_age_s
    if not (cache_age_s >= 0 and math.isfinite(cache_age_s)):
        raise ConfigError(f"the age of answers is {cache_age_s} s: it must be a number of seconds >= 0")
    if cache is not None and (cluster is not None or batch_prices):
        other = "calls of a cluster's nodes" if cluster is not None else "calls in providers' batches"
        raise ConfigError(f"{other} have no common cache: leave one of the two out")
    annotated = trie if isinstance(trie, AnnotatedTrie) else load_trie(trie)
    times = BatchTimes() if batch_prices is True else batch_prices or None
    made = _Prepared(workflow, annotated, objective, None if models is None else Catalog.of(models), seed=seed, times=times)
    settings = {
        "budget_usd": budget_usd,
        "deadline_s": deadline_s,
        "output": output,
        "store": str(address_of(store or output.with_suffix(".db"))),
        **made.fields,
    }
    steered = made.within_deadline(Steered(budget_usd, deadline_s, finish, workers, is_in_batches=times is not None))
    forecast = made.steering(steered).forecast()
    if dry_run:
        in_waves = None
        if times is not None and steered.is_in_batches:
            forecast, in_waves = in_batches(forecast, annotated.template, times)
        return BatchResult(forecast=forecast, in_batches=in_waves, **settings)
    require_budget(made.backends, budget_usd)
    if cache is not None and made.is_simulated:
        raise ConfigError("simulated models answer by the request, not by the prompt, so no call is equal: leave the cache out")
    address = address_of(store or output.with_suffix(".db"))
    _require_output(output, dataset, address)
    _require_enough(forecast, steered, len(made.found.order))
    calls = None if cluster is not None or times is not None else (None if cache is None else address_of(cache), cache_age_s)
    with serving(  # opened before the store, since the deadline counts from the first moment
        made.application, annotated, cluster, on_note, verb="batch", models=models, make=DatasetApplication.of, labelled=False,
        workflow=name, dataset=dataset, columns=columns, seed=seed,
    ) as made.server:  # fmt: skip
        return made.run(address, steered, settings, on_done, calls)


class Steered(NamedTuple):
    """The limits of a batch: its budget, its deadline, and the number of workers, as given to :func:`batch`.

    ``is_in_batches`` tells whether new calls go in providers' batches.
    """

    budget_usd: float | None
    deadline_s: float | None
    finish: Finish
    workers: int
    is_in_batches: bool = False

    @property
    def terms(self) -> dict[str, Any]:
        """The limits that decide which plans are chosen at batch prices, by name: ``budget_usd``, ``deadline_s`` and
        ``finish``.
        """
        return {"budget_usd": self.budget_usd, "deadline_s": self.deadline_s, "finish": self.finish}

    def without(self, lost_usd: float) -> Steered:
        """Return the same limits with the budget reduced by ``lost_usd``, the dollars that interrupted runs paid for calls
        without an answer.

        Raises :class:`BudgetExhausted` if nothing is left.
        """
        if self.budget_usd is None or lost_usd <= 1e-9:
            return self
        if lost_usd >= self.budget_usd:
            raise BudgetExhausted(f"interrupted runs have used up the ${self.budget_usd:g}: raise the budget")
        return self._replace(budget_usd=self.budget_usd - lost_usd)


class _Prepared:
    """All that is needed to answer a data set: the application with its planner and models, and the distinct requests."""

    def __init__(
        self,
        workflow: Workflow,
        annotated: AnnotatedTrie,
        objective: Objective,
        catalog: Catalog | None,
        *,
        seed: int,
        times: BatchTimes | None,
    ) -> None:
        self.annotated, self.objective, self.seed = annotated, objective, seed
        catalog = catalog or annotated.catalog
        self.workflow = workflow = replace(workflow, template=annotated.template.base)
        backends: Mapping[str, Backend] = create_backends(catalog, workflow=workflow, seed=seed)
        self.backends, self.times, self.gate = backends, times, None
        if times is not None:
            self.gate, backends = gate_for(workflow.template, catalog, backends, times)
        self.application = DatasetApplication.of(workflow, annotated, catalog, backends)
        self.server: Server = self.application
        if times is not None:
            require_repeatable(workflow, self.application.app, objective)
        self.found: DatasetRequests = requests_of(workflow, catalog, self.application.app)

    @property
    def is_simulated(self) -> bool:
        """Whether some models are simulated."""
        return any(backend.is_simulated for backend in self.backends.values())

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of :class:`BatchResult` that are known before the run: ``requests``, ``equal``, ``shared``, ``note`` and
        ``is_simulated``.
        """
        found = self.found
        return {
            "requests": len(found.keys),
            "equal": found.equal,
            "shared": found.shared,
            "note": found.note,
            "is_simulated": self.is_simulated,
        }

    def steering(self, steered: Steered) -> Steering:
        """Return the object that chooses the plan of each request within these limits.

        At batch prices, the plans of all requests are chosen at once, and the object gets twice the budget. It plans at the
        trie's prices, which are twice the batch prices.
        """
        is_whole, budget_usd = steered.is_in_batches, steered.budget_usd
        return Steering(
            self.application.vine.served_planner(),
            self.objective,
            keys=self.found.order,
            groups=self.found.groups,
            budget_usd=budget_usd / PART if is_whole and budget_usd is not None else budget_usd,
            deadline_s=steered.deadline_s,
            finish=steered.finish,
            workers=max(len(self.found.order), 1) if is_whole else steered.workers,
        )

    def within_deadline(self, steered: Steered) -> Steered:
        """Return ``steered`` with ``is_in_batches`` set: whether calls go in the providers' batches.

        They do if, after waiting for one batch, all requests could still be run before the deadline. Without batch prices or
        without a deadline, ``steered`` is returned unchanged.
        """
        if self.times is None or steered.deadline_s is None:
            return steered
        rest = rest_s(self.steering(steered).forecast(), len(self.found.order), steered.workers)
        return steered._replace(is_in_batches=self.times.wait_s + rest <= steered.deadline_s)

    def identity(self) -> StoreIdentity:
        """Return the settings that decide the answers, by which a store is recognized when the batch continues.

        They do not contain the budget, the deadline and the number of workers, which may change between runs.
        """
        return StoreIdentity(
            workflow=f"{self.workflow.name} (batch)",  # so that no profile adds to its ledger
            template=self.annotated.template.to_dict(),
            catalog=self.application.vine.catalog.to_dict(),
            dataset_digest=self.workflow.dataset_digest,
            fingerprint={
                "trie": digest_of_plans(self.annotated),
                "objective": json.dumps(self.objective.to_dict(), sort_keys=True),
                "seed": str(self.seed),
                "inputs": hashlib.sha256("".join(sorted(self.found.first)).encode()).hexdigest(),
            },
            is_simulated=self.is_simulated,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def run(
        self,
        address: StoreAddress,
        steered: Steered,
        settings: dict[str, Any],
        on_done: Callable[[int, int], None],
        calls: tuple[StoreAddress | None, float] | None,
    ) -> BatchResult:
        """Answer the requests that have no stored answer, and write the file of answers. Return the result of the batch.

        Args:
            address: The store of the batch.
            steered: The limits of the batch.
            settings: Further fields of the result, such as ``output``.
            on_done: As in :func:`batch`.
            calls: The store for answers of calls (None for the batch's own store) and the maximum age of answers in seconds;
                None calls the model every time.
        """
        with ExitStack() as stack:
            store = stack.enter_context(opened_record(address, self.identity()))
            stack.enter_context(store.exclusive())
            require_own(settings["output"], Answers(store))
            if calls is not None:
                self.application.keep_calls(stack.enter_context(kept_in(calls[0], store, calls[1])))
            run = self._begun(store, steered)
            _require_time(run, steered.deadline_s)
            try:
                run.run(on_done)
            finally:
                if self.gate is not None:
                    self.gate.end()
                if run.because == INTERRUPTED or run.is_over:
                    write_lines(settings["output"], self.workflow.requests, self.found.keys, Answers(store), run.because)
            equal_calls, saved_usd = Answers(store).equal()
            return BatchResult(
                forecast=None,
                equal_calls=equal_calls,
                saved_usd=saved_usd,
                spent_usd=run.committed_usd,
                elapsed_s=run.elapsed_s,
                unanswered_because=run.because,
                **run.tally.to_fields(),
                **settings,
            )

    def _begun(self, store: ObservationStore, steered: Steered) -> DatasetRun:
        """Return the run that answers the requests without a stored answer. If an earlier run used batch prices, the new run
        continues with the same plans.

        Raise :class:`ConfigError` if an earlier run used batch prices and this call does not.
        """
        records, answers = BatchRecords(store), Answers(store)
        terms = records.terms()
        if terms is not None and self.times is None:
            raise ConfigError("calls of this batch are bought in the provider's batches: run it with batch prices", code=CODE)
        ledger = RequestLedger(store, steered.budget_usd, records)
        common: dict[str, Any] = {
            "server": self.server,
            "elapsed_s": self._clock(store.identity.created_at),
            "deadline_s": steered.deadline_s,
            "workers": steered.workers,
        }
        if self.gate is None or self.times is None or not (terms or steered.is_in_batches):
            lost_usd = ledger.committed_usd - sum(answer.cost_usd for answer in answers.brief())
            steering = self.steering(steered.without(lost_usd))
            return DatasetRun(self.application, self.found, answers, ledger, steering, **common)
        if terms is None:
            lost_usd = ledger.committed_usd - ledger.replaceable_usd - sum(answer.cost_usd for answer in answers.brief())
            terms = steered.without(lost_usd).terms
            records.note_terms(terms)
        steering = self.steering(steered._replace(is_in_batches=True, **terms))
        self.gate.start(records)
        return BatchApiRun(
            self.application,
            self.found,
            answers,
            ledger,
            steering,
            gate=self.gate,
            records=records,
            times=self.times,
            forecast=steering.forecast(),
            **common,
        )

    def _clock(self, began_at: str) -> Callable[[], float] | None:
        """Return a function that returns the seconds since the batch was first started; None if all models run in virtual time.

        ``began_at`` is the time of that start in ISO format.
        """
        if all(backend.is_virtual_time for backend in self.backends.values()):
            return None
        began_s = datetime.fromisoformat(began_at).timestamp()
        return lambda: time.time() - began_s


def _require_enough(forecast: DatasetForecast, steered: Steered, requests: int) -> None:
    """Raise :class:`InfeasibleError` if even the cheapest plans cannot finish all requests within the limits.

    If requests may stay unanswered (``finish="good"``), it is raised only if not even one request can be finished.
    """
    wanted = requests if steered.finish == "all" else min(requests, 1)
    if forecast.requests >= wanted:
        return
    bounds = [] if steered.budget_usd is None else [f"${steered.budget_usd:g}"]
    bounds += [] if steered.deadline_s is None else [f"{steered.deadline_s:,.0f} s"]
    raise InfeasibleError(
        f"about {forecast.requests:,} of the {requests:,} different requests can be answered within {' and '.join(bounds)}: "
        "raise that",
        code="batch-too-large",
    )


def _require_time(run: DatasetRun, deadline_s: float | None) -> None:
    if deadline_s is not None and run.left and run.elapsed_s >= deadline_s:
        raise ConfigError(
            f"the deadline has passed: the batch was first started {run.elapsed_s:,.0f} s ago, and {run.left:,} requests are "
            f"left: give a deadline beyond that"
        )


def _require_output(output: Path, dataset: str | Path | None, address: StoreAddress) -> None:
    """Raise :class:`ConfigError` if the file of answers could not be written at the end, or if it would replace another
    file.
    """
    endings = ("", "-wal", "-shm", "-journal", ".lock")
    if isinstance(address, Path) and output.resolve() in {Path(f"{address.resolve()}{ending}") for ending in endings}:
        raise ConfigError(f"{output}: this is the store of the batch: use another name for the output, or for the store")
    if dataset is not None and output.exists() and Path(dataset).exists() and output.samefile(dataset):
        raise ConfigError(f"{output}: this is the data set and would be overwritten: use another name for the output")
    if output.exists() and not opening.exists(address):
        raise ConfigError(f"{output}: exists, and no batch is known that it belongs to: use another name, or move it away")
    try:
        require_regular(output)
        draft = draft_path(output)
        draft.touch()
        draft.unlink()
    except OSError as error:
        raise ConfigError(
            f"{output}: cannot be written ({error.strerror}): use another name for the output", code="answers-not-written"
        ) from error
