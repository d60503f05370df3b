"""What a profile will do and cost, before anything is spent: pure, no model is called.

The whole run, round after round up to its goal, is played through on made-up outcomes: dozens of times, each with rates, prices
and times drawn anew from the store's rows (requests drawn whole, with replacement), or from the catalog's price limits where
there are none. What comes out is an interval, wide without a pilot.
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
from vinelm.profiler.dry_run.outcome_model import OutcomeModel
from vinelm.profiler.dry_run.simulated_run import Proposals, SimulatedRun, Wish
from vinelm.profiler.samplers import Sampler
from vinelm.template import Template

__all__ = ["Forecast", "ForecastInterval", "Wish", "forecast_profile"]

_WORK = 16_000  # cells to play through in all
_MOST_PLAYS, _FEWEST_PLAYS = 40, 4


class ForecastInterval(NamedTuple):
    """Holds the figure with a probability of about 0.9, if the rows so far are like those to come."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """New cells, dollars and hours of a run that is yet to come; ``calls`` by model. ``pilot_rows`` is how many rows of the
    store it is calibrated on, ``stopped_by`` what most plays ended with. ``is_extrapolated``: too long to play to its end.

    ``hours`` are the least that the workers and the engines' limits allow, ``held_back_by`` which of them in most plays.
    ``rounds`` is how many rounds the sampler proposed; with more than one it is adaptive, and each round was proposed once, on
    the outcomes of the play that came to it first (:class:`~vinelm.profiler.dry_run.simulated_run.Proposals`).
    """

    calls: Mapping[str, ForecastInterval]
    cells: ForecastInterval
    cost_usd: ForecastInterval
    hours: ForecastInterval
    coverage: ForecastInterval
    pilot_rows: int
    stopped_by: str
    is_extrapolated: bool
    held_back_by: str
    rounds: int

    @property
    def total_calls(self) -> float:
        """Of all models, at the middle."""
        return sum(one.middle for one in self.calls.values())


def forecast_profile(
    template: Template,
    catalog: Catalog,
    request_ids: Sequence[str],
    sampler: Sampler,
    wish: Wish,
    *,
    rows: Sequence[Observation] = (),
    committed_usd: float = 0.0,
    seed: int = 0,
) -> Forecast:
    """Play the run through. ``template`` is bound; ``rows`` are the store's, ``committed_usd`` what counts on its ledger."""
    wanted = set(request_ids)
    rows = [row for row in rows if row.request_id in wanted]
    plays: list[SimulatedRun] = []
    proposals = Proposals(sampler)
    done = 0
    while len(plays) < _FEWEST_PLAYS or (len(plays) < _MOST_PLAYS and done < _WORK):
        world = OutcomeModel(template, catalog, rows, random.Random(f"{seed}:{len(plays)}"))
        play = SimulatedRun(world, rows, len(request_ids), wish, committed_usd, longest=_WORK // _FEWEST_PLAYS)
        play.through(proposals)
        plays.append(play)
        done += play.new_cells
    models = sorted({model for play in plays for model in play.calls}, key=template.models.index)
    times = [play.load.least_s(wish.workers, wish.rates, play.scale) for play in plays]
    return Forecast(
        calls={name: _interval([play.calls[name] * play.scale for play in plays]) for name in models},
        cells=_interval([play.new_cells * play.cells_scale for play in plays]),
        cost_usd=_interval([play.cost_usd * play.scale for play in plays]),
        hours=_interval([seconds / 3600 for seconds, _ in times]),
        coverage=_interval([play.coverage for play in plays]),
        pilot_rows=len(rows),
        stopped_by=_most([play.stopped_by for play in plays]),
        is_extrapolated=any(play.cells_scale > 1 for play in plays),
        held_back_by=_most([by for _, by in times]),
        rounds=proposals.rounds,
    )


def _most(words: Sequence[str]) -> str:
    return Counter(words).most_common(1)[0][0]


def _interval(values: Sequence[float]) -> ForecastInterval:
    ordered = sorted(values)
    at = (len(ordered) - 1) * 0.05
    return ForecastInterval(ordered[math.floor(at)], ordered[len(ordered) // 2], ordered[math.ceil(len(ordered) - 1 - at)])
