"""Builds the sections of a report that only need a trie: estimated frontiers and, if the trie branches, the branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from vinelm.evaluation.plans.arms import arm_shares
from vinelm.evaluation.plans.plans import NAMES, Interval, Plans, Role
from vinelm.evaluation.plans.sweep import Bound, spaced_caps
from vinelm.objective import Objective
from vinelm.reports.document import Chart, Row, Section, Series, Table
from vinelm.reports.formatting import percent, percent_interval, seconds, thousand
from vinelm.trie.annotated_trie import AnnotatedTrie

_BANDS = (
    "Bands: 95 %, from the standard errors of the estimate, as if all ends of a plan erred alike: too wide rather "
    "than too narrow."
)
_COST_CAPTION = (
    "Each point maximises accuracy under one budget per request, on average: VineLM's among the corners of the hull of all "
    f"contingent plans and all static plans. Horizontal axis: expected dollars of 1,000 requests. {_BANDS}"
)
_LATENCY_CAPTION = (
    f"Each point maximises accuracy among the plans whose longest history (mean times, zero load) is within the cap. {_BANDS}"
)
_FRONTIER_INTRO = (
    "The estimated accuracy of each policy's best plan, for each budget. Nothing was served for these figures, and the highest "
    "of many estimates is biased upwards: validate a plan on requests that were not profiled. A static plan is one "
    "model for each stage."
)


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A policy's best plan under one cap, with its estimated averages per request.

    Attributes:
        cap: The limit on the mean cost in dollars, or on the latency in seconds.
        plan: The plan in words.
        accuracy: The accuracy with its interval.
        cost_usd: Dollars per request.
        latency_s: Seconds per request.
    """

    cap: float
    plan: str
    accuracy: Interval
    cost_usd: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class PolicyFrontier:
    """A policy's best plans, as points in order of rising caps. Caps that no plan of the policy meets are left out."""

    name: str
    role: Role
    points: tuple[FrontierPoint, ...]


def interval_of(value: float, standard_error: float | None) -> Interval:
    """Return the accuracy ``value`` with its 95 % interval; both ends are NaN if the standard error is None."""
    if standard_error is None:
        return Interval(value, float("nan"), float("nan"))
    reach = 1.959964 * standard_error
    return Interval(value, max(value - reach, 0.0), min(value + reach, 1.0))


def estimated_frontiers(plans: Plans[Any], bound: Bound) -> tuple[PolicyFrontier, ...]:
    """Return the frontiers of three policies: VineLM, the best fixed plan and the best single model.

    A frontier has a policy's best plan under each of several caps, with estimated figures; the caps are the same for all three.
    ``bound`` says what is capped: the mean cost or the latency.
    """
    found = plans.frontier_range()
    ends = (found.cheapest_usd, found.dearest_usd) if bound == "max_cost_usd" else (found.fastest_s, found.slowest_s)
    caps = spaced_caps(*ends, bound)
    roles: tuple[Role, ...] = ("vinelm", "static", "single")
    return tuple(
        PolicyFrontier(NAMES[role], role, tuple(p for cap in caps if (p := _point(plans, bound, cap, role)))) for role in roles
    )


def _point(plans: Plans[Any], bound: Bound, cap: float, role: Role) -> FrontierPoint | None:
    is_cost = bound == "max_cost_usd"
    objective = (
        Objective(maximize="accuracy", max_cost_usd=cap) if is_cost else Objective(maximize="accuracy", max_latency_s=cap)
    )
    found = plans.of_role(objective, role)
    if found is None:
        return None
    accuracy = interval_of(found.accuracy, found.standard_error)
    return FrontierPoint(cap, found.words, accuracy, found.path_cost_usd, found.expected_latency_s)


def frontier_section(plans: Plans[Any]) -> Section:
    """Return the estimated frontiers of VineLM's plans and of fixed plans, as charts and tables."""
    cost = estimated_frontiers(plans, "max_cost_usd")
    parts: list[Table | Chart] = [
        _cost_chart(cost),
        _frontier_table("cost", cost, "budget", thousand),
    ]
    if plans.annotated.knows_latency:
        latency = estimated_frontiers(plans, "max_latency_s")
        parts += [_latency_chart(latency), _frontier_table("latency", latency, "cap", seconds)]
    return Section(title="Estimated frontiers", intro=_FRONTIER_INTRO, parts=tuple(parts))


def _cost_chart(frontiers: Sequence[PolicyFrontier]) -> Chart:
    """Return a chart of accuracy against cost per request. If the reader points at a point, its text names the budget."""
    return Chart(
        name="estimated-cost",
        title="Accuracy–cost frontier",
        caption=_COST_CAPTION,
        x_title="$ per 1,000 requests (log scale)",
        y_title="accuracy",
        x_prefix="$",
        x_is_log=True,
        series=tuple(
            _series(one, [1000 * p.cost_usd for p in one.points], "budget", thousand) for one in frontiers if one.points
        ),
    )


def _latency_chart(frontiers: Sequence[PolicyFrontier]) -> Chart:
    return Chart(
        name="estimated-latency",
        title="Accuracy–latency frontier",
        caption=_LATENCY_CAPTION,
        x_title="latency cap per request, s",
        y_title="accuracy",
        series=tuple(_series(one, [p.cap for p in one.points], "cap", seconds) for one in frontiers if one.points),
    )


def _series(frontier: PolicyFrontier, x: list[float], bound: str, unit: Callable[[float], str]) -> Series:
    points = frontier.points
    return Series(
        name=frontier.name,
        role=frontier.role,
        x=x,
        y=[point.accuracy.value for point in points],
        low=[point.accuracy.low for point in points],
        high=[point.accuracy.high for point in points],
        hover=[_hover(f"{frontier.name} at {bound} {unit(point.cap)}", point) for point in points],
    )


def _hover(what: str, point: FrontierPoint) -> str:
    steps = point.plan.replace(", ", "\n→ ")
    return (
        f"{what}\n{percent(point.accuracy.value)} ({percent_interval(point.accuracy)})\n"
        f"{thousand(point.cost_usd)} per 1,000 requests, {seconds(point.latency_s)} per request\n{steps}"
    )


def _frontier_table(kind: str, frontiers: Sequence[PolicyFrontier], bound: str, unit: Callable[[float], str]) -> Table:
    """Return a table with the data of a chart: one row per policy and cap.

    Args:
        kind: "cost" or "latency", the quantity that is capped; named in the title.
        frontiers: The policies' points.
        bound: The heading of the column of caps.
        unit: Formats a cap.
    """
    rows = []
    for one in frontiers:
        for point in one.points:
            accuracy = (percent(point.accuracy.value), percent_interval(point.accuracy))
            cells = (one.name, unit(point.cap), *accuracy, thousand(point.cost_usd), seconds(point.latency_s))
            rows.append(Row(role=one.role, cells=cells, detail=point.plan))
    columns = ("policy", bound, "accuracy", "95 % interval", "$ per 1,000", "mean latency")
    return Table(title=f"Data of the accuracy–{kind} frontier", columns=columns, rows=tuple(rows), is_folded=True)


def arm_tables(annotated: AnnotatedTrie) -> tuple[Table, ...]:
    """Return a table for each stage after which the application chooses between branches.

    Each row of a table is for one model of the stage, and shows how often the application takes each branch after it.
    """
    tables = []
    for (stage, arms), found in groupby(arm_shares(annotated), key=lambda share: (share.stage, tuple(share.arms))):
        shares = list(found)
        rows = []
        for share in shares:
            cells = [_share(share.arms[arm], None if share.half_width90 is None else share.half_width90[arm]) for arm in arms]
            count = "-" if share.observations is None else f"{share.observations:,}"
            rows.append(Row(cells=(share.model, *cells, percent(share.ends), count)))
        note = "±: half of the 90 % interval, in points." if shares[0].half_width90 is not None else ""
        columns = (f"{stage} by", *arms, "ends", "observations")
        tables.append(Table(title=f"What follows {stage}", columns=columns, rows=tuple(rows), note=note))
    return tuple(tables)


def _share(value: float, width: float | None) -> str:
    return percent(value) if width is None else f"{percent(value)} ± {100 * width:.1f}"


def stage_table(annotated: AnnotatedTrie) -> Table:
    """Return a table with a row for each depth (number of calls) and stage of the trie.

    A row has three numbers: all nodes, nodes with recorded results, and recorded results.
    """
    rows, trie = [], annotated.trie
    for depth, level in enumerate(trie.levels[1:], start=1):
        for index in sorted(set(trie.stage[level].tolist())):
            nodes = level[trie.stage[level] == index]
            count = np.zeros(len(nodes)) if annotated.count is None else annotated.count[nodes]
            cells = (f"{depth}", trie.stages[index], f"{len(nodes):,}", f"{int((count > 0).sum()):,}", f"{int(count.sum()):,}")
            rows.append(Row(cells=cells))
    columns = ("depth", "stage", annotated.reading.noun, f"{annotated.reading.noun} observed", "observations")
    title = f"Observations by depth{' and stage' if len(rows) > trie.max_depth else ''}"
    return Table(title=title, columns=columns, rows=tuple(rows), text_columns=(0, 1))
