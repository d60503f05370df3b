"""Builds the page of a batch: answers, models, cost and time."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.batches.result import BatchResult
from vinelm.objective import Objective
from vinelm.reports.document import Report, Row, Section, Table
from vinelm.reports.formatting import page_objective_words, percent, seconds, usd

_SIMULATED = "The answers of this batch are those of simulated models, not of real ones."


def batch_page(found: BatchResult, objective: Objective) -> Report:
    """Return the page of a finished or interrupted batch."""
    answered = found.by_status.get("ok", 0)
    of_budget = "" if found.budget_usd is None else f" of {usd(found.budget_usd)}"
    of_time = "" if found.deadline_s is None else f" of {seconds(found.deadline_s)}"
    findings = [f"{usd(found.spent_usd)}{of_budget} spent, {seconds(found.elapsed_s)}{of_time} taken."]
    if found.equal:
        findings.append(f"{found.equal:,} requests are equal to others and share their answers.")
    if found.equal_calls:
        findings.append(f"{found.equal_calls:,} calls were equal to others and cost nothing: {usd(found.saved_usd)} saved.")
    if found.unanswered_because is not None:
        findings.append(f"{found.by_status['unanswered']:,} requests are unanswered: {found.unanswered_because}.")
    if found.shared is not None:
        findings.append(f"{percent(found.shared)} of the tokens of first prompts begin as the prompt before them does.")
    return Report(
        title="Batch",
        subtitle=page_objective_words(objective),
        headline=f"{answered:,} of {found.requests:,} requests answered for {usd(found.spent_usd)}",
        is_gain=found.is_complete,
        findings=tuple(findings),
        sections=(Section(title="Requests and models", parts=tuple(_tables(found))),),
        provenance=(("answers", str(found.output)), ("store", found.store)),
        simulated=_SIMULATED if found.is_simulated else None,
    )


def _tables(found: BatchResult) -> list[Table]:
    statuses = [(status, f"{count:,}", percent(count / found.requests)) for status, count in found.by_status.items()]
    models = [(model, f"{count:,}") for model, count in found.calls_by_model.items()]
    reasons = [(reason, f"{count:,}") for reason, count in found.reasons.items()]
    tables = [_table("By status", ("status", "requests", "share"), statuses), _table("By model", ("model", "calls"), models)]
    return [*tables, _table("Failures", ("reason", "requests"), reasons)] if reasons else tables


def _table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(title=title, columns=columns, rows=tuple(Row(cells=cells) for cells in rows))
