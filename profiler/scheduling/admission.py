"""Chooses the jobs that may start now: those that a sequential run would execute too, whatever the results of earlier jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vinelm.profiler.execution.job import Job
from vinelm.profiler.scheduling.coverage import Coverage
from vinelm.profiler.scheduling.observed_cells import AnswersOfToday, FirstRows
from vinelm.profiler.scheduling.request_paths import ActivePath, ActivePaths
from vinelm.profiler.scheduling.run_state import Purchase, RunState
from vinelm.profiler.scheduling.threads import TopUpRequest
from vinelm.rows.observation import Cell, Observation

MARGIN = 8.0
"""A job is assumed to cost at most this many times its first reservation, since a reservation may be raised."""


class Admission:
    """Reserves money for jobs to start, and answers the requests of running jobs for a higher reservation.

    There are never more running jobs than workers. A job that waits for an answer keeps its worker. The first job in the order
    of the paths is always running and always gets an answer, so no deadlock occurs.

    Args:
        state: the run's state, with the ledger.
        paths: the paths in progress.
        workers: the maximum number of jobs that run at a time.

    Attributes:
        waiting: the requests for higher reservations (top-ups) that are not decided yet.
        decided: the decided top-up requests, whose answers :meth:`answer` sends.
    """

    def __init__(self, state: RunState, paths: ActivePaths, workers: int) -> None:
        self.waiting: list[TopUpRequest] = []
        self.decided: list[tuple[TopUpRequest, bool]] = []
        self._state, self._paths, self._workers = state, paths, workers

    def jobs(self) -> list[Job]:
        """Reserve money for the jobs to start, and return these jobs; empty once the run has stopped."""
        if self._state.stopped_by is None:
            free = self._workers - len(self._state.running)
            return _Scan(self._state, self._paths, self, free).jobs()
        # The units in flight wait for these answers, and no further unit starts that could need the money first.
        self.decided += [(one, self._state.top_up(one.cell, one.upper_usd)) for one in self.waiting]
        self.waiting.clear()
        return []

    def answer(self) -> None:
        """Tell the waiting jobs whether the higher reservations that they requested (top-ups) are granted.

        Only decided requests are answered. Called once the raised reservations are durable, because a job makes its model calls
        as soon as it gets the answer.
        """
        for request, is_granted in self.decided:
            request.answer(is_granted)
        self.decided.clear()

    def refuse_all(self) -> None:
        """Refuse all requests for a higher reservation, because the run is abandoned.

        This includes requests whose answer is decided but not sent yet.
        """
        for request in (*self.waiting, *(one for one, _ in self.decided)):
            request.answer(False)
        self.waiting.clear()
        self.decided.clear()


class _Scan:
    """Finds the jobs to start by going once through the paths in progress, in order.

    At most ``free`` jobs are found, the number of idle workers.
    """

    def __init__(self, state: RunState, paths: ActivePaths, requests: Admission, free: int) -> None:
        self._state, self._paths, self._cells = state, paths, state.cells
        self._rule = state.template.stop
        self._target = state.ledger.limits.coverage
        self._requests = requests
        self._waiting = {request.cell: request for request in requests.waiting}
        self._free = free
        self._earlier: set[Cell] = set()  # uncommitted cells that may come before the one considered
        self._earlier_usd = 0.0  # what they may cost beyond their reservations
        self._earlier_calls = 0
        self._coverage_bound = CoverageUpperBound(self._cells.coverage) if self._target is not None else None
        self._may_reach_target = False  # whether the earlier cells may reach the coverage: then no later cell is certain
        self._possibly_broken = PossiblyBroken(state.cells.first_rows, state.cells.first_answers)

    def jobs(self) -> list[Job]:
        """Reserve money for the jobs to start, and return these jobs.

        Also decides, where possible, whether running jobs get the higher reservations that they requested.
        """
        jobs: list[Job] = []
        index = 0
        # Top-up requests are considered even if no worker is free: the units that wait for an answer hold the workers.
        while (self._free > 0 or self._waiting) and (index < len(self._paths.active) or self._paths.take()):
            path = self._paths.active[index]
            index += 1
            # Paths are walked in canonical order. Everything before the current path is either known, in flight, or counted at
            # its maximum below, so a unit that starts here would also start in a run of one worker.
            length = path.next_length(self._cells.rows, self._rule)
            self._pass_executed(path)
            if length is None:
                continue
            cell = path.cell(length)
            if cell in self._waiting:
                self._answer(cell)
            elif self._is_free(cell) and self._free > 0:
                job = self._start(path, length)
                # No later unit may go before this one: the executed cells would differ from those of a run with one worker.
                if job is None:
                    self._free = 0
                    if not self._waiting:
                        break
                else:
                    jobs.append(job)
                    self._free -= 1
            self._pass_remaining(path, length)
        return jobs

    def _is_free(self, cell: Cell) -> bool:
        return cell not in self._state.running and cell not in self._earlier

    def _start(self, path: ActivePath, length: int) -> Job | None:
        ledger = self._state.ledger
        upper_usd, upper_calls = self._upper(path, length)
        cell, is_timed = path.cell(length), path.is_timed
        replaced_usd = ledger.replaceable.get(cell, 0.0) if self._state.is_batched(cell, is_timed=is_timed) else 0.0
        extra_usd = upper_usd - replaced_usd
        if replaced_usd and extra_usd <= 0:  # an earlier run has reserved or paid for it
            extra_usd = -math.inf
        # The ledger counts what is reserved. Earlier cells that have not started are added at their bounds: they are first in
        # order, and this unit must not take their money.
        refusal = ledger.refusal(self._earlier_usd + extra_usd, self._earlier_calls + upper_calls)
        if refusal is not None:
            # Final only if no earlier cell is open: an earlier unit may settle below its bound and leave enough.
            if not self._earlier:
                self._state.stop("budget", ledger.refusal(extra_usd, upper_calls) or refusal)
            return None
        # Money is not the only thing that may end the run before this unit: an earlier cell may reach the coverage, or show
        # that a stage is broken. The unit then waits until these cells are known.
        if self._earlier and self._may_stop_before():
            return None
        return self._state.start(cell, upper_usd, upper_calls, Purchase(path.round, path.probability, is_timed))

    def _may_stop_before(self) -> bool:
        """Return whether calls that precede the current one may end the run.

        They may do so by reaching the coverage limit, by showing that a stage is broken, or by showing that no answer is right.
        """
        if self._possibly_broken.may_stop:
            return True
        if self._coverage_bound is not None and self._target is not None and not self._may_reach_target:
            self._may_reach_target = self._coverage_bound.most >= self._target
        return self._may_reach_target

    def _answer(self, cell: Cell) -> None:
        """Decide whether the running job of ``cell`` gets the higher reservation that it requested.

        Does nothing if earlier jobs, which may turn out cheaper, could still change the decision.
        """
        request = self._waiting.pop(cell)
        extra_usd = max(request.upper_usd - self._state.running[cell].upper_usd, 0.0)
        # Neither granted nor refused yet: once earlier units settle below their bounds there may be room.
        if self._earlier and self._state.ledger.refusal(self._earlier_usd + extra_usd) is not None:
            return
        self._requests.waiting.remove(request)
        self._requests.decided.append((request, self._state.top_up(cell, request.upper_usd)))

    def _upper(self, path: ActivePath, length: int) -> tuple[float, int]:
        """Return the maximum cost in dollars and the maximum number of model calls of a job.

        The job executes call number ``length`` of the path, from 1. Both are maxima over all possible stages, and include
        earlier calls whose state is not stored, since the job executes them again.
        """
        bound, usd, calls = self._cells.price_bounds.of(path.number), 0.0, 0
        for k in range(length, 0, -1):
            if k < length and (k > len(path.models) or path.cell(k) not in self._cells.without_state):
                break  # the unit resumes here; earlier invocations are not executed again
            possible = path.possible(k)
            usd += max(bound.usd(stage, model) for stage, model in possible)
            calls += max(bound.calls(stage) for stage, _ in possible)
        return usd, calls

    # -- cells that may come before the next path --------------------------------------------------------------

    def _pass_executed(self, path: ActivePath) -> None:
        """Count the path's results that are stored but not committed yet, with their real costs, since they may end the run.

        Results are committed in the order of the paths. Only then does the run check them against its limits.
        """
        for length in range(path.committed + 1, path.resolve(self._cells.rows, self._rule) + 1):
            cell = path.cell(length)
            row = self._cells.rows.get(cell)
            if row is None:
                return
            if cell not in self._cells.committed and cell not in self._earlier:
                self._earlier.add(cell)
                self._possibly_broken.pass_cell(row.stage, row, path.request_id)
                if self._coverage_bound is not None:
                    paid_usd = row.cost_usd + row.tool_cost_usd
                    visits = ((row.stage, row.model),)
                    self._coverage_bound.may_go_on |= path.goes_on
                    self._coverage_bound.add(
                        path.request_id, length, visits, paid_usd,
                        is_open=self._cells.is_reached(cell), is_continued=row.is_continued,
                    )  # fmt: skip
            if path.ends_at(row, self._rule):
                return

    def _pass_remaining(self, path: ActivePath, first: int) -> None:
        """Note the path's calls without a result, from call number ``first`` on, because they precede later jobs.

        Before a later job starts, enough money must be left for the maximum cost of each of these calls. Their results may also
        end the run before that job.
        """
        is_continued = path.goes_on and self._cells.is_continued(path.cell(first))
        if self._coverage_bound is not None:
            self._coverage_bound.may_go_on |= path.goes_on
        for length in range(first, path.longest + 1):
            cell = path.cell(length) if length <= len(path.models) else None
            # Paths share prefixes: a cell that an earlier path has is counted once.
            if cell in self._earlier:
                continue
            if cell is not None:
                self._earlier.add(cell)
            visits = path.possible(length)
            for stage in dict.fromkeys(stage for stage, _ in visits):
                self._possibly_broken.pass_cell(stage, None, path.request_id)
            reservation = None if cell is None else self._state.running.get(cell)
            upper_usd, upper_calls = self._upper(path, length)
            if reservation is None:
                self._earlier_usd += upper_usd
                self._earlier_calls += upper_calls
            # The ledger has the reservation of a unit in flight; the rest of its margin, less the raises so far, may come on
            # top.
            raised_usd = 0.0 if reservation is None else reservation.upper_usd - upper_usd
            # The margin is left out for batches: with it, few units would be certain near a budget, and each wave takes hours.
            margin = MARGIN if path.is_timed or not self._state.batched else 1.0
            self._earlier_usd += max((margin - 1) * upper_usd - raised_usd, 0.0)
            if self._coverage_bound is not None:
                reserved_usd = upper_usd if reservation is None else reservation.upper_usd
                is_open = cell is not None and self._cells.is_reached(cell)
                self._coverage_bound.add(
                    path.request_id, length, visits, reserved_usd, is_open=is_open, is_continued=is_continued
                )


class PossiblyBroken:
    """Tracks whether calls that are not committed yet may end the run, because a stage is broken or no answer is right.

    Attributes:
        may_stop: whether the calls counted so far may end the run. If so, later calls might never be made in a sequential run.
    """

    def __init__(self, first_rows: FirstRows, answers: AnswersOfToday) -> None:
        self._failed, self._after = first_rows.failing(), first_rows.after
        self._answers, self._asked = answers, set[str]()
        self._is_read = answers.is_settled
        self.may_stop = False

    def pass_cell(self, stage: str, row: Observation | None, request_id: str) -> None:
        """Take the next call into account. Calls must be passed in the order of the paths.

        ``row`` is the result of the call; None if the call is not executed yet.
        """
        self._is_read = self._is_read or (row is not None and bool(row.success))
        if not self._is_read and request_id not in self._answers.wrong:
            self._asked.add(request_id)
            self.may_stop = self.may_stop or not self._answers.may_be_all(len(self._asked))
        if stage not in self._failed:
            return
        if row is not None and row.failure is None:
            del self._failed[stage]
            return
        # A cell without a row, and any failure, counts as failing alike: at worst a unit starts later than it could.
        self._failed[stage] += 1
        self.may_stop = self.may_stop or self._failed[stage] >= self._after


class CoverageUpperBound:
    """An upper bound on the coverage, whatever the outcomes of the calls that are given to :meth:`add`.

    These calls are running or may still be executed; the bound holds whichever of them are executed. It combines an upper bound
    of the cost so far with a lower bound of the remaining cost. For the lower bound, each of these calls is assumed to be free
    and to end its request. A call with an unknown stage counts for every possible stage.

    Args:
        coverage: the coverage of the executed calls.

    Attributes:
        may_go_on: whether some of these calls may follow an answer that passed the workflow's own check. The costs of such
            calls do not count in the denominator of the coverage. It is unknown which calls these are. So the denominator then
            leaves out the costs of all calls given to :meth:`add`.
    """

    def __init__(self, coverage: Coverage) -> None:
        self.may_go_on = False
        self._coverage = coverage
        self._totals = coverage.totals.copy()
        self._unopened = coverage.unopened.copy()
        self._begun: set[str] = set()
        self._upper_usd = 0.0
        self._continued_usd, self._n_continued = coverage.continued_usd, coverage.n_continued

    def add(
        self,
        request_id: str,
        length: int,
        visits: Sequence[tuple[str, str]],
        upper_usd: float,
        *,
        is_open: bool,
        is_continued: bool = False,
    ) -> None:
        """Add a call that may be executed, at a cost of at most ``upper_usd``.

        Args:
            request_id: the call's request.
            length: the number of models in its path.
            visits: the possible (stage, model) pairs of the call.
            upper_usd: its maximum cost in dollars.
            is_open: True if the results so far prove that the request reaches the call.
            is_continued: True if the results so far prove that the request ends before the call; the cost of such calls is
                summed separately.
        """
        if is_continued:
            self._continued_usd += upper_usd
            self._n_continued += 1
            return
        slots = [self._coverage.kinds.slots[visit] for visit in visits]
        for slot in slots:
            self._totals.add(length - 1, slot, 0, 0.0)
        if is_open and length == 1 and not self._coverage.is_known(request_id):
            self._begun.add(request_id)  # the request's other open cells have a price of at least zero
        elif is_open:
            self._unopened[length - 1, slots[0]] -= 1
        self._upper_usd += upper_usd

    @property
    def most(self) -> float:
        """The upper bound on the coverage; 1.0 if unknown."""
        extra, continued, certain = self._upper_usd, self._continued_usd, float(self._totals.paid.sum())
        is_free = self._coverage.is_free
        # An upper bound of a fraction: the numerator takes the most that may be paid, the denominator the least that may
        # remain.
        if is_free and (extra > 0 or continued > 0):
            return 1.0  # the first dollar decides whether coverage is measured in dollars or cells
        if is_free:
            extra, continued, certain = 0.0, float(self._n_continued), float(self._coverage.counts.sum())
        totals = self._totals.priced(is_free=is_free)
        paid = float(totals.paid.sum()) + extra
        unknown = self._coverage.unknown - len(self._begun)
        rest = float(totals.rest(self._unopened, unknown, is_least=bool(self._begun)))
        total = (certain if self.may_go_on else paid) + rest
        return min((paid + continued) / total, 1.0) if total > 0 else float(paid + continued > 0)
