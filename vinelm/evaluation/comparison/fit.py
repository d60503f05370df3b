"""Estimates a trie (a tree of model sequences) from some of the requests, and chooses a comparison's policies from it.

Only the rows of these requests are used.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np

from vinelm.catalog import Catalog
from vinelm.controller import Planner
from vinelm.controller.planning.path_decision import PathDecision
from vinelm.errors import InfeasibleError
from vinelm.estimator import estimate_signals, make_estimator
from vinelm.estimator.arms import with_kinds_counted
from vinelm.evaluation.comparison.tried import RowsByRequest, first_stages, only_tried
from vinelm.evaluation.off_policy.answer_steps import TriedSteps
from vinelm.evaluation.off_policy.planned_steps import ALONG, Locate, ReplannedSteps
from vinelm.evaluation.off_policy.steps import StepPolicy, StepsByStart
from vinelm.evaluation.plans.graph_plans import StagePlan
from vinelm.evaluation.plans.plans import Plans
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.evaluation.rivals.base import Evidence, TriedPolicies
from vinelm.evaluation.rivals.votes import TwoAgreePolicy, UntilTwoAgree, VoteOfK, VotePolicy
from vinelm.objective import Objective
from vinelm.plans.expected import Expected
from vinelm.rows.kinds import untitled
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.annotated_trie import AnnotatedTrie

PolicyName = Literal["signals", "paths", "static", "single", "vote", "two_agree", "in_use", "no_kinds"]
TITLES: Mapping[PolicyName, str] = {
    "signals": "VineLM, signals",
    "paths": "VineLM, paths",
    "no_kinds": "VineLM, no kinds",
    "static": "best static plan",
    "single": "best single model",
    "vote": "vote",
    "two_agree": "until two agree",
    "in_use": "plan in use",
}
"""Name of each policy in tables, in their order."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ChosenPolicy:
    """A policy chosen on some of the requests.

    Attributes:
        parts: Pairs of a share of the requests, a fraction, and the policy that they follow; a single pair unless plans are
            mixed.
        words: The policy in words.
        promised_accuracy: Share of right answers estimated from these requests, not corrected for the bias of choosing
            the best of many.
        promised_cost_usd: Dollars per request estimated from these requests.
        code: If the plan is the same for every request, its pairs (stage or invocation, model); else empty.
        ends_early: Whether the policy ends requests that the application itself would continue, so that ``code`` alone does not
            reproduce it.
    """

    parts: tuple[tuple[float, StepPolicy | StepsByStart], ...]
    words: str
    promised_accuracy: float
    promised_cost_usd: float
    code: tuple[tuple[str, str], ...] = ()
    ends_early: bool = False


PARTS = 4
"""Number of parts: each is tested by plans of the other three. Plans of halves would be worse than the plan of all rows, and
with more parts some would have too few rows to show what a plan does."""


def part_of(request_id: str, seed: int, parts: int = PARTS) -> int:
    """Return a request's part of a split, 0 to ``parts`` - 1, computed from its id and the seed alone."""
    return hashlib.sha256(f"{seed}:{request_id}".encode()).digest()[0] * parts // 256


def _vinelm(found: Mapping[PolicyName, ChosenPolicy]) -> ChosenPolicy | None:
    """Return VineLM's policy in ``found``: the one that depends on signals, or else the one over paths; None if both are
    missing.
    """
    return found.get("signals") or found.get("paths")


def _chosen(plan: Expected, parts: Iterable[tuple[float, StepPolicy | StepsByStart]]) -> ChosenPolicy:
    return ChosenPolicy(
        parts=tuple(parts), words=plan.words, promised_accuracy=plan.accuracy, promised_cost_usd=plan.path_cost_usd,
        code=code_of(plan), ends_early=ends_early(plan),
    )  # fmt: skip


def ends_early(plan: Any) -> bool:
    """Return whether a fixed plan ends requests that the application alone would continue.

    Two plans with the same models differ if only one of them ends early.
    """
    if isinstance(plan, StagePlan):
        return plan.most_invocations is not None
    if not isinstance(plan, PathDecision):
        return False
    annotated = plan.metrics.annotated
    return int(annotated.trie.depth[plan.target]) < annotated.template.depth


def code_of(plan: Any) -> tuple[tuple[str, str], ...]:
    """Return a plan that is the same for every request as pairs (stage or invocation, model).

    A stage with the same model in all its invocations gives one pair; otherwise each of its invocations gives one. The
    result is empty if the plan depends on the request.
    """
    if isinstance(plan, StagePlan):
        return tuple(plan.models.items())
    if len(plan.parts) != 1 or not isinstance(plan, PathDecision):
        return ()
    runs = list(plan.metrics.trie.edges(plan.target))
    models: dict[str, set[str]] = {}
    for stage, model in runs:
        models.setdefault(stage, set()).add(model)
    if all(len(found) == 1 for found in models.values()):
        return tuple(dict(runs).items())
    turns: Counter[str] = Counter()
    named = []
    for stage, model in runs:
        turns[stage] += 1
        named.append((stage if len(models[stage]) == 1 else f"{stage} {turns[stage]}", model))
    return tuple(dict.fromkeys(named))


class Fit:
    """A trie and its plans from the rows of some of the requests.

    Args:
        rows: The rows of these requests.
        template: The workflow's stages, each with its models, and the stop rule (when a request ends) to plan for.
        catalog: The models.
        estimator: Name of the estimator.
        kinds: The type of each request, including requests without a row; if empty, the types' shares are taken from
            the rows.
        annotated: The trie, if it was fitted to these rows already.

    Attributes:
        annotated: The trie that VineLM plans over.
        plans: The plans over ``annotated``.
        plain: A fit to the same rows that ignores request types, for policies that do not use them; this object itself if there
            are no types.

    Raises:
        ConfigError: The estimator is unknown, or does not support the stop rule.
        EvidenceError: There are too few rows for an estimate.
    """

    def __init__(
        self,
        rows: Sequence[Observation],
        template: Template,
        catalog: Catalog,
        estimator: str,
        kinds: Iterable[str] = (),
        *,
        annotated: AnnotatedTrie | None = None,
    ) -> None:
        self.rows, self.plain = rows, self
        if template.kinds:
            self.plain = Fit(untitled(rows, template), template.base, catalog, estimator)
        self._firsts = first_stages(self.plain.rows)
        if annotated is None:
            found = make_estimator(estimator).fit(rows, template, catalog).annotated_
            annotated = with_kinds_counted(found, Counter(kinds))
        self.annotated: AnnotatedTrie = annotated
        self.plans = plans_over(self.annotated)

    def within_tried(self, tested: RowsByRequest, n_requests: int) -> Fit:
        """Return a copy of this fit whose plans use only steps that enough test requests took.

        A step is a model that is called after certain earlier calls.

        Args:
            tested: The recorded results of the test requests, keyed by request id, then by prefix (the models up to the row's
                call). Only the calls matter, not their outcomes.
            n_requests: Number of test requests.
        """
        found = copy(self)
        found.plain, found.whole = found, only_tried(self.whole, tested, n_requests, self._firsts)
        found.annotated, found.plans = found.whole, plans_over(found.whole)
        vars(found).pop("planned", None)
        return found

    @cached_property
    def whole(self) -> AnnotatedTrie:
        """The annotated trie of paths together with, if there are enough rows, the trie over signals.

        A signal is what a call shows without the label, such as a passed check. The trie over signals is estimated on
        first use.
        """
        return replace(self.annotated, signals=estimate_signals(self.annotated, self.rows))

    @cached_property
    def planned(self) -> dict[PolicyName, Plans[Any]]:
        """The plans over each trie of :attr:`whole`, keyed by what they depend on: ``"paths"`` or ``"signals"``."""
        return {trie.policy: self.plans if trie is self.whole else plans_over(trie) for trie in self.whole.tries}

    def choose(self, objective: Objective, *, votes: bool = True) -> dict[PolicyName, ChosenPolicy]:
        """Return the best policy of each kind for an objective, as predicted from :attr:`rows`, keyed by the name of the kind.

        Kinds of policies that cannot meet the objective are left out. With ``votes``, two further kinds are included if
        accuracy is maximized without a bound on latency and answers can be compared. ``vote`` asks several models and returns
        the most frequent answer; ``two_agree`` asks models one after the other until two answers agree. If request types are
        distinguished, VineLM's plan without types is a separate kind, ``no_kinds``.
        """
        found: dict[PolicyName, ChosenPolicy] = {}
        for name, plans in self.planned.items():
            chosen = self._planned(plans.planner, objective, plans.steps)
            if chosen is not None:
                found[name] = chosen
        if self.plain is not self:
            return self._beside_plain(found, objective, votes)
        for role in ("static", "single"):
            plan = self.plans.mixed_fixed(objective, role)
            if plan is not None:
                found[role] = self.following(plan)
        has_votes = votes and "signals" in self.planned and self.annotated.template.base.form.answers_first
        if has_votes and objective.target == "accuracy" and objective.max_latency_s is None:
            found |= self._answers(np.inf if objective.max_cost_usd is None else objective.max_cost_usd)
        return found

    def _beside_plain(
        self, by_kind: dict[PolicyName, ChosenPolicy], objective: Objective, votes: bool
    ) -> dict[PolicyName, ChosenPolicy]:
        """Return ``by_kind``, the policies of this fit, and the policies of the fit that ignores request types.

        VineLM's policy of the fit without types is called ``no_kinds``. If accuracy is maximized, this policy may spend
        as much as the policy with types is expected to spend. Other policies without types are left out if ``by_kind``
        has a policy of the same name.
        """
        found = self.plain.choose(objective, votes=votes)
        without, own = _vinelm(found), _vinelm(by_kind)
        if own is not None and objective.target == "accuracy":
            # At the dollars that plans by kind are expected to spend: within one bound the two could spend different amounts.
            capped = replace(objective, mix=True, max_cost_usd=own.promised_cost_usd * (1.0 + 1e-9))
            without = _vinelm(self.plain.choose(capped, votes=False)) or without if capped.mixes else without
        others = {name: one for name, one in found.items() if name not in ("signals", "paths")}
        return others | by_kind | ({} if without is None else {"no_kinds": without})

    def _planned(
        self, planner: Planner, objective: Objective, steps: Callable[[Any, Locate], StepPolicy]
    ) -> ChosenPolicy | None:
        try:
            decision = planner.mixed(objective)
        except InfeasibleError:
            return None
        if not decision.is_feasible:
            return None
        if objective.max_latency_s is not None or objective.cost_budget == "per_request":
            asked = ((share, tuple(dict.fromkeys((part.request.objective, objective)))) for share, part in decision.parts)
            replanned = ((share, partial(ReplannedSteps, planner, goals)) for share, goals in asked)
            return _chosen(decision, ((share, self._along(planner, one)) for share, one in replanned))
        return _chosen(decision, ((share, self._along(planner, partial(steps, part))) for share, part in decision.parts))

    def _along(self, planner: Planner, steps: Callable[[Locate], StepPolicy]) -> StepPolicy | StepsByStart:
        """Return a policy that follows a plan through the planner's trie.

        If requests have several types or first stages, the result has a separate policy for each combination of these.

        Args:
            planner: The planner.
            steps: Makes the policy for one combination, given the function that finds a request's position in the trie.
        """
        along = ALONG[planner.annotated.policy]
        kinds, firsts = planner.annotated.template.kind_names, self._firsts or (None,)
        found = {(kind, first): steps(along(planner, first, kind)) for kind in kinds for first in firsts}
        return StepsByStart(found, firsts[0]) if len(found) > 1 else next(iter(found.values()))

    def following(self, plan: Expected) -> ChosenPolicy:
        """Return ``plan``, one fixed plan or a mixture of two, as a policy that can be tested on recorded requests.

        The plan must be over the trie of :attr:`plain`, the fit that ignores request types.
        """
        plans = self.plain.plans
        return _chosen(
            plan, ((share, self.plain._along(plans.planner, partial(plans.steps, part))) for share, part in plan.parts)
        )

    # -- policies that compare answers -------------------------------------------------------------------------------

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
