"""Tables of policies' runs, for the report and the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from vinelm.evaluation import (
    ComparisonResult,
    PairwiseComparison,
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


def comparison_table(comparison: PolicyComparison, compared: ComparisonResult) -> Table:
    """Return one objective's table: VineLM, the best static plan, the best single model, and the best one in hindsight."""
    rivals: tuple[tuple[PolicyRun, Role, PairwiseComparison], ...] = (
        (comparison.static, "static", compared.static), (comparison.single, "single", compared.single),
    )  # fmt: skip
    best = replace(comparison.best_single_in_hindsight, policy=f"in hindsight: {comparison.best_single_in_hindsight.policy}")
    rows = [_run_row(comparison.vinelm, comparison.objective, "vinelm")]
    rows += [_run_row(run, comparison.objective, role, difference) for run, role, difference in rivals]
    rows.append(_run_row(best, comparison.objective, "model", compared.best_single_in_hindsight))
    columns = run_columns(comparison.objective)
    return Table(title=objective_words(comparison.objective), columns=columns, rows=tuple(rows))


def summary_table(verdict: Verdict) -> Table:
    """Return one row per objective: VineLM's result, its difference from each baseline, and what to use."""
    columns = ("objective", "VineLM", "against the best static plan", "against the best single model", "use")
    rows = tuple(_summary_row(compared) for compared in verdict.results)
    return Table(title="Summary", columns=columns, rows=rows, text_columns=(0, 1, 2, 3, 4))


def _summary_row(compared: ComparisonResult) -> Row:
    objective, own = compared.comparison.objective, compared.comparison.vinelm
    missed = missed_bounds(compared.comparison)
    in_time = " in time" if objective.max_latency_s is not None else ""
    reached = {
        "accuracy": f"{percent(float(own.utility(objective).mean()))} right{in_time}",
        "cost": f"{usd(own.mean_cost_usd)} per request",
        "latency": f"{seconds(own.mean_latency_s)} per request",
    }[objective.target]
    rivals = tuple(
        "the same" if rival.is_same else f"{difference_text(rival, objective)}: {rival.outcome}"
        for rival in (compared.static, compared.single)
    )
    cells = (objective_words(objective), reached, *rivals, short_advice(compared).removeprefix("use "))
    return Row(cells=cells, detail="; ".join(missed))


def singles_table(comparison: PolicyComparison) -> Table:
    """Return a folded table of every single model, run to the last invocation."""
    return Table(
        title=f"Every single model: {objective_words(comparison.objective)}",
        columns=run_columns(comparison.objective),
        rows=tuple(_run_row(run, comparison.objective, "model") for run in comparison.others),
        is_folded=True,
    )


def _run_row(run: PolicyRun, objective: Objective, role: Role, against: PairwiseComparison | None = None) -> Row:
    versus = f" · VineLM against it: {versus_text(against, objective)}" if against else ""
    return Row(role=role, cells=run_cells(run, objective), detail=run.plan.removeprefix(f"{run.policy}, ") + versus)


def comparison_runs(comparison: PolicyComparison) -> list[tuple[PolicyRun, Role]]:
    """Return all runs of a comparison with their roles, in display order."""
    compared: list[tuple[PolicyRun, Role]] = [
        (comparison.vinelm, "vinelm"), (comparison.static, "static"), (comparison.single, "single"),
    ]  # fmt: skip
    return [*compared, *((run, "model") for run in comparison.others)]


def run_columns(objective: Objective) -> tuple[str, ...]:
    """Return the column names of :func:`run_cells`."""
    if objective.max_latency_s is None:
        return ("policy", "estimate", "accuracy", "95 % interval", "mean cost", "mean latency")
    return ("policy", "estimate", "accuracy", "right in time", "95 % interval", "mean cost", "mean latency", "late")


def run_cells(run: PolicyRun, objective: Objective) -> tuple[str, ...]:
    """Return a run's cells for :func:`run_columns`: accuracy, interval, cost and latency; under a cap also the late share."""
    weights, cap = resample_weights(len(run), 0), objective.max_latency_s
    figures = (usd(run.mean_cost_usd), seconds(run.mean_latency_s))
    found = (run.policy, percent(run.expected_accuracy), percent(run.accuracy))
    if cap is None:
        return (*found, percent_interval(mean_interval(run.success, weights)), *figures)
    in_time = mean_interval(run.success & (run.latency_s <= cap), weights)
    return (*found, percent(in_time.value), percent_interval(in_time), *figures, percent(run.late(cap)))


def plain_runs(runs: Iterable[tuple[PolicyRun, Role]], objective: Objective, title: str, note: str = "") -> Table:
    """Return a table of runs that are not part of the verdict."""
    rows = tuple(Row(role=role, cells=run_cells(run, objective), detail=run.plan) for run, role in runs)
    return Table(title=title, columns=run_columns(objective), rows=rows, note=note)
