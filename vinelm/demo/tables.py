"""Tables of policies' runs, for the report and the terminal."""

from __future__ import annotations

from dataclasses import replace

from vinelm.evaluation import PolicyRun, mean_interval
from vinelm.evaluation.policy_run import Role, resample_weights
from vinelm.evaluation.verdicts.budget_sweep import SweepVerdict
from vinelm.evaluation.verdicts.verdict import ComparisonResult, PairwiseComparison, PolicyComparison, Verdict
from vinelm.objective import Objective
from vinelm.reports import (
    Row,
    Table,
    budgets_words,
    difference_text,
    missed_bounds,
    objective_words,
    percent,
    percent_interval,
    points_text,
    seconds,
    short_advice,
    sweep_advice,
    usd,
    versus_text,
)


def comparison_table(comparison: PolicyComparison, compared: ComparisonResult) -> Table:
    """Return one objective's table: VineLM, its plan over paths, the static plan, and the best single models."""
    rivals: list[tuple[PolicyRun, Role, PairwiseComparison]] = [
        (comparison.static, "static", compared.static), (comparison.single, "single", compared.single),
    ]  # fmt: skip
    if comparison.paths is not None and compared.paths is not None:
        rivals.insert(0, (comparison.paths, "paths", compared.paths))
    best = replace(comparison.best_single_in_hindsight, policy=f"in hindsight: {comparison.best_single_in_hindsight.policy}")
    rows = [_run_row(comparison.vinelm, comparison.objective, "vinelm")]
    rows += [_run_row(run, comparison.objective, role, difference) for run, role, difference in rivals]
    rows.append(_run_row(best, comparison.objective, "model", compared.best_single_in_hindsight))
    columns = run_columns(comparison.objective)
    return Table(title=objective_words(comparison.objective), columns=columns, rows=tuple(rows))


def summary_table(verdict: Verdict) -> Table:
    """Return a row for the sweep of budgets and one per objective: VineLM's result, its differences, and what to use."""
    columns = ("objective", "VineLM", "against the best static plan", "against the best single model", "use")
    rows = tuple(_summary_row(compared) for compared in verdict.results)
    if verdict.sweep is not None:
        rows = (_sweep_row(verdict.sweep), *rows)
    return Table(title="Summary", columns=columns, rows=rows, text_columns=(0, 1, 2, 3, 4))


def _sweep_row(sweep: SweepVerdict) -> Row:
    rivals = tuple(f"{points_text(pair)}: {pair.outcome}" for pair in (sweep.static, sweep.single))
    title = f"Mean over {budgets_words(sweep)}"
    return Row(cells=(title, f"{percent(sweep.accuracy)} right", *rivals, sweep_advice(sweep).removeprefix("use ")))


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
    if comparison.paths is not None:
        compared.insert(1, (comparison.paths, "paths"))
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
