"""Simulates one future run with an outcome model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vinelm.profiler.dry_run.outcome_model import OutcomeModel, Unit
from vinelm.profiler.dry_run.throughput import Workload
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.profiler.scheduling.coverage import coverage_of
from vinelm.profiler.scheduling.request_paths import ActivePath
from vinelm.requests.protocols import RequestPath, Sampler
from vinelm.rows.observation import Cell, Observation

_IDLE = 20_000  # paths in a row without a new cell, after which an endless sampler has nothing left


class Proposals:
    """The paths that a sampler proposes, round by round, shared by many simulations.

    Each round is proposed once, for the first simulation that reaches it. For a sampler that ignores the observations, this is
    exact. An adaptive sampler would propose other paths in each simulation. That would take seconds for each simulation, and
    the forecast cost would hardly change.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._kept: list[tuple[list[RequestPath], Iterator[RequestPath]]] = []

    @property
    def rounds(self) -> int:
        """The number of rounds proposed so far that have at least one path."""
        return sum(bool(paths) for paths, _ in self._kept)

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterator[RequestPath]:
        """Yield the paths of the round ``round_``, from 0.

        The first call for a round must come after calls for all earlier rounds. ``observations`` matter only in the first call
        for a round.
        """
        if round_ == len(self._kept):
            self._kept.append(([], iter(self._sampler.propose(round_, observations))))
        paths, more = self._kept[round_]
        index = 0
        while True:
            if index == len(paths):
                path = next(more, None)
                if path is None:
                    return
                paths.append(path)
            yield paths[index]
            index += 1


class SimulatedRun:
    """A run simulated with an outcome model, to its end, or until its length can be extrapolated from the simulated part.

    The attribute ``scale`` is the factor by which the whole run is larger than its simulated part, for example in dollars.

    Args:
        model: draws the outcomes.
        rows: the store's results, from which the run continues.
        n_requests: the number of requests to sample from.
        limits: the limits of the run.
        committed_usd: dollars booked in the store's ledger.
        longest: the number of new calls after which the run is extrapolated.
    """

    def __init__(
        self,
        model: OutcomeModel,
        rows: Sequence[Observation],
        n_requests: int,
        limits: ProfileLimits,
        committed_usd: float,
        *,
        longest: int,
    ) -> None:
        self.model, self._limits = model, limits
        self.calls: Counter[str] = Counter()
        self.new_cells = 0
        self.requests: set[str] = set()
        self.cost_usd = 0.0
        self.load = Workload()
        self.scale = self.cells_scale = 1.0
        self.stopped_by = ""
        self._longest = longest
        self._rule = model.template.stop
        self._known: dict[Cell, Observation] = {(row.request_id, row.prefix): row for row in rows}
        self._seen: dict[Cell, Observation] = {}
        self._coverage = coverage_of(rows, model.template, n_requests)
        self._committed_usd = self._paid_before_usd = committed_usd
        self._made = self._made_before = sum(row.calls for row in rows)
        self._check_at = 0
        self.coverage = self._coverage.fraction

    def run(self, proposals: Proposals) -> None:
        """Simulate round after round until the run stops."""
        self._check()
        round_ = 0
        while not self.stopped_by:
            is_empty = True
            for path in self._paths(proposals, round_):
                is_empty = False
                self._execute(path)
            round_ += 1
            if is_empty and not self.stopped_by:
                self._check()
                self.stopped_by = self.stopped_by or "sampler"
        self.coverage = self._coverage.fraction

    def _paths(self, proposals: Proposals, round_: int) -> Iterator[RequestPath]:
        """Yield the paths of a round; end early if the run must stop, for example because paths no longer lead to new calls."""
        idle = 0
        for path in proposals.propose(round_, tuple(self._seen.values())):
            before = self.new_cells
            yield path
            idle = 0 if self.new_cells > before else idle + 1
            if idle in (100, 1000, 10_000):
                self._check()
            if idle > _IDLE:
                self.stopped_by = self.stopped_by or "sampler"
            if self.stopped_by:
                return

    def _execute(self, path: RequestPath) -> None:
        active, length, is_continued = ActivePath(path, 0, self.model.template), 0, False
        ran: list[str] = []
        while length < active.resolve(self._known, self._rule):
            length += 1
            cell = active.cell(length)
            row = self._known.get(cell)
            if row is None:
                stages = dict.fromkeys(stage for stage, _ in active.possible(length))
                ran.append(self.model.stage(cell, tuple(stages)))
                row = self._draw(cell, ran, is_continued=is_continued)
                if row is None:
                    return
            else:
                ran.append(row.stage)
            self._seen[cell] = row
            if active.ends_at(row, self._rule) or self.stopped_by:
                return
            is_continued = is_continued or row.ended(self._rule)

    def _draw(self, cell: Cell, stages: Sequence[str], *, is_continued: bool) -> Observation | None:
        """Draw an outcome of the call, book its cost, and return it; None if a budget does not allow the call.

        ``stages`` are the stages that have run, including this one. ``is_continued`` is True if an earlier call has already
        ended the request, according to the stop rule.
        """
        unit = self.model.unit(cell, stages)
        limits = self._limits
        is_too_expensive = limits.budget_usd is not None and self._committed_usd + unit.cost_usd > limits.budget_usd
        if is_too_expensive or (limits.budget_calls is not None and self._made + unit.calls > limits.budget_calls):
            self.stopped_by = "budget"
            return None
        row = self._known[cell] = replace(self.model.row(cell, unit, stages[-1]), is_continued=is_continued)
        self._coverage.add(row)
        self.new_cells += 1
        self.requests.add(cell[0])
        self._pay(cell, unit)
        self._committed_usd += unit.cost_usd
        self._made += unit.calls
        if self.new_cells >= self._check_at:
            self._check()
        return row

    def _pay(self, cell: Cell, unit: Unit) -> None:
        model = cell[1][-1]
        self.calls[model] += unit.calls
        self.cost_usd += unit.cost_usd
        self.load.add(model, requests=unit.requests, tokens=unit.tokens, call_s=unit.call_s, tool_s=unit.tool_s)

    def _check(self) -> None:
        """Stop the simulation if it is complete or has reached its coverage; extrapolate it if it has become too long.

        Also sets when the next check is made: after 1 % more calls, because a check takes longer than simulating a call.
        """
        self._check_at = self.new_cells + max(self.new_cells // 100, 1)
        if self._coverage.is_complete:
            self.stopped_by = "complete"
        elif self._limits.coverage is not None and self._coverage.fraction >= self._limits.coverage:
            self.stopped_by = "coverage"
        elif self.new_cells >= self._longest and not self.stopped_by:
            self._extrapolate(self._coverage.fraction)

    def _extrapolate(self, fraction: float) -> None:
        """Set ``stopped_by``, and ``scale``, the estimated factor by which the whole run is larger than its simulated part.

        ``fraction`` is the coverage of the simulated part.
        """
        limits, totals = self._limits, self._coverage.measure()
        spent = float(totals.paid.sum()) + self._coverage.continued
        new = float(self.new_cells) if self._coverage.is_free else self.cost_usd
        before = max(spent - new, 0.0)
        goal = (limits.coverage or 1.0) / max(fraction, 1e-9)
        factors = [(goal * spent - before) / (spent - before) if spent > before else goal]
        if limits.budget_usd is not None and self.cost_usd > 0:
            factors.append(1 + (limits.budget_usd - self._committed_usd) / self.cost_usd)
        if limits.budget_calls is not None:
            factors.append(1 + (limits.budget_calls - self._made) / max(sum(self.calls.values()), 1))
        self.scale = self.cells_scale = max(min(factors), 1.0)
        self.stopped_by = ("complete" if limits.coverage is None else "coverage") if self.scale == factors[0] else "budget"
