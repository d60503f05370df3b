"""Forecasts the calls and the cost of a profile, and by how much its budgets are too small for its coverage. Calls no model.

The whole run, round after round up to its limits, is simulated dozens of times. Each time, rates, prices and times are drawn
from the store's results (whole requests are resampled). Without results, they are drawn from the catalog's price limits. The
forecast consists of intervals, which are wide without results from a pilot run.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from vinelm.catalog import Catalog
from vinelm.profiler.dry_run.outcome_model import OutcomeModel
from vinelm.profiler.dry_run.simulated_run import Proposals, SimulatedRun
from vinelm.profiler.dry_run.throughput import EngineRate
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.profiler.sampling.priced_sampler import models_by_depth
from vinelm.profiler.sampling.race import ModelRace
from vinelm.profiler.sampling.runs import Run
from vinelm.requests.protocols import RequestPath, Sampler
from vinelm.rows.observation import Observation
from vinelm.template import Template

_WORK = 16_000  # cells to simulate in all
_MOST_RUNS, _FEWEST_RUNS = 40, 4


class ForecastInterval(NamedTuple):
    """An interval that contains the true value with a probability of about 0.9, if future results resemble those so far."""

    low: float
    middle: float
    high: float

    def times(self, factor: float) -> ForecastInterval:
        """Return an interval with all three numbers multiplied by ``factor``."""
        return ForecastInterval(*(factor * end for end in self))


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The number of results and calls, and the cost, of a future run, as intervals.

    Attributes:
        calls: the number of model calls, by model.
        all_calls: the number of model calls of all models.
        requests: the number of requests with a new result.
        cells: the number of new results.
        cost_usd: the cost in dollars.
        hours: the shortest time that the workers and the endpoints' rate limits allow, in hours.
        coverage: the fraction of the cost of an exhaustive profile that has been spent when the run ends.
        pilot_rows: the number of results that the forecast is calibrated on.
        stopped_by: the reason why most simulations ended.
        is_extrapolated: whether the run was too long to be simulated to its end.
        held_back_by: the limit (the workers or an endpoint's rate limit) that determined the time of most simulations.
        rounds: the number of rounds that the sampler proposed. A sampler with several rounds is adaptive: the first simulation
            that reached a round determined its paths, which the other simulations then used, too.
    """

    calls: Mapping[str, ForecastInterval]
    all_calls: ForecastInterval
    requests: ForecastInterval
    cells: ForecastInterval
    cost_usd: ForecastInterval
    hours: ForecastInterval
    coverage: ForecastInterval
    pilot_rows: int
    stopped_by: str
    is_extrapolated: bool
    held_back_by: str
    rounds: int


@dataclass(frozen=True)
class WholeRuns:
    """A sampler that proposes all of its runs on every request (:class:`~vinelm.requests.protocols.Sampler`).

    A run has one model for each call of a request.

    Attributes:
        request_ids: the requests.
        runs: the runs, each with its models in the order of the calls.
    """

    request_ids: Sequence[str]
    runs: Sequence[Run]

    def on_first(self, n: int) -> WholeRuns:
        """Return the same runs on only the first ``n`` requests."""
        return replace(self, request_ids=self.request_ids[:n])

    @classmethod
    def of_single_models(cls, template: Template, catalog: Catalog, request_ids: Sequence[str]) -> WholeRuns:
        """Return a sampler for the given requests, with one run for each single model and one for the current setup."""
        race = ModelRace(template, catalog, request_ids, models_by_depth(template), ProfileLimits())
        return cls(request_ids, [racer.run for racer in race.racers()])

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterator[RequestPath]:
        """In round 0, yield each of the paths ``runs`` for every request; later, yield nothing. Ignores ``observations``."""
        for request_id in self.request_ids if round_ == 0 else ():
            yield from (RequestPath(request_id, run) for run in self.runs)


def forecast_profile(
    template: Template,
    catalog: Catalog,
    request_ids: Sequence[str],
    sampler: Sampler,
    limits: ProfileLimits,
    *,
    workers: int = 1,
    rates: Sequence[EngineRate] = (),
    rows: Sequence[Observation] = (),
    committed_usd: float = 0.0,
    seed: int = 0,
) -> Forecast:
    """Forecast the calls, cost and duration of a run by simulating it. A pure function that takes seconds.

    Args:
        template: a template bound to the catalog's models.
        catalog: the models.
        request_ids: the requests to sample from.
        sampler: proposes the request paths.
        limits: the limits of the run.
        workers: the number of jobs that run in parallel.
        rates: the engines' rate limits (:func:`rates_of`).
        rows: the store's results, to calibrate on and to continue from.
        committed_usd: dollars booked in the store's ledger.
        seed: the seed of the simulations.
    """
    place = {request_id: k for k, request_id in enumerate(request_ids)}
    known = [row for row in rows if row.request_id in place]
    # Not in the order in which workers happened to finish, so that equal rows give equal forecasts.
    rows = sorted(known, key=lambda row: (place[row.request_id], len(row.prefix), row.prefix))
    runs: list[SimulatedRun] = []
    proposals = Proposals(sampler)
    done = 0
    while len(runs) < _FEWEST_RUNS or (len(runs) < _MOST_RUNS and done < _WORK):
        model = OutcomeModel(template, catalog, rows, random.Random(f"{seed}:{len(runs)}"))
        run = SimulatedRun(model, rows, len(request_ids), limits, committed_usd, longest=_WORK // _FEWEST_RUNS)
        run.run(proposals)
        runs.append(run)
        done += run.new_cells
    names = sorted({name for run in runs for name in run.calls}, key=template.models.index)
    times = [run.load.least_s(workers, rates, run.scale) for run in runs]
    return Forecast(
        calls={name: _interval([run.calls[name] * run.scale for run in runs]) for name in names},
        all_calls=_interval([sum(run.calls.values()) * run.scale for run in runs]),
        requests=_interval([min(len(run.requests) * run.cells_scale, len(request_ids)) for run in runs]),
        cells=_interval([run.new_cells * run.cells_scale for run in runs]),
        cost_usd=_interval([run.cost_usd * run.scale for run in runs]),
        hours=_interval([seconds / 3600 for seconds, _ in times]),
        coverage=_interval([run.coverage for run in runs]),
        pilot_rows=len(rows),
        stopped_by=_most([run.stopped_by for run in runs]),
        is_extrapolated=any(run.cells_scale > 1 for run in runs),
        held_back_by=_most([by for _, by in times]),
        rounds=proposals.rounds,
    )


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a run without budgets would need, and what is left of the budgets. All intervals come from a forecast.

    Attributes:
        coverage: the coverage at which the run ends, in (0, 1]. None if there are too many paths; the needs are then those of
            every single model on every request.
        cost_usd: the cost in dollars, without that of earlier runs.
        calls: the number of model calls needed.
        requests: the number of requests that would get new results.
        rows: the number of new results.
        race_usd: cost in dollars of the comparison with which the sampler begins: whole runs of all single models and of the
            current setup. None if the sampler begins without a comparison.
        left_usd: dollars left of the budget; None without a budget.
        left_calls: calls left of the budget; None without a budget.
        left_requests: the number of requests to sample from.
        left_rows: the maximum number of results that could be bought: one for each request and sequence of models without a
            result.
    """

    coverage: float | None
    cost_usd: ForecastInterval
    calls: ForecastInterval
    requests: ForecastInterval
    rows: ForecastInterval
    left_usd: float | None
    left_calls: int | None
    left_requests: int
    left_rows: int
    race_usd: ForecastInterval | None = None

    @property
    def short_usd(self) -> float:
        """The dollars by which the budget falls short of the upper end of the needed cost; 0 without a budget."""
        return 0.0 if self.left_usd is None else max(self.cost_usd.high - self.left_usd, 0.0)


def needs_of(
    forecast: Forecast,
    limits: ProfileLimits,
    template: Template,
    n_requests: int,
    *,
    coverage: float | None,
    times: float = 1.0,
    rows: Sequence[Observation] = (),
    committed_usd: float = 0.0,
) -> Needs:
    """Return what a run without budgets is forecast to need, and what is left of the budgets.

    Args:
        forecast: the forecast of the run to ``coverage``, without budgets.
        limits: the budgets of the run that is planned.
        template: a template bound to the catalog's models.
        n_requests: the number of requests to sample from.
        coverage: the coverage at which the forecast run ends. None if the run is every single model on every request.
        times: the factor by which the forecast's cost and counts are multiplied, for a run that is longer than the forecast
            run.
        rows: the store's results.
        committed_usd: dollars booked in the store's ledger.
    """
    budget_usd, budget_calls = limits.budget_usd, limits.budget_calls
    made = sum(row.calls for row in rows)
    return Needs(
        coverage=coverage,
        cost_usd=forecast.cost_usd.times(times),
        calls=forecast.all_calls.times(times),
        requests=forecast.requests.times(times),
        rows=forecast.cells.times(times),
        left_usd=None if budget_usd is None else max(budget_usd - committed_usd, 0.0),
        left_calls=None if budget_calls is None else max(budget_calls - made, 0),
        left_requests=n_requests,
        left_rows=max(n_requests * template.n_sequences - len(rows), 0),
    )


def _most(words: Sequence[str]) -> str:
    return Counter(words).most_common(1)[0][0]


def _interval(values: Sequence[float]) -> ForecastInterval:
    ordered = sorted(values)
    at = (len(ordered) - 1) * 0.05
    return ForecastInterval(ordered[math.floor(at)], ordered[len(ordered) // 2], ordered[math.ceil(len(ordered) - 1 - at)])
