"""How an autopilot stands, in tables and words: for the terminal, and as a page without prompts."""

from __future__ import annotations

from collections.abc import Iterator

from vinelm.autopilot.status import PilotStatus, StepStatus
from vinelm.reports.document import Report, Row, Section, Table
from vinelm.reports.formatting import usd

COLUMNS = ("step", "<today", "recorded", "on plan", "plan saves", "loses at most", "saved, 30 days")
"""Headings of :func:`step_rows`."""
NOTE = "Loses at most: points of accuracy (95 %, at any look). Recorded: calls that today's model answered."
_SIMULATED = "The answers of this service are those of simulated models, not of real ones."


def step_rows(found: PilotStatus) -> list[tuple[str, ...]]:
    """Return a row for each step."""
    return [
        (
            one.step, one.today, f"{one.recorded:,}", f"{100 * one.share:.0f} %",
            "-" if one.proven is None else f"{100 * one.saves:.0f} %", "-" if one.proven is None else f"{100 * one.proven:g}",
            usd(one.saved_usd),
        )
        for one in found.steps
    ]  # fmt: skip


def step_lines(one: StepStatus) -> Iterator[str]:
    """Yield how a step stands, and its last alarms."""
    plan = "" if one.plan is None else f" {one.plan}"
    yield f"{one.step}: {one.says}{':' if plan else ''}{plan}."
    for day, why in one.alarms[-3:]:
        yield f"  {one.step}, {day}: back to {one.today}: {why}."


def money_line(found: PilotStatus) -> str:
    """Return what learning has cost, and what plans have saved."""
    return (
        f"Learning has cost {usd(found.learning_usd)}, {usd(found.today_usd)} of it today (UTC); plans have saved "
        f"{usd(found.saved_usd)} in 30 days."
    )


def waiting_line(found: PilotStatus, store: str) -> str | None:
    """Return how to answer the questions that wait; None if none does."""
    if not found.waiting:
        return None
    return f"{found.waiting} {'questions wait' if found.waiting > 1 else 'question waits'}: vinelm label {store}"


def status_page(found: PilotStatus, store: str) -> Report:
    """Return the page of an autopilot.

    Args:
        found: How it stands.
        store: The name of its store, for the command line.
    """
    serving = [one for one in found.steps if one.share]
    waits = waiting_line(found, store)
    lines = tuple(line.strip() for one in found.steps for line in step_lines(one))
    table = Table(
        title="Steps",
        columns=tuple(name.removeprefix("<") for name in COLUMNS),
        rows=tuple(Row(cells=cells) for cells in step_rows(found)),
        text_columns=(0, 1),
        note=NOTE,
    )
    return Report(
        title="Autopilot",
        subtitle=f"{len(found.steps)} steps, {sum(one.recorded for one in found.steps):,} recorded calls",
        headline=f"Proven plans serve {len(serving)} of {len(found.steps)} steps: {usd(found.saved_usd)} saved in 30 days",
        is_gain=bool(serving),
        findings=(money_line(found), *(() if waits is None else (waits,))),
        sections=(Section(title="What runs where", findings=lines, parts=(table,)),),
        provenance=(
            ("store", store),
            ("proofs begun", str(found.attempts)),
            ("questions answered", str(found.answered)),
        ),
        simulated=_SIMULATED if found.is_simulated else None,
    )
