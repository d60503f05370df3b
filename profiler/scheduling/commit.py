"""Commits rows in the order of the request paths, whenever they were written, and checks the limits there.

See docs/architecture.md#invariants.
"""

from __future__ import annotations

from vinelm.observation import Observation
from vinelm.profiler.execution.job import Cell
from vinelm.profiler.scheduling.active_path import ActivePath
from vinelm.profiler.scheduling.request_paths import ActivePaths
from vinelm.profiler.scheduling.run_state import RunState


class CanonicalCommit:
    """Stops the run where a run of one unit at a time would stop."""

    def __init__(self, state: RunState, paths: ActivePaths) -> None:
        self._state, self._paths = state, paths
        self._observations: dict[Cell, Observation] = {}  # what the sampler is shown, in order

    def advance(self) -> None:
        """Commit everything up to the first cell without a row; begin the sampler's next round when one is done."""
        paths = self._paths
        while self._state.stopped_by is None:
            if paths.active or paths.take():
                if not self._commit_path(paths.active[0]):
                    return
                paths.active.pop(0)
            elif not paths.next_round(tuple(self._observations.values())):
                self._state.stop("sampler")

    def stop_if_done(self) -> bool:
        """Stop the run if its coverage is reached or every reached cell is executed; returns whether it did."""
        coverage, target = self._state.cells.coverage, self._state.ledger.limits.coverage
        is_complete = coverage.is_complete
        is_done = is_complete or (target is not None and coverage.fraction >= target)
        if is_done:
            self._state.stop("complete" if is_complete else "coverage")
        return is_done

    def _stop_if_broken(self, row: Observation) -> bool:
        """Stop the run if its rows show that a stage is broken; returns whether it did."""
        message = self._state.cells.first_rows.add(row)
        if message is not None:
            self._state.stop("broken", message)
        return message is not None

    def _commit_path(self, path: ActivePath) -> bool:
        """Commit the path's cells; returns False at a cell without a row, and where the run stops."""
        cells, rule = self._state.cells, self._state.template.stop
        cells.price_bounds.reached(path.number)
        while path.committed < path.resolve(cells.rows, rule):
            cell = path.cell(path.committed + 1)
            row = cells.rows.get(cell)
            if row is None:
                return False
            self._observations[cell] = row
            path.committed += 1
            if cells.commit(cell) and (self._stop_if_broken(row) or self.stop_if_done()):
                return False
            if row.ended(rule):
                break
        return True
