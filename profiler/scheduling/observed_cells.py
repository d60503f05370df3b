"""Keeps the results of a store, the cost of the committed results, and checks for broken stages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from vinelm.catalog import Catalog
from vinelm.profiler.execution.ledger import PriceBound
from vinelm.profiler.execution.outcome import beyond_turns
from vinelm.profiler.scheduling.coverage import Coverage
from vinelm.profiler.scheduling.request_paths import DOUBLINGS, PriceBounds
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template

BROKEN_AFTER = 8
"""How many first rows of a stage must fail in the same way."""
CUT_OFF_AFTER = 4
"""How many requests must continue beyond the template's end."""
NONE_RIGHT_AFTER = 10
"""How many requests the current setup must have answered, none of them right."""
_REFIT = 1.05  # the interval is recomputed each time the committed cells have grown by this factor


class ObservedCells:
    """The store's results, keyed by request id and models.

    A result is committed, that is, counted, in the order of the request paths, which need not be the order of writing. Only
    committed results change the coverage and the price bounds, which therefore do not depend on timing.

    Args:
        rows: the store's results, in the order in which they were written.
        n_older: how many of these results existed when the run first began; they are committed at once. The other results were
            executed by the same run before it was killed; each is committed when the resumed run reaches it.
        request_ids: the requests of the run; the coverage ignores results of other requests.
        template: a template bound to the catalog's models.
        catalog: the models.
        broken_after: see :class:`FirstRows`.
        stops_cut_off: see :class:`CutOff`.
        states: the calls after which the state is stored.
        doublings: see :class:`PriceBounds`.

    Attributes:
        without_state: the calls after which no state is stored (results of older versions or imported results). They must be
            executed again before their requests can continue.
    """

    def __init__(
        self,
        rows: Sequence[Observation],
        n_older: int,
        request_ids: Collection[str],
        template: Template,
        catalog: Catalog,
        *,
        broken_after: int | None = None,
        stops_cut_off: bool = False,
        states: Collection[Cell] = (),
        doublings: int = DOUBLINGS,
    ) -> None:
        self._request_ids = request_ids
        self._rule = template.stop
        self.rows: dict[Cell, Observation] = {}
        self.without_state: set[Cell] = {(row.request_id, row.prefix) for row in rows} - set(states)
        self.committed: set[Cell] = set()
        self.coverage = Coverage(template, len(request_ids))
        self._interval: tuple[float, float] = (0.0, 1.0)
        self._interval_at = 0
        for row in rows:
            self.add(row)
        self.first_rows = FirstRows(template, broken_after)
        self.first_answers = AnswersOfToday(template, None if broken_after is None else NONE_RIGHT_AFTER)
        self.cut_off = CutOff(CUT_OFF_AFTER if stops_cut_off else None)
        for row in rows[:n_older]:
            self.cut_off.add(row)
            self.first_rows.add(row)
            self.first_answers.add(row)
        older = [row for row in rows[:n_older] if row.request_id in request_ids]
        for row in sorted(older, key=lambda row: row.depth):
            self.coverage.add(row)
            self.committed.add((row.request_id, row.prefix))
        bound = PriceBound(catalog)
        for row in older:
            bound.add(row)
        self.price_bounds = PriceBounds(bound, doublings)

    def add(self, row: Observation) -> None:
        """Add a result that the store contains, without committing it."""
        self.rows[row.request_id, row.prefix] = row

    def commit(self, cell: Cell) -> bool:
        """Commit the result of the call ``cell`` (request id, models); return False if it is already committed."""
        if cell in self.committed:
            return False
        self.committed.add(cell)
        row = self.rows[cell]
        self.coverage.add(row)
        self.price_bounds.learn(row)
        return True

    def commit_all(self) -> None:
        """Commit every result of the run's requests."""
        for cell in sorted(self.rows, key=lambda cell: len(cell[1])):
            if cell[0] in self._request_ids:
                self.commit(cell)

    @property
    def has_gap(self) -> bool:
        """Whether some results of the run's requests are not counted yet, because the result of an earlier call is missing."""
        return any(cell not in self.committed for cell in self.rows if cell[0] in self._request_ids)

    def is_reached(self, cell: Cell) -> bool:
        """Return whether the request reaches the call ``cell``, according to the stop rule; always True for a first call.

        Otherwise, the result of the call before it must be committed, and no earlier call may have ended the request.
        """
        request_id, prefix = cell
        parent = (request_id, prefix[:-1])
        return len(prefix) == 1 or (parent in self.committed and not self.is_continued(cell))

    def is_continued(self, cell: Cell) -> bool:
        """Return whether the stop rule had ended the request before the call ``cell``, according to the results of earlier
        calls.
        """
        return any(self.passed_before(cell))

    def passed_before(self, cell: Cell) -> tuple[bool, ...]:
        """Return, for each call before ``cell``, whether the stop rule ends the request at this call.

        A profile may continue a request past such an end. The result is empty if the rule ends it at none of these calls.
        """
        request_id, prefix = cell
        rows = [self.rows.get((request_id, prefix[:length])) for length in range(1, len(prefix))]
        passed = tuple(row is not None and row.ended(self._rule) for row in rows)
        return passed if any(passed) else ()

    def interval(self) -> tuple[float, float]:
        """Return bounds that contain the coverage with probability 0.9; recomputed after every 5 % more committed calls."""
        if len(self.committed) >= self._interval_at * _REFIT or self.coverage.is_complete:
            self._interval, self._interval_at = self.coverage.interval(), len(self.committed)
        low, high = self._interval
        return min(low, self.coverage.fraction), max(high, self.coverage.fraction)


class FirstRows:
    """The first results of each stage in commit order, used to detect a broken stage.

    A stage is broken if its first ``after`` results all fail in the same way, with more than one model if the stage has
    several. A model that always fails, while other models do not, is no reason to stop.

    Args:
        template: a template bound to the catalog's models.
        after: the number of results that must fail in the same way; None disables the check.
    """

    def __init__(self, template: Template, after: int | None = BROKEN_AFTER) -> None:
        self.after = math.inf if after is None else after
        self._models = {stage.name: len(stage.models or ()) for stage in template.stages}
        self._failed: dict[str, list[Observation] | None] = {}  # None: a row succeeded, or failed in another way

    def add(self, row: Observation) -> str | None:
        """Add a committed result; return a message if its stage is now known to be broken, otherwise None."""
        self._note(row)
        return self._broken(row.stage)

    def broken_cells(self) -> list[Cell]:
        """Return the (request id, models) of the calls of broken stages."""
        stages = [stage for stage in self._failed if self._broken(stage) is not None]
        return [(row.request_id, row.prefix) for stage in stages for row in self._rows(stage)]

    def _note(self, row: Observation) -> None:
        failed = self._failed.setdefault(row.stage, [])
        if failed is None:
            return
        if row.failure is None or (failed and _kind(row) != _kind(failed[0])):
            self._failed[row.stage] = None
        else:
            failed.append(row)

    def _broken(self, stage: str) -> str | None:
        rows = self._rows(stage)
        models = {row.model for row in rows}
        if len(rows) < self.after or len(models) < min(2, self._models.get(stage, 1)):
            return None
        usd = math.fsum(row.cost_usd + row.tool_cost_usd for row in rows)
        return (
            f"stage {stage!r} is broken: all of its first {len(rows)} rows failed alike, whatever the model "
            f"({_kind(rows[0])}), which cost ${usd:.4f}"
        )

    def failing(self) -> dict[str, int]:
        """Return, for each stage whose results so far have all failed in the same way, the number of its results.

        Only such a stage may still be found broken. A stage without results has the number 0. Empty if the check is disabled.
        """
        may_break = (
            [stage for stage in self._models if self._failed.get(stage, []) is not None] if self.after < math.inf else []
        )
        return {stage: len(self._rows(stage)) for stage in may_break}

    def _rows(self, stage: str) -> list[Observation]:
        return self._failed.get(stage) or []


class AnswersOfToday:
    """Checks whether any of the first answers is right, to detect that answers are read wrongly.

    These are answers of the current setup or, if it is unknown, of any model.

    A working application is right at least sometimes. If it never is, the answer is read from the wrong place or compared with
    the wrong label, and all results are useless. A right answer of any model passes the check.

    Args:
        template: a template bound to the catalog's models.
        after: the check fails if this number of requests is answered and no answer is right; None disables the check.

    Attributes:
        wrong: the calls of the wrong answers, by request.
    """

    def __init__(self, template: Template, after: int | None = NONE_RIGHT_AFTER) -> None:
        self._template, self._after = template, after
        self._today = template.today or {}
        self.wrong: dict[str, Cell] = {}
        self.is_settled = after is None

    def add(self, row: Observation) -> str | None:
        """Add a committed result; return a message if there are enough answers and none is right, otherwise None."""
        if self.is_settled or row.failure is not None or row.success is None:
            return None
        if row.success:
            self.is_settled = True
        elif self._is_answer(row):
            self.wrong.setdefault(row.request_id, (row.request_id, row.prefix))
        return self.message

    @property
    def message(self) -> str | None:
        """A line that reports that no answer is right; None if an answer is right, or until enough answers are wrong."""
        if self.is_settled or self.may_be_all(0):
            return None
        whose = "of what runs today, and none of another model either" if self._today else "of any model"
        return f"none of the first {len(self.wrong)} answers is right {whose}"

    def may_be_all(self, more: int) -> bool:
        """Return whether ``more`` further wrong answers would still be too few for the check to fail.

        The check fails once ``after`` requests have a wrong answer and no answer is right. True if the check is disabled.
        """
        return self._after is None or len(self.wrong) + more < self._after

    def _is_answer(self, row: Observation) -> bool:
        has_ended = row.ended(self._template.stop) or row.depth == self._template.depth
        is_todays = not self._today or (
            self._today.get(row.stage) == row.model and set(row.prefix) <= set(self._today.values())
        )
        return has_ended and is_todays and self._template.stage(row.stage).answerable


class CutOff:
    """Detects a template that is too short, from the first requests that continue beyond its end.

    The answers of such requests are unfinished, whichever models are used.

    Args:
        after: the number of requests that must be cut off. The number must also be at least a quarter of those that ended
            normally. None disables the check.

    Attributes:
        cells: the calls at the template's end after which requests continue, as (request id, models).
        message: what is wrong, once enough requests are cut off; otherwise None.
    """

    def __init__(self, after: int | None = CUT_OFF_AFTER) -> None:
        self._after = after
        self._ended: set[str] = set()
        self.cells: list[Cell] = []
        self.message: str | None = None

    def add(self, row: Observation) -> str | None:
        """Add a committed result, and return :attr:`message`.

        The message stays None until enough requests continue beyond the end of the template.
        """
        is_beyond = beyond_turns(row) is not None  # fails if the template has other branches there
        if row.failure is not None and not is_beyond:
            return self.message
        if row.stopped:
            self._ended.add(row.request_id)
        elif row.detail is not None:
            self.cells.append((row.request_id, row.prefix))
            requests = {request_id for request_id, _ in self.cells}
            if self._after is not None and len(requests) >= self._after and 4 * len(requests) >= len(self._ended):
                self.message = f"{len(requests)} requests go on where the template ends: {row.detail}"
        return self.message

    def outgrown(self, template: Template, rows: Mapping[Cell, Observation]) -> list[Cell]:
        """Return the calls in :attr:`cells` after which a request may continue under ``template``.

        Calls are also returned if their result, or that of an earlier call on their path, is missing.

        Args:
            template: The current template, which may allow longer requests than the template of the results.
            rows: All results, keyed by (request id, models).
        """
        found = []
        for request_id, prefix in self.cells:
            cells = [(request_id, prefix[:length]) for length in range(1, len(prefix) + 1)]
            path = [rows[cell] for cell in cells if cell in rows]
            then = template.choices_after([row.stage for row in path]) if len(path) == len(prefix) else None
            # A failed call names the stage that its template did not allow; other stages may follow under any template.
            more = beyond_turns(path[-1]) if then is not None and path[-1].failure is not None else None
            if then is None or (more in then if more is not None else then != frozenset()):
                found.append((request_id, prefix))
        return found


def only_failures(rows: Sequence[Observation]) -> str | None:
    """Return a line with the most frequent failure if every result failed; None if a result succeeded, or without results."""
    if not rows or any(row.failure is None for row in rows):
        return None
    (kind, _), *others = Counter(map(_kind, rows)).most_common()
    usd = math.fsum(row.cost_usd + row.tool_cost_usd for row in rows)
    how = f"most often by {kind}" if others else kind
    what = f"all {len(rows):,} rows failed" if len(rows) > 1 else "the only row failed"
    return f"{what} ({how}), which cost ${usd:.4f}"


def _kind(row: Observation) -> str:
    """Return the key by which failures are grouped: exception and source line for application code, failure kind for calls."""
    if row.failure not in ("tool", "state", "crash", "unexpected_arm"):
        return str(row.failure)  # the text contains the model's name
    detail = (row.detail or "").partition(":")[0] if row.failure == "crash" else row.detail or ""  # not its last output
    return f"{row.failure}: {detail}" if detail else row.failure
