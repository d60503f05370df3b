"""The output of ``vinelm profile``: the forecast, the result, and how to continue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from vinelm.cli.console import echo, print_json, say, show_table
from vinelm.cli.progress import show_single_models
from vinelm.reports import percent, usd
from vinelm.trie.verdict import MAX_LOSS, what_can_be_proven

if TYPE_CHECKING:
    from vinelm.api.certainty import Shortfall
    from vinelm.profiler import Forecast, ProfileResult
    from vinelm.profiler.dry_run.batch_api_forecast import BatchApiForecast, RunForecast
    from vinelm.profiler.dry_run.forecast import ForecastInterval, Needs
    from vinelm.traces import ObservationStore

GROUPS = ("model", "depth", "stage")
MOST_COUNTED = 1_000_000
"""More rows than this are not counted."""
ENDED = {
    "certain": "the estimate is certain enough",
    "hopeless": "stopped since no plan can be proven on these requests",
}
"""What ended a run that had checked its own estimate."""


def show(result: ProfileResult, store: ObservationStore, *, max_error: float | None) -> None:
    """Print the result of a profile: the cost by model, depth and stage, the coverage, the savings, and the next command.

    Coverage is the cost of the recorded results as a share of the estimated cost of all results. Savings are compared with
    running every path.

    ``max_error`` is the ``--max-error`` that the user gave to the profile; None without it.
    """
    from vinelm.reports.store_text import shown_lines
    from vinelm.traces.store.shown import ShownRows

    for by in GROUPS:
        _spend_table(by, store.spend(by), result.spent_usd)  # type: ignore[arg-type]
    if result.single_models is not None:
        show_single_models(result.single_models)
    failed = "".join(f", {n:,} failed ({kind})" for kind, n in sorted(result.failures.items()))
    ended = ENDED.get(result.stopped_by, f"stopped by {result.stopped_by}")
    say(f"{len(store):,} rows ({result.executed:,} new{failed}), {usd(result.spent_usd)}, {ended}.")
    low, high = result.coverage_interval
    say(
        f"Coverage: {percent(result.coverage)} (90 %: {100 * low:.1f} to {100 * high:.1f}) of {usd(result.exhaustive_usd)}, "
        "the estimated cost of every reached cell once."
    )
    judged_usd = _show_judge(store)
    extra = result.committed_usd - result.spent_usd - judged_usd
    if extra > max(1e-9, result.spent_usd * 1e-9):
        say(
            f"{usd(extra)} more count against the budget: {'units' if result.abandoned != 1 else 'a unit'} cut short, "
            "paths run again, or calls that a dead unit may have made."
        )
    if result.spent_usd:
        paid = max(result.committed_usd - judged_usd, result.spent_usd)
        say(
            f"Saved {result.exhaustive_usd / paid:.1f}x against running everything with checkpoints, "
            f"{result.naive_usd / paid:.1f}x against running every path anew."
        )
    record = ShownRows(store).record
    for line in () if record is None else shown_lines(record, len(store)):
        say(line)
    if store.identity.is_simulated:
        say("Simulated models: prices and answers are not those of real ones.")
    _show_next(result, store, max_error)


def _show_next(result: ProfileResult, store: ObservationStore, max_error: float | None) -> None:
    """Print the next command: `vinelm estimate`, or how to continue if there are too few results to estimate.

    Print nothing if the run ended because of a problem that the user has to solve first, such as failing calls. ``max_error``
    is the ``--max-error`` that the user gave; None without it.
    """
    from vinelm.api.certainty import shortfall
    from vinelm.api.estimation import MAX_ERROR

    depths = store.spend("depth").values()
    if result.stopped_by in ("broken", "cut-off", "none-right") or (
        depths and all(spend.failures == spend.rows for spend in depths)
    ):
        return
    lacks = None
    if result.stopped_by not in ("interrupted", *ENDED):
        lacks = shortfall(store.path, MAX_ERROR if max_error is None else max_error)
    if lacks is None:
        accepted = "" if max_error is None or max_error <= MAX_ERROR else f" --max-error {max_error:g}"
        echo(f"Next: vinelm estimate {store.path}{accepted}")
        return
    say(f"Not enough for `vinelm estimate` yet: {_known(lacks)}")
    if lacks.requests is not None:
        say(f"Running everything would not do: label about {lacks.requests:,} requests, or accept less with --max-error.")
        return
    more = "" if lacks.more_usd is None else f" (about {usd(lacks.more_usd)} more)"
    remedy = f"--max-error {lacks.max_error:g} in place of --coverage"
    if result.stopped_by == "budget":
        remedy = "a larger budget"
    elif max_error is not None:
        remedy = "a larger --coverage"
    say(f"Next: the same line with {remedy}{more}.")


def _known(lacks: Shortfall) -> str:
    if lacks.half_width is None:
        return "no path is known."
    known, asked = 100 * lacks.half_width, 100 * lacks.max_error
    return f"the best path's accuracy is known to +/- {known:.1f} points, and {asked:g} are asked for."


def _show_judge(store: ObservationStore) -> float:
    """Print how many verdicts the judge (a model that says whether an answer is correct) has given, and return the cost of its
    calls.

    The cost is in dollars; 0 without a judge.
    """
    from vinelm.traces.store.judgements import Judgements

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


def print_result(result: ProfileResult, store: ObservationStore, *, max_error: float | None) -> None:
    """Print the result of a profile as one JSON object. ``max_error`` is the ``--max-error`` that the user gave; None without
    it.
    """
    spend = {by: {str(k): asdict(v) for k, v in store.spend(by).items()} for by in GROUPS}  # type: ignore[arg-type]
    facts = {"workflow": store.identity.workflow, "store": str(store.path), "is_simulated": store.identity.is_simulated}
    facts |= {} if max_error is None else {"max_error": max_error}
    figures = {one.name: getattr(result, one.name) for one in fields(result) if one.name not in ("forecast", "store")}
    figures["single_models"] = None if result.single_models is None else asdict(result.single_models)
    print_json({**facts, **figures, "spend": spend})


def print_interrupted(result: ProfileResult) -> None:
    """Print what an interrupted run has done, and how to continue it."""
    cut = result.committed_usd - result.spent_usd
    billed = f", {usd(cut)} is reserved for units that were cut short" if cut > 1e-9 else ""
    echo(
        f"interrupted: {result.executed:,} new rows are in the store and settled{billed}: run the same line again to continue",
        err=True,
    )


def _show_judge_price(found: RunForecast) -> None:
    from vinelm.profiler.execution.judging import judge_price

    price = judge_price(found.workflow, found.catalog)
    if price is not None:
        name, one_usd = price
        say(
            f"The judge {name} is asked about each new answer besides: at most {usd(one_usd)} each, so up to "
            f"{usd(one_usd * found.run.cells.middle)} that count against the budget and are not in these dollars."
        )


def print_forecast(found: RunForecast, *, as_json: bool) -> None:
    """Print the forecast of a run: its calls, results, cost and hours.

    Then print how many dollars, calls, requests and results the run's goal needs, and how many of each are left.
    """
    forecast, needs, batches = found.run, found.needs, found.batches
    if as_json:
        facts = {"workflow": found.workflow.name, "is_simulated": found.is_simulated, "dry_run": True}
        facts |= {} if batches is None else {"batches": asdict(batches)}
        print_json({**facts, **_plain(forecast), "needs": {**_plain(needs), "short_usd": needs.short_usd}})
        return
    rows: list[tuple[str, ...]] = [(f"calls of {name}", *_whole(one)) for name, one in forecast.calls.items()]
    rows.append(("new rows", *_whole(forecast.cells)))
    rows.append(("dollars", *map(usd, forecast.cost_usd)))
    rows.append(("hours", *(f"{h:,.2f}" if h >= 0.01 else f"{h:.1g}" for h in forecast.hours)))
    rows.append(("coverage then", *map(percent, forecast.coverage)))
    show_table("Forecast", ("", "low", "middle", "high"), rows)
    _show_needs(needs)
    say(what_can_be_proven(len(found.workflow.requests), MAX_LOSS))
    if needs.coverage is None:
        from vinelm.api.profiling import VAST

        say(
            f"There are more than {VAST:,} sequences of models, of which no run buys a share: it ends as soon as the "
            "rows settle the verdict, or with the budget. Fewer models or stages take fewer rows."
        )
    elif found.max_error is not None:
        say(
            f"The run ends as soon as the best path's accuracy is known to +/- {100 * found.max_error:g} points, before or "
            f"after {_goal(needs)}, and within the budget: the rows decide."
        )
    _show_judge_price(found)
    if forecast.pilot_rows:
        say(f"Calibrated on the store's {forecast.pilot_rows:,} rows; low to high holds 90 %.")
    else:
        say(
            "The store has no rows yet, so the intervals come from price limits alone and are wide. To narrow them, run with "
            "a small --budget-usd, then forecast again."
        )
    if batches is not None:
        _show_batches(batches, forecast.stopped_by)
    say(f"Hours are a lower bound from the workers and the engines' limits. What limits them: {forecast.held_back_by}.")
    if forecast.rounds > 1:
        say(f"An adaptive sampler: each of its {forecast.rounds} rounds was proposed once, and priced in every simulation.")
    if forecast.is_extrapolated:
        say("The run is long: simulated in part and extrapolated.")
    say(f"The run would stop by {forecast.stopped_by}. No model was called and nothing was written.")


def _show_batches(batches: BatchApiForecast, stopped_by: str) -> None:
    hours = f"{batches.wait_s / 3600:g} h"
    say(
        f"In batches: about {usd(batches.cost_usd)} in place of {usd(batches.ordinary_usd)}, and {batches.waves} waves or "
        f"more, each within {hours}: one for each call that waits for another. A budget or coverage that is near adds some."
    )
    say(
        f"The first rows of each stage and model, about {batches.timed_cells:,}, are called at once, at the ordinary "
        "price: only they have seconds. Reservations are made at the ordinary price."
    )
    if stopped_by == "budget":
        say("The rows above are those of the budget at ordinary prices: in batches it buys up to twice as many.")


def _show_needs(needs: Needs) -> None:
    """Print a table of the dollars, calls, requests and results that the profile's goal needs (low, middle and high estimate),
    and how many of each are left.

    Then print whether the budget suffices.
    """
    left_usd = "no budget" if needs.left_usd is None else usd(needs.left_usd)
    left_calls = "no budget" if needs.left_calls is None else f"{needs.left_calls:,}"
    rows = [
        ("dollars", *map(usd, needs.cost_usd), left_usd),
        ("calls", *_whole(needs.calls), left_calls),
        ("requests", *_whole(needs.requests), f"{needs.left_requests:,}"),
        ("rows", *_whole(needs.rows), f"{needs.left_rows:,}" if needs.left_rows < MOST_COUNTED else f"> {MOST_COUNTED:,}"),
    ]
    show_table(f"Needed for {_goal(needs)}", ("", "low", "middle", "high", "left"), rows)
    _show_race(needs)
    if needs.left_usd is None:
        return
    if needs.short_usd > 0:
        odds = "is likely to" if needs.cost_usd.middle > needs.left_usd else "may"
        say(f"The budget {odds} end the run before: up to {usd(needs.short_usd)} more than what is left may be needed.")
    else:
        say(f"What is left of the budget is enough for {_goal(needs)}.")


def _goal(needs: Needs) -> str:
    """Return the goal of a profile as text, such as ``2.0 % coverage``.

    Coverage is the cost of the recorded results as a share of the estimated cost of all results. Without a target
    coverage, the text is ``all single models on all requests``.
    """
    if needs.coverage is None:
        return "all single models on all requests"
    return f"{percent(needs.coverage)} coverage"


def _show_race(needs: Needs) -> None:
    """Print the estimated cost of the first phase, in which every single model answers the same requests; print nothing if it
    costs nothing.
    """
    needed = needs.race_usd
    if needed is None or needed.high == 0.0:
        return
    say(f"First all models, and what runs today, answer the same requests, for about {usd(needed.middle)}; losers drop out.")
    if needs.left_usd is not None and needs.left_usd < needed.high:
        say(f"The budget may end before that, and then nothing is recommended: {usd(needed.high)} would be enough.")


def _whole(one: ForecastInterval) -> tuple[str, str, str]:
    return f"{one.low:,.0f}", f"{one.middle:,.0f}", f"{one.high:,.0f}"


def _plain(one: Forecast | Needs) -> dict[str, Any]:
    """Return the fields of a forecast as plain JSON types. An interval becomes an object with the keys ``low``, ``middle`` and
    ``high``.
    """
    return {field.name: _named(getattr(one, field.name)) for field in fields(one)}


def _named(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _named(item) for key, item in value.items()}
    return value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else value
