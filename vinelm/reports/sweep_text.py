"""The verdict over a sweep of budgets, in words and as a table."""

from __future__ import annotations

from vinelm.evaluation.policy_plans import NAMES
from vinelm.evaluation.policy_run import Role
from vinelm.evaluation.verdicts.budget_sweep import SweepPair, SweepVerdict
from vinelm.reports.formatting import percent, usd
from vinelm.reports.page.document import Row, Table


def budgets_words(sweep: SweepVerdict) -> str:
    """Name the budgets: ``9 budgets, $0.000120 to $0.00300``."""
    if len(sweep.caps) == 1:
        return f"one budget, {usd(sweep.caps[0])}"
    return f"{len(sweep.caps)} budgets, {usd(sweep.caps[0])} to {usd(sweep.caps[-1])}"


def points_text(pair: SweepPair) -> str:
    """Format the mean difference in points with its interval: ``+3.1 points (+0.4 to +5.9)``."""
    value, low, high = pair.difference.value, pair.difference.low, pair.difference.high
    return f"{100 * value:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"


def sweep_line(sweep: SweepVerdict) -> str:
    """Describe the result of the sweep in one line, with what to use."""
    parts = [f"{points_text(pair)} against the {pair.policy}: {pair.outcome}" for pair in (sweep.static, sweep.single)]
    hindsight = sweep.hindsight
    if hindsight.difference.value < 0 and sweep.single.outcome != "loss":
        parts.append(f"{points_text(hindsight)} against the best single model in hindsight")
    exceeded = max(pair.exceeded for pair in (sweep.static, sweep.single, hindsight))
    if exceeded:
        parts.append(f"VineLM exceeds {exceeded} of the budgets, where its advantage does not count")
    return f"On average over {budgets_words(sweep)}: {'; '.join(parts)}; {sweep_advice(sweep)}."


def sweep_advice(sweep: SweepVerdict) -> str:
    """Return what to use over the whole range of budgets: VineLM, the static plan, or single models."""
    if sweep.is_gain:
        return "use VineLM"
    if sweep.beats_single:
        return "use the static plan" if sweep.static.outcome == "loss" else "use VineLM or the static plan"
    return "use a single model"


def sweep_rows(sweep: SweepVerdict) -> list[tuple[Role, tuple[str, str, str, str]]]:
    """Return (role, cells) of each policy: its name, mean accuracy, VineLM's difference from it, and the outcome."""
    pairs: list[tuple[Role, SweepPair]] = [
        *sweep.others.items(), ("static", sweep.static), ("single", sweep.single), ("hindsight", sweep.hindsight),
    ]  # fmt: skip
    rows: list[tuple[Role, tuple[str, str, str, str]]] = [("vinelm", (NAMES["vinelm"], percent(sweep.accuracy), "", ""))]
    for role, pair in pairs:
        name = "one model, in hindsight" if role == "hindsight" else pair.policy
        rows.append((role, (name, percent(pair.accuracy), points_text(pair).replace(" points", ""), pair.outcome)))
    return rows


SWEEP_COLUMNS = ("policy", "accuracy", "VineLM against it, points", "outcome")
"""Names of the cells of :func:`sweep_rows`."""


def sweep_table(sweep: SweepVerdict) -> Table:
    """Return the means over the budgets as a table, one row for each policy."""
    return Table(
        title=f"Mean over {budgets_words(sweep)}",
        columns=SWEEP_COLUMNS,
        rows=tuple(Row(role=role, cells=cells) for role, cells in sweep_rows(sweep)),
        text_columns=(0, 3),
        note="The gain counts only against the best static plan and the best single model. In hindsight: under each budget the "
        "single model that did best on these requests. In parentheses: 95 % intervals, paired by request.",
    )
