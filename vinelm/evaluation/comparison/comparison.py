"""Compares plans with the current setup or the best single model, on requests that were not used to choose the plans."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, EvidenceError
from vinelm.evaluation.comparison.comparable import HARDLY, SAVED, SURE, aims, require_comparable, swept, within
from vinelm.evaluation.comparison.cross_fit import CrossFit, Done, HeldOutPolicy
from vinelm.evaluation.comparison.evidence import StoreEvidence
from vinelm.evaluation.comparison.fit import ChosenPolicy, Fit, PolicyName
from vinelm.evaluation.comparison.referred_rows import AUDIT_LEVEL, Pair, ReferredRows
from vinelm.evaluation.comparison.todays_plan import TodaysPlan
from vinelm.evaluation.comparison.tried import by_request
from vinelm.evaluation.off_policy.followed import followed_rows
from vinelm.evaluation.off_policy.intervals import HalfScores, Moments, estimate_mean, moments
from vinelm.evaluation.off_policy.scores import Scores
from vinelm.objective import Objective
from vinelm.proof.wealth import BETTER, WORSE
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.verdict import (
    LEAST_FOLLOWED,
    LEAST_SAVED,
    LEAST_SHARE,
    MAX_LOSS,
    ByToday,
    ComparedPlan,
    Verdict,
    nothing_differs,
    short_words,
)

LEVEL = 0.95
"""Confidence of each end of an interval."""
SHARES = (0.5, SAVED, 0.85)
"""Shares of the baseline's dollars: within each, the most accurate plan is compared. Plans that save a little less prove more.
"""
AS_GOOD = 0.005
"""A simpler plan is preferred to one whose predicted accuracy is higher by at most this fraction."""
MORE_FOLLOWED = 1.5
"""Plans limited to tried steps are compared if at least this many times as many requests followed them as followed plans over
all steps.
"""
MUCH_LESS = 0.5
"""A plan is compared on the requests that ran both it and the baseline if the variance there is at most this multiple of that
on the requests of each. A choice between nearly equal variances would be a choice by luck."""
DRAWS = 20_000
FREE = Objective(maximize="accuracy")
MOST_NEEDED = 1e6
"""A number of needed requests above this counts as infinite."""
USUAL_TOKENS = (1000, 250)
"""Prompt and completion tokens of the call by which list prices are compared."""
_POLICIES: tuple[tuple[PolicyName, str], ...] = (("signals", "signals"), ("paths", "paths"), ("static", "fixed"))
"""The policies of a comparison with what they depend on, most dependent first."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Compares plans by the recorded results of a store. The requests are split into parts once; each part tests plans
    that were chosen on the other parts. Has no side effects.

    Args:
        requests: The ids of all requests for which results could have been recorded.
        rows: The recorded results, with costs and latencies as the service would have.
        template: The workflow's stages, each with its models, and the stop rule (when a request ends) to plan for.
        catalog: The models.
        kinds: The type of each request, by request id; needed if the template has request types.
        estimator: Name of the estimator that plans.
        seed: Decides the split.
        spent_usd: Dollars charged for the rows; None means the sum of the rows' costs.
        is_judged: Whether a judge model decided which answers are right.
        annotated: The trie of all rows, if it was estimated already; see :attr:`whole`.
        referred: How the rows of requests without labels were scored by comparison with the current setup; None if all have
            labels.
        hopeful: The rows, scored as if all answers that people have not yet judged were as good as the current setup's.
        on_done: Called as ``on_done(done, total, what)`` to report progress.
    """

    requests: Sequence[str]
    rows: Sequence[Observation]
    template: Template
    catalog: Catalog
    kinds: Mapping[str, str] | None = None
    estimator: str = "latent"
    seed: int = 0
    spent_usd: float | None = None
    is_judged: bool = False
    annotated: AnnotatedTrie | None = None
    referred: ReferredRows | None = None
    hopeful: Sequence[Observation] = ()
    on_done: Done = lambda done, total, what: None

    @classmethod
    def of(cls, evidence: StoreEvidence, **settings: Any) -> Comparison:
        """Return an object that compares the plans of a store.

        ``settings`` are the other arguments of the class. They take precedence over values from the store.
        """
        known = {
            "requests": evidence.requests,
            "rows": evidence.rows,
            "template": evidence.template,
            "catalog": evidence.catalog,
            "kinds": evidence.kinds,
            "spent_usd": evidence.charged_usd,
            "is_judged": evidence.scored.is_judged,
            "annotated": evidence.annotated,
            "referred": evidence.referred,
            "hopeful": () if evidence.referred is None else evidence.hopeful,
        }
        return cls(**{**known, **settings})

    @cached_property
    def fit(self) -> CrossFit:
        """The parts into which the requests are split, each with the plans that were chosen on all other parts.

        Raises:
            EvidenceError: The requests outside of a part have too few rows for an estimate.
        """
        return CrossFit(
            self.requests, self.rows, self.template, self.catalog,
            estimator=self.estimator, seed=self.seed, kinds=self.kinds, on_done=self.on_done,
            unlabelled=() if self.referred is None else self.referred.unlabelled,
        )  # fmt: skip

    @cached_property
    def whole(self) -> Fit:
        """The trie estimated from all rows, with the plans that would be served."""
        own = self.annotated
        # A trie for another stop rule, or restricted to tried steps, has other plans than these rows: then it is fitted again.
        is_own = own is not None and own.template == self.template and own.tried is None
        return Fit(
            self.rows,
            self.template,
            self.catalog,
            self.estimator,
            (self.kinds or {}).values(),
            annotated=own if is_own else None,
        )

    def verdict(
        self, *, today: TodaysPlan | None = None, objective: Objective | None = None, max_loss: float = MAX_LOSS
    ) -> Verdict:
        """Return the verdict of a comparison of plans with the current setup or, if none is known, with the strongest
        single model.

        Args:
            today: The current setup, if the application's stages do not state it or another plan should be the baseline.
            objective: Compare only the plan for this objective; None compares plans over a range of budgets.
            max_loss: Accuracy that a cheaper plan may lose, a fraction.
        """
        declared = self.template.today
        is_today = declared is not None or today is not None
        found = Verdict(
            opponent="what runs today" if is_today else "the strongest single model",
            is_today=is_today,
            max_loss=max_loss,
            requests=len(self.requests),
            rows=len(self.rows),
            spent_usd=sum(row.cost_usd + row.tool_cost_usd for row in self.rows) if self.spent_usd is None else self.spent_usd,
            is_judged=self.is_judged,
            models=declared or {},
            by_today=self._by_today,
        )
        # A stop rule that needs labels ends no request of a service, so nothing could be switched to.
        if why_not := self.template.rule.why_not_served:
            return replace(found, why_not=why_not)
        # Rows that prove nothing are an answer as well, with the reason: readers print it instead of a traceback.
        try:
            require_comparable(self.requests, self.rows, self.template)
            fit = self.fit
        except (ConfigError, EvidenceError) as error:
            return replace(found, why_not=str(error))
        baseline = self._baseline(fit, today, objective)
        if isinstance(baseline, str):
            return replace(found, why_not=baseline)
        # Under one objective only its plan is in question, so no other models are reported as missing.
        cheaper = () if objective is not None else self._cheaper(baseline.models)
        found, climbed = self._with_plans(replace(baseline.within(found), cheaper=cheaper), fit, baseline, objective)
        return found if self.referred is None else self._as_today(found, fit, climbed)

    @property
    def _by_today(self) -> ByToday | None:
        """The verdict's figures on requests without labels; None if all requests have labels.

        They are: how many such requests there are, how many questions people answered, and on how many requests the current
        setup failed.
        """
        known = self.referred
        if known is None:
            return None
        unlabelled, failed = (
            len(known_of.intersection(self.requests)) for known_of in (known.unlabelled, frozenset(known.failed))
        )
        return ByToday(requests=unlabelled, asked=known.asked, failed=failed, digest=known.digest)

    @property
    def _level(self) -> float:
        """The one-sided confidence level of each end of a gain's interval: :data:`LEVEL`, or more if equal answers may hide a
        loss.

        In the second case, answers that count as equal to the current setup's may be worse. The loss from such answers has a
        separate bound, which uses up a part of the allowed error probability.
        """
        return LEVEL + (1.0 - AUDIT_LEVEL if self.referred is not None and self.referred.may_hide else 0.0)

    # -- the baseline ----------------------------------------------------------------------------------------------

    def _baseline(self, fit: CrossFit, today: TodaysPlan | None, objective: Objective | None) -> _Baseline | str:
        """Return the plan that others are compared with; if there is none, return a short reason as text.

        Args:
            fit: The parts of the requests.
            today: The current setup to compare with; None for the setup that the stages declare, if any.
            objective: The objective of the compared plans; None for a range of budgets.
        """
        # Each part's trie has figures of its requests, so the same plan is looked up in each.
        if today is None and self.template.today is not None:
            plans = [half.plain.plans.today() for half in fit.planning]
            if any(plan is None for plan in plans):
                return "what runs today is no plan of this workflow's models"
            found = _Baseline.of(fit, "what runs today", plans, is_today=True)
            return found if found.accuracy.is_identified else "too few requests have run what runs today to its end"
        if today is not None:
            found = _Baseline.of(fit, today.name, [today.under(half.plain.plans) for half in fit.planning], is_today=True)
            return found if found.accuracy.is_identified else f"too few requests have run {today.name} to its end"
        # The strongest model may not meet the bounds. Then the strongest that does is what a person would run instead.
        if objective is not None:
            best = [half.plain.plans.mixed_fixed(objective, "single") for half in fit.planning]
            if all(plan is not None for plan in best):
                found = _Baseline.of(fit, "the best single model", best, is_today=False)
                return found if found.accuracy.is_identified else "too few requests have run the best single model to its end"
        alone = [dict(half.plain.plans.single_models()) for half in fit.planning]
        means = {name: _of(one[name].accuracy for one in alone) for name in alone[0] if all(name in one for one in alone)}
        if not means:
            return "no model can run every stage"
        # By the rows: the most accurate model, or one that is hardly less accurate, if enough rows show it. Which one that is
        # may be luck, which makes the baseline look better than it is, never worse.
        first, *others = sorted(means, key=lambda name: -means[name])
        for name in (first, *(name for name in others if means[name] >= means[first] - HARDLY)):
            found = _Baseline.of(fit, name, [one[name] for one in alone], is_today=False)
            if found.accuracy.is_identified:
                return found
        return (
            f"too few requests have run {first} to the end, which is the strongest single model by the estimate: profile more,"
            " or say what runs today"
        )

    def _cheaper(self, models: Mapping[str, str]) -> tuple[str, ...]:
        """Return the models that are cheaper than the baseline's model at some stage that may run them.

        ``models`` is the baseline's model of each stage. A model is cheaper if its list price for a typical call is lower.
        """
        names = (*self.template.models, *models.values())
        # List prices, as dollars of rows would compare prompts of different lengths.
        usd = {name: self.catalog[name].price.cost_usd(*USUAL_TOKENS) for name in names if name in self.catalog}
        found = [
            name
            for stage in self.template.base.stages
            for name in stage.models or ()
            if name in usd and usd[name] < usd.get(models.get(stage.name, ""), 0.0)
        ]
        return tuple(dict.fromkeys(found))

    # -- the plans -------------------------------------------------------------------------------------------------

    def _with_plans(
        self, found: Verdict, fit: CrossFit, baseline: _Baseline, objective: Objective | None
    ) -> tuple[Verdict, list[_Candidate]]:
        """Return (the verdict ``found`` with all compared plans filled in, the candidate plans that are tested one
        after another).
        """
        usd = found.cost_usd or 0.0
        wanted = self._objectives(fit, baseline) if objective is None else [objective]
        plans = self._candidates(fit, baseline, wanted, lambda: self.whole)
        tried: list[_Candidate] = []
        if objective is None and not self.template.kinds:
            tried = self._candidates(
                fit.within_tried(), baseline, wanted, lambda: self.whole.within_tried(by_request(self.rows), len(self.requests))
            )
            # How many requests followed a plan depends on what was bought, and hardly on the answers: choosing between two sets
            # of plans by answers would be a second look at them.
            followed = _followed(tried, usd)
            if not followed or followed < MORE_FOLLOWED * _followed(plans, usd):
                tried = []
        plans = tried or plans
        singles = [] if objective is not None else self._single_models(fit, baseline)
        alone = {one.chosen.words: one for one in singles}
        # A single model is the same plan in every part; for a budget that leads all rows to it, a part may choose another plan.
        plans = [alone.pop(one.chosen.words, one) for one in plans]
        known = [one for one in alone.values() if one.is_identified]
        # Every further rung widens the intervals of all, so a model that could only end the ladder early is left out.
        climbed = [*plans, *(one for one in known if _is_worth_a_rung(one, [*plans, *known]))]
        # The others are only shown, or named if too few requests have run them to the end.
        shown = [*climbed, *(one for one in alone.values() if one not in climbed)]
        compared = _with_ends(shown, baseline, self.seed, self._level, rungs=len(climbed))
        if self.referred is not None:
            # People are rarely asked about answers that equal today's. What that may hide is subtracted before the rule looks.
            lost = [self.referred.hidden(one.answers(fit)) for one in shown]
            compared = [plan.lowered(loss) for plan, loss in zip(compared, lost, strict=True)]
        plans_by_cost = tuple(sorted(compared, key=lambda plan: plan.cost_usd))
        found = replace(found, plans=plans_by_cost, tried_only=bool(tried))
        # Without timed rows the trie's seconds mean nothing, so none are shown.
        found = found if all(half.annotated.knows_latency for half in fit.planning) else found.untimed()
        return found, climbed

    def _as_today(self, found: Verdict, fit: CrossFit, climbed: Sequence[_Candidate]) -> Verdict:
        """Return the verdict on requests without labels, including the questions that people should answer to prove one
        more plan.

        Plans are tested in turn until one fails. If the failed plan saves money, it is tested again as if the answers
        that people have not yet seen were as good as the current setup's. If it passes then, people are asked about
        these answers.

        Args:
            found: The verdict with all compared plans.
            fit: The parts of the requests.
            climbed: The candidate plans that are tested in turn.
        """
        by_today = found.by_today
        assert self.referred is not None
        assert by_today is not None
        known = {short_words(one.chosen.words): one for one in climbed}
        failed = next((plan for plan in found.rungs if not plan.passes(found.max_loss)), None)
        if failed is None or not failed.is_saving:
            return found
        one = known[failed.words]
        # Scored again as if every open answer were as good as today's: if that proves nothing, no label can, and none is
        # requested.
        answers = set(one.answers(fit))
        differing = answers & self.referred.open
        questions = tuple(sorted(differing | self.referred.holding_back(answers)))
        again = one.rescored(fit.rescored(self.hopeful))
        best = _compared(again, again.baseline, 1.0, self._level)
        hidden = self.referred.hidden(answers, is_hopeful=True)
        # Over all traffic, a plan for the share LEAST_SHARE loses that much less, so it is the easiest to prove.
        n, room = max(len(answers), 1), best.gain + found.max_loss / LEAST_SHARE
        # A possible loss that was never observed shrinks with the number of requests itself, not with its root.
        power = 1.0 if best.lost == 0 and abs(best.gain) < 1e-9 else 0.5

        def reach(times: float) -> float:
            open_variance = (BETTER + WORSE) * len(differing) / n / (n * times)
            sampled = math.hypot((best.gain - best.gain_low) / times**power, ndtri(self._level) * math.sqrt(open_variance))
            return sampled + hidden / times

        # Found by search: the reach has terms that shrink at different rates. Steps of 5 % are finer than the estimate.
        times = 1.0
        while n * times < MOST_NEEDED and reach(times) >= room:
            times *= 1.05
        is_provable, is_known = times == 1.0, n * times < MOST_NEEDED
        questions = questions if is_provable else ()
        by_today = replace(
            by_today, plan=failed.words, differing=len(differing), questions=questions,
            is_put=bool(questions) and self.referred.asked_now.issuperset(questions),
            needed=math.ceil(times * len(self.requests)) if is_known and not is_provable else 0,
        )  # fmt: skip
        return replace(found, by_today=by_today)

    def _objectives(self, fit: CrossFit, baseline: _Baseline) -> list[Objective]:
        """Return the objectives to plan for. They are derived from predictions alone, not from the answers that test
        the plans.
        """
        cheaper = [within(share * baseline.promised_usd, SURE) for share in (*SHARES, 1.0) if baseline.promised_usd > 0.0]
        found = [*aims(baseline.promised_accuracy, baseline.promised_usd), *cheaper, *swept(fit.planning), FREE]
        return [replace(one, mix=False) if one.mixes else one for one in found]  # a single plan each, which can be named

    def _candidates(
        self, fit: CrossFit, baseline: _Baseline, objectives: Sequence[Objective], whole: Callable[[], Fit]
    ) -> list[_Candidate]:
        """Return one plan to test for each objective, without duplicates.

        Only kinds of policy with a plan for every part of the requests are considered. Those whose effect can be
        estimated from the recorded results are preferred. Of the plans whose predicted accuracy is nearly the best, the
        simplest is taken.

        Several objectives may lead to the same plan over all requests. Then only one of them is kept: the objective for
        which the most parts have chosen this plan, and of equals, the one with the lowest predicted cost. Objectives
        that lead to the baseline itself are left out, because there is nothing to switch to.

        Args:
            fit: The parts of the requests, each with plans chosen on the other parts.
            baseline: The plan to compare with.
            objectives: The objectives.
            whole: Returns the fit to all requests, whose plans give the candidates their names.
        """
        found: dict[str, _Candidate] = {}
        for both in fit.runs(objectives, votes=False, required=("paths",)):
            ways = {
                policy: [one[name] for one in both.by_half]
                for name, policy in _POLICIES
                if all(name in one for one in both.by_half)
            }
            candidates = {
                policy: _Candidate(
                    policy, way, baseline, partial(_chosen_by, whole, both.objective, policy, way[0]), fit, both.objective
                )
                for policy, way in ways.items()
            }
            # Rows that show the effect of none still name a plan, so that the reader learns which rows are missing.
            known = {policy: one for policy, one in candidates.items() if one.is_identified} or candidates
            best = standing_for(list(known.values()))
            before = found.get(best.chosen.words)
            if before is None or best.stability > before.stability:
                found[best.chosen.words] = best
        # All rows choose the current setup, and some part another plan: a difference here would be one between the parts.
        return [one for words, one in found.items() if words != baseline.words or one.is_same]

    def _single_models(self, fit: CrossFit, baseline: _Baseline) -> list[_Candidate]:
        """Return a candidate plan for every single model except the baseline."""
        alone = [dict(half.plain.plans.single_models()) for half in fit.planning]
        found = []
        for name in alone[0]:
            if not all(name in one for one in alone):
                continue
            chosen = [half.following(one[name]) for half, one in zip(fit.planning, alone, strict=True)]
            # Scored without a bound: a person who tries a model first gives it every request.
            ways = [fit.score(i, one, FREE) for i, one in enumerate(chosen)]
            found.append(_Candidate("fixed", ways, baseline, partial(self._alone, name, chosen[0]), fit))
        return [one for one in found if not one.is_same]

    def _alone(self, name: str, other: ChosenPolicy) -> ChosenPolicy:
        """Return the plan that runs only the model ``name``, with estimates from all rows; ``other`` if there is no
        such plan.
        """
        plan = dict(self.whole.plain.plans.single_models()).get(name)
        return other if plan is None else self.whole.plain.following(plan)


@dataclass(frozen=True, eq=False)
class _Baseline:
    """The plan that others are compared with, and its scores on each part of the requests.

    Attributes:
        name: The plan's name in sentences.
        is_today: Whether the plan is the current setup.
        models: The plan's model of each stage, by stage name.
        names: All models of the workflow.
        ways: For each part of the requests, the plan with its scores on that part.
    """

    name: str
    is_today: bool
    models: Mapping[str, str]
    names: Sequence[str]
    ways: list[HeldOutPolicy]

    @classmethod
    def of(cls, fit: CrossFit, name: str, plans: Sequence[Any], *, is_today: bool) -> _Baseline:
        chosen = [half.following(plan) for half, plan in zip(fit.planning, plans, strict=True)]
        ways = [fit.score(i, one, Objective(maximize="accuracy")) for i, one in enumerate(chosen)]
        stages = {stage.name for stage in fit.template.base.stages}
        models = {where if where in stages else where.rpartition(" ")[0]: model for where, model in chosen[0].code}
        return cls(name, is_today, models, fit.template.models, ways)

    def rescored(self, fit: CrossFit) -> list[HeldOutPolicy]:
        """Return the baseline plan for each part of the requests, scored with the recorded results of ``fit``."""
        return [fit.score(i, way.chosen, FREE) for i, way in enumerate(self.ways)]

    @property
    def words(self) -> str:
        return self.ways[0].chosen.words

    @property
    def scores(self) -> list[Scores]:
        return [way.scores for way in self.ways]

    @cached_property
    def accuracy(self) -> Any:
        return estimate_mean([HalfScores(one) for one in self.scores], "accuracy", level=2 * LEVEL - 1, bound=1.0)

    def within(self, found: Verdict) -> Verdict:
        """Return the verdict ``found`` with this baseline's name, models, accuracy, cost and latency filled in."""
        right = self.accuracy
        cost_usd = -estimate_mean([HalfScores(one) for one in self.scores], "cost", level=2 * LEVEL - 1).value
        return replace(
            found, opponent=self.name, is_today=self.is_today, models=self.models, accuracy=right.value, accuracy_low=right.low,
            accuracy_high=right.high, cost_usd=cost_usd, latency_s=_seconds(self.ways),
        )  # fmt: skip

    @property
    def promised_accuracy(self) -> float:
        return _mean(self.ways, "promised_accuracy")

    @property
    def promised_usd(self) -> float:
        return _mean(self.ways, "promised_cost_usd")


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A plan to compare with the baseline. The plan is chosen separately for each part of the requests, so it may
    differ between parts.

    Attributes:
        policy: What the plan depends on: ``"paths"``, ``"signals"`` or nothing (``"fixed"``).
        ways: One item for each part of the requests: the plan that was chosen on the other parts, and its scores on this part.
        baseline: The plan to compare with.
        by_all: Chooses a plan on all requests and returns it.
        fit: Scores the plan and the baseline on the requests that have recorded calls of both. None if every request was
                served under both, so that no requests need to be selected.
        objective: The objective of the plan.
    """

    policy: str
    ways: list[HeldOutPolicy]
    baseline: _Baseline
    by_all: Callable[[], ChosenPolicy]
    fit: CrossFit | None = None
    objective: Objective = FREE

    def rescored(self, fit: CrossFit) -> _Candidate:
        """Return the same plan and baseline, scored with the rows of ``fit``."""
        ways = [fit.score(i, way.chosen, FREE) for i, way in enumerate(self.ways)]
        return replace(self, ways=ways, baseline=replace(self.baseline, ways=self.baseline.rescored(fit)), fit=fit)

    def answers(self, fit: CrossFit) -> Iterator[Pair]:
        """Yield (request id, digest of the plan's answer) for each request of ``fit`` whose recorded calls follow the
        plan to its end without a failed call.
        """
        for way, bought in zip(self.ways, fit.bought, strict=True):
            for _, steps in way.chosen.parts:
                for request in bought.requests:
                    followed = followed_rows(steps, bought, request)
                    if followed is not None and followed[0][-1].failure is None:
                        yield request, followed[1].answer_digest or ""

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(way.chosen.words for way in self.ways)

    @property
    def stability(self) -> tuple[int, float]:
        """A sort key that is larger for a more stable plan.

        It is (the number of parts of the requests for which the same plan was chosen as on all rows, the negated predicted
        cost).
        """
        return sum(words == self.chosen.words for words in self.words), -self.promised_usd

    @property
    def models(self) -> tuple[str, ...]:
        """The models that the plan may run in at least one part of the requests."""
        # Whole names only: `gpt-4` is also the beginning of `gpt-4.1`, and `r1` the end of `deepseek-r1`.
        words = " ".join(self.words)
        names = self.baseline.names
        return tuple(name for name in names if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", words))

    @property
    def promised_accuracy(self) -> float:
        return _mean(self.ways, "promised_accuracy")

    @property
    def promised_usd(self) -> float:
        return _mean(self.ways, "promised_cost_usd")

    @cached_property
    def pairs(self) -> list[HalfScores]:
        """Return the scores of the plan and the baseline to compare, one item for each part of the requests.

        If the requests that ran both plans give a far more precise difference, as when the plans mostly agree, only
        these requests are used. Otherwise each plan's scores are from all requests that ran the plan.
        """
        one = moments(self._of_each, "accuracy", 1.0)
        two = None if self._of_both is None else moments(self._of_both, "accuracy", 1.0)
        if self._of_both is None or one is None or two is None or not two.is_identified:
            return self._of_each
        return self._of_both if two.square <= MUCH_LESS * one.square else self._of_each

    @cached_property
    def _of_each(self) -> list[HalfScores]:
        """For each part of the requests, the scores of the plan and of the baseline.

        The plan's scores are from all of the part's requests that ran the plan, the baseline's from all that ran the
        baseline.
        """
        return [HalfScores(way.scores, other) for way, other in zip(self.ways, self.baseline.scores, strict=True)]

    @cached_property
    def _of_both(self) -> list[HalfScores] | None:
        """For each part of the requests, the scores of the plan minus those of the baseline, from the requests that ran both.

        None if the plan and the baseline were served on all requests, or if the baseline is a mixture.
        """
        if self.fit is None:
            return None
        found = []
        for i, (half, way, other) in enumerate(zip(self._of_each, self.ways, self.baseline.ways, strict=True)):
            # Parts in which both plans are the same add exactly 0, whichever requests are compared.
            scores = None if not half.unlike else self.fit.score_pair(i, way.chosen, other.chosen, self.objective)
            if half.unlike and scores is None:
                return None
            found.append(half if scores is None else HalfScores(scores))
        return found

    @cached_property
    def gain(self) -> Moments | None:
        return moments(self.pairs, "accuracy", 1.0)

    @property
    def followed(self) -> float:
        """How many equally weighted requests would tell as much about the gain over the baseline as the recorded ones.

        Infinite if the plan is the baseline itself.
        """
        return math.inf if self.gain is None else self.gain.effective

    @cached_property
    def saved(self) -> Moments | None:
        return moments(self.pairs, "cost")

    @property
    def is_same(self) -> bool:
        return self.gain is None

    @property
    def is_identified(self) -> bool:
        return self.gain is None or self.gain.is_identified

    @cached_property
    def chosen(self) -> ChosenPolicy:
        """The plan chosen on all rows."""
        return self.by_all()

    @cached_property
    def counted(self) -> RanBoth | None:
        """Counts of the requests that ran both this plan and the baseline to the end; None without such requests, or if
        one of the two is a mixture.
        """
        found = []
        for i, (way, other) in enumerate(zip(self.ways, self.baseline.ways, strict=True)):
            if self.fit is None:  # all requests were served by both
                apart = way.scores.success - other.scores.success
            elif len(way.chosen.parts) == 1 == len(other.chosen.parts):
                apart = self.fit.differences(i, way.chosen, other.chosen, self.objective)
            else:
                return None
            found.append((len(apart), int((apart < -1e-9).sum()), int((abs(apart) > 1e-9).sum())))
        total = RanBoth(*np.sum(found, axis=0).tolist())
        return total if total.requests else None


class RanBoth(NamedTuple):
    """How often a plan and the baseline have different results on the requests that ran both completely.

    Attributes:
        requests: Number of requests.
        lost: Number of requests on which the plan is worse than the baseline.
        differing: Number of requests on which it is worse or better.
    """

    requests: int
    lost: int
    differing: int


def served_verdict(
    policies: Mapping[PolicyName, ChosenPolicy],
    scores: Mapping[PolicyName, Scores],
    objective: Objective,
    *,
    max_loss: float,
    seed: int,
    spent_usd: float,
) -> Verdict:
    """Return the verdict of a comparison with the best single model, for policies that all served the same requests.

    Args:
        policies: The chosen policies by name; ``"single"`` is the baseline.
        scores: The scores of each policy, over the same requests.
        objective: The objective of the plans.
        max_loss: Accuracy that a cheaper plan may lose, a fraction.
        seed: The seed of the draws.
        spent_usd: The cost of serving, in dollars.
    """
    ways = {name: [HeldOutPolicy(policies[name], scores[name])] for name in policies}
    models = dict(policies["single"].code)
    names = tuple(dict.fromkeys(model for one in policies.values() for _, model in one.code))
    baseline = _Baseline("the best single model", False, models, names, ways["single"])
    plans = [
        _Candidate(policy, ways[name], baseline, partial(getattr, ways[name][0], "chosen"))
        for name, policy in _POLICIES
        if name in policies
    ]
    compared = tuple(sorted(_with_ends(plans, baseline, seed, LEVEL, rungs=len(plans)), key=lambda plan: plan.cost_usd))
    return baseline.within(
        Verdict(requests=len(scores["single"]), spent_usd=spent_usd, plans=compared, max_loss=max_loss, is_served=True)
    )


def _chosen_by(whole: Callable[[], Fit], objective: Objective, policy: str, other: HeldOutPolicy) -> ChosenPolicy:
    """Return the policy chosen for an objective on all requests. If there is none, return the policy in ``other``,
    which was chosen for one part of them.

    Args:
        whole: Returns the fit to all requests.
        objective: The objective.
        policy: What the plan depends on: ``"paths"``, ``"signals"`` or ``"fixed"``.
        other: The policy chosen for one part of the requests.
    """
    names: dict[str, PolicyName] = {policy: name for name, policy in _POLICIES}
    return whole().choose(objective, votes=False).get(names[policy], other.chosen)


def standing_for(plans: Sequence[_Candidate]) -> _Candidate:
    """Return the plan to compare for one objective: the simplest of those predicted to be nearly as accurate as the best.

    A plan is skipped if far fewer requests have run it than another plan. If all are skipped, the most complex of them
    is returned.

    Args:
        plans: The plans for the objective, the most complex plan first.
    """
    most = max(one.promised_accuracy for one in plans)
    # All requests show what the baseline does, which says nothing about rows of the other plans.
    least = LEAST_FOLLOWED * max((one.followed for one in plans if math.isfinite(one.followed)), default=0.0)
    as_good = [one for one in plans if one.promised_accuracy >= most - AS_GOOD]
    return next((one for one in reversed(as_good) if one.followed >= least), as_good[0])


def _is_worth_a_rung(one: _Candidate, among: Sequence[_Candidate]) -> bool:
    """Return whether to test the plan ``one``, which runs a single model on every call.

    It is tested if it is predicted to save enough, and if no plan in ``among`` is predicted to be as accurate at no higher
    cost. Plans that were run on far fewer requests than ``one`` are not considered.
    """
    if one.promised_usd > (1.0 - LEAST_SAVED) * one.baseline.promised_usd:
        return False
    least = LEAST_FOLLOWED * one.followed
    others = [
        other
        for other in among
        if other is not one and other.is_identified and other.promised_usd <= one.promised_usd and other.followed >= least
    ]
    return all(other.promised_accuracy < one.promised_accuracy for other in others)


def _with_ends(found: Sequence[_Candidate], baseline: _Baseline, seed: int, level: float, *, rungs: int) -> list[ComparedPlan]:
    """Return each plan in ``found`` with the confidence interval of its gain over the baseline.

    Args:
        found: The plans. The first ``rungs`` of them are tested.
        baseline: The plan to compare with.
        seed: The seed of the random draws.
        level: The one-sided confidence level of each end of an interval.
        rungs: The number of tested plans. Their intervals are wider, so that they also hold for the best tested plan.
    """
    gains = [one.gain for one in found[:rungs] if one.gain is not None and one.is_identified]
    best = best_of(gains, seed, level)
    return [_compared(one, baseline, best if i < rungs else 1.0, level, is_rung=i < rungs) for i, one in enumerate(found)]


def best_of(found: Sequence[Moments], seed: int, level: float = LEVEL) -> float:
    """Return the factor >= 1 by which to widen the intervals of several means so that all of them hold at the same time.

    So the interval of the best mean holds, too.

    The factor is computed by simulation (max-t): normal errors are drawn with the correlations of the residuals, and a
    quantile of the largest one is taken. Plans that do nearly the same on the same requests hardly increase the factor.

    Args:
        found: The moments of each mean, over the same requests in the same order.
        seed: The seed of the draws.
        level: The confidence of the widest interval.
    """
    if len(found) < 2:
        return 1.0
    residuals = np.stack([one.residuals for one in found], axis=1)
    square = np.array([one.square for one in found])
    together = residuals.T @ residuals
    # The allowance for unobserved losses is made for each plan separately.
    together[np.diag_indices_from(together)] = square
    spread = np.sqrt(square)
    # Draws from the residuals' correlation, so that no draw per request is needed.
    values, vectors = np.linalg.eigh(together / np.outer(spread, spread))
    # If plans are nearly the same, rounding may leave tiny negative eigenvalues.
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    most = (np.random.default_rng([seed, len(found)]).standard_normal((DRAWS, len(found))) @ root.T).max(axis=1)
    return max(float(np.quantile(most, level) / ndtri(level)), 1.0)


def ends(found: Moments, factor: float = 1.0, level: float = LEVEL) -> tuple[float, float]:
    """Return the lower and upper end of a mean's confidence interval.

    Each end is corrected by the third moment (Johnson 1978), as if one more request had been lost (or won): rare losses may
    happen not to be observed, and the usual interval is then too short.

    Args:
        found: The moments of the mean.
        factor: Widens the interval, >= 1; the result of :func:`best_of` if the interval should hold for several means together.
        level: The confidence of each end.
    """
    reach = factor * found.quantile(level) * found.standard_error + found.unsupported * found.bound
    cube, one, n = float((found.residuals**3).sum()), (found.bound * found.heaviest) ** 3, len(found.residuals)
    per = (1.0 + 2.0 * float(ndtri(level)) ** 2) / 6.0 / max(found.square, 1e-300) / n
    down, up = max(one - cube, 0.0) * per, max(one + cube, 0.0) * per
    return found.value - reach - (down if one else 0.0), found.value + reach + (up if one else 0.0)


def _compared(one: _Candidate, baseline: _Baseline, best: float, level: float, *, is_rung: bool = True) -> ComparedPlan:
    gain, saved, counted = one.gain, one.saved, one.counted
    low = high = best_low = best_high = 0.0
    if gain is not None:
        (low, high), (best_low, best_high) = ends(gain, 1.0, level), ends(gain, best, level)
        if counted is not None and not counted.differing and abs(gain.value) < 1e-9:
            # Requests that weigh unequally tell less than as many that weigh the same.
            n = counted.requests if counted.requests == len(gain.residuals) else min(counted.requests, int(gain.effective))
            low = best_low = -nothing_differs(n, level)
            high = best_high = -low
    if not one.is_identified:  # figures of the model only: the true value may be anything
        low, high, best_low, best_high = -1.0, 1.0, -1.0, 1.0
    # Dollars differ on nearly every request, so that the usual interval needs no allowance for rare losses.
    saved_value = 0.0 if saved is None else saved.value
    saved_reach = saved.reach(LEVEL) if saved is not None and one.is_identified else 0.0
    chosen = one.chosen
    return ComparedPlan(
        policy=one.policy,
        words=short_words(chosen.words),
        models=one.models,
        cost_usd=one.promised_usd,
        cap_usd=chosen.promised_cost_usd,
        accuracy=baseline.accuracy.value + (0.0 if gain is None else gain.value),
        gain=0.0 if gain is None else gain.value,
        gain_low=low,
        gain_high=high,
        best_low=best_low,
        best_high=best_high,
        saved_usd=saved_value,
        saved_low=saved_value - saved_reach,
        saved_high=saved_value + saved_reach,
        latency_s=_seconds(one.ways),
        answers=None if counted is None else counted.requests,
        lost=None if counted is None else counted.lost,
        followed=None if gain is None else gain.effective,
        is_rung=is_rung,
        is_same=one.is_same,
        is_identified=one.is_identified,
        code=() if chosen.ends_early else chosen.code,
    )


def _of(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _mean(ways: Sequence[HeldOutPolicy], name: str) -> float:
    return _of(getattr(way.chosen, name) for way in ways)


def _seconds(ways: Sequence[HeldOutPolicy]) -> float:
    return -estimate_mean([HalfScores(way.scores) for way in ways], "latency").value


def _followed(found: Sequence[_Candidate], usd: float) -> float:
    """Return the median of :attr:`_Candidate.followed` over the plans that save enough; 0 if no plan saves enough.

    ``followed`` is the effective number of requests that support a plan's estimated gain. ``usd`` is the baseline's predicted
    cost per request in dollars.
    """
    known = [
        one.followed for one in found if not one.is_same and one.is_identified and one.promised_usd <= (1.0 - LEAST_SAVED) * usd
    ]
    return float(np.median(known)) if known else 0.0
