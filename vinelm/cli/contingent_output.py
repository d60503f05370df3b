"""Contingent plans in the terminal: the tree of a plan, the alternatives at one point, the frontier, and the arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from vinelm.cli.console import echo, say, show_table
from vinelm.reports import percent, seconds, usd
from vinelm.reports.formatting import objective_words

if TYPE_CHECKING:
    from vinelm.controller import Decision
    from vinelm.controller.planning.contingent.decision import ContingentDecision
    from vinelm.objective import Objective
    from vinelm.trie.annotated_trie import AnnotatedTrie

SHOWN_LINES = 40
"""Most lines of a plan that are printed; ``--json`` has all of it."""
_NAMES = {"min_accuracy": "accuracy floor", "max_cost_usd": "cost cap", "max_latency_s": "latency cap"}
BOUND_TEXTS = {"min_accuracy": percent, "max_cost_usd": usd, "max_latency_s": seconds}
"""How the value of a bound is written."""


def show_tree(decision: ContingentDecision, title: str = "The plan") -> None:
    """Print a contingent plan as an indented tree: each stage with its model, and how often each arm follows."""
    say(f"{title} (percentages: how often the application takes each way)", bold=True)
    for line in decision.plan.lines(limit=SHOWN_LINES):
        echo(f"  {line}")
    echo()


def show_alternatives(objective: Objective, decision: ContingentDecision) -> None:
    """Print every possible next step by stage: the best plan that begins with it, and why it was not chosen."""
    rows: list[tuple[str, ...]] = []
    named: str | None = None  # names with outcomes are long: once for each arm
    for found in decision.options():
        mark, why = ("* ", "chosen") if found.is_chosen else ("  ", found.why)
        stage = "" if named == found.stage else found.stage
        named = found.stage if decision.metrics.annotated.outcomes is not None else None
        rows.append((f"{mark}{stage}", found.model or "end here", percent(found.accuracy), usd(found.cost_usd), why))
    show_table(objective_words(objective), ("  next", "<model", "accuracy", "cost", "<why"), rows)


def show_bounds(decision: Decision, more: Mapping[str, tuple[str, str]] | None = None) -> None:
    """Print what each bound leaves; ``more`` has what was used of each bound, and what the plan comes to."""
    rows = []
    for bound, left in decision.slack.items():
        text, limit = BOUND_TEXTS[bound], float(getattr(decision.request.objective, bound))
        status = "relaxed" if bound in decision.relaxed else "binding" if bound == decision.binding else ""
        rows.append((_NAMES[bound], text(limit), *(more[bound] if more else ()), text(left), status))
    if rows:
        columns = ("bound", "limit", *(("used", "plan") if more else ()), "slack", "<status")
        show_table("Bounds of the chosen plan", columns, rows)


def frontier_rows(annotated: AnnotatedTrie, top: int) -> tuple[list[dict[str, Any]], ContingentDecision]:
    """Return at most ``top`` plans of the estimated frontier, the cheapest first, and the most accurate plan."""
    from vinelm.evaluation.plans.graph_plans import GraphPlans
    from vinelm.plans.promise import Z90

    found = GraphPlans(annotated).frontier()
    rows = []
    for decision in thinned(found, top):
        error = decision.standard_error
        rows.append(
            {
                "plan": decision.words,
                "accuracy": decision.accuracy,
                "accuracy_half_width90": None if error is None else Z90 * error,
                "cost_usd": decision.path_cost_usd,
                "latency_s": decision.path_latency_s if annotated.knows_latency else None,
                "expected_latency_s": decision.expected_latency_s if annotated.knows_latency else None,
                **decision.facts(),
            }
        )
    return rows, found[-1]


def show_frontier(annotated: AnnotatedTrie, top: int) -> None:
    """Print the estimated frontier of contingent plans, and the most accurate of them as a tree."""
    found, best = frontier_rows(annotated, top)
    rows = []
    for row in found:
        width = row["accuracy_half_width90"]
        interval = "-" if width is None else f"{100 * width:.1f}"
        rows.append((row["plan"], percent(row["accuracy"]), interval, usd(row["cost_usd"]), seconds(row["expected_latency_s"])))
    caption = (
        "+/-: half of the 90 % interval, in points, if all ends of the plan erred alike. Latency: expected, at zero load. "
        "Or: depends on what happened before."
    )
    show_table("Frontier of accuracy and cost", ("plan", "accuracy", "+/-", "cost", "latency"), rows, caption=caption)
    show_tree(best, "The most accurate plan")


def thinned(items: Sequence[Any], top: int) -> list[Any]:
    """Return at most ``top`` items, evenly spaced, including both ends."""
    if len(items) <= top:
        return list(items)
    return [items[round(i * (len(items) - 1) / max(top - 1, 1))] for i in range(top)]


def show_arms(annotated: AnnotatedTrie) -> None:
    """Print, for each stage behind which the application chooses, how often each arm follows, by the stage's model."""
    from vinelm.evaluation.plans.arms import arm_shares

    for (stage, arms), found in groupby(arm_shares(annotated), key=lambda share: (share.stage, tuple(share.arms))):
        shares = list(found)
        has_ends, has_widths = any(share.ends > 0.0005 for share in shares), shares[0].half_width90 is not None
        rows = []
        for share in shares:
            cells = []
            for arm, value in share.arms.items():
                width = "" if share.half_width90 is None else f" {100 * share.half_width90[arm]:4.1f}"
                cells.append(percent(value) + width)
            count = "-" if share.observations is None else f"{share.observations:,}"
            rows.append((share.model, *cells, *([percent(share.ends)] if has_ends else []), count))
        caption = "After each percentage: half of its 90 % interval, in points." if has_widths else None
        columns = (f"after {stage} by", *arms, *(["end"] if has_ends else []), "rows")
        show_table(f"What follows {stage}", columns, rows, caption=caption)


def arm_facts(annotated: AnnotatedTrie) -> list[dict[str, Any]]:
    """Return what :func:`show_arms` prints as plain JSON types."""
    from vinelm.evaluation.plans.arms import arm_shares

    return [asdict(share) for share in arm_shares(annotated)]
