"""A run that is yet to come, played through once in a made-up world."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vinelm.observation import Observation
from vinelm.profiler.coverage import Coverage
from vinelm.profiler.dry_run.outcome_model import OutcomeModel, Unit, unit_of
from vinelm.profiler.dry_run.throughput import EngineRate, Workload
from vinelm.profiler.execution.job import Cell
from vinelm.profiler.samplers import RequestPath, Sampler

_IDLE = 20_000  # walks in a row that meet nothing new: an endless sampler has nothing left


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is asked for: the caps, how many units run at a time, what the engines allow, and whether prefixes are shared."""

    coverage: float | None = None
    budget_usd: float | None = None
    budget_calls: int | None = None
    workers: int = 1
    rates: Sequence[EngineRate] = ()
    checkpoints: bool = True


class Proposals:
    """A sampler's rounds for many plays. Each round is proposed once, to the first play that comes to it, and holds for all.

    Exact for samplers that propose the same whatever they are shown. An adaptive one would propose otherwise in every play,
    which takes it seconds each time; what it would buy costs much the same. ``rounds`` are those that were not empty.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._kept: list[tuple[list[RequestPath], Iterator[RequestPath]]] = []

    @property
    def rounds(self) -> int:
        """How many were proposed."""
        return sum(bool(walks) for walks, _ in self._kept)

    def walks(self, round_: int, seen: Sequence[Observation]) -> Iterator[RequestPath]:
        """That round's; rounds are asked for in order."""
        if round_ == len(self._kept):
            self._kept.append(([], iter(self._sampler.walks(round_, seen))))
        walks, more = self._kept[round_]
        at = 0
        while True:
            if at == len(walks):
                walk = next(more, None)
                if walk is None:
                    return
                walks.append(walk)
            yield walks[at]
            at += 1


class SimulatedRun:
    """One run in one world, until a cap; or until it is long enough to see where it goes (``scale`` times as far)."""

    def __init__(
        self,
        world: OutcomeModel,
        rows: Sequence[Observation],
        n_requests: int,
        wish: Wish,
        committed_usd: float,
        *,
        longest: int,
    ) -> None:
        self.world, self.wish = world, wish
        self.calls: Counter[str] = Counter()
        self.new_cells = 0
        self.cost_usd = 0.0
        self.load = Workload()
        self.scale = self.cells_scale = 1.0
        self.stopped_by = ""
        self._longest = longest
        self._rule = world.template.stop
        self._known: dict[Cell, Observation] = {(row.request_id, row.prefix): row for row in rows}
        self._seen: dict[Cell, Observation] = {}
        choices = [len(stage.models or ()) for stage in world.template.invocations]
        self._times_run = [1 if wish.checkpoints else math.prod(choices[depth + 1 :]) for depth in range(len(choices))]
        self._account = Coverage(world.template, n_requests)
        for row in sorted(rows, key=lambda row: row.depth):
            self._account.add(row)
        self._committed_usd = self._paid_before_usd = committed_usd
        self._made = self._made_before = sum(row.calls for row in rows)
        self._look_at = 0
        self.coverage = self._account.fraction
        if not wish.checkpoints:  # every cell is counted as often as it is run in all; what is paid comes off in the end
            for cell, row in self._known.items():
                self._pay(cell, unit_of(row, goes_on=not row.ended(self._rule)))

    def through(self, proposals: Proposals) -> None:
        """Round after round."""
        self._look()
        round_ = 0
        while not self.stopped_by:
            is_empty = True
            for walk in self._walks(proposals, round_):
                is_empty = False
                self._go(walk)
            round_ += 1
            if is_empty and not self.stopped_by:
                self._look()
                self.stopped_by = self.stopped_by or "sampler"
        if not self.wish.checkpoints:
            self._price_every_path()
        self.coverage = self._account.fraction

    def _walks(self, proposals: Proposals, round_: int) -> Iterator[RequestPath]:
        """The round's, as long as they lead to something."""
        idle = 0
        for walk in proposals.walks(round_, tuple(self._seen.values())):
            before = self.new_cells
            yield walk
            idle = 0 if self.new_cells > before else idle + 1
            if idle in (100, 1000, 10_000):
                self._look()
            if idle > _IDLE:
                self.stopped_by = self.stopped_by or "sampler"
            if self.stopped_by:
                return

    def _go(self, walk: RequestPath) -> None:
        for length in range(1, len(walk.path) + 1):
            cell = (walk.request_id, walk.path[:length])
            row = self._known.get(cell)
            if row is None:
                row = self._run(cell)
                if row is None:
                    return
            self._seen[cell] = row
            if row.ended(self._rule) or self.stopped_by:
                return

    def _run(self, cell: Cell) -> Observation | None:
        """Make it up; None if a cap forbids it."""
        unit = self.world.unit(cell)
        wish = self.wish
        if not wish.checkpoints:
            wish = Wish()
        is_too_dear = wish.budget_usd is not None and self._committed_usd + unit.cost_usd > wish.budget_usd
        if is_too_dear or (wish.budget_calls is not None and self._made + unit.calls > wish.budget_calls):
            self.stopped_by = "budget"
            return None
        row = self._known[cell] = self.world.row(cell, unit)
        self._account.add(row)
        self.new_cells += 1
        self._pay(cell, unit)
        self._committed_usd += unit.cost_usd
        self._made += unit.calls
        if self.new_cells >= self._look_at:
            self._look()
        return row

    def _pay(self, cell: Cell, unit: Unit) -> None:
        model, times = cell[1][-1], self._times_run[len(cell[1]) - 1]
        self.calls[model] += times * unit.calls
        self.cost_usd += times * unit.cost_usd
        self.load.add(
            model, requests=times * unit.requests, tokens=times * unit.tokens, call_s=times * unit.call_s,
            tool_s=times * unit.tool_s,
        )  # fmt: skip

    def _price_every_path(self) -> None:
        """All leaf paths from their start, less what the ledger has already, within the caps."""
        wish, whole = self.wish, self._account.naive_usd()
        left = rest = max(whole - self._paid_before_usd, 0.0)
        if wish.budget_usd is not None and self._paid_before_usd + rest > wish.budget_usd:
            left, self.stopped_by = max(wish.budget_usd - self._paid_before_usd, 0.0), "budget"
        self.scale = left / self.cost_usd if self.cost_usd else self.cells_scale
        calls = self.scale * sum(self.calls.values())
        if wish.budget_calls is not None and calls > wish.budget_calls - self._made_before:
            share = max(wish.budget_calls - self._made_before, 0) / calls
            self.scale, left, self.stopped_by = self.scale * share, left * share, "budget"
        self.cells_scale *= left / rest if rest else 1.0

    def _look(self) -> None:
        """At the coverage, which takes longer than a cell: at every hundredth more."""
        self._look_at = self.new_cells + max(self.new_cells // 100, 1)
        fraction = self._account.fraction
        if self._account.is_complete:
            self.stopped_by = "complete"
        elif self.wish.coverage is not None and fraction >= self.wish.coverage:
            self.stopped_by = "coverage"
        elif self.new_cells >= self._longest and not self.stopped_by:
            self._extrapolate(fraction)

    def _extrapolate(self, fraction: float) -> None:
        """As many times as far as it has come leads to the goal."""
        wish, tally = self.wish, self._account.in_force()
        spent = float(tally.paid.sum())
        new = self.cost_usd if self._account.tally.paid.any() and wish.checkpoints else float(self.new_cells)
        before = max(spent - new, 0.0) if wish.checkpoints else 0.0
        goal = (wish.coverage or 1.0) / max(fraction, 1e-9)
        factors = [(goal * spent - before) / (spent - before) if spent > before else goal]
        if wish.checkpoints and wish.budget_usd is not None and self.cost_usd > 0:
            factors.append(1 + (wish.budget_usd - self._committed_usd) / self.cost_usd)
        if wish.checkpoints and wish.budget_calls is not None:
            factors.append(1 + (wish.budget_calls - self._made) / max(sum(self.calls.values()), 1))
        self.scale = self.cells_scale = max(min(factors), 1.0)
        self.stopped_by = ("complete" if wish.coverage is None else "coverage") if self.scale == factors[0] else "budget"
