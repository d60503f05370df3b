"""The planner's result on a branching trie: the next model, and the contingent plan that begins with this model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from vinelm.controller.planning.contingent.problem import Problem
from vinelm.controller.planning.contingent.values import PlanGoal
from vinelm.controller.planning.decision import EFFORT, Alternative, Decision, spare
from vinelm.controller.planning.metric import COST_CAP, FLOOR, LATENCY_CAP, UNITS
from vinelm.plans.expected import Errors, Figures
from vinelm.plans.plan import Plan
from vinelm.plans.promise import Z90, Promise, SelectionOptimism
from vinelm.trie.arrays import FloatArray
from vinelm.trie.decision_graph import END, NOTHING

_EQUAL = 1e-12
"""Accuracies that differ by less than this are equal up to rounding."""


class Option(NamedTuple):
    """The best plan that begins with ``model`` if ``stage`` comes next, with the plan's expected values.

    The values count from the request's position on. If ``model`` is None, the request ends. ``latency_s`` is the time of the
    plan's longest sequence of calls, in seconds (NaN: unknown). ``lost`` is the probability of reaching a stage for which no
    model fits the bounds. ``why`` says why the plan was not chosen.
    """

    stage: str
    model: str | None
    accuracy: float
    cost_usd: float
    latency_s: float
    lost: float
    is_chosen: bool
    why: str = ""

    def worse_than(self, chosen: Option) -> str:
        """Return in words the first quantity in which the chosen option is better than this option.

        Empty if this is the chosen option.
        """
        if self.is_chosen:
            return ""
        if self.lost > chosen.lost:
            return f"{self.lost - chosen.lost:.0%} more requests come to a stage for which no model fits the bounds"
        if self.accuracy < chosen.accuracy - _EQUAL:
            return f"less accurate by {chosen.accuracy - self.accuracy:.3g}"
        if self.cost_usd > chosen.cost_usd:
            return f"${self.cost_usd - chosen.cost_usd:.3g} more expensive"
        if self.latency_s > chosen.latency_s:
            return f"{self.latency_s - chosen.latency_s:.3g} s slower"
        return "equally good; the chosen one comes first"


def explained(options: list[Option]) -> list[Option]:
    """Return the options of one branch, each with the reason ``why`` it was not chosen.

    The options are returned unchanged if none of them was chosen.
    """
    chosen = next((option for option in options if option.is_chosen), None)
    return options if chosen is None else [option._replace(why=option.worse_than(chosen)) for option in options]


@dataclass
class ContingentDecision(Decision):
    """A plan with a model for each branch. It may end at several nodes, so ``target`` is not an end: it is equal to ``node``.

    Accuracy and dollars are means over the requests that the application continues from ``node`` with one of the stages in
    :attr:`next_models`. If ``node`` is the root, they are means over all requests. ``path_latency_s`` is not a mean: it has the
    seconds of the plan's slowest possible sequence of calls.
    """

    plan: Plan = field(compare=False, repr=False)
    problem: Problem = field(compare=False, repr=False)
    goal: PlanGoal = field(compare=False, repr=False)

    noun = "plan"
    latency_words = "of the longest way through the plan"
    alternatives_shown = ("stage", "next_model", "accuracy", "path_cost_usd", "why")
    alternatives_words = "Accuracy and cost: of a request that goes on to that stage, from here on."
    _latency_name = "longest history"

    def goes_on(self, node: int, stage: str) -> bool:
        """Return whether the plan runs a model if the application continues from ``node`` to ``stage``."""
        return self.plan.next_model(node, stage) is not None

    def next_for(self, stage: str | None) -> str | None:
        """Return the model to run if ``stage`` comes next; None if the request should end.

        If ``stage`` is None, return :attr:`next_model`.
        """
        return self.next_model if stage is None else self.next_models[stage]

    @property
    def shown(self) -> tuple[str, ...]:
        """A tuple with a single string: the plan in one line (:attr:`words`)."""
        return (self.words,)

    @property
    def ahead(self) -> tuple[float, float, float]:
        """Expected accuracy, cost in dollars and latency in seconds from ``node`` on, for a request that continues."""
        return self.accuracy, self.remaining_cost_usd, self.remaining_latency_s

    def lines(self, limit: int | None = None) -> list[str]:
        """Return the plan as an indented tree of at most ``limit`` lines (None: all lines); see :meth:`Plan.lines`."""
        return self.plan.lines(limit)

    @property
    def next_models(self) -> dict[str, str | None]:
        """The model to run for each stage that may come next; None for a stage at which the request ends instead."""
        stages = self.metrics.trie.stages
        return {
            stages[self.plan.graph.stage[group]]: self.plan.next_model(self.node, stages[self.plan.graph.stage[group]])
            for group in self.plan.first
        }

    @property
    def figures(self) -> Figures:
        """The expected accuracy, cost and latency of the plan; see :attr:`Plan.figures`."""
        return self.plan.figures

    @cached_property
    def errors(self) -> Errors:
        """The standard errors of the plan's accuracy, cost and latency.

        If the standard error of the plan's cost is unknown, the sum of the end nodes' standard errors of cost is used instead.
        This assumes that the errors of the end nodes are fully correlated.
        """
        found, errors = self.plan.errors, self.annotated.cost_se
        alike = None if errors is None else float(sum(errors[node] for node in self.ends))
        return found if found.cost_usd is not None else found._replace(cost_usd=alike)

    @property
    def ends(self) -> list[int]:
        """The nodes at which the plan may end."""
        return self.plan.ends

    @property
    def words(self) -> str:
        """The plan in one line: the models of each stage; see :attr:`Plan.words`."""
        return self.plan.words

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The plan as a tree of JSON types: stage, probability, model and next steps of each branch; see :attr:`Plan.steps`."""
        return self.plan.steps

    @property
    def reached(self) -> FloatArray:
        """The probability that a request at the plan's start runs each node's call; shape (nodes,)."""
        return self.plan.reached

    @property
    def remaining_cost_usd(self) -> float:
        """The expected cost of the plan's calls after ``node``, in dollars."""
        return self.plan.cost_usd - (float(self.metrics.annotated.cost_usd[0]) if self.node == 0 else 0.0)

    @property
    def remaining_latency_s(self) -> float:
        """The expected latency of the plan's calls after ``node`` at zero load, in seconds."""
        return self.plan.expected_latency_s - (float(self.metrics.annotated.latency_s[0]) if self.node == 0 else 0.0)

    @property
    def mean_rest_s(self) -> float:
        """The expected latency of the plan's calls after ``node`` in seconds; see :attr:`Decision.mean_rest_s`."""
        return self.remaining_latency_s

    @property
    def path(self) -> tuple[str, ...]:
        """The models that have run, from the root to ``node``."""
        return self.metrics.trie.prefix(self.node)

    @cached_property
    def promise(self) -> Promise:
        """The predicted accuracy of the plan, with its interval.

        The estimate of a plan that was chosen as the best of many is too high on average. So the expected bias is subtracted,
        which was measured when the trie was validated (docs/estimators.md). Nothing is subtracted without a validation, or for
        a request in progress.
        """
        curve = SelectionOptimism.of(self.metrics.annotated) if self.node == 0 and self.request.candidates is None else None
        single = None if curve is None else self._best_single_model()
        return Promise(
            estimate=self.accuracy,
            standard_error=self.plan.standard_error,
            optimism=None if curve is None else curve.accuracy_at(self.path_cost_usd),
            advantage=0.0 if single is None else self.accuracy - single[1].accuracy,
            advantage_optimism=None if curve is None else curve.advantage_at(self.path_cost_usd),
            reference=None if single is None else single[0],
        )

    def _best_single_model(self) -> tuple[str, Plan] | None:
        """Return the most accurate plan with a single model that is neither more expensive nor slower than this plan.

        None if no such plan exists, or if this plan itself always runs the same model.
        """
        graph, found = self.plan.graph, list[tuple[str, Plan]]()
        for index, name in enumerate(self.metrics.trie.models):
            choice = np.where(graph.source_may_end, END, NOTHING)
            edges = np.flatnonzero(graph.model == index)
            choice[graph.group_of_edge[edges]] = edges
            plan = Plan(graph, 0, {group: int(choice[group]) for group in graph.groups_at(0)}, choice)
            is_within = plan.cost_usd <= self.plan.cost_usd and plan.latency_s <= self.plan.latency_s
            if np.array_equal(plan.runs, self.plan.runs):
                return None
            if plan.lost == 0.0 and is_within:
                found.append((name, plan))
        return max(found, key=lambda item: item[1].accuracy, default=None)

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """90 % intervals (low, high), keyed by ``accuracy`` (see :attr:`promise`) and ``path_cost_usd``.

        A key is missing if the standard error of its figure is unknown.
        """
        found: dict[str, tuple[float, float]] = {}
        if self.promise.interval is not None and np.isfinite(self.promise.half_width):
            found["accuracy"] = self.promise.interval
        error = self.plan.cost_error_usd
        if error is not None:
            found["path_cost_usd"] = max(self.path_cost_usd - Z90 * error, 0.0), self.path_cost_usd + Z90 * error
        return found

    @cached_property
    def slack(self) -> dict[str, float]:
        """The unused part of each bound, by the bound's name: seconds, dollars or a fraction; negative if violated.

        For a per-request bound, it is the part that the plan's longest (or most expensive) sequence of calls leaves unused.
        Bounds on averages over requests are included only for a plan from the root.
        """
        found: dict[str, float] = {}
        objective = self.request.objective
        means = self._means() if self.node == 0 else []
        if FLOOR in means:
            found[FLOOR] = self.accuracy - (objective.min_accuracy or 0.0)
        for bound, cap in self.problem.caps.items():
            if bound in (LATENCY_CAP, COST_CAP):
                found[bound] = cap.limit - cap.most_used(self.plan)
        if COST_CAP in means:
            found[COST_CAP] = spare(objective.max_cost_usd or 0.0, self.plan.cost_usd)
        return found

    @cached_property
    def binding(self) -> str | None:
        """The name of the bound that was relaxed first or, if none was relaxed, of the bound with the least relative slack.

        None if the objective has no bounds.
        """
        if self.relaxed:
            return self.relaxed[0]
        return min(
            self.slack, key=lambda bound: self.slack[bound] / (getattr(self.request.objective, bound) or 1.0), default=None
        )

    @cached_property
    def reason(self) -> str:
        """One line of text with the plan, its figures and the bound that decides the choice (see :attr:`binding`)."""
        text = f"{self._next()}: accuracy {self.accuracy:.3f}, ${self.path_cost_usd:.4g}"
        text += " in total" if self.node == 0 else " from here on"
        if self.metrics.annotated.knows_latency:
            text += f", at most {self.plan.latency_s:.3g} s"
        if self.plan.lost > 0.0:
            text += f"; {self.plan.lost:.0%} of requests come to a stage for which no model fits the bounds"
        if self.relaxed:
            return f"{text}; no plan meets {' with '.join(map(self._bound, self.relaxed))}: {EFFORT[self.relaxed[0]]}"
        if self.binding:
            return f"{text}; {self.binding} has {self.slack[self.binding]:.3g}{UNITS[self.binding]} to spare"
        means = self._means()
        if not means:
            return f"{text}; there is no bound"
        # Not requests with the same past, but all requests together have to meet the bound.
        bounds = f"{means[0]} bounds" if len(means) == 1 else f"{' and '.join(means)} bound"
        return f"{text}; {bounds} the mean of all requests, from their start"

    def _means(self) -> list[str]:
        """Return the names of the objective's bounds on averages over requests; only plans from the root have to meet these."""
        objective = self.request.objective
        found = [FLOOR] if objective.min_accuracy is not None else []
        is_mean = objective.max_cost_usd is not None and objective.cost_budget == "population"
        return [*found, COST_CAP] if is_mean else found

    def explain(self) -> str:
        """Return as text the plan as an indented tree, and the value of each other model that could run next."""
        lines = [self.reason, *(f"  {line}" for line in self.plan.lines(limit=40))]
        for option in self.options():
            name = f"{option.stage}: {option.model or '(end here)'}"
            figures = f"accuracy {option.accuracy:.3f}  ${option.cost_usd:.4g}"
            figures += "" if math.isnan(option.latency_s) else f"  {option.latency_s:.3g} s"
            lines.append(f"{'->' if option.is_chosen else '  '} {name:30} {figures}  {option.why}".rstrip())
        return "\n".join(lines)

    def alternatives(self) -> list[Alternative]:
        """Return the alternatives on each branch: to end now, or the best plan that begins with each possible next model.

        Their accuracies, costs and seconds are those expected from ``node`` on.
        """
        prefix = self.metrics.trie.prefix(self.node)
        return [
            Alternative(
                stage=option.stage,
                next_model=option.model,
                plan=prefix if option.model is None else (*prefix, option.model),
                accuracy=option.accuracy,
                path_cost_usd=option.cost_usd,
                remaining_s=option.latency_s,
                is_feasible=option.lost == 0.0,
                is_chosen=option.is_chosen,
                why=option.why,
            )
            for option in self.options()
        ]

    def candidates(self) -> dict[str, Any]:
        """Return :meth:`options` as JSON types, in a dictionary with the single key ``candidates``."""
        return {"candidates": [option._asdict() for option in self.options()]}

    def options(self) -> list[Option]:
        """Return the options of each branch: to end, and the best plan that begins with each possible next model."""
        graph, names, models = self.plan.graph, self.metrics.trie.stages, self.metrics.trie.models
        found: list[Option] = []
        for group in self.problem.groups:
            stage, chosen = names[graph.stage[group]], self.plan.first[group]
            here: list[Option] = []
            if self.problem.can_end:
                here.append(Option(stage, None, float(graph.chance_right[group]), 0.0, 0.0, 0.0, chosen == END))
            for edge in graph.edges_of(group):
                outcome = self.problem.beginning_with(group, edge, self.goal)
                if outcome.first[group] != NOTHING or chosen == edge:
                    plan = Plan(graph, self.plan.start, outcome.first, outcome.choice)
                    plan = self._arm(group) if chosen == edge else plan
                    name = models[graph.model[edge]]
                    root_s = float(self.metrics.annotated.latency_s[0]) if self.node == 0 else 0.0
                    worth = (plan.accuracy, plan.cost_usd, plan.latency_s - root_s, plan.lost)
                    here.append(Option(stage, name, *worth, chosen == edge))
            found += explained(here)
        return found

    def _arm(self, group: int) -> Plan:
        """Return the part of the plan for requests that continue on one branch.

        ``group`` is the index of the branch in the decision graph.
        """
        return Plan(self.plan.graph, self.plan.start, {group: self.plan.first[group]}, self.plan.choice)

    @property
    def _now(self) -> dict[str, Any]:
        return {**super()._now, "next_models": self.next_models}

    def facts(self) -> dict[str, Any]:
        """Return a dictionary whose key ``contingent_plan`` holds the plan as JSON types."""
        return {"contingent_plan": self.plan.to_dict()}

    def _next(self) -> str:
        if self.stop:
            return "end here"
        known = [f"{stage}: {model or 'end'}" for stage, model in self.next_models.items()]
        return "run " + ", ".join(known)

    def _bound(self, bound: str) -> str:
        return f"{bound} = {getattr(self.request.objective, bound):g}{UNITS[bound]}"
