"""Builds the report's sections on sweeps, in which one limit of the objective (such as the budget) takes a range of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vinelm.evaluation.comparison.fit import TITLES
from vinelm.evaluation.store_sweeps.swept_policies import PolicySweep, SweptPolicy
from vinelm.reports.document import Chart, Row, Section, Series, Table
from vinelm.reports.evaluation_text import role_of
from vinelm.reports.formatting import page_objective_words, percent, seconds, thousand
from vinelm.verdicts.store_comparison import StoreComparison

NAMED = {"max_cost_usd": "budget", "min_accuracy": "floor", "max_latency_s": "cap"}
WIDEST = 0.3
"""A point whose interval is wider than this share of all answers is not drawn."""
_BANDS = "Bands: 95 % intervals. Points with a band of more than 30 points are in the table only."
_TESTED = "Judged by requests that did not choose the plan."


def _cost_chart(sweep: PolicySweep) -> Chart:
    """Return a chart of accuracy against cost under a range of budgets."""
    series = tuple(_by_cost(name, points) for name, points in sweep.points.items() if any(map(_is_plotted, points)))
    is_free = all(x == 0.0 for one in series for x in one.x)
    return Chart(
        name="cost",
        title="Accuracy for what it costs",
        caption=f"Each point is a policy planned for one budget, by what it really cost. {_TESTED} {_BANDS} Hindsight knows "
        "the judging requests in advance and is no policy.",
        x_title="$ per 1,000 requests (log scale)" if not is_free else "$ per 1,000 requests",
        y_title="right answers",
        x_prefix="$",
        x_is_log=not is_free,
        series=_led(series),
    )


def sweep_sections(comparison: StoreComparison) -> tuple[Section, ...]:
    """Return a section for each swept limit, and a section that compares the plans' predicted accuracy with the accuracy
    achieved.
    """
    found = []
    cost, floor, cap = (comparison.sweep(bound) for bound in ("max_cost_usd", "min_accuracy", "max_latency_s"))
    if cost is not None:
        intro = f"The most accurate plan within each budget per request, on average. {_TESTED}"
        found.append(Section(title="Accuracy within a budget", intro=intro, findings=broken(cost),
                             parts=(_cost_chart(cost), sweep_table(cost))))  # fmt: skip
    if floor is not None:
        intro = f"The cheapest plan that promises each accuracy. {_TESTED}"
        parts = (_floor_chart(floor), sweep_table(floor))
        found.append(Section(title="Cost of an accuracy", intro=intro, findings=broken(floor), parts=parts))
    if cap is not None:
        intro = f"The most accurate plan within each latency cap. An answer after the cap counts as wrong. {_TESTED}"
        found.append(
            Section(
                title="Accuracy within a time", intro=intro, findings=broken(cap), parts=(_cap_chart(cap), sweep_table(cap))
            )
        )
    promises = _promise_chart(comparison.sweeps)
    if promises is not None:
        intro = (
            "What the requests that chose a plan estimated for it, and what the judged ones found. Points below the line are "
        )
        intro += "promises not kept: the best of many estimates is too high."
        found.append(Section(title="Achieved against promised", intro=intro, parts=(promises,)))
    return tuple(found)


def _led(series: Sequence[Series]) -> tuple[Series, ...]:
    """Return the series of a chart, one of which has the role ``"vinelm"`` and so is highlighted.

    If no series has this role, because no plan uses signals, the series with the role ``"paths"`` gets it.
    """
    if any(one.role == "vinelm" for one in series):
        return tuple(series)
    return tuple(replace(one, role="vinelm") if one.role == "paths" else one for one in series)


def broken(sweep: PolicySweep) -> tuple[str, ...]:
    """Return one sentence, in a tuple, on how often VineLM's plans exceed the limit that the sweep varies.

    The tuple is empty if no plan was tested.
    """
    known = {name: [one for one in sweep.points.get(name, ()) if _is_known(one)] for name in ("signals", "paths")}
    name = "signals" if len(known["signals"]) >= len(known["paths"]) else "paths"
    points = known[name]
    if not points:
        return ()
    title = TITLES[name].replace(", ", " over ")  # type: ignore[index]
    if sweep.bound == "max_latency_s":
        late = [one.violations for one in points if one.violations is not None]
        return (f"{title} is late in {percent(sum(late) / len(late))} of the requests, mean over the caps.",) if late else ()
    number = sum(one.breaks_bound for one in points)
    return (f"{title} breaks {number} of {len(points)} bounds by more than the interval of the judgement.",)


def sweep_table(sweep: PolicySweep) -> Table:
    """Return a table with a row for every policy at every value of the limit, ordered by policy and rising cost."""
    named = NAMED[sweep.bound]
    unit = ", $ per 1,000" if sweep.bound == "max_cost_usd" else ""
    rows = [
        Row(role=role_of(name, "signals" in sweep.points), cells=_cells(sweep, one), detail=" / ".join(one.policy.plans))
        for name, points in sweep.points.items()
        for one in sorted(points, key=lambda one: one.policy.cost_usd.value)
    ]
    beyond = (
        "late" if sweep.bound == "max_latency_s" else "dearer than budget" if sweep.bound == "max_cost_usd" else "below floor"
    )
    return Table(
        title=f"Data: every policy under every {named}",
        columns=("policy", f"{named}{unit}", "promised", "right", "95 % interval", "$ per 1,000", "p50", "p95", "p99", beyond),
        rows=tuple(rows),
        is_folded=True,
        note="p50, p95, p99: seconds of a request, where at least two effective requests lie beyond the quantile; "
        "“too few” elsewhere. "
        + {
            "max_latency_s": "Late: share of requests after the cap.",
            "max_cost_usd": "Dearer than budget: share of requests that cost more on their own; the budget bounds the mean.",
            "min_accuracy": "Below floor: whether the judged accuracy is below it by more than its interval.",
        }[sweep.bound],
    )


def _cells(sweep: PolicySweep, one: SweptPolicy) -> tuple[str, ...]:
    bounds = {
        "max_cost_usd": thousand(one.objective.max_cost_usd or 0.0),
        "min_accuracy": percent(one.objective.min_accuracy),
        "max_latency_s": seconds(one.objective.max_latency_s),
    }
    name, bound, promised = one.policy.title, bounds[sweep.bound], percent(one.policy.promised_accuracy)
    if not _is_known(one):
        return (name, bound, promised, "not identified", "-", "-", "-", "-", "-", "-")
    accuracy = one.policy.accuracy
    interval = f"{100 * max(accuracy.low, 0):.1f} to {100 * min(accuracy.high, 1):.1f}"
    beyond = percent(one.violations) if sweep.bound != "min_accuracy" else "yes" if one.breaks_bound else "no"
    times = (seconds(value) if value is not None else "too few" for value in one.latency_s)
    return (
        name,
        bound,
        promised,
        percent(_share(accuracy.value)),
        interval,
        thousand(one.policy.cost_usd.value),
        *times,
        beyond,
    )


def _by_cost(name: str, points: Sequence[SweptPolicy]) -> Series:
    known = sorted(filter(_is_plotted, points), key=lambda one: one.policy.cost_usd.value)
    return _series(name, known, [1000 * max(one.policy.cost_usd.value, 0.0) for one in known])


def _series(name: str, points: Sequence[SweptPolicy], x: Sequence[float]) -> Series:
    return Series(
        name=TITLES[name],  # type: ignore[index]
        role=role_of(name, has_signals=True),
        x=x,
        y=[_share(one.policy.accuracy.value) for one in points],
        low=[one.band[0] for one in points],
        high=[one.band[1] for one in points],
        hover=[_says(one) for one in points],
    )


def _says(one: SweptPolicy) -> str:
    low, high = (100 * value for value in one.band)
    return (
        f"{one.policy.title}: {page_objective_words(one.objective)}\n"
        f"{percent(_share(one.policy.accuracy.value))} right ({low:.1f} to {high:.1f}), "
        f"{thousand(one.policy.cost_usd.value)} per 1,000\n{' / '.join(one.policy.plans)}"
    )


def _floor_chart(sweep: PolicySweep) -> Chart:
    shown = [(name, points) for name, points in sweep.points.items() if any(map(_is_plotted, points))]
    return Chart(
        name="floor",
        title="What an accuracy costs",
        caption=f"Each point is the cheapest plan for one promised accuracy, by what it cost and achieved. {_BANDS}",
        x_title="$ per 1,000 requests (log scale)",
        y_title="right answers",
        x_prefix="$",
        x_is_log=True,
        series=_led([_by_cost(name, points) for name, points in shown]),
    )


def _cap_chart(sweep: PolicySweep) -> Chart:
    series = []
    for name, points in sweep.points.items():
        known = [one for one in points if _is_plotted(one)]
        if known:
            series.append(_series(name, known, [one.objective.max_latency_s or 0.0 for one in known]))
    return Chart(
        name="latency",
        title="Right answers in time",
        caption=f"Each point is planned for one latency cap; an answer after it counts as wrong. {_BANDS}",
        x_title="latency cap, s",
        y_title="right answers in time",
        series=_led(series),
    )


def _promise_chart(sweeps: Sequence[PolicySweep]) -> Chart | None:
    series = []
    for name in ("signals", "paths", "static", "single"):
        points = [
            one for sweep in sweeps if sweep.bound != "max_latency_s" for one in sweep.points.get(name, ()) if _is_plotted(one)
        ]
        if points:
            found = _series(name, points, [one.policy.promised_accuracy for one in points])
            series.append(Series(name=found.name, role=found.role, x=found.x, y=found.y, low=found.low, high=found.high,
                                 hover=found.hover, is_line=False))  # fmt: skip
    if not series:
        return None
    return Chart(
        name="promises",
        title="Achieved and promised accuracy",
        caption=f"One point for each budget and each floor. {_BANDS.replace('Bands', 'Bars')} Latency caps are left out: there "
        "an answer has to be in time as well, which the promise does not say.",
        x_title="promised",
        y_title="achieved",
        x_is_percent=True,
        has_diagonal=True,
        series=_led(series),
    )


def _is_known(one: SweptPolicy) -> bool:
    return one.policy.accuracy.is_identified


def _is_plotted(one: SweptPolicy) -> bool:
    """Return whether a policy's point is drawn: its accuracy is known, in [0, 1], and has an interval that is narrow enough."""
    return _is_known(one) and one.band[1] - one.band[0] <= WIDEST and 0.0 <= one.policy.accuracy.value <= 1.0


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)
