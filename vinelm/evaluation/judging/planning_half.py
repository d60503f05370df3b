"""One half of the requests plans: every policy of a comparison, chosen from the rows of these requests alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from vinelm.catalog import Catalog
from vinelm.controller import Planner
from vinelm.errors import InfeasibleError
from vinelm.estimator import estimate_signals, make_estimator
from vinelm.evaluation.off_policy.answer_steps import TriedSteps
from vinelm.evaluation.off_policy.planned_steps import (
    Locate,
    ReplannedSteps,
    along_outcomes,
    along_stages,
)
from vinelm.evaluation.off_policy.steps import StepPolicy
from vinelm.evaluation.plans.graph_plans import GraphPlans
from vinelm.evaluation.plans.plans import FixedPlan
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.evaluation.rivals.base import Evidence, TriedPolicies
from vinelm.evaluation.rivals.votes import TwoAgreePolicy, UntilTwoAgree, VoteOfK, VotePolicy
from vinelm.objective import Objective
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.annotated_trie import AnnotatedTrie

PolicyName = Literal["signals", "paths", "static", "single", "vote", "two_agree", "hindsight", "in_use"]
TITLES: Mapping[PolicyName, str] = {
    "signals": "VineLM, signals",
    "paths": "VineLM, paths",
    "static": "best static plan",
    "single": "best single model",
    "vote": "vote",
    "two_agree": "until two agree",
    "hindsight": "hindsight",
    "in_use": "plan in use",
}
"""Name of each policy in tables, in their order."""
MOST_FIXED = 60
"""Most fixed plans that are tried in hindsight; the most accurate by the estimate are kept."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ChosenPolicy:
    """The policy that one half of the requests chose.

    Attributes:
        parts: What is followed, each policy by its share of the requests.
        words: The policy in words.
        promised_accuracy: Share of right answers that its own half estimates, nothing taken off for having chosen the best.
        promised_cost_usd: Dollars per request that it estimates.
    """

    parts: tuple[tuple[float, StepPolicy], ...]
    words: str
    promised_accuracy: float
    promised_cost_usd: float


def part_of(request_id: str, seed: int, parts: int = 2) -> int:
    """Return in which part of a split a request is, 0 to ``parts`` - 1: that depends on its id and the seed alone."""
    return hashlib.sha256(f"{seed}:{request_id}".encode()).digest()[0] * parts // 256


def only_first_stage(rows: Iterable[Observation]) -> str | None:
    """Return the stage that all requests with rows begin with; None if there are several, or none."""
    first = {row.stage for row in rows if row.depth == 1}
    return first.pop() if len(first) == 1 else None


def _answers_first(template: Template) -> bool:
    """True if every invocation of every request writes an answer, so that answers can be compared from the first on."""
    return template.knows_past_ends and all(stage.answerable for stage in template.stages)


def _chosen(plan: FixedPlan, parts: Iterable[tuple[float, StepPolicy]]) -> ChosenPolicy:
    return ChosenPolicy(
        parts=tuple(parts), words=plan.words, promised_accuracy=plan.accuracy, promised_cost_usd=plan.path_cost_usd
    )


class PlanningHalf:
    """Plans from the rows of one half of the requests.

    Args:
        rows: The rows of these requests.
        template: Bound; with the stop rule to plan for.
        catalog: The models.
        estimator: Name of the estimator.

    Raises:
        ConfigError: The estimator is unknown, or does not support the stop rule.
        EvidenceError: The rows say too little for an estimate.
    """

    def __init__(self, rows: Sequence[Observation], template: Template, catalog: Catalog, estimator: str) -> None:
        self.rows = rows
        self._first = only_first_stage(rows)
        self.annotated: AnnotatedTrie = make_estimator(estimator).fit(rows, template, catalog).annotated_
        self.plans = plans_over(self.annotated)

    @cached_property
    def signals(self) -> Planner | None:
        """The planner over what requests show; None where the rows do not say enough of it. Fitted when first asked for."""
        found = estimate_signals(self.annotated, self.rows)
        return None if found is None else Planner(found)

    def choose(self, objective: Objective, *, votes: bool = True) -> dict[PolicyName, ChosenPolicy]:
        """Return the policies that this half would choose for an objective; those that none meets are left out.

        A vote and asking until two agree are chosen where accuracy is maximized and answers can be compared,
        unless ``votes`` is False.
        """
        found: dict[PolicyName, ChosenPolicy] = {}
        wanted = [("paths", self.plans.planner, self.plans.steps)]
        wanted += [] if self.signals is None else [("signals", self.signals, GraphPlans.steps)]
        for name, planner, steps in wanted:
            chosen = self._planned(planner, objective, steps)
            if chosen is not None:
                found[name] = chosen  # type: ignore[index]
        for role in ("static", "single"):
            plan = self.plans.mixed_fixed(objective, role)
            if plan is not None:
                found[role] = self.following(plan)
        has_votes = votes and self.signals is not None and _answers_first(self.annotated.template)
        if has_votes and objective.target == "accuracy" and objective.max_latency_s is None:
            found |= self._answers(np.inf if objective.max_cost_usd is None else objective.max_cost_usd)
        return found

    def fixed_plans(self) -> Iterator[ChosenPolicy]:
        """Yield the static plans, at most :data:`MOST_FIXED`; where the trie branches, every single model."""
        return map(self.following, self.plans.some(MOST_FIXED))

    def _planned(
        self, planner: Planner, objective: Objective, steps: Callable[[Any, Locate], StepPolicy]
    ) -> ChosenPolicy | None:
        try:
            decision = planner.mixed(objective)
        except InfeasibleError:
            return None
        if not decision.is_feasible:
            return None
        along = along_stages if planner.annotated.outcomes is None else along_outcomes
        locate = along(planner, self._first)
        if objective.max_latency_s is not None or objective.cost_budget == "per_request":
            asked = ((share, tuple(dict.fromkeys((part.request.objective, objective)))) for share, part in decision.parts)
            return _chosen(decision, ((share, ReplannedSteps(planner, goals, locate)) for share, goals in asked))
        return _chosen(decision, ((share, steps(part, locate)) for share, part in decision.parts))

    def following(self, plan: FixedPlan) -> ChosenPolicy:
        """Return a fixed plan over this half's trie, or a mixture of two, as a policy."""
        locate = along_stages(self.plans.planner, self._first)
        return _chosen(plan, ((share, self.plans.steps(part, locate)) for share, part in plan.parts))

    # -- rivals that compare answers -------------------------------------------------------------------------------

    @cached_property
    def _evidence(self) -> Evidence:
        return Evidence(self.rows, self.annotated, self.annotated.template.depth)

    @cached_property
    def _choosers(self) -> dict[PolicyName, TriedPolicies]:
        return {"vote": VoteOfK().fit(self._evidence), "two_agree": UntilTwoAgree().fit(self._evidence)}

    def _answers(self, max_cost_usd: float) -> dict[PolicyName, ChosenPolicy]:
        found: dict[PolicyName, ChosenPolicy] = {}
        seconds = float(self.annotated.latency_s[1:].mean())
        for name, chooser in self._choosers.items():
            choice = chooser.choose(max_cost_usd)
            if choice.promised_cost_usd > max_cost_usd:
                continue
            policy = choice.policy
            assert isinstance(policy, VotePolicy | TwoAgreePolicy)
            tried = TriedSteps.on(policy, self._evidence.drawn, self.annotated.template, seconds)
            found[name] = ChosenPolicy(
                parts=((1.0, tried),), words=choice.words, promised_accuracy=choice.promised_accuracy,
                promised_cost_usd=choice.promised_cost_usd,
            )  # fmt: skip
        return found
