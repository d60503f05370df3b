"""Builds the report's sections on a plan: its models, its cost, and how other prices would change the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vinelm.controller import Decision, Planner
from vinelm.evaluation.plans.arms import by_kind
from vinelm.evaluation.store_sweeps.plan_spending import SpentOn, plan_spending
from vinelm.evaluation.store_sweeps.price_changes import PriceChange, price_changes
from vinelm.evaluation.store_sweeps.swept_policies import SweptPolicy
from vinelm.objective import Objective
from vinelm.reports.document import Row, Section, Table
from vinelm.reports.formatting import (
    KIND_COLUMNS,
    KINDS_NOTE,
    KINDS_TITLE,
    kind_cells,
    page_objective_words,
    percent,
    thousand,
)
from vinelm.trie.annotated_trie import AnnotatedTrie

TODAY = "in use today"
"""The name of the current setup in charts and tables."""
MOST_PRICED = 8
"""How many models' prices are changed: those that the plan runs, and the first others."""


@dataclass(frozen=True, kw_only=True)
class ShownPlan:
    """A plan estimated from the whole store.

    Attributes:
        name: The policy's name.
        decision: The plan itself: a fixed plan, or the :class:`~vinelm.controller.Decision` of the planner at the start of
            a request.
    """

    name: str
    decision: Any

    @property
    def spending(self) -> list[SpentOn]:
        """Expected calls and cost per request, by stage and model."""
        return plan_spending(self.decision)


def chosen_section(plan: ShownPlan, swept: Sequence[SweptPolicy]) -> Section | None:
    """Return a section on the plan for each request type, and on the plans that were chosen under a range of limits.

    ``swept`` has the results of one policy at each value of the limit that was varied, such as the budget. None if there is
    nothing to show.
    """
    rows = tuple(
        Row(cells=(page_objective_words(one.objective), " / ".join(one.policy.plans), percent(one.policy.promised_accuracy),
                   thousand(one.promised_cost_usd)), role="vinelm")
        for one in swept
    )  # fmt: skip
    plans = Table(
        title=f"Which plan {plan.name} chooses at each bound",
        columns=("bound", "plan of each quarter", "promised", "$ per 1,000"),
        rows=rows, text_columns=(0, 1),
    )  # fmt: skip
    parts = tuple(one for one in (kinds_table(plan.decision), plans if rows else None) if one is not None)
    return Section(title="Which models answer", parts=parts) if parts else None


def kinds_table(decision: Decision) -> Table | None:
    """Return a table of a plan's figures for each request type; None if the plan does not distinguish request types."""
    rows = tuple(Row(cells=cells) for cells in kind_cells(by_kind(decision)))
    if not rows:
        return None
    return Table(title=KINDS_TITLE, columns=KIND_COLUMNS, rows=rows, text_columns=(0, 4), note=KINDS_NOTE)


def spending_section(plans: Sequence[ShownPlan]) -> Section | None:
    """Return a section on what these plans spend on each stage and model; None if everything is free."""
    by_plan = [(plan, plan.spending) for plan in plans]
    if not any(one.cost_usd > 0 for _, spent in by_plan for one in spent):
        return None
    rows = []
    for plan, spent in by_plan:
        total = sum(one.cost_usd for one in spent) or 1.0
        rows += [
            Row(cells=(plan.name, one.stage, one.model, f"{1000 * one.invocations:,.0f}", thousand(one.cost_usd),
                       percent(one.cost_usd / total)))
            for one in sorted(spent, key=lambda one: -one.cost_usd)
        ]  # fmt: skip
    table = Table(
        title="Dollars by stage and model",
        columns=("plan", "stage", "model", "calls per 1,000", "$ per 1,000", "share"),
        rows=tuple(rows), text_columns=(0, 1, 2),
        note="Expected dollars, tools after the stage included. Estimated from all rows.",
    )  # fmt: skip
    return Section(title="Where the money goes", parts=(table,))


def price_section(plan: ShownPlan, objective: Objective, annotated: AnnotatedTrie) -> Section | None:
    """Return a section on how the plan changes if the price of one model is halved or doubled; None if everything is free."""
    used = [one.model for one in plan.spending]
    models = list(dict.fromkeys([*used, *annotated.trie.models]))[:MOST_PRICED]
    changes = price_changes(annotated, objective, models)
    if not changes[0].cost_usd > 0.0:
        return None
    moved = [one for one in changes if one.is_other]
    names = sorted({f"{one.model} {_times(one)}" for one in moved})
    finding = (
        f"The plan changes if one of these prices changes: {', '.join(names)}." if names
        else "Half or double the price of any one model leaves the plan as it is."
    )  # fmt: skip
    rows = tuple(
        Row(
            cells=(
                one.model or "today's prices", _times(one) if one.model else "-", percent(one.accuracy), thousand(one.cost_usd),
                thousand(one.kept_usd), "another plan" if one.is_other else "same plan",
            ),
            detail=one.plan if one.is_other else "",
        )
        for one in changes
    )  # fmt: skip
    return Section(
        title="If prices change",
        intro=f"The plan for: {page_objective_words(objective)}. One price at a time is halved or doubled, and the plan is "
        "made again from the same estimates. New prices need no new calls.",
        findings=(finding,),
        parts=(
            Table(
                title="Plans at other prices",
                columns=("model", "price", "promised", "$ per 1,000", "same plan kept", "says"),
                rows=rows,
                is_folded=True,
            ),
        ),
    )


def planned(annotated: AnnotatedTrie, objective: Objective) -> Decision:
    """Return the best plan for an objective, as the planner's decision at the start of a request."""
    return Planner(annotated).mixed(objective)


def _times(one: PriceChange) -> str:
    return f"× {one.factor:g}"
