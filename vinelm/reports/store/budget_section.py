"""Builds the plans of a range of budgets, for the page's slider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, sqrt
from typing import Any

from vinelm.controller import Decision
from vinelm.errors import InfeasibleError
from vinelm.evaluation.plans.plans import Plans
from vinelm.evaluation.plans.sweep import spaced_caps
from vinelm.evaluation.store_sweeps.plan_spending import SpentOn, plan_spending
from vinelm.evaluation.store_sweeps.swept_policies import SweptPolicy
from vinelm.objective import Objective
from vinelm.reports.budgets import BudgetSlider, BudgetStop, GraphPicture, Parts, StageBars
from vinelm.reports.formatting import percent, percent_interval, seconds, thousand
from vinelm.reports.plan_tree import plan_tree
from vinelm.reports.plan_words import plan_line
from vinelm.reports.store.estimated_sections import interval_of
from vinelm.reports.store.plan_sections import ShownPlan, planned
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.verdict import Verdict, dollars
from vinelm.verdicts.store_comparison import StoreComparison

UNTESTED_STOPS = 9
"""Number of budgets if no sweep was tested."""
_INTRO = (
    "The most accurate plan within each budget, on average over the requests. These figures are estimated from all rows: they "
    "prove nothing, and the verdict above rests on none of them. “Judged” is by requests that did not choose the plan."
)


@dataclass(frozen=True, kw_only=True)
class BudgetPlans:
    """Computes the plans for a range of budgets.

    Attributes:
        searched: The trie from which VineLM's plans are chosen.
        plans: Makes plans that do not depend on signals, and the fixed plans with which VineLM's plans are compared.
        comparison: The estimates for every policy from the recorded results.
        verdict: The verdict of the page.
        own: The verdict's plan, which is shown first; None if the verdict has no plan.
        baseline: The plan shown in the bar chart for comparison: the current setup, or the most accurate single model; None
            without one.
        is_today: Whether the baseline is the current setup.
    """

    searched: AnnotatedTrie
    plans: Plans[Any]
    comparison: StoreComparison
    verdict: Verdict | None
    own: ShownPlan | None
    baseline: ShownPlan | None
    is_today: bool

    def slider(self) -> BudgetSlider | None:
        """Return the slider with the plan of each budget; None if no plan meets any budget."""
        own = self._own_usd
        budgets = self._budgets() if own is None else sorted({own, *(one for one in self._budgets() if one is not None)})
        found = [(budget, plan) for budget in budgets if (plan := self._plan(budget)) is not None]
        if not found:
            return None
        start = next((i for i, (budget, _) in enumerate(found) if budget == own), len(found) // 2)
        if len({(plan.words, round(plan.path_cost_usd, 12)) for _, plan in found}) == 1:
            found, start = found[-1:], 0
        spent = [plan_spending(plan) for _, plan in found]
        beside = None if self.baseline is None else self.baseline.spending
        units = {"dollars": "cost_usd", "seconds": "latency_s"}
        if not any(one.cost_usd > 0.0 for each in spent for one in each):
            del units["dollars"]
        if not self.searched.knows_latency:
            del units["seconds"]
        most = {
            name: max(_totals([*spent, *([beside] if beside else [])], field), default=0.0) for name, field in units.items()
        }
        stops = tuple(
            BudgetStop(
                budget=self._named(budget),
                plan=plan_line(plan_tree(plan)),
                figures=self._figures(plan, budget),
                graph=GraphPicture(template=self.searched.template, calls=_calls(of_plan)),
                tree=plan_tree(plan),
                bars={
                    name: StageBars(
                        stages=self._by_stage(of_plan, beside, field),
                        most=most[name],
                        amount=thousand if name == "dollars" else _seconds,
                    )
                    for name, field in units.items()
                },
            )
            for (budget, plan), of_plan in zip(found, spent, strict=True)
        )
        note = "" if len(stops) > 1 else " Every budget leads to this plan, so that there is nothing to slide."
        models = tuple(self.searched.trie.models)
        return BudgetSlider(intro=_INTRO + note, stops=stops, start=start, beside=self._beside, models=models)

    @property
    def _own_usd(self) -> float | None:
        """The budget of the verdict's plan, in dollars per request."""
        return None if self.own is None or self.verdict is None else self.verdict.max_cost_usd

    def _named(self, budget: float | None) -> str:
        if budget is None:
            return "any budget"
        return f"{thousand(budget)} per 1,000 requests{', that of the verdict' if budget == self._own_usd else ''}"

    @property
    def _name(self) -> str:
        """The label of the baseline's bars: ``today`` or ``single model``."""
        return "today" if self.is_today else "single model"

    @property
    def _beside(self) -> str:
        if self.baseline is None:
            return ""
        what = "Today" if self.is_today else "Single model: the most accurate one"
        return f"{what}, {self.baseline.decision.words}."

    @property
    def _policy(self) -> str:
        return "paths" if self.searched is self.plans.annotated else "signals"

    def _tested_points(self) -> tuple[SweptPolicy, ...]:
        sweep = self.comparison.sweep("max_cost_usd")
        return () if sweep is None else sweep.points.get(self._policy, ())  # type: ignore[call-overload]

    def _budgets(self) -> Sequence[float | None]:
        """Return budgets in dollars per request, in rising order: the tested ones, and one between each pair of neighbours.

        Without tested budgets, return budgets from the cheapest to the most expensive plan. If all plans are free, return only
        None (no budget).
        """
        tested = sorted({cap for one in self._tested_points() if (cap := one.objective.max_cost_usd) is not None})
        if tested:
            between = [float(f"{sqrt(low * high):.3g}") for low, high in pairwise(tested)]
            return sorted([*tested, *between])
        reach = self.plans.frontier_range()
        if not reach.dearest_usd > 0.0:
            return [None]
        return list(spaced_caps(reach.cheapest_usd, reach.dearest_usd, "max_cost_usd", UNTESTED_STOPS))

    def _plan(self, budget: float | None) -> Any:
        if self.own is not None and budget == self._own_usd:
            return self.own.decision
        try:
            found = planned(self.searched, Objective(maximize="accuracy", max_cost_usd=budget))
        except InfeasibleError:
            return None
        return found if found.is_feasible else None

    def _figures(self, plan: Any, budget: float | None) -> tuple[tuple[str, str], ...]:
        interval = interval_of(plan.accuracy, plan.standard_error)
        said = percent_interval(interval)
        error = "" if said == "-" else f" ({said})"
        latency = (("Seconds of a request", seconds(_expected_s(plan))),) if self.searched.knows_latency else ()
        return (
            ("Right answers", f"{percent(plan.accuracy)}{error}"),
            ("Dollars of 1,000 requests", thousand(plan.path_cost_usd)),
            *latency,
            *((("Judged", self._tested_words(budget)),) if self._tested_points() else ()),
        )

    def _tested_words(self, budget: float | None) -> str:
        verdict, own = self.verdict, None if self.verdict is None else self.verdict.plan
        if budget == self._own_usd and verdict is not None and own is not None:
            tested = min(max((verdict.accuracy or 0.0) + own.gain, 0.0), 1.0)
            return f"{percent(tested)} right for {dollars((verdict.cost_usd or 0.0) - own.saved_usd)}"
        found = next((one.policy for one in self._tested_points() if one.objective.max_cost_usd == budget), None)
        if found is None:
            return "not at this budget"
        if not found.accuracy.is_identified:
            return "too few rows follow such a plan to its end"
        low, high = 100 * max(found.accuracy.low, 0.0), 100 * min(found.accuracy.high, 1.0)
        right = percent(min(max(found.accuracy.value, 0.0), 1.0))
        return f"{right} right (95 %: {low:.1f} to {high:.1f}) for {thousand(found.cost_usd.value)}"

    def _by_stage(
        self, own: Sequence[SpentOn], beside: Sequence[SpentOn] | None, field: str
    ) -> tuple[tuple[str, tuple[tuple[str, Parts], ...]], ...]:
        bars: Mapping[str, Sequence[SpentOn]] = {"VineLM": own, **({self._name: beside} if beside else {})}
        stages = [stage.name for stage in self.searched.template.stages]
        return tuple(
            (stage, tuple((policy, _parts(spent, stage, field)) for policy, spent in bars.items()))
            for stage in dict.fromkeys(stages)
        )


def _calls(spent: Sequence[SpentOn]) -> dict[str, Parts]:
    return {stage: _parts(spent, stage, "invocations") for stage in dict.fromkeys(one.stage for one in spent)}


def _parts(spent: Sequence[SpentOn], stage: str, field: str) -> Parts:
    found = ((one.model, float(getattr(one, field))) for one in spent if one.stage == stage)
    return tuple((model, amount) for model, amount in found if isfinite(amount) and amount > 0.0)


def _totals(plans: Sequence[Sequence[SpentOn]], field: str) -> list[float]:
    """Return the length of every bar of a chart: for each plan and stage, the sum over models of ``field`` (``cost_usd`` or
    ``latency_s``).
    """
    return [
        sum(amount for _, amount in _parts(spent, stage, field)) for spent in plans for stage in {one.stage for one in spent}
    ]


def _expected_s(plan: Any) -> float:
    """Return the expected seconds of a request under a plan, which is a decision or a fixed plan."""
    return float(plan.ahead[2] if isinstance(plan, Decision) else plan.expected_latency_s)


def _seconds(value: float) -> str:
    return f"{value:,.2f} s" if value < 10 else seconds(value)
