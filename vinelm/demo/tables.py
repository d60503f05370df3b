"""Runs of policies as table rows, for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vinelm.evaluation import (
    Comparison,
    ComparisonResult,
    PolicyComparison,
    PolicyRun,
    Role,
    Verdict,
    mean_interval,
    resample_weights,
)
from vinelm.objective import Objective
from vinelm.reports import (
    Row,
    Table,
    difference_text,
    missed_bounds,
    objective_words,
    percent,
    percent_interval,
    seconds,
    short_advice,
    usd,
    versus_text,
)


def contest_table(contest: PolicyComparison, ruling: ComparisonResult) -> Table:
    """One objective: VineLM, the best static plan and single model by the same estimates, and the best one in hindsight."""
    rivals: tuple[tuple[PolicyRun, Role, Comparison], ...] = (
        (contest.static, "static", ruling.static), (contest.single, "single", ruling.single),
    )  # fmt: skip
    best = replace(contest.best_single_in_hindsight, policy=f"with hindsight: {contest.best_single_in_hindsight.policy}")
    rows = [_run_row(contest.vinelm, contest.objective, "vinelm")]
    rows += [_run_row(run, contest.objective, role, comparison) for run, role, comparison in rivals]
    rows.append(_run_row(best, contest.objective, "model", ruling.best_single_in_hindsight))
    columns = run_columns(contest.objective)
    return Table(title=objective_words(contest.objective), columns=columns, rows=tuple(rows))


def summary_table(verdict: Verdict) -> Table:
    """One row per objective: what VineLM reached, how that compares with its rivals, and what to use."""
    columns = ("wanted", "VineLM", "against the best static plan", "against the best single model", "use")
    rows = tuple(_summary_row(ruling) for ruling in verdict.rulings)
    return Table(title="In short", columns=columns, rows=rows, text_columns=(0, 1, 2, 3, 4))


def _summary_row(ruling: ComparisonResult) -> Row:
    objective, own = ruling.contest.objective, ruling.contest.vinelm
    missed = missed_bounds(ruling.contest)
    in_time = " in time" if objective.max_latency_s is not None else ""
    reached = {
        "accuracy": f"{percent(float(own.worth(objective).mean()))} right{in_time}",
        "cost": f"{usd(own.mean_cost_usd)} per request",
        "latency": f"{seconds(own.mean_latency_s)} per request",
    }[objective.target]
    rivals = tuple(
        "the same" if rival.is_same else f"{difference_text(rival, objective)}: {rival.outcome}"
        for rival in (ruling.static, ruling.single)
    )
    cells = (objective_words(objective), reached, *rivals, short_advice(ruling).removeprefix("use "))
    return Row(cells=cells, detail="; ".join(missed))


def singles_table(contest: PolicyComparison) -> Table:
    """Every single model, run to the last invocation, under that objective's measure. Folded."""
    return Table(
        title=f"Every single model: {objective_words(contest.objective)}",
        columns=run_columns(contest.objective),
        rows=tuple(_run_row(run, contest.objective, "model") for run in contest.others),
        is_folded=True,
    )


def _run_row(run: PolicyRun, objective: Objective, role: Role, against: Comparison | None = None) -> Row:
    versus = f" · VineLM against it: {versus_text(against, objective)}" if against else ""
    return Row(role=role, cells=run_cells(run, objective), detail=run.plan.removeprefix(f"{run.policy}, ") + versus)


def contest_runs(contest: PolicyComparison) -> list[tuple[PolicyRun, Role]]:
    """The contest's runs with their roles, in the order they are shown."""
    judged: list[tuple[PolicyRun, Role]] = [
        (contest.vinelm, "vinelm"), (contest.static, "static"), (contest.single, "single"),
    ]  # fmt: skip
    return [*judged, *((run, "model") for run in contest.others)]


def run_columns(objective: Objective) -> tuple[str, ...]:
    """Headings of :func:`run_cells`."""
    if objective.max_latency_s is None:
        return ("policy", "expected", "accuracy", "95 % interval", "mean cost", "mean latency")
    return ("policy", "expected", "accuracy", "right in time", "95 % interval", "mean cost", "mean latency", "late")


def run_cells(run: PolicyRun, objective: Objective) -> tuple[str, ...]:
    """Policy, expected and found accuracy, under a latency cap the right answers in time, interval, dollars, seconds, late."""
    weights, cap = resample_weights(len(run), 0), objective.max_latency_s
    figures = (usd(run.mean_cost_usd), seconds(run.mean_latency_s))
    found = (run.policy, percent(run.expected_accuracy), percent(run.accuracy))
    if cap is None:
        return (*found, percent_interval(mean_interval(run.success, weights)), *figures)
    in_time = mean_interval(run.success & (run.latency_s <= cap), weights)
    return (*found, percent(in_time.value), percent_interval(in_time), *figures, percent(run.late(cap)))


def plain_runs(runs: Iterable[tuple[PolicyRun, Role]], objective: Objective, title: str, note: str = "") -> Table:
    """Runs that are shown apart and not judged."""
    rows = tuple(Row(role=role, cells=run_cells(run, objective), detail=run.plan) for run, role in runs)
    return Table(title=title, columns=run_columns(objective), rows=rows, note=note)
