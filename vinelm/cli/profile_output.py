"""What ``vinelm profile`` prints: the forecast, the result, how to continue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vinelm.cli.console import echo

if TYPE_CHECKING:
    from vinelm.cli.inputs import Inputs
    from vinelm.profiler import Forecast, ForecastInterval, ProfileResult
    from vinelm.traces import ObservationStore

GROUPS = ("model", "depth", "stage")


def show(result: ProfileResult, store: ObservationStore, inputs: Inputs) -> None:
    """Print the cost by model, depth and stage, the coverage, and what was saved."""
    from vinelm.cli.console import say
    from vinelm.reports import percent, shown_lines, usd
    from vinelm.traces import ShownRows

    for by in GROUPS:
        _spend_table(by, store.spend(by), result.spent_usd)  # type: ignore[arg-type]
    failed = "".join(f", {n:,} failed ({kind})" for kind, n in sorted(result.failures.items()))
    say(f"{len(store):,} rows ({result.executed:,} new{failed}), {usd(result.spent_usd)}, stopped by {result.stopped_by}.")
    low, high = result.coverage_interval
    say(
        f"Coverage: {percent(result.coverage)} (90 %: {100 * low:.1f} to {100 * high:.1f}) of {usd(result.exhaustive_usd)}, "
        "the estimated cost of every reached cell once."
    )
    judged_usd = _show_judge(store)
    extra = result.committed_usd - result.spent_usd - judged_usd
    if extra > max(1e-9, result.spent_usd * 1e-9):
        say(f"{usd(extra)} more count against the budget: {'units' if result.abandoned != 1 else 'a unit'} cut short, "
            "paths run again, or calls that a dead unit may have made.")  # fmt: skip
    if result.spent_usd:
        paid = max(result.committed_usd - judged_usd, result.spent_usd)
        say(
            f"Saved {result.exhaustive_usd / paid:.1f}x against running everything with checkpoints, "
            f"{result.naive_usd / paid:.1f}x against running every path anew."
        )
    record = ShownRows(store).record
    for line in () if record is None else shown_lines(record, len(store)):
        say(line)
    if inputs.is_simulated:
        say("Simulated models: prices and answers are not those of real ones.")
    echo(f"Next: vinelm estimate {store.path}")


def _show_judge(store: ObservationStore) -> float:
    """Print what the judge gave, and return the dollars that it cost; 0 without a judge."""
    from vinelm.cli.console import say
    from vinelm.reports import usd
    from vinelm.traces import Judgements

    records = Judgements(store)
    found, cost_usd = records.latest(), records.cost_usd()
    if found and records.are_in_force:
        given = sum(one.correct is not None for one in found.values())
        labelled = sum(one.correct is not None and one.truth is not None for one in found.values())
        say(
            f"Judge: {given:,} of {len(found):,} answers have a verdict, {labelled:,} of them a label; {usd(cost_usd)} "
            "besides, which counts against the budget."
        )
    return cost_usd


def _spend_table(title: str, spend: Mapping[str | int, Any], total: float) -> None:
    from vinelm.cli.console import show_table
    from vinelm.reports import percent, usd

    rows = [
        (
            str(key),
            f"{item.rows:,}",
            f"{item.calls:,}",
            str(item.failures),
            usd(item.cost_usd),
            percent(item.cost_usd / total if total else 0.0),
        )
        for key, item in spend.items()
    ]
    show_table(f"Cost by {title}", (title, "rows", "calls", "failed", "cost", "share"), rows)


def print_json(result: ProfileResult, store: ObservationStore, inputs: Inputs) -> None:
    """Print the result as one JSON object."""
    from dataclasses import asdict

    from vinelm.cli.console import print_json

    spend = {by: {str(k): asdict(v) for k, v in store.spend(by).items()} for by in GROUPS}  # type: ignore[arg-type]
    facts = {"workflow": inputs.workflow.name, "store": str(store.path), "is_simulated": inputs.is_simulated}
    print_json({**facts, **asdict(result), "spend": spend})


def print_interrupted(result: ProfileResult) -> None:
    """Print what an interrupted run has done, and how to continue it."""
    from vinelm.reports import usd

    cut = result.committed_usd - result.spent_usd
    billed = f", {usd(cut)} is reserved for units that were cut short" if cut > 1e-9 else ""
    echo(
        f"interrupted: {result.executed:,} new rows are in the store and settled{billed}: run the same line again to continue",
        err=True,
    )


def _show_judge_price(inputs: Inputs, forecast: Forecast) -> None:
    from vinelm.cli.console import say
    from vinelm.profiler import judge_price
    from vinelm.reports import usd

    price = judge_price(inputs.workflow, inputs.catalog)
    if price is not None:
        name, one_usd = price
        say(
            f"The judge {name} is asked about each new answer besides: at most {usd(one_usd)} each, so up to "
            f"{usd(one_usd * forecast.cells.middle)} that count against the budget and are not in these dollars."
        )


def print_forecast(forecast: Forecast, inputs: Inputs, *, as_json: bool) -> None:
    """Print what the run would do."""
    from dataclasses import asdict

    from vinelm.cli.console import print_json, say, show_table
    from vinelm.reports import percent, usd

    if as_json:
        plain = asdict(forecast)
        plain["calls"] = {name: one._asdict() for name, one in forecast.calls.items()}
        for name in ("cells", "cost_usd", "hours", "coverage"):
            plain[name] = getattr(forecast, name)._asdict()
        print_json({"workflow": inputs.workflow.name, "is_simulated": inputs.is_simulated, "dry_run": True, **plain})
        return

    def whole(one: ForecastInterval) -> tuple[str, str, str]:
        return f"{one.low:,.0f}", f"{one.middle:,.0f}", f"{one.high:,.0f}"

    rows: list[tuple[str, ...]] = [(f"calls of {name}", *whole(one)) for name, one in forecast.calls.items()]
    rows.append(("new rows", *whole(forecast.cells)))
    rows.append(("dollars", *map(usd, forecast.cost_usd)))
    rows.append(("hours", *(f"{h:,.2f}" if h >= 0.01 else f"{h:.1g}" for h in forecast.hours)))
    rows.append(("coverage then", *map(percent, forecast.coverage)))
    show_table("Forecast", ("", "low", "middle", "high"), rows)
    _show_judge_price(inputs, forecast)
    if forecast.pilot_rows:
        say(f"Calibrated on the store's {forecast.pilot_rows:,} rows; low to high holds 90 %.")
    else:
        say(
            "The store has no rows yet, so the intervals come from price limits alone and are wide. To narrow them, run with "
            "a small --budget-usd, then forecast again."
        )
    say(f"Hours are a lower bound from the workers and the engines' limits. What limits them: {forecast.held_back_by}.")
    if forecast.rounds > 1:
        say(f"An adaptive sampler: each of its {forecast.rounds} rounds was proposed once, and priced in every simulation.")
    if forecast.is_extrapolated:
        say("The run is long: simulated in part and extrapolated.")
    say(f"The run would stop by {forecast.stopped_by}. No model was called and nothing was written.")
