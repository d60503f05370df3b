"""``vinelm replay``: from recorded LLM calls to where the money goes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vinelm.cli.console import echo, print_json, progress, say, show_table
from vinelm.cli.options import flag, option, output_options
from vinelm.errors import ConfigError
from vinelm.reports import percent, seconds, usd

if TYPE_CHECKING:
    from vinelm.replay import Bill
    from vinelm.replay.bill import StepBill
    from vinelm.replay.formats.reading import TraceReading

_MOST_ROWS = 20
"""The most steps that are listed; ``--json`` has all."""


@click.command("replay", short_help="Say where the money of recorded LLM calls goes.")
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@flag("--dry-run", "Only say where the money goes; ask no model.")
@option(
    "--format",
    "Form of the traces: vinelm (the recorder's), otel (with OpenInference), langsmith, litellm, langfuse or openai "
    "[default: found out].",
    into="form",
)
@option("--redact MODULE:FUNCTION", "Function that is given each call (a LoggedCall) first and returns what may be used of it.")
@output_options
def command(
    *, traces: tuple[Path, ...], dry_run: bool, form: str | None, redact: str | None, as_json: bool, quiet: bool
) -> None:
    """Read the recorded LLM calls in TRACES and say where the money goes: per step, dollars, calls, seconds and tokens.

    TRACES are files or folders: exports of Langfuse and LangSmith, OpenTelemetry and OpenInference spans (OTLP as JSON),
    LiteLLM's and OpenAI's logs, or what vinelm.VineRecorder wrote; JSON, JSON lines, CSV, Parquet, also packed (.gz). Files may
    be larger than the memory. Dollars are those of the trace, else list prices of its tokens.

    Of prompts, only the first words of the system prompt are shown, as the title of a step that has no name. Nothing is sent
    anywhere.

    Example: vinelm replay export.jsonl --dry-run
    """
    from vinelm.replay import bill_of
    from vinelm.workflows.registry import load_function

    if not dry_run:
        raise ConfigError(
            "asking cheaper models the recorded prompts is not built yet: use --dry-run to see where the money goes"
        )
    change = None if redact is None else load_function(redact, "--redact")
    with progress(quiet=quiet) as advance:

        def report(read: TraceReading) -> None:
            advance(read.bytes_done, read.bytes_total, "reading", f"{read.calls:,} calls")

        bill = bill_of(traces, format=form, redact=change, on_progress=report)
    if as_json:
        print_json(bill.to_dict())
    else:
        show_bill(bill)


def show_bill(bill: Bill) -> None:
    """Print where the money goes: a sentence, two tables, and what is not known."""
    span = bill.span_days
    month, spent = bill.a_month(bill.cost_usd), usd(bill.cost_usd)
    about = "" if bill.requests_are_exact else "about "
    say(f"{bill.reading.calls:,} calls of {about}{bill.requests:,} requests: {spent}{_when(bill)}.", bold=True)
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
    for line in bill.reading.named:
        echo(f"  {line}")


def _money(step: StepBill, bill: Bill, factor: float) -> tuple[str, ...]:
    (model, calls), *more = step.models.most_common()
    share = step.cost_usd / bill.cost_usd if bill.cost_usd else None
    comparable = step.comparable_usd / step.cost_usd if step.cost_usd else None
    is_known = step.unpriced < step.calls
    return (
        step.title,
        model if not more else f"{model} {percent(calls / step.calls)}",
        f"{step.calls:,}",
        usd(step.cost_usd * factor) if is_known else "unknown",
        percent(share) if is_known else "-",
        percent(comparable),
    )


def _call(step: StepBill) -> tuple[str, ...]:
    tokens = (f"{total / step.calls:,.0f}" for total in (step.tokens_in, step.cached_tokens, step.tokens_out))
    p50, p95 = (seconds(step.seconds.quantile(share)) for share in (0.5, 0.95))
    return step.title, p50, p95, *tokens, f"{step.failed:,}"


def _when(bill: Bill) -> str:
    """The days of the trace, in words."""
    if bill.started_at is None or bill.ended_at is None:
        return ""
    first, last = (datetime.fromtimestamp(at, UTC).date().isoformat() for at in (bill.started_at, bill.ended_at))
    return f", {first} to {last}" if first != last else f", {first}"


def _unknown(bill: Bill, span: float | None) -> list[str]:
    """What the trace does not say, a sentence each."""
    found = []
    if span is None:
        found.append("The calls have no times, so that dollars a month are not known.")
    elif bill.a_month(1.0) is None:
        found.append(f"The trace spans {24 * span:.1f} hours: too short to say what a month costs.")
    elif span < 7 or bill.days < span / 2:
        found.append(
            f"The trace has calls on {bill.days} of {span:.0f} days: days without calls, and weekends, may make a month differ."
        )
    priced = sum(step.priced_usd for step in bill.steps)
    if priced:
        found.append(f"{usd(priced)} of {usd(bill.cost_usd)} follow from list prices: the trace does not state them.")
    for why, calls in bill.unpriced.most_common(5):
        reason = why if why.startswith("no ") else f"no price is known for {why}"
        found.append(f"The dollars of {calls:,} calls are not known, and in no sum: {reason}.")
    if bill.reading.broken:
        found.append(
            f"{bill.reading.broken:,} lines could not be read" + (", the first of them:" if bill.reading.broken > 20 else ":")
        )
    return found
