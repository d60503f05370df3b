"""Commits rows in the order of the request paths, whenever they were written, and checks the limits there.

See docs/architecture.md#invariants.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from vinelm.errors import WorkflowError
from vinelm.profiler.scheduling.request_paths import ActivePath, ActivePaths
from vinelm.profiler.scheduling.run_state import RunState
from vinelm.rows.observation import Cell, Observation
from vinelm.signals.classes import answer_classes


class CanonicalCommit:
    """Stops the run where a run of one unit at a time would stop."""

    def __init__(self, state: RunState, paths: ActivePaths) -> None:
        self._state, self._paths = state, paths
        self._observations: dict[Cell, Observation] = {}  # what the sampler is shown, in order
        self._classes: dict[Cell, int | None] = {}
        self._sizes: Counter[str] = Counter()  # rows by request when its classes were computed

    def advance(self) -> None:
        """Commit everything up to the first cell without a row; begin the sampler's next round when one is done."""
        paths = self._paths
        while self._state.stopped_by is None:
            if paths.active or paths.take():
                if not self._commit_path(paths.active[0]):
                    return
                paths.active.pop(0)
            elif not self._next_round():
                self._state.stop("sampler")

    def _next_round(self) -> bool:
        """Begin the sampler's next round; False if it proposes nothing more."""
        try:
            return self._paths.next_round(self._classified())
        except WorkflowError as error:  # of agree: the rows of the units that just ended are kept
            self._state.fail(error)
            return True

    def _classified(self) -> tuple[Observation, ...]:
        """The sampler's view: the committed rows in order, with classes among these rows alone."""
        signals, rows = self._state.signals, self._observations
        if signals is None or not signals.answer:
            return tuple(rows.values())
        sizes = Counter(request_id for request_id, _ in rows)
        # Only requests with new rows are compared again: the comparison is code of the workflow and may take long.
        grown = {request_id for request_id, size in sizes.items() if self._sizes.get(request_id) != size}
        self._classes |= answer_classes((row for row in rows.values() if row.request_id in grown), signals).of
        self._sizes = sizes
        return tuple(replace(row, answer_class=self._classes.get(cell)) for cell, row in rows.items())

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
        # Before the path's own cells: the bound of the next block is copied here, and may have learned from whole paths alone.
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
            if path.ends_at(row, rule):
                break
        return True
