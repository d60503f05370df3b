"""Which units may start now: those that a run of one unit at a time would come to, whatever the ones before them say."""

from __future__ import annotations

from vinelm.profiler.coverage import CoverageUpperBound
from vinelm.profiler.execution.job import Cell, Job
from vinelm.profiler.scheduling.run_state import Books
from vinelm.profiler.scheduling.threads import TopUpRequest
from vinelm.profiler.scheduling.walks import ActivePath, ActivePaths

ROOM = 8.0
"""A unit is taken to cost at most this many times its first reservation: bounds are learned, and may be raised."""


class Admission:
    """Sets money aside for units, and answers those under way that ask for more; ``asking`` are the ones without an answer.

    Never more units are open than the run has workers. One that waits for an answer keeps its place: the first in order is
    always under way and always gets one, so that nobody waits for ever.
    """

    def __init__(self, books: Books, walks: ActivePaths) -> None:
        self.asking: list[TopUpRequest] = []
        self._books, self._walks = books, walks

    def jobs(self) -> list[Job]:
        """Units to start; their money is set aside. None where the run has stopped: units under way are answered, no more."""
        if self._books.stopped_by is None:
            return _Scan(self._books, self._walks, self.asking).jobs()
        for asked in self.asking:
            asked.answer(self._books.top_up(asked.cell, asked.upper_usd))
        self.asking.clear()
        return []

    def refuse_all(self) -> None:
        """No to everybody: the run is given up."""
        for asked in self.asking:
            asked.answer(False)
        self.asking.clear()


class _Scan:
    """One look over the walks under way, in order."""

    def __init__(self, books: Books, walks: ActivePaths, asking: list[TopUpRequest]) -> None:
        self._books, self._walks, self._account = books, walks, books.account
        self._unanswered = asking
        self._asking = {asked.cell: asked for asked in asking}
        self._before: set[Cell] = set()  # cells without a row that may come before the one that is looked at
        self._before_usd = 0.0  # what they may cost, as far as it is not set aside
        self._before_calls = 0
        self._outlook = CoverageUpperBound(self._account.coverage) if books.terms.target is not None else None
        self._may_cover = False  # the outlook reaches the target: nothing further on is certain
        self._free = (books.terms.workers or 1) - len(books.running)

    def jobs(self) -> list[Job]:
        """Reserve and return them. Units that wait for money are answered where that is certain."""
        jobs: list[Job] = []
        index = 0
        while (self._free > 0 or self._asking) and (index < len(self._walks.going) or self._walks.pull()):
            going = self._walks.going[index]
            index += 1
            frontier = going.frontier(self._account.known, self._books.terms.template.stop)
            self._foresee_known(going)
            if frontier is None:
                continue
            cell = going.cell(frontier)
            if cell in self._asking:
                self._answer(cell)
            elif cell not in self._books.running and cell not in self._before and self._free > 0:
                job = self._start(going, frontier)
                if job is None:
                    self._free = 0
                    if not self._asking:
                        break
                else:
                    jobs.append(job)
                    self._free -= 1
            self._foresee(going, frontier)
        return jobs

    def _start(self, going: ActivePath, length: int) -> Job | None:
        ledger = self._books.ledger
        upper_usd, upper_calls = self._upper(going, length)
        refusal = ledger.refusal(self._before_usd + upper_usd, self._before_calls + upper_calls)
        if refusal is not None:
            if not self._before:
                self._books.stop("budget", ledger.refusal(upper_usd, upper_calls) or refusal)
            return None
        if self._before and self._is_covered_perhaps():
            return None
        return self._books.open(going.cell(length), upper_usd, upper_calls)

    def _is_covered_perhaps(self) -> bool:
        target = self._books.terms.target
        if self._outlook is not None and target is not None and not self._may_cover:
            self._may_cover = self._outlook.most >= target
        return self._may_cover

    def _answer(self, cell: Cell) -> None:
        """Yes or no where that is certain; else the units before it must be settled first."""
        asked = self._asking.pop(cell)
        extra = max(asked.upper_usd - self._books.running[cell].upper_usd, 0.0)
        if self._before and self._books.ledger.refusal(self._before_usd + extra) is not None:
            return
        self._unanswered.remove(asked)
        asked.answer(self._books.top_up(cell, asked.upper_usd))

    def _upper(self, going: ActivePath, length: int) -> tuple[float, int]:
        stage = self._books.terms.template.invocations[length - 1].name
        bound = self._account.bounds.of(going.number)
        return bound.usd(stage, going.path[length - 1]), bound.calls(stage)

    # -- what may come before --------------------------------------------------------------------------------------

    def _foresee_known(self, going: ActivePath) -> None:
        """Rows that are there and not counted yet: their price is known."""
        if self._outlook is None:
            return
        for length in range(going.counted + 1, len(going.path) + 1):
            cell = going.cell(length)
            row = self._account.known.get(cell)
            if row is None:
                return
            if cell not in self._account.counted and cell not in self._before:
                self._before.add(cell)
                self._outlook.add(cell[1], row.cost_usd + row.tool_cost_usd, is_open=self._account.is_open(cell))
            if row.ended(self._books.terms.template.stop):
                return

    def _foresee(self, going: ActivePath, frontier: int) -> None:
        """The rest of the walk, from its first cell without a row on."""
        for length in range(frontier, len(going.path) + 1):
            cell = going.cell(length)
            if cell in self._before:
                continue
            self._before.add(cell)
            reservation = self._books.running.get(cell)
            upper_usd, upper_calls = self._upper(going, length)
            if reservation is None:
                self._before_usd += upper_usd
                self._before_calls += upper_calls
            raised = 0.0 if reservation is None else reservation.upper_usd - upper_usd
            self._before_usd += max((ROOM - 1) * upper_usd - raised, 0.0)
            if self._outlook is not None:
                held = upper_usd if reservation is None else reservation.upper_usd
                self._outlook.add(cell[1], held, is_open=self._account.is_open(cell))
