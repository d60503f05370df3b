"""What a profile would buy, before it buys anything: calls, dollars, hours, and what the budget leaves out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vinelm.api.deciding import recommended_plans
from vinelm.api.profiling import DEFAULT_COVERAGE, Inputs
from vinelm.requests.protocols import Sampler
from vinelm.rows.observation import Observation

if TYPE_CHECKING:
    from vinelm.profiler import Forecast, ProfileLimits
    from vinelm.profiler.dry_run.batches import BatchForecast
    from vinelm.profiler.dry_run.forecast import Needs
    from vinelm.profiler.execution.batching import BatchPrices
    from vinelm.traces import StoreIdentity


@dataclass(frozen=True, kw_only=True)
class RunForecast:
    """What a profile would buy.

    Attributes:
        inputs: The workflow and the models.
        run: What the run buys within its limits.
        needs: What it would need without its budgets.
        batches: What it comes to in the providers' batches, if it buys in them.
        max_error: The certainty at which it would end, as :func:`vinelm.profile` takes it; None without one.
    """

    inputs: Inputs
    run: Forecast
    needs: Needs
    batches: BatchForecast | None = None
    max_error: float | None = None


def forecast_run(
    inputs: Inputs,
    store: Path,
    limits: ProfileLimits,
    *,
    sampler: str | Sampler = "deciding",
    workers: int = 1,
    max_error: float | None = None,
    batch_prices: BatchPrices | None = None,
    on_note: Callable[[str], None] | None = None,
) -> RunForecast:
    """Forecast a profile. Calls no model, and writes nothing.

    Args:
        inputs: What would be profiled.
        store: Its store, whose rows calibrate the forecast; there need not be one.
        limits: Where the run would stop.
        sampler: As :func:`vinelm.profile` takes it.
        workers: Units at a time.
        max_error: As :func:`vinelm.profile` takes it.
        batch_prices: The terms of a run that buys in batches.
        on_note: Called with one line about what the run would change in the store.

    Raises:
        StoreError: The store cannot be read, or belongs to another workflow.
    """
    from vinelm.profiler import ProfileLimits, forecast_profile, make_sampler
    from vinelm.profiler.dry_run.batches import batch_forecast
    from vinelm.profiler.dry_run.forecast import needs_of
    from vinelm.profiler.dry_run.throughput import rates_of
    from vinelm.profiler.execution.batching import batched_models
    from vinelm.profiler.growth import kinds_of
    from vinelm.profiler.runner import continued_share
    from vinelm.profiler.sampling.deciding_sampler import DecidingSampler
    from vinelm.traces.databases.address import address_of
    from vinelm.traces.databases.opening import exists

    workflow, catalog = inputs.workflow, inputs.catalog
    if max_error is not None and limits.coverage is None:
        limits = replace(limits, coverage=DEFAULT_COVERAGE)  # nobody knows before how far it goes
    identity = inputs.identity
    rows: list[Observation] = []
    committed_usd = 0.0
    if exists(address_of(store)):
        rows, committed_usd = _previewed(inputs, store, identity, on_note)
    ids, template = [request.id for request in workflow.requests], workflow.template
    if isinstance(sampler, str):
        sampler = make_sampler(
            sampler,
            template,
            ids,
            inputs.seed,
            catalog=catalog,
            limits=limits,
            continued_share=continued_share(workflow),
            candidates=recommended_plans(template, catalog),
            kinds=kinds_of(workflow, ()),
            few_rounds=batch_prices is not None,
        )
    known: dict[str, Any] = {
        "workers": workers, "rates": rates_of(catalog, inputs.backends), "rows": rows, "committed_usd": committed_usd,
        "seed": inputs.seed,
    }  # fmt: skip

    def within(limits: ProfileLimits, sampler: Sampler = sampler) -> Forecast:
        return forecast_profile(template, catalog, ids, sampler, limits, **known)

    run = within(limits)
    coverage = limits.coverage or DEFAULT_COVERAGE
    unlimited = ProfileLimits(coverage=coverage)
    whole = run if limits == unlimited else within(unlimited)
    needs = needs_of(whole, limits, template, len(ids), coverage=coverage, rows=rows, committed_usd=committed_usd)
    if isinstance(sampler, DecidingSampler):
        needs = replace(needs, race_usd=within(ProfileLimits(coverage=1.0), sampler.race_alone()).cost_usd)
    found = RunForecast(inputs=inputs, run=run, needs=needs, max_error=max_error)
    if batch_prices is None:
        return found
    batched = batched_models(workflow, catalog, inputs.backends)
    return replace(found, batches=batch_forecast(run, batch_prices, batched, template, catalog))


def _previewed(
    inputs: Inputs, store: Path, identity: StoreIdentity, on_note: Callable[[str], None] | None
) -> tuple[list[Observation], float]:
    """The rows that the store would have once a run began, and its dollars."""
    from vinelm.profiler.growth import request_digests
    from vinelm.traces import ObservationStore
    from vinelm.traces.growth.grow import preview_growth

    with ObservationStore.open(store) as opened:
        growth, rows = preview_growth(opened, identity, request_digests(inputs.workflow))
        if growth is not None and (growth.has_effect or growth.is_reshaped) and on_note is not None:
            on_note(growth.describe())
        return rows, opened.committed_usd()
