"""What a forecast becomes where calls go in batches: dollars at half price, and waves in place of hours."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice

from vinelm.catalog import Catalog
from vinelm.profiler.dry_run.forecast import Forecast
from vinelm.profiler.execution.batching import BatchPrices
from vinelm.profiler.scheduling.request_paths import ActivePath, TimedPaths
from vinelm.requests.protocols import Sampler
from vinelm.template import Template

_MOST_PATHS = 5_000


@dataclass(frozen=True, kw_only=True)
class BatchForecast:
    """What a run in batches comes to.

    Attributes:
        cost_usd: dollars in the middle, of the calls in batches and of those that are made at once.
        ordinary_usd: dollars in the middle without batches.
        waves: how often a call waits for another one of its request, at least: the most invocations of a path.
        wait_s: the longest that a run waits for one batch, in seconds.
        timed_cells: rows whose calls are made at once, at most.
    """

    cost_usd: float
    ordinary_usd: float
    waves: int
    wait_s: float
    timed_cells: int


def batch_forecast(
    forecast: Forecast,
    prices: BatchPrices,
    batched: Collection[str],
    *,
    template: Template,
    catalog: Catalog,
    sampler: Sampler,
) -> BatchForecast:
    """Return what the run of a forecast comes to in batches. Pure.

    Args:
        forecast: at ordinary prices.
        prices: the terms of the run.
        batched: the models whose calls go in batches.
        template: a bound template.
        catalog: the models.
        sampler: proposes the request paths; of the first round those are counted that are called at once.
    """
    timed, cells, waves = TimedPaths(prices.timed_paths), set(), 1
    for number, proposed in enumerate(islice(sampler.propose(0, ()), _MOST_PATHS)):
        path = ActivePath(proposed, number, template)
        timed.add(path)
        waves = max(waves, path.longest)
        if path.is_timed:
            cells |= {(proposed.request_id, repr(proposed.path[:length])) for length in range(1, path.longest + 1)}
    # Each model's share of the dollars, by its calls and what a call of usual size costs.
    usd = {name: one.middle * catalog[name].price.cost_usd(1000, 250) for name, one in forecast.calls.items()}
    total = sum(usd.values())
    share = sum(usd[name] for name in usd if name in batched) / total if total else 0.0
    rows = forecast.cells.middle
    at_once = min(len(cells) / rows, 1.0) if rows else 0.0
    ordinary = forecast.cost_usd.middle
    return BatchForecast(
        cost_usd=ordinary * (1.0 - 0.5 * share * (1.0 - at_once)), ordinary_usd=ordinary, waves=waves,
        wait_s=prices.times.wait_s, timed_cells=min(len(cells), round(rows)),
    )  # fmt: skip
