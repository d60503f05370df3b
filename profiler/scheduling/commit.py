"""Rows are counted in the order of the walks, whenever they came: there the caps are looked at (DESIGN §6.3)."""

from __future__ import annotations

from vinelm.observation import Observation
from vinelm.profiler.execution.job import Cell
from vinelm.profiler.scheduling.run_state import Books
from vinelm.profiler.scheduling.walks import ActivePath, ActivePaths


class CanonicalCommit:
    """Stops the run where one unit at a time would stop."""

    def __init__(self, books: Books, walks: ActivePaths) -> None:
        self._books, self._walks = books, walks
        self._visited: dict[Cell, Observation] = {}  # what the sampler is shown, in order

    def advance(self) -> None:
        """Everything up to the first cell without a row, rounds included."""
        walks = self._walks
        while self._books.stopped_by is None:
            if walks.going or walks.pull():
                if not self._walk(walks.going[0]):
                    return
                walks.going.pop(0)
            elif not walks.next_round(tuple(self._visited.values())):
                self._books.stop("sampler")

    def stop_if_done(self) -> bool:
        """Whether the goal is reached; nothing more is started then."""
        coverage, target = self._books.account.coverage, self._books.terms.target
        is_complete = coverage.is_complete
        is_done = is_complete or (target is not None and coverage.fraction >= target)
        if is_done:
            self._books.stop("complete" if is_complete else "coverage")
        return is_done

    def _walk(self, going: ActivePath) -> bool:
        """Along it; False at a cell without a row, and where the run stops."""
        account, rule = self._books.account, self._books.terms.template.stop
        account.bounds.reached(going.number)
        while going.counted < len(going.path):
            cell = going.cell(going.counted + 1)
            row = account.known.get(cell)
            if row is None:
                return False
            self._visited[cell] = row
            going.counted += 1
            if account.count(cell) and self.stop_if_done():
                return False
            if row.ended(rule):
                break
        return True
