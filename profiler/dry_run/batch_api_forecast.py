"""Converts a forecast to one for batch APIs: half the price, and a number of batches in sequence instead of hours."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from vinelm.catalog import Catalog
from vinelm.profiler.dry_run.forecast import Forecast, Needs
from vinelm.profiler.execution.batch_api import BatchPrices
from vinelm.requests.workflow import Workflow
from vinelm.template import Template


@dataclass(frozen=True, kw_only=True)
class BatchApiForecast:
    """A forecast of the cost and the waiting times of a run that makes its calls through batch APIs.

    Attributes:
        cost_usd: median cost of all calls, in batches or direct, in dollars.
        ordinary_usd: median cost without batches, in dollars.
        waves: the minimum number of batches in sequence, which equals the maximum number of calls on a path.
        wait_s: the longest time that a run waits for a batch, in seconds.
        timed_cells: the approximate number of results whose calls are made directly. Only these results have latencies.
    """

    cost_usd: float
    ordinary_usd: float
    waves: int
    wait_s: float
    timed_cells: int


@dataclass(frozen=True, kw_only=True)
class RunForecast:
    """A forecast of what a profile would buy and cost.

    Attributes:
        workflow: the workflow to profile, with its template bound to the models.
        catalog: the models.
        is_simulated: whether some models are simulated.
        run: what the run buys within its limits.
        needs: what the run would need without its budgets.
        batches: the forecast for batch APIs, if the run uses them.
        max_error: the error of the estimate at which the run would end, as in :func:`vinelm.profile`; None if no such limit is
            set.
    """

    workflow: Workflow
    catalog: Catalog
    is_simulated: bool
    run: Forecast
    needs: Needs
    batches: BatchApiForecast | None = None
    max_error: float | None = None


def batch_forecast(
    forecast: Forecast, prices: BatchPrices, batched: Collection[str], template: Template, catalog: Catalog
) -> BatchApiForecast:
    """Convert a forecast at ordinary prices to a forecast for batch APIs. A pure function.

    Args:
        forecast: the forecast at ordinary prices.
        prices: the run's settings for batch APIs.
        batched: the models that are called through batch APIs.
        template: a template bound to the catalog's models.
        catalog: the models.
    """
    # Each model's share of the dollars, by its calls and the cost of a typical call.
    usd = {name: one.middle * catalog[name].price.cost_usd(1000, 250) for name, one in forecast.calls.items()}
    total, rows = sum(usd.values()), forecast.cells.middle
    share = sum(usd[name] for name in usd if name in batched) / total if total else 0.0
    timed = min(prices.timed_paths * sum(len(stage.models or ()) for stage in template.stages), rows)
    ordinary = forecast.cost_usd.middle
    return BatchApiForecast(
        cost_usd=ordinary * (1.0 - 0.5 * share * (1.0 - timed / rows)) if rows else ordinary,
        ordinary_usd=ordinary,
        waves=template.depth,
        wait_s=prices.times.wait_s,
        timed_cells=round(timed),
    )
