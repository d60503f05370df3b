"""The state of a run: starts jobs, books them and writes their results, and records why the run stopped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from vinelm.errors import ConfigError, WorkflowError
from vinelm.judging import Judgement
from vinelm.profiler.execution.job import Job, UnitFinished, UnitOutcome
from vinelm.profiler.execution.ledger import Ledger, Reservation
from vinelm.profiler.execution.outcome import with_error
from vinelm.profiler.execution.replayed.runner import Units
from vinelm.profiler.execution.unit import is_extendable
from vinelm.profiler.scheduling.kept_rows import verdicts_of
from vinelm.profiler.scheduling.observed_cells import BROKEN_AFTER, ObservedCells
from vinelm.profiler.scheduling.request_paths import DOUBLINGS, FEW_DOUBLINGS
from vinelm.profiler.scheduling.results import Progress, StoppedBy
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Cell, Observation
from vinelm.signals.declaration import Labels
from vinelm.traces import ObservationStore
from vinelm.traces.store.judgements import Judgements
from vinelm.traces.store.prompts import StoredPrompts
from vinelm.traces.store.run_state import RunRecords


@dataclass(frozen=True, slots=True)
class Purchase:
    """How a result is bought: in which round its path was proposed, with which probability, and whether its calls are timed.

    Attributes:
        round: the sampler's round that proposed the path.
        probability: the probability with which the path was proposed; None if unknown.
        is_timed: whether the calls are made directly, and so have latencies, in a run that otherwise uses batch APIs.
    """

    round: int = 0
    probability: float | None = None
    is_timed: bool = True


class RunState:
    """The mutable state of a run. Not thread-safe.

    Args:
        store: the store; the caller must have locked it.
        ledger: the store's ledger, with the run's limits.
        n_older: the number of results in the store that are older than the run.
        keep_going: continue even if all first results of a stage fail in the same way.
        stops_cut_off: see :class:`ProfileSettings`.
        sampler: the name of the run's sampler.
        batched: the names of the models that are called through batch APIs.

    Attributes:
        running: the reservations of the jobs in flight.
        stopped_by: why the run stopped; None while it runs.
        message: a line that explains why the budget or a broken stage ended the run.
        problem: the exception that ends the run.
        executed: the number of jobs that this run has executed.
        calls: the number of model calls of this run.
        failures: the number of results of this run that failed, by kind of failure.
    """

    def __init__(
        self,
        store: ObservationStore,
        ledger: Ledger,
        units: Units,
        requests: Iterable[Request],
        *,
        n_older: int,
        keep_going: bool = False,
        stops_cut_off: bool = False,
        sampler: str | None = None,
        batched: Collection[str] = (),
    ) -> None:
        self.batched = frozenset(batched)
        self.signals, self._sampler = units.signals, sampler
        self.store, self.ledger, self.template, self.catalog = store, ledger, units.template, units.catalog
        self.records, self._prompt_key = RunRecords(store), StoredPrompts(store).begin()
        self.requests: Mapping[str, Request] = {request.id: request for request in requests}
        self._n_older = n_older
        self._is_virtual_time = units.is_virtual_time
        self._broken_after = None if keep_going else BROKEN_AFTER
        self._stops_cut_off = stops_cut_off
        self.cells = self._read_cells()
        self._labels = Labels(row.signal for row in self.cells.rows.values() if row.signal is not None)
        self._verdicts = verdicts_of(Judgements(store).latest()) if units.judging is not None else None
        self.running: dict[Cell, Reservation] = {}
        self._purchases: dict[Cell, Purchase] = {}
        self._in_batches: set[Cell] = set()
        self._in_flight: dict[Cell, int] = {}  # other units on the same engine when the unit started, where time is real
        self.stopped_by: StoppedBy | None = None
        self.message = ""
        self.problem: BaseException | None = None
        self.executed = 0
        self.calls = 0
        self.failures: Counter[str] = Counter()

    def _read_cells(self) -> ObservedCells:
        return ObservedCells(
            self.store.observations(), self._n_older, self.requests.keys(), self.template, self.catalog,
            broken_after=self._broken_after, stops_cut_off=self._stops_cut_off, states=self.records.checkpoint_cells(),
            doublings=FEW_DOUBLINGS if self.batched else DOUBLINGS,
        )  # fmt: skip

    # -- stopping ----------------------------------------------------------------------------------------------

    def stop(self, by: StoppedBy, message: str = "") -> None:
        """Stop starting jobs, for the reason ``by``, explained by ``message``. If called again, the first reason stays."""
        if self.stopped_by is None:
            self.stopped_by, self.message = by, message

    def interrupt(self) -> None:
        """Stop because of Ctrl-C or SIGTERM; replaces any other reason."""
        self.stopped_by, self.message = "interrupted", ""

    def fail(self, problem: BaseException | None) -> None:
        """Stop the run, and let it end with the exception ``problem``. If called again, the first exception stays."""
        self.problem = self.problem or problem
        self.stop("interrupted")

    def abandon(self) -> None:
        """Book every running job at its maximum cost, without waiting for the job to end."""
        self.running.clear()
        self.store.abandon_open()

    def conclude(self) -> None:
        """Record in the store that the run has ended, so that it is not resumed.

        Nothing is recorded if an earlier result is missing, so that later results cannot be counted yet. If the run was
        interrupted, all results that it has written are read and committed instead.
        """
        if self.stopped_by == "interrupted":  # it may have happened between a row and its commit: read the store again
            self.cells = self._read_cells()
            self.cells.commit_all()
            return
        if not self.cells.has_gap:
            self.records.end()

    # -- units -------------------------------------------------------------------------------------------------

    def start(self, cell: Cell, upper_usd: float, upper_calls: int, purchase: Purchase | None = None) -> Job:
        """Reserve money for a call, and return its job with the checkpoint from which it resumes.

        If the state before the job is not stored (as for imported results), the job executes the earlier calls again.

        Args:
            cell: the call, as (request id, models).
            upper_usd: the job's maximum cost in dollars.
            upper_calls: its maximum number of model calls.
            purchase: how the sampler proposed the call's path; None if unknown, and then no call goes through a batch API.

        Raises:
            BudgetExhausted: a budget would be exceeded.
        """
        request_id, prefix = cell
        # First, so that there is nothing to undo if the budget does not allow it.
        is_batched = purchase is not None and self.is_batched(cell, is_timed=purchase.is_timed)
        reservation = self.ledger.reserve(request_id, prefix, upper_usd, upper_calls, is_batched=is_batched)
        parent, n_again = None, 0
        for length in range(len(prefix) - 1, 0, -1):
            parent = self.store.checkpoint(request_id, prefix[:length])
            if is_extendable(parent):
                break
            parent, n_again = None, n_again + 1
        self.running[cell], self._purchases[cell] = reservation, purchase or Purchase()
        if is_batched:
            self._in_batches.add(cell)
        if not self._is_virtual_time:
            engine = self.catalog[prefix[-1]].engine
            others = sum(self.catalog[other[-1]].engine == engine for _, other in self.running.keys() - self._in_batches) - 1
            self._in_flight[cell] = max(others, 0)
        return Job(
            self.requests[request_id], prefix, parent, reservation.upper_usd, n_again,
            stages=self._stages(cell), passed=self.cells.passed_before(cell), judged=self.verdicts(request_id),
            is_batched=is_batched,
            prompt_key=self._prompt_key,
        )  # fmt: skip

    def is_batched(self, cell: Cell, *, is_timed: bool) -> bool:
        """Return whether all calls of a job go through batch APIs.

        False if ``is_timed`` (its calls are to have latencies), if the model has no batch API, or if the job must execute
        earlier calls again.
        """
        request_id, prefix = cell
        is_again = (request_id, prefix[:-1]) in self.cells.without_state
        return not is_timed and not is_again and prefix[-1] in self.batched

    def verdicts(self, request_id: str) -> dict[str, bool] | None:
        """Return the judge's verdicts so far on the request's answers: for each question to the judge, whether the answer was
        right.

        The keys are digests of the questions. None if the workflow has no judge.
        """
        return None if self._verdicts is None else dict(self._verdicts.get(request_id, {}))

    def _stages(self, cell: Cell) -> tuple[str, ...]:
        """Return the stages of the calls on the path of ``cell`` (request id, models), as far as they are known."""
        request_id, prefix = cell
        rows = [self.cells.rows[request_id, prefix[:length]] for length in range(1, len(prefix))]
        stages = [row.stage for row in rows]
        arms = [stage.name for stage in self.template.arms_after(stages)]
        coming = rows[-1].next_stage(arms) if rows else arms[0] if len(arms) == 1 else None
        return tuple(stages) if coming is None else (*stages, coming)

    def top_up(self, cell: Cell, upper_usd: float) -> bool:
        """Raise the reservation of the running job of ``cell`` to ``upper_usd`` dollars; return whether the budget allows
        it.
        """
        return self.ledger.top_up(self.running[cell], upper_usd)

    def finish(self, message: UnitFinished) -> None:
        """Book a running job's cost and write its result."""
        cell = message.job.cell
        reservation, in_flight = self.running.pop(cell), self._in_flight.pop(cell, 0)
        self._in_batches.discard(cell)
        outcome = message.outcome
        if outcome is None:
            self.fail(message.problem)  # its ledger entry stays open, since its cost is unknown
            return
        if outcome.observation is not None:
            outcome = replace(outcome, observation=replace(outcome.observation, in_flight=in_flight))
        self.settle(reservation, outcome)

    def settle(self, reservation: Reservation, outcome: UnitOutcome) -> None:
        """Book a job's cost, and write its result if it has a result that is not stored yet.

        If the budget refused the job, the run stops. A refused API key ends the run with an error, because every further call
        would fail in the same way, whichever model is called.
        """
        row = outcome.observation
        if row is None:
            self.ledger.settle_without_row(reservation, outcome.settled_usd)
            self.stop("budget", "the next call may cost more than is left of the budget")
        elif row.failure == "auth":
            self.ledger.settle_without_row(reservation, row.cost_usd)
            self.fail(self._auth_error(row.model))
        else:
            self._write(reservation, row, outcome)

    def _write(self, reservation: Reservation, row: Observation, outcome: UnitOutcome) -> None:
        if (row.request_id, row.prefix) in self.cells.rows:  # executed again, since there was no checkpoint
            self.ledger.settle_without_row(reservation, outcome.settled_usd, row.calls)
        else:
            row = self._marked(row)
            # The store comes first: a row that it refuses must not count as executed here.
            paid_usd, judgement, shapes = outcome.paid_usd, outcome.judgement, outcome.shapes
            self.ledger.settle(reservation, row, outcome.checkpoint, paid_usd=paid_usd, judgement=judgement, shapes=shapes)
            self._note_verdict(row.request_id, outcome.judgement)
            self.cells.add(row)
            self._note_label(row)
        self.executed += 1
        self.calls += row.calls
        if row.failure is not None:
            self.failures[row.failure] += 1

    def _marked(self, row: Observation) -> Observation:
        """Return the result with the sampler's name, and with the round and the probability with which the sampler proposed its
        path.

        Also set the signal of a failed result, and whether the result follows an answer that ended the request.
        """
        cell = row.request_id, row.prefix
        purchase = self._purchases.pop(cell, Purchase())
        is_continued = any(self.cells.passed_before(cell))
        return replace(
            with_error(row, self.signals), is_continued=is_continued, sampler=self._sampler, round=purchase.round,
            probability=purchase.probability,
        )  # fmt: skip

    def _note_verdict(self, request_id: str, judgement: Judgement | None) -> None:
        """Remember a judge's verdict, so that the judge is not called again for an equal later answer to the request.

        If the budget did not allow the judge's call, stop the run; the next run begins by judging the results without a score.
        """
        if judgement is None or self._verdicts is None:
            return
        if judgement.correct is not None:
            self._verdicts.setdefault(request_id, {})[judgement.asked] = judgement.correct
        elif judgement.is_refused:
            self.stop("budget", "the judge's next call may cost more than is left of the budget")

    def _note_label(self, row: Observation) -> None:
        """End the run with an error if the workflow's signal has too many different values. The result stays in the store."""
        try:
            self._labels.add(row.signal, row.request_id)
        except WorkflowError as error:
            self.fail(error)

    def _auth_error(self, model: str) -> ConfigError:
        variable = self.catalog[model].api_key_env
        remedy = f"check the environment variable {variable}" if variable else "check its credentials"
        return ConfigError(f"model {model!r}: the provider refused the key: {remedy}", code="key-refused")

    # -- reporting ---------------------------------------------------------------------------------------------

    def progress(self) -> Progress:
        """Return a progress report of the run."""
        coverage, limits = self.cells.coverage, self.ledger.limits
        return Progress(
            executed=self.executed,
            failures=dict(self.failures),
            coverage=coverage.fraction,
            target=limits.coverage,
            spent_usd=coverage.spent_usd,
            budget_usd=limits.budget_usd,
            committed_usd=self.ledger.committed_usd,
            reserved_usd=self.ledger.reserved_usd,
            calls=self.calls,
            in_flight=len(self.running),
            interval=self.cells.interval(),
            is_draining=self.stopped_by == "interrupted" and bool(self.running),
        )
