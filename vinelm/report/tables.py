"""Runs of policies as table rows, for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from vinelm.objective import Objective
from vinelm.report.content import Role, Row, Table
from vinelm.report.runs import PolicyRun, mean_interval, resample_weights
from vinelm.report.verdict import Contest, Ruling, difference_text
from vinelm.report.words import objective_words, percent, percent_interval, seconds, usd


def contest_table(contest: Contest, ruling: Ruling | None = None, *, note: str = "") -> Table:
    """One objective: VineLM, the static plan, the best single model, then every other run. One row each."""
    objective = contest.objective
    is_timed = objective.max_latency_s is not None
    versus = _versus(contest, ruling)
    rows = []
    for run, role in contest_runs(contest):
        cells = list(run_cells(run, objective))
        rows.append(Row(role=role, cells=(*cells[:-1], versus.get(id(run), ""), cells[-1])))
    timed = ("right in time",) if is_timed else ()
    late = ("late",) if is_timed else ()
    columns = (
        "policy",
        "expected",
        "accuracy",
        "95 % interval",
        *timed,
        "mean cost",
        "mean latency",
        *late,
        "VineLM is ahead by",
        "plan",
    )
    return Table(
        title=objective_words(objective),
        columns=columns,
        rows=tuple(rows),
        text_columns=(0, len(columns) - 1),
        note=note,
    )


def contest_runs(contest: Contest) -> list[tuple[PolicyRun, Role]]:
    """The contest's runs with their roles, in the order they are shown."""
    judged: list[tuple[PolicyRun, Role]] = [
        (contest.vinelm, "vinelm"), (contest.static, "static"), (contest.single, "single"),
    ]  # fmt: skip
    return [*judged, *((run, "model") for run in contest.others)]


def run_cells(run: PolicyRun, objective: Objective) -> tuple[str, ...]:
    """Policy, expected accuracy, accuracy, interval, share in time (under a cap), dollars, seconds, late share, plan."""
    interval = mean_interval(run.success, resample_weights(len(run), 0))
    timed: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    if objective.max_latency_s is not None:
        in_time = run.success & (run.latency_s <= objective.max_latency_s)
        timed, late = (percent(float(in_time.mean())),), (percent(run.late(objective.max_latency_s)),)
    return (
        run.policy, percent(run.expected_accuracy), percent(run.accuracy), percent_interval(interval), *timed,
        usd(run.mean_cost_usd), seconds(run.mean_latency_s), *late, run.plan,
    )  # fmt: skip


def plain_runs(runs: Iterable[tuple[PolicyRun, Role]], objective: Objective, title: str, note: str = "") -> Table:
    """Runs that are shown apart and not judged."""
    rows = tuple(Row(role=role, cells=run_cells(run, objective)) for run, role in runs)
    is_timed = objective.max_latency_s is not None
    timed, late = (("right in time",), ("late",)) if is_timed else ((), ())
    columns = ("policy", "expected", "accuracy", "95 % interval", *timed, "mean cost", "mean latency", *late, "plan")
    return Table(title=title, columns=columns, rows=rows, text_columns=(0, len(columns) - 1), note=note)


def _versus(contest: Contest, ruling: Ruling | None) -> dict[int, str]:
    if ruling is None:
        return {}
    return {
        id(contest.static): difference_text(ruling.static, contest.objective),
        id(contest.single): difference_text(ruling.single, contest.objective),
    }
