"""The models of a plan, its steps as a tree, its dollars, and the effect of other prices on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from vinelm.controller import Decision, Planner
from vinelm.evaluation.plans.arms import by_kind
from vinelm.evaluation.store_sweeps.plan_spending import SpentOn, plan_flows, plan_spending
from vinelm.evaluation.store_sweeps.price_changes import PriceChange, price_changes
from vinelm.evaluation.store_sweeps.swept_policies import SweptPolicy
from vinelm.objective import Objective
from vinelm.reports.budgets import PlanNode, PlanTree
from vinelm.reports.document import FlowBand, FlowChart, Row, Section, Table
from vinelm.reports.formatting import (
    KIND_COLUMNS,
    KINDS_NOTE,
    KINDS_TITLE,
    kind_cells,
    objective_words,
    percent,
    thousand,
)
from vinelm.trie.annotated_trie import AnnotatedTrie

MOST_NODES = 22
"""Most steps of a tree: those that most requests take."""
_LEAST = 1e-3
_Key = tuple[Any, ...]


def plan_tree(decision: Decision) -> PlanTree:
    """Return the plan from the start as a tree."""
    roots = _grouped([_node(step, 1.0) for step in decision.steps])
    shares = sorted((node.share for node in _walk(roots)), reverse=True)
    least = max(shares[min(MOST_NODES, len(shares)) - 1], _LEAST) if shares else 0.0
    kept = _above(roots, least)
    return PlanTree(roots=kept, left_out=len(shares) - sum(1 for _ in _walk(kept)))


def _node(step: Mapping[str, Any], reach: float) -> PlanNode:
    """A step with those after it; what is left of the requests has its answer."""
    share, model = reach * float(step["probability"]), step["model"]
    stage, _, seen = step["stage"].partition(" [")  # what was seen is in the name of a stage of a trie of outcomes
    labels = (seen.removesuffix("]"),) if seen else ()
    if model is None:
        return PlanNode(stage="", model=None, when="", seen=labels, share=share)
    children = [_node(child, share) for child in step["steps"]]
    left = share - sum(child.share for child in children)
    if children and left > _LEAST * share:
        children.append(PlanNode(stage="", model=None, when="", seen=(), share=left))
    return PlanNode(stage=stage, model=model, when="", seen=labels, share=share, children=tuple(children))


def _grouped(nodes: Sequence[PlanNode]) -> tuple[PlanNode, ...]:
    """The nodes by falling share, with those as one behind which the plan is the same; a lone end is no step."""
    groups: dict[_Key, list[PlanNode]] = {}
    for node in nodes:
        groups.setdefault(_key(node), []).append(node)
    if len(groups) == 1 and nodes[0].model is None:
        return ()
    seen = {key: tuple(dict.fromkeys(label for one in alike for label in one.seen)) for key, alike in groups.items()}
    merged = [
        replace(
            alike[0],
            when=_when(seen[key], [seen[other] for other in groups if other != key and _are_rivals(key, other)]),
            # Requests that end by the application's own rule have shown nothing that the plan asks for.
            seen=seen[key] if all(one.seen for one in alike) else (),
            share=sum(one.share for one in alike),
            children=_grouped([child for one in alike for child in one.children]),
        )
        for key, alike in groups.items()
    ]
    return tuple(sorted(merged, key=lambda node: (node.model is None, -node.share)))


def _are_rivals(one: _Key, other: _Key) -> bool:
    """True if the stage that comes next does not tell the two ways apart."""
    return one[0] == other[0] or one[1] is None or other[1] is None


def _when(seen: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> str:
    """The fewest words, as ``failed`` of ``failed, empty, answer 1``, that all of these have and none of the others."""
    if not seen or not any(others):
        return ""
    words = [set(label.split(", ")) for label in seen]
    shared = [word for word in seen[0].split(", ") if all(word in each for each in words)]
    rest = [set(label.split(", ")) for labels in others for label in labels]
    for count in range(1, len(shared) + 1):
        for some in combinations(shared, count):
            if not any(set(some) <= each for each in rest):
                return ", ".join(some)
    return seen[0] if len(seen) == 1 else f"{seen[0]} and {len(seen) - 1} more"


def _key(node: PlanNode) -> _Key:
    later = frozenset(_key(child) for child in node.children if child.model is not None)
    return node.stage, node.model, later


def _walk(nodes: Sequence[PlanNode]) -> Iterator[PlanNode]:
    for node in nodes:
        yield node
        yield from _walk(node.children)


def _above(nodes: Sequence[PlanNode], least: float) -> tuple[PlanNode, ...]:
    return tuple(replace(one, children=_above(one.children, least)) for one in nodes if one.share >= least)


IN_USE = "in use today"
"""The name of the plan in use in charts and tables."""
MOST_PRICED = 8
"""Most models whose price is changed: those that the plan runs, and the first others."""


@dataclass(frozen=True, kw_only=True)
class ShownPlan:
    """A plan of the whole store.

    Attributes:
        name: Of the policy.
        decision: The plan from the start: a :class:`~vinelm.controller.Decision`, or a fixed plan.
    """

    name: str
    decision: Any

    @property
    def spending(self) -> list[SpentOn]:
        """Expected invocations and dollars, by stage and model."""
        return plan_spending(self.decision)


def flow_section(plan: ShownPlan, annotated: AnnotatedTrie, swept: Sequence[SweptPolicy]) -> Section:
    """Return how requests move through the plan, and which plan is chosen at each bound."""
    colours = tuple(annotated.trie.models)
    flows = [
        FlowBand(depth=one.depth, source=_label(one.source), target=_label(one.target), share=one.share)
        for one in plan_flows(plan.decision)
    ]
    picture = FlowChart(
        name="flows",
        title=f"How requests move through {plan.name}'s plan",
        caption="Each bar is a model in one invocation, as high as its share of the requests. The share below it that goes no "
        f"further has its answer. Estimated from all rows. The plan: {plan.decision.words}.",
        flows=tuple(flows),
        colours=colours,
    )
    shares: dict[tuple[int, str], float] = defaultdict(float)
    for flow in flows:
        shares[flow.depth, flow.target or "answer returned"] += flow.share
    rows = [Row(cells=(f"{depth + 1}", what, percent(share))) for (depth, what), share in sorted(shares.items()) if share > 0]
    data = Table(
        title="Data: requests by invocation", columns=("invocation", "model or end", "of all requests"), rows=tuple(rows),
        text_columns=(0, 1), is_folded=True,
    )  # fmt: skip
    chosen = [
        Row(cells=(objective_words(one.objective), " / ".join(one.judged.plans), percent(one.judged.promised_accuracy),
                   thousand(one.promised_cost_usd)), role="vinelm")
        for one in swept
    ]  # fmt: skip
    plans = Table(
        title=f"Which plan {plan.name} chooses at each bound",
        columns=("bound", "plan of each half", "promised", "$ per 1,000"),
        rows=tuple(chosen), text_columns=(0, 1), is_folded=True,
    )  # fmt: skip
    kinds = kinds_table(plan.decision)
    parts = (*((kinds,) if kinds else ()), picture, data, *((plans,) if chosen else ()))
    return Section(title="Which models answer", parts=parts)


def kinds_table(decision: Decision) -> Table | None:
    """Return what a plan does with each kind of request; None where kinds are not told apart."""
    rows = tuple(Row(cells=cells) for cells in kind_cells(by_kind(decision)))
    if not rows:
        return None
    return Table(title=KINDS_TITLE, columns=KIND_COLUMNS, rows=rows, text_columns=(0, 4), note=KINDS_NOTE)


def spending_section(plans: Sequence[ShownPlan]) -> Section | None:
    """Return where the dollars of some plans go, by stage and model; None where all of them are free."""
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
    """Return what half and double the price of each model would do; None where nothing costs anything."""
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
        intro=f"The plan for: {objective_words(objective)}. One price at a time is halved or doubled, and the plan is made "
        "again from the same estimates. New prices need no new calls.",
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
    """Return the plan of a request that has just arrived."""
    return Planner(annotated).mixed(objective)


def _times(one: PriceChange) -> str:
    return f"× {one.factor:g}"


def _label(node: tuple[str, str] | None) -> str | None:
    return None if node is None else f"{node[0]}: {node[1]}"
