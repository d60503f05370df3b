"""``vinelm replay``: analyses recorded LLM calls, and shows where the money goes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vinelm.cli.console import echo, print_json, progress, say, show_table
from vinelm.cli.declared import declared
from vinelm.cli.options import flag, option, output_options, resumable
from vinelm.cli.quantities import USD
from vinelm.errors import ConfigError
from vinelm.reports import percent, seconds, usd
from vinelm.trie.verdict import counted

if TYPE_CHECKING:
    from vinelm.replay import Bill, ReplayResult
    from vinelm.replay.bill import StepBill
    from vinelm.replay.formats.reading import TraceReading

_MOST_ROWS = 20
"""The most steps that are listed; ``--json`` has all."""


@click.command("replay", short_help="Prove on recorded LLM calls that a cheaper model answers as well.")
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@flag("--dry-run", "Only say where the money goes; ask no model.")
@option(
    "--format",
    "Form of the traces: vinelm (the recorder's), otel (with OpenInference), langsmith, litellm, langfuse or openai "
    "[default: found out].",
    into="form",
)
@option("--redact MODULE:FUNCTION", "Function that is given each call (a LoggedCall) first and returns what may be used of it.")
@option(
    "--models MODELS",
    "What to ask: a catalog (.toml), or PROVIDER:MODEL with commas between [default: models of the same provider].",
)
@option("--budget-usd USD", "Never spend more than this, earlier runs included. Required without --dry-run.", USD)
@option("--store DB", "Keeps prompts, answers and labels; the same line continues it [default: replay.db].", Path)
@declared("vinelm.replay.replaying:replay", "backends")
@option("--report HTML", "Write a page about the verdicts, too: one file, without texts of prompts.", Path, into="page")
@option("--plans FOLDER", "Write a plan file for each switch to one model, which a canary takes.", Path)
@output_options
@resumable
def command(
    *,
    traces: tuple[Path, ...],
    dry_run: bool,
    form: str | None,
    redact: str | None,
    models: str | None,
    budget_usd: float | None,
    store: Path | None,
    page: Path | None,
    plans: Path | None,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Read the recorded LLM calls in TRACES, say where the money goes, and prove where a cheaper model is good enough.

    TRACES are files or folders: exports of Langfuse and LangSmith, OpenTelemetry and OpenInference spans (OTLP as JSON),
    LiteLLM's and OpenAI's logs, files of OpenAI's batches, or what vinelm.VineRecorder wrote; JSON, JSON lines, CSV, Parquet,
    also packed (.gz). Files may be larger than the memory. The dollars are those that the trace states; otherwise they are
    computed from its tokens at list prices.

    With --dry-run nothing is sent anywhere. Otherwise recorded prompts are sent to cheaper models, within --budget-usd. Before
    that, the command prints what it sends to which provider. If a plan gives the same answer as today's model, no label is
    needed. If the answers differ, the proof may need labels: `vinelm label` asks a person for them, without showing which model
    gave which answer, and then the same command continues.

    The verdict on each step is SWITCH, KEEP, UNDECIDED or NOT ENOUGH DATA. The store has prompts and answers in plain text, in
    a file that only you can read. Exit code 0 whatever the verdict, 2 for bad input. In Python: vinelm.replay.replay.

    Example: vinelm replay export.jsonl --dry-run

    Example: vinelm replay export.jsonl --models models.toml --budget-usd 2 --labels 60 --max-loss 2 --step grade_documents

    Example: vinelm replay export.jsonl --budget-usd 2 --same rules:same --check rules:ok --audit 0.1 --ignore why

    Example: vinelm replay queries.jsonl --budget-usd 2 --database app.sqlite --report replay.html --plans plans/

    Example: vinelm replay spans/ --format otel --store b.db --budget-usd 5 --requests 500 --workers 8 --again --show-text

    Example: vinelm replay export.jsonl --models models.toml --budget-usd 2 --weights days

    Example: vinelm replay export.jsonl --models models.toml --budget-usd 9 --judge openai:gpt-5 --batch-prices

    Example: vinelm replay export.jsonl --models models.toml --budget-usd 9 --engine ray://auto --ship
    """
    from vinelm.replay import bill_of, read_calls, replay
    from vinelm.replay.formats.reading import EVEN_DAYS, TraceReading
    from vinelm.workflows.registry import load_function

    if budget_usd is None and not dry_run:
        raise ConfigError("--budget-usd is missing: say what asking the models may cost (--dry-run asks nothing)")
    kept, reading = store or Path("replay.db"), TraceReading()
    if page is not None:  # before anything is spent
        from vinelm.reports.pictures.html import require_page

        if page.resolve() == kept.resolve():
            raise ConfigError(f"--report is {page}, which holds the answers: name another file")
        require_page(page)
    if plans is not None:
        _make(plans)
    change = None if redact is None else load_function(redact, "--redact")
    with progress(quiet=quiet) as advance:

        def report(read: TraceReading) -> None:
            size = f"{read.bytes_done / 1e6:,.0f} of {read.bytes_total / 1e6:,.0f} MB"
            advance(read.bytes_done, read.bytes_total, "reading", f"{read.calls:,} calls, {size}")

        weight = None if settings["weights"] in (None, EVEN_DAYS) else load_function(settings["weights"], "--weights")
        bill = None
        if dry_run or models is None:
            bill = bill_of(traces, format=form, redact=change, weight=weight, on_progress=report)
        if budget_usd is None or dry_run:  # a budget is only optional if nothing is asked
            assert bill is not None
            if as_json:
                print_json(bill.to_dict())
            else:
                show_bill(bill)
            return
        found = replay(
            read_calls(traces, format=form, redact=change, reading=reading, on_progress=report),
            kept,
            _models(models, bill),
            budget_usd=budget_usd,
            on_line=(lambda _: None) if quiet or as_json else say,
            on_progress=lambda done, of: advance(done, of, "asking"),
            on_note=lambda line: echo(line, err=True),
            **settings,
        )
    if as_json:
        print_json(found.to_dict() | {"broken": reading.broken})
    else:
        show_verdicts(found, kept)
        _show_broken(reading)
    written = [] if plans is None else list(_write_plans(found, plans))
    if page is not None:
        from vinelm.reports.pictures.html import write_page
        from vinelm.reports.replay_page import replay_page

        written.append(f"Wrote {write_page(replay_page(found, kept.name), page)}")
    if written and not as_json:
        echo("\n".join(written))


def _make(folder: Path) -> None:
    """Create the folder for plan files, so that an error occurs before any money is spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--plans is {folder}, which cannot be made: {error.strerror}") from error


def _write_plans(found: ReplayResult, folder: Path) -> Iterator[str]:
    """Write one plan file for a canary (a trial on a part of the traffic) for each recommended switch. Yield the file's name,
    or the reason why there is no file.
    """
    from vinelm.replay.result import file_name
    from vinelm.vinefile import save_trie

    for step in found.steps:
        if step.plan_file is not None:
            save_trie(folder / file_name(step.step), step.plan_file)
            yield f"Wrote {folder / file_name(step.step)}"
        elif step.advice == "switch":
            is_alone = step.kind == "alone"
            why = f"the models lack {step.today}, which runs today" if is_alone else "a plan with a rule is code, as above"
            yield f"{step.step} has no plan file: {why}"


def _models(named: str | None, bill: Bill | None) -> Any:
    """Return the models to ask: those that the user named, as a list or a catalog file, or else models of the providers in the
    trace.
    """
    from vinelm.catalog import Catalog
    from vinelm.scaffold.catalog_file import PROVIDER_MODELS, chosen_models

    if named is not None:
        return Path(named) if named.endswith(".toml") else Catalog.of(chosen_models(named.split(",")))
    assert bill is not None
    used = {model.rpartition("/")[2] for step in bill.steps for model in step.models}
    found = [
        name
        for names in PROVIDER_MODELS.values()
        if any(model.startswith(name.partition(":")[2].split("-")[0]) for name in names for model in used)
        for name in names
    ]
    if not found:
        raise ConfigError(
            f"the trace's models ({', '.join(sorted(used))}) are of no known provider: name cheaper ones, --models"
        )
    return Catalog.of(found)


def show_verdicts(found: ReplayResult, store: Path) -> None:
    """Print the verdict on each step: what was compared, code to paste, and what to do next."""
    from vinelm.reports.replay_page import COLUMNS, plan_rows

    for step in found.steps:
        echo("")
        say(step.sentence, bold=True)
        if step.table:
            show_table(
                "Compared on the requests that chose the plan", (f"<{COLUMNS[0]}", *COLUMNS[1:]), plan_rows(step),
                caption=f"Answers are compared as {step.how}.",
            )  # fmt: skip
        for line in step.notes:
            say(f"note  {line}", hanging=6)
        if step.paste:
            echo(f"\n{step.paste}")
    echo("")
    if found.together:
        say(found.together, bold=True)
    if found.others:
        say(f"Not looked at: {', '.join(f'{name} ({percent(share)} of the bill)' for name, share in found.others.items())}.")
    simulated = " Simulated models." if found.is_simulated else ""
    say(f"{usd(found.spent_usd)} of {usd(found.budget_usd)} spent.{simulated}")
    if found.waiting:
        wait = "waits" if found.waiting == 1 else "wait"
        say(f"{counted(found.waiting, 'question')} {wait} for an answer: vinelm label {store}, then the same line.", bold=True)


def show_bill(bill: Bill) -> None:
    """Print where the money of the recorded calls goes: a sentence, two tables, and what is unknown."""
    span = bill.span_days
    month, spent = bill.a_month(bill.cost_usd), usd(bill.cost_usd)
    about = "" if bill.requests_are_exact else "about "
    calls, requests = counted(bill.reading.calls, "call"), counted(bill.requests, "request")
    say(f"{calls} of {about}{requests}: {spent}{_when(bill)}.", bold=True)
    if bill.stand_for != sum(step.calls for step in bill.steps):
        say(f"By their sampling rates they represent {bill.stand_for:,.0f} calls: the dollars and the tables are of these.")
    if month is not None:
        say(f"That is about {usd(month)} a month (30 days).")
    shown = bill.steps[:_MOST_ROWS]
    per, factor = ("$ a month", month / bill.cost_usd) if month is not None and bill.cost_usd else ("$", 1.0)
    show_table(
        "Where the money goes",
        ("step", "<model", "calls", per, "share", "short or structured"),
        [_money(step, bill, factor) for step in shown],
    )
    show_table(
        "A call: seconds, and tokens on the mean",
        ("step", "p50", "p95", "in", "cached", "out", "failed"),
        [_call(step) for step in shown],
    )
    if rest := bill.steps[_MOST_ROWS:]:
        say(f"{len(rest)} more steps: {usd(sum(step.cost_usd for step in rest))}; --json has them.")
    if bill.comparable_share is not None:
        say(
            f"{percent(bill.comparable_share)} of the bill is in calls whose answer is short (at most 20 tokens) or structured "
            "(JSON, a tool call): whether a cheaper model gives the same answer there needs no judge."
        )
    for sentence in _unknown(bill, span):
        say(sentence)
    _show_broken(bill.reading)


def _show_broken(reading: TraceReading) -> None:
    """Print the first lines of the trace that could not be read, and the number of all such lines."""
    if reading.broken:
        first = ", the first of them:" if reading.broken > len(reading.named) else ":"
        say(f"{counted(reading.broken, 'line')} could not be read{first}")
        for line in reading.named:
            echo(f"  {line}")


def _money(step: StepBill, bill: Bill, factor: float) -> tuple[str, ...]:
    (model, calls), *more = step.models.most_common()
    share = step.cost_usd / bill.cost_usd if bill.cost_usd else None
    comparable = step.comparable_usd / step.cost_usd if step.cost_usd else None
    is_known = step.unpriced < step.calls
    return (
        step.title,
        model if not more else f"{model} {percent(calls / step.calls)}",
        f"{step.stand_for:,.0f}",
        usd(step.cost_usd * factor) if is_known else "unknown",
        percent(share) if is_known else "-",
        percent(comparable),
    )


def _call(step: StepBill) -> tuple[str, ...]:
    tokens = (f"{total / (step.stand_for or 1):,.0f}" for total in (step.tokens_in, step.cached_tokens, step.tokens_out))
    p50, p95 = (seconds(step.seconds.quantile(share)) for share in (0.5, 0.95))
    return step.title, p50, p95, *tokens, f"{step.failed:,}"


def _when(bill: Bill) -> str:
    """Return the period of time that the calls of the trace cover, in words."""
    if bill.started_at is None or bill.ended_at is None:
        return ""
    first, last = (datetime.fromtimestamp(at, UTC).date().isoformat() for at in (bill.started_at, bill.ended_at))
    return f", {first} to {last}" if first != last else f", {first}"


def _unknown(bill: Bill, span: float | None) -> list[str]:
    """Return one sentence for each fact about the bill that the trace does not state.

    ``span`` is the number of days that the trace covers; None if the trace has no times.
    """
    found = []
    if span is None:
        found.append("The calls have no times, so that dollars a month are not known.")
    elif bill.a_month(1.0) is None:
        found.append(f"The trace spans {24 * span:.1f} hours: too short to say what a month costs.")
    elif span < 7 or bill.days < span / 2:
        found.append(
            f"The trace has calls on {bill.days} of {max(span, bill.days):.0f} days: days without calls, and weekends, may make"
            " a month differ."
        )
    priced = sum(step.priced_usd for step in bill.steps)
    if priced:
        found.append(f"{usd(priced)} of {usd(bill.cost_usd)} follow from list prices: the trace does not state them.")
    for why, calls in bill.unpriced.most_common(5):
        reason = why if why.startswith("no ") else f"no price is known for {why}"
        found.append(f"The dollars of {calls:,} calls are not known, and in no sum: {reason}.")
    return found
