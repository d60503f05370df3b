"""What a profile will do and cost, before anything is spent: pure, no model is called.

The sampler's own walks are played through on made-up outcomes: dozens of times, each with rates, prices and times drawn anew
from the store's rows (requests drawn whole, with replacement), or from the catalog's price limits where there are none. What
comes out is an interval, wide without a pilot.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vinelm.catalog import Catalog
from vinelm.observation import Observation
from vinelm.profiler.coverage import Coverage
from vinelm.profiler.ledger import PriceBound
from vinelm.profiler.sampling import Sampler
from vinelm.profiler.work import Cell
from vinelm.template import Template

_WORK = 16_000  # cells to play through in all
_MOST_PLAYS, _FEWEST_PLAYS = 40, 4
_PRIOR = 4.0
_LOWEST_SHARE = 0.02  # without a pilot: a call costs between this share of its bound and all of it
_TOKENS_PER_S = (20.0, 200.0)  # without a pilot: how fast a model may write


class Interval(NamedTuple):
    """Holds the figure with a probability of about 0.9, if the rows so far are like those to come."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """New cells, dollars and hours of a run that is yet to come; ``calls`` by model. ``pilot_rows`` is how many rows of the
    store it is calibrated on, ``stopped_by`` what most plays ended with. ``is_extrapolated``: too long to play to its end.
    """

    calls: Mapping[str, Interval]
    cells: Interval
    cost_usd: Interval
    hours: Interval
    coverage: Interval
    pilot_rows: int
    stopped_by: str
    is_extrapolated: bool

    @property
    def total_calls(self) -> float:
        """Of all models, at the middle."""
        return sum(one.middle for one in self.calls.values())


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is asked for: the caps, and how many units run at a time."""

    coverage: float | None = None
    budget_usd: float | None = None
    budget_calls: int | None = None
    workers: int = 1


def plan_profile(
    template: Template,
    catalog: Catalog,
    request_ids: Sequence[str],
    sampler: Sampler,
    wish: Wish,
    *,
    rows: Sequence[Observation] = (),
    committed_usd: float = 0.0,
    seed: int = 0,
) -> Plan:
    """Play the run through. ``template`` is bound; ``rows`` are the store's, ``committed_usd`` what counts on its ledger."""
    wanted = set(request_ids)
    rows = [row for row in rows if row.request_id in wanted]
    plays: list[_Play] = []
    done = 0
    while len(plays) < _FEWEST_PLAYS or (len(plays) < _MOST_PLAYS and done < _WORK):
        world = _World(template, catalog, rows, random.Random(f"{seed}:{len(plays)}"))
        play = _Play(world, rows, len(request_ids), wish, committed_usd)
        play.through(sampler)
        plays.append(play)
        done += play.new_cells
    models = sorted({model for play in plays for model in play.calls}, key=template.models.index)
    by = Counter(play.stopped_by for play in plays)
    return Plan(
        calls={name: _interval([play.calls[name] * play.scale for play in plays]) for name in models},
        cells=_interval([play.new_cells * play.scale for play in plays]),
        cost_usd=_interval([play.cost_usd * play.scale for play in plays]),
        hours=_interval([play.seconds * play.scale / wish.workers / 3600 for play in plays]),
        coverage=_interval([play.coverage for play in plays]),
        pilot_rows=len(rows),
        stopped_by=by.most_common(1)[0][0],
        is_extrapolated=any(play.scale > 1 for play in plays),
    )


def _interval(values: Sequence[float]) -> Interval:
    ordered = sorted(values)
    at = (len(ordered) - 1) * 0.05
    return Interval(ordered[math.floor(at)], ordered[len(ordered) // 2], ordered[math.ceil(len(ordered) - 1 - at)])


class _World:
    """One guess at what the models do: chance to go on, dollars, calls and seconds per (depth, model)."""

    def __init__(self, template: Template, catalog: Catalog, rows: Sequence[Observation], rng: random.Random) -> None:
        self.template = template
        self.rng = rng
        by_request: dict[str, list[Observation]] = {}
        for row in rows:
            by_request.setdefault(row.request_id, []).append(row)
        requests = list(by_request)
        self._seen: dict[tuple[int, str], list[Observation]] = {}
        self._of_model: dict[str, list[Observation]] = {}
        for request_id in rng.choices(requests, k=len(requests)) if requests else ():
            for row in by_request[request_id]:
                self._seen.setdefault((row.depth, row.model), []).append(row)
                self._of_model.setdefault(row.model, []).append(row)
        drawn = [row for found in self._of_model.values() for row in found]
        self._overall = self._went_on(drawn, rng.random(), 2.0)
        self._bound = PriceBound(catalog)
        self._max_tokens = {name: catalog[name].max_tokens for name in template.models}
        self._guess_usd = {name: math.exp(rng.uniform(math.log(_LOWEST_SHARE), 0.0)) for name in template.models}
        self._guess_pace = {name: rng.uniform(*_TOKENS_PER_S) for name in template.models}
        self._rates: dict[tuple[int, str], float] = {}

    def unit(self, depth: int, model: str) -> tuple[float, int, float, bool]:
        """(dollars, calls, seconds, it goes on) of one unit."""
        rate = self._rates.get((depth, model))
        found = self._seen.get((depth, model), [])
        if rate is None:
            rate = self._rates[depth, model] = self._went_on(found, self._overall, _PRIOR)
        goes_on = self.rng.random() < rate
        like = found or self._of_model.get(model)
        if like:
            row = like[int(self.rng.random() * len(like))]
            return row.cost_usd + row.tool_cost_usd, row.calls, row.latency_s + row.tool_latency_s, goes_on
        stage = self.template.invocations[depth - 1].name
        share = self._guess_usd[model]
        return self._bound.usd(stage, model) * share, 1, share * self._max_tokens[model] / self._guess_pace[model], goes_on

    def _went_on(self, rows: Sequence[Observation], prior: float, weight: float) -> float:
        went = sum(not row.ended(self.template.stop) for row in rows)
        return (went + weight * prior) / (len(rows) + weight)


class _Play:
    """One run in one world, until a cap; or until it is long enough to see where it goes (``scale`` times as far)."""

    def __init__(self, world: _World, rows: Sequence[Observation], n_requests: int, wish: Wish, committed_usd: float) -> None:
        self.world, self.wish = world, wish
        self.calls: Counter[str] = Counter()
        self.new_cells = 0
        self.cost_usd = 0.0
        self.seconds = 0.0
        self.scale = 1.0
        self.stopped_by = ""
        self._known: dict[Cell, bool] = {(row.request_id, row.prefix): not row.ended(world.template.stop) for row in rows}
        self._account = Coverage(world.template, n_requests)
        for row in sorted(rows, key=lambda row: row.depth):
            self._account.add(row)
        self._committed_usd = committed_usd
        self._made = sum(row.calls for row in rows)
        self._look_at = 0
        self.coverage = self._account.fraction

    def through(self, sampler: Sampler) -> None:
        """Go along the walks of the first round."""
        self._look()
        walks = iter(sampler.walks(0, ()))
        idle = 0
        while not self.stopped_by:
            walk = next(walks, None)
            before = self.new_cells
            if walk is None or idle > 20_000:  # an endless sampler that meets nothing new any more
                self.stopped_by = "sampler"
                break
            for length in range(1, len(walk.path) + 1):
                cell = (walk.request_id, walk.path[:length])
                if cell not in self._known and not self._run(cell):
                    break
                if not self._known[cell]:
                    break
            idle = 0 if self.new_cells > before else idle + 1
            if idle in (100, 1000, 10_000):
                self._look()
        self.coverage = self._account.fraction

    def _run(self, cell: Cell) -> bool:
        """Make it up; False if a cap forbids it or the play is over."""
        prefix = cell[1]
        cost, calls, seconds, goes_on = self.world.unit(len(prefix), prefix[-1])
        wish = self.wish
        if wish.budget_usd is not None and self._committed_usd + cost > wish.budget_usd:
            self.stopped_by = "budget"
        if wish.budget_calls is not None and self._made + calls > wish.budget_calls:
            self.stopped_by = "budget"
        if self.stopped_by:
            self._known[cell] = False
            return False
        self._known[cell] = goes_on
        self._account.add(_row(self.world.template, cell, cost, goes_on))
        self.calls[prefix[-1]] += calls
        self.new_cells += 1
        self.cost_usd += cost
        self.seconds += seconds
        self._committed_usd += cost
        self._made += calls
        if self.new_cells >= self._look_at:
            self._look()
        return not self.stopped_by

    def _look(self) -> None:
        """At the coverage, which takes longer than a cell: at every hundredth more."""
        self._look_at = self.new_cells + max(self.new_cells // 100, 1)
        fraction = self._account.fraction
        if self._account.is_complete:
            self.stopped_by = "complete"
        elif self.wish.coverage is not None and fraction >= self.wish.coverage:
            self.stopped_by = "coverage"
        elif self.new_cells >= _WORK // _FEWEST_PLAYS and not self.stopped_by:
            self._extrapolate(fraction)

    def _extrapolate(self, fraction: float) -> None:
        wish = self.wish
        factors = [(wish.coverage or 1.0) / max(fraction, 1e-9)]
        if wish.budget_usd is not None and self.cost_usd > 0:
            factors.append(1 + (wish.budget_usd - self._committed_usd) / self.cost_usd)
        if wish.budget_calls is not None:
            factors.append(1 + (wish.budget_calls - self._made) / max(sum(self.calls.values()), 1))
        self.scale = max(min(factors), 1.0)
        self.stopped_by = ("complete" if wish.coverage is None else "coverage") if self.scale == factors[0] else "budget"


def _row(template: Template, cell: Cell, cost: float, goes_on: bool) -> Observation:
    request_id, prefix = cell
    stage = template.invocations[len(prefix) - 1].name
    return Observation(
        request_id=request_id,
        prefix=prefix,
        stage=stage,
        success=not goes_on,
        stopped=not goes_on,
        cost_usd=cost,
        latency_s=0.0,
    )
