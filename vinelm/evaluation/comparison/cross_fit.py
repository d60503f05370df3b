"""Cross-fitting: each part of the requests tests plans that were chosen on the other parts, and the scores are combined."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from vinelm.catalog import Catalog
from vinelm.evaluation.comparison.fit import PARTS, TITLES, ChosenPolicy, Fit, PolicyName, part_of
from vinelm.evaluation.comparison.judged_policy import JudgedPolicy
from vinelm.evaluation.off_policy.buying import BoughtRows
from vinelm.evaluation.off_policy.followed import followed_rows
from vinelm.evaluation.off_policy.intervals import HalfScores, OffPolicyEstimate, estimate_mean
from vinelm.evaluation.off_policy.paired_scores import paired_scores
from vinelm.evaluation.off_policy.scores import Scores, right_in_time, scored
from vinelm.evaluation.off_policy.steps import PathSteps, StepPolicy, StepsByStart
from vinelm.objective import Objective
from vinelm.rows.kinds import untitled
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.arrays import FloatArray

BASELINES: tuple[PolicyName, ...] = ("static", "single")
COMPARED: tuple[PolicyName, ...] = ("signals", "paths", "vote", "two_agree")
"""The policies that are compared with each of the baselines."""
Done = Callable[[int, int, str], None]
Steps = StepPolicy | StepsByStart


@dataclass(frozen=True, eq=False)
class HeldOutPolicy:
    """One policy under one objective, chosen on some of the requests and scored on the others.

    Args:
        chosen: The policy.
        scores: The policy's scores on the requests that were not used to choose it.
    """

    chosen: ChosenPolicy
    scores: Scores


@dataclass(frozen=True, eq=False)
class BothWays:
    """The policies for one objective, each chosen and tested once for each part of the requests.

    Args:
        objective: The objective.
        by_half: One dict for each part of the requests: the policies that were chosen on the other parts, by name, with their
                scores on this part.
    """

    objective: Objective
    by_half: tuple[dict[PolicyName, HeldOutPolicy], ...]


class CrossFit:
    """Splits the requests into parts. For each part, chooses plans on all other parts and tests these plans on the part
    itself.

    Args:
        requests: The ids of all requests for which results could have been recorded.
        rows: The recorded results.
        template: The workflow's stages, each with its models, and the stop rule (when a request ends) to plan for.
        catalog: The models.
        estimator: Name of the estimator.
        seed: Decides the split.
        parts: Number of parts.
        kinds: The type of each request, by request id; needed if the template has request types.
        unlabelled: The ids of requests that are scored by comparison with the current setup.
        on_done: Called as ``on_done(done, total, what)`` to report progress.

    Attributes:
        planning: For each part, the estimates (:class:`~vinelm.evaluation.comparison.fit.Fit`) from the requests of all
            other parts.
        bought: For each part, in the same order, the recorded results of the part's requests.

    Raises:
        EvidenceError: The other requests have too few rows for an estimate.
    """

    def __init__(
        self,
        requests: Sequence[str],
        rows: Sequence[Observation],
        template: Template,
        catalog: Catalog,
        *,
        estimator: str,
        seed: int = 0,
        parts: int = PARTS,
        kinds: Mapping[str, str] | None = None,
        unlabelled: Collection[str] = (),
        on_done: Done = lambda done, total, what: None,
    ) -> None:
        self.seed, self.template, self._unlabelled = seed, template, unlabelled
        at = {request: part_of(request, seed, parts) for request in requests}
        self.planning = []
        known = {name: template.counts_as((kinds or {}).get(name)) for name in requests}
        self._kinds = {name: kind for name, kind in known.items() if kind}
        self._sides = [[request for request in requests if at[request] == (i + 1) % parts] for i in range(parts)]
        self.bought = self._bought(rows)
        for i in range(parts):
            tested = (i + 1) % parts
            on_done(i, parts, "estimating")
            # A row of an unknown request counts as a test row, so that it cannot help to choose the plans that it tests.
            others = [row for row in rows if at.get(row.request_id, tested) != tested]
            told = [kind for name, kind in self._kinds.items() if at[name] != tested]
            self.planning.append(Fit(others, template, catalog, estimator, told))
        self._known: dict[tuple[int, float | None, tuple[tuple[str, ...], ...]], Scores] = {}
        self._ways: dict[tuple[int, Objective, bool], dict[PolicyName, HeldOutPolicy]] = {}

    def _bought(self, rows: Sequence[Observation]) -> list[BoughtRows]:
        found, bought = [], untitled(rows, self.template)
        for side in self._sides:
            names = set(side)
            of_side = [row for row in bought if row.request_id in names]
            found.append(BoughtRows.of(side, of_side, self.template.base, self._kinds, self._unlabelled))
        return found

    def rescored(self, rows: Sequence[Observation]) -> CrossFit:
        """Return a copy with the same plans, tested on ``rows``, which are this object's rows with other scores."""
        found = copy(self)
        found.bought, found._known, found._ways = self._bought(rows), {}, {}
        return found

    def within_tried(self) -> CrossFit:
        """Return a copy in which the plans tested on a part of the requests use only steps that enough of these requests took.

        A step is the call of one model directly after one particular sequence of earlier calls. A call of the same model after
        another sequence is a different step.
        """
        found = copy(self)
        pairs = zip(self.planning, self.bought, strict=True)
        found.planning = [half.within_tried(bought.rows, len(bought.requests)) for half, bought in pairs]
        found._ways = {}
        return found

    def runs(
        self,
        objectives: Sequence[Objective],
        on_done: Done = lambda done, total, what: None,
        *,
        votes: bool = True,
        required: Sequence[PolicyName] = ("paths", *BASELINES),
    ) -> list[BothWays]:
        """Return, for each objective and each part of the requests, the policies chosen on the other parts with their
        scores on this part.

        With ``votes``, two policies that compare answers are included: a vote of several models, and asking models
        until two answers agree. An objective is left out if one of the ``required`` policies has no plan under it.
        Results are cached, so that an evaluation and the report of the same store share them. Progress is reported as
        ``on_done(done, total, what)``.
        """
        found: list[BothWays] = []
        for i, objective in enumerate(objectives):
            both = []
            for half in range(len(self.planning)):
                on_done(len(self.planning) * i + half, len(self.planning) * len(objectives), "judging")
                key = half, objective, votes
                if key not in self._ways:
                    self._ways[key] = self._one_way(half, objective, votes)
                both.append(self._ways[key])
            if all(set(required) <= set(one) for one in both):
                found.append(BothWays(objective, tuple(both)))
        return found

    def score(self, half: int, policy: ChosenPolicy, objective: Objective) -> HeldOutPolicy:
        """Return the policy with its scores on the part with index ``half``, whose requests were not used to choose the
        policy.

        Of ``objective``, only the latency limit is used: an answer that comes later counts as wrong.
        """
        return HeldOutPolicy(policy, self._scores(policy, half, objective))

    def score_pair(self, half: int, policy: ChosenPolicy, reference: ChosenPolicy, objective: Objective) -> Scores | None:
        """Return a policy's scores minus those of a reference policy, from one part of the requests.

        ``half`` is the part's index. Right answers after the latency limit of ``objective`` count as wrong. The result
        is None if the reference is a mixture of policies.
        """
        if len(reference.parts) != 1:
            return None
        (_, other), bought, cap = reference.parts[0], self.bought[half], objective.max_latency_s
        pairs = [(steps, other) for _, steps in policy.parts]
        found = [self._once(half, cap, pair, partial(paired_scores, *pair, bought, max_latency_s=cap)) for pair in pairs]
        return Scores.mixed(found, [share for share, _ in policy.parts])

    def differences(self, half: int, policy: ChosenPolicy, reference: ChosenPolicy, objective: Objective) -> FloatArray:
        """Return the differences in success (policy minus reference) on the requests of part ``half`` that ran both to their
        ends, shape (requests,).

        Right answers after the latency cap of ``objective`` count as wrong. Neither policy may be a mixture.
        """
        bought, cap = self.bought[half], objective.max_latency_s
        found = []
        for request in bought.requests:
            own, other = (followed_rows(one.parts[0][1], bought, request) for one in (policy, reference))
            if own is not None and other is not None:
                found.append(right_in_time(*own, cap) - right_in_time(*other, cap))
        return np.array(found, np.float64)

    def _one_way(self, half: int, objective: Objective, votes: bool) -> dict[PolicyName, HeldOutPolicy]:
        """Return the policies, by name, that were chosen without the part with index ``half``, each with its scores on that
        part.

        ``votes`` says whether policies that compare answers are included; see :meth:`runs`.
        """
        chosen = self.planning[half].choose(objective, votes=votes)
        return {name: self.score(half, policy, objective) for name, policy in chosen.items()}

    def _scores(self, policy: ChosenPolicy, half: int, objective: Objective) -> Scores:
        found = [self._scored(steps, half, objective.max_latency_s) for _, steps in policy.parts]
        return Scores.mixed(found, [share for share, _ in policy.parts])

    def _scored(self, steps: Steps, half: int, cap: float | None) -> Scores:
        return self._once(half, cap, (steps,), partial(scored, steps, self.bought[half], max_latency_s=cap))

    def _once(self, half: int, cap: float | None, policies: Sequence[Steps], make: Callable[[], Scores]) -> Scores:
        """Return the result of ``make``, the scores of ``policies`` on the part with index ``half``.

        If all policies are fixed paths, the scores are cached, since many budgets lead to the same path. ``cap`` is the
        latency limit in seconds, None without one; it is part of the cache key.
        """
        paths = [one.path for one in policies if isinstance(one, PathSteps)]
        if len(paths) < len(policies):
            return make()
        key = half, cap, tuple(paths)
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]


def estimated_policies(runs: Sequence[BothWays], target: str, *, level: float = 0.95) -> list[JudgedPolicy]:
    """Return each policy with its estimated accuracy, cost and latency, averaged over the objectives.

    Only policies that were chosen for every part of the requests under every objective are included.

    Args:
        runs: The tested policies of each objective; at least one, see :meth:`CrossFit.runs`.
        target: The quantity that the objectives optimize: ``accuracy``, ``cost`` or ``latency``.
        level: Confidence level of the intervals.
    """
    names = set.intersection(*(set(one) for both in runs for one in both.by_half))
    middle = runs[len(runs) // 2]
    scores = {
        name: [Scores.mean([one[name].scores for one in half]) for half in zip(*(both.by_half for both in runs), strict=True)]
        for name in names
    }
    promised = {
        name: float(np.mean([one[name].chosen.promised_accuracy for both in runs for one in both.by_half])) for name in names
    }
    plans = {name: tuple(dict.fromkeys(one[name].chosen.words for one in middle.by_half)) for name in names}
    return [
        estimated_policy(name, plans[name], promised[name], scores, target, level=level) for name in TITLES if name in names
    ]


def estimated_policy(
    name: PolicyName,
    plans: tuple[str, ...],
    promised: float,
    scores: Mapping[PolicyName, Sequence[Scores]],
    target: str,
    *,
    level: float = 0.95,
) -> JudgedPolicy:
    """Return a policy with its estimated accuracy, cost and latency, and its gains over the baselines.

    Args:
        name: The policy.
        plans: The chosen plans in words.
        promised: The accuracy that was predicted when the policy was chosen.
        scores: The scores of every policy, by part.
        target: The quantity that the objective optimizes.
        level: Confidence level of the intervals.
    """
    own = scores[name]
    baselines = BASELINES if name in COMPARED else ()
    against = {str(other): gain_over(own, scores[other], target, level=level) for other in baselines if other in scores}
    return JudgedPolicy(
        name=name,
        plans=plans,
        accuracy=estimate_mean([HalfScores(one) for one in own], "accuracy", level=level, bound=1.0),
        cost_usd=negated(estimate_mean([HalfScores(one) for one in own], "cost", level=level)),
        latency_s=negated(estimate_mean([HalfScores(one) for one in own], "latency", level=level)),
        promised_accuracy=promised,
        against=against,
    )


def gain_between(runs: Sequence[BothWays], own: PolicyName, other: PolicyName, target: str) -> OffPolicyEstimate | None:
    """Return the gain of policy ``own`` over policy ``other`` on the same requests, averaged over objectives.

    Only objectives under which both policies were tested on every part of the requests count; None without such objectives.
    ``target`` is the compared quantity: ``accuracy``, ``cost`` (dollars saved) or ``latency`` (seconds saved).
    """
    both = [one for one in runs if all({own, other} <= set(half) for half in one.by_half)]
    if not both:
        return None
    one, two = (
        [Scores.mean([way[name].scores for way in half]) for half in zip(*(run.by_half for run in both), strict=True)]
        for name in (own, other)
    )
    return gain_over(one, two, target)


def gain_over(own: Sequence[Scores], other: Sequence[Scores], target: str, *, level: float = 0.95) -> OffPolicyEstimate:
    """Return the gain of one policy over another on the same requests; parts in which both policies are the same add exactly 0.

    Args:
        own: The scores of the first policy, for each part of the requests.
        other: The scores of the second policy, for each part.
        target: The compared quantity: ``accuracy``, ``cost`` (dollars saved) or ``latency`` (seconds saved).
        level: The confidence level of the interval.
    """
    halves = [HalfScores(one, two) for one, two in zip(own, other, strict=True)]
    return estimate_mean(halves, target, level=level, bound=1.0 if target == "accuracy" else None)


def negated(found: OffPolicyEstimate) -> OffPolicyEstimate:
    """Return the estimate with the sign of its value and interval flipped. Scores count dollars and seconds as
    negative, so this gives positive amounts.
    """
    return replace(found, value=-found.value, low=-found.high, high=-found.low)
