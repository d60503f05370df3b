"""``vinelm batch``: answers a data set with an application, within a total budget of dollars and hours."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo, print_json, progress, say, show_table
from vinelm.cli.declared import declared
from vinelm.cli.inputs import in_options, objective_in
from vinelm.cli.options import objective_options, option, output_options, resumable
from vinelm.cli.quantities import DURATION
from vinelm.errors import BudgetExhausted, ConfigError
from vinelm.reports import percent, seconds, usd

if TYPE_CHECKING:
    from vinelm.batches import BatchResult

MOST_REASONS = 5
"""How many reasons of failed requests are shown."""


@click.command("batch", short_help="Answer a data set within a budget and a deadline.")
@click.argument("workflow")
@option("--trie VINE", "What `vinelm estimate` made of the application's profile.", Path, required=True)
@objective_options
@declared(
    "vinelm.batches.batch:batch",
    deadline_s=("--deadline TIME", DURATION),
    cache_age_s=("--cache-age TIME", DURATION),
)
@option("-o --output FILE", "The answers: JSON lines in the order of the data set.", Path, required=True)
@option("--report HTML", "Write a page about the batch, too.", Path, into="page")
@output_options
@resumable
def command(
    *,
    workflow: str,
    trie: Path,
    output: Path,
    page: Path | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Answer every request of a data set with the application, each with a plan that fits the dollars and hours that are left.

    WORKFLOW is MODULE:ATTRIBUTE, or FILE.py:ATTRIBUTE in this folder. Equal requests are answered once, and requests whose
    prompts begin alike go one after the other. A failed request counts as done, and is not tried again. Every answer is stored
    before the next request starts. After an interruption the same command continues, and pays again only for requests that were
    in progress.

    Exit code 0 if every request was answered or failed, 2 for bad input, 3 if money or time ran out before the last request.

    Example: vinelm batch app.py:workflow --dataset docs.jsonl --trie app.vine --maximize accuracy --budget-usd 40
    --deadline 7h -o answers.jsonl

    Example: vinelm batch app.py:workflow --trie app.vine --maximize accuracy --budget-usd 40 --deadline 2d --batch-prices
    --finish good --models models.toml --workers 100 --store answers.db -o answers.jsonl --report batch.html --dry-run

    Example: vinelm batch app.py:workflow --trie app.vine --minimize cost --budget-usd 40 --cache calls.db --cache-age 1d
    -o monday.jsonl
    """
    from vinelm.batches import batch

    objective, dry_run = objective_in(given), given["dry_run"]
    if page is not None and page.resolve() in {output.resolve(), Path(given["store"] or output.with_suffix(".db")).resolve()}:
        raise ConfigError(f"--report is {page}, which holds the answers: name another file")
    if page is not None:  # before anything is spent
        from vinelm.reports.pictures.html import require_page

        require_page(page)
    with in_options(), progress(quiet=quiet) as advance:
        found = batch(
            workflow,
            trie,
            objective,
            output=output,
            on_note=lambda line: echo(line, err=True),
            on_done=lambda done, total: advance(done, total, "batch", f"{done:,} of {total:,} requests"),
            **given,
        )
    if as_json:
        print_json({"objective": objective.to_dict(), "is_dry_run": dry_run, **found.to_dict()})
    elif dry_run:
        _show_price(found)
    else:
        _show(found)
    if page is not None and not dry_run:
        from vinelm.reports.batch_page import batch_page
        from vinelm.reports.pictures.html import write_page

        path = write_page(batch_page(found, objective), page)
        if not as_json:
            echo(f"Wrote {path}")
    if not (dry_run or found.is_complete):
        raise BudgetExhausted(_left(found))


def _left(found: BatchResult) -> str:
    what = "--deadline" if found.unanswered_because == "deadline" else "--budget-usd"
    return (
        f"{found.by_status['unanswered']:,} of {found.requests:,} requests are unanswered ({found.unanswered_because}): raise"
        f" {what} and run the same line to answer them"
    )


def _show_price(found: BatchResult) -> None:
    forecast = found.forecast
    assert forecast is not None
    different = found.requests - found.equal
    say(
        f"{found.requests:,} requests ({found.equal:,} equal to others): {usd(forecast.usd)}, {seconds(forecast.seconds)}, "
        f"accuracy {percent(forecast.accuracy)}."
    )
    if forecast.requests < different:
        say(f"Only about {forecast.requests:,} of the {different:,} different ones can be answered within that.")
    if (batched := found.in_batches) is not None:
        in_time = math.inf if found.deadline_s is None else int(found.deadline_s / batched.wait_s)
        late = "" if in_time >= batched.waves else f" If each takes that long, {in_time:,} fit, and the rest is asked at once."
        say(
            f"At batch prices, in place of {usd(batched.ordinary_usd)}; in about {batched.waves:,} waves, each within "
            f"{batched.wait_s / 3600:g} h.{late}"
        )
    if found.shared is not None:
        say(f"In this order, {percent(found.shared)} of the tokens of first prompts begin as the prompt before them does.")
    else:
        say(f"Ordered by the inputs alone: {found.note}.")
    simulated = " The models are simulated." if found.is_simulated else ""
    say(f"Nothing was called.{simulated}")


def _show(found: BatchResult) -> None:
    rows = [(status, f"{count:,}", percent(count / found.requests)) for status, count in found.by_status.items()]
    show_table("By status", ("status", "requests", "share"), rows)
    show_table("By model", ("model", "calls"), [(model, f"{count:,}") for model, count in found.calls_by_model.items()])
    for reason, number in list(found.reasons.items())[:MOST_REASONS]:
        say(f"{number:,} failed: {reason}", indent="  ", hanging=2)
    of_budget = "" if found.budget_usd is None else f" of {usd(found.budget_usd)}"
    of_time = "" if found.deadline_s is None else f" of {seconds(found.deadline_s)}"
    equal = f"; {found.equal:,} share the answer of an equal one" if found.equal else ""
    simulated = " Simulated models." if found.is_simulated else ""
    used = f"{usd(found.spent_usd)}{of_budget} spent, {seconds(found.elapsed_s)}{of_time} taken"
    say(f"{found.requests:,} requests{equal}. {used}.{simulated}")
    if found.equal_calls:
        say(f"{found.equal_calls:,} calls were equal to others and cost nothing: {usd(found.saved_usd)} saved.")
    echo(f"Wrote {found.output}")
