"""The verdict: whether to serve a plan instead of the current setup, the rule that decides this, and the sentences that
report it.

A trie's file stores the verdict, and every command and service reads it from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from itertools import groupby
from typing import Any, Literal, Self

from vinelm.errors import ConfigError

MAX_LOSS = 0.03
"""Default of the accuracy that a cheaper plan may lose, as a fraction."""
LEAST_SAVED = 0.05
"""Fraction of the baseline's dollars: a plan that saves less is no reason to change anything."""
LEAST_SHARE = 0.5
"""A plan that may serve a smaller share of requests is not recommended: little is known about it, and little is saved."""
LEAST_ROWS = 50
"""With fewer rows no verdict is made."""
LEAST_FOLLOWED = 0.5
"""Share of the requests that follow the best known plan: plans with fewer are shown, but are not rungs and stand for no others.
"""
NEAR = 0.1
"""A plan is not valued by compared plans whose range of dollars it misses by more than this share."""
LEAST_TIMES, MOST_TIMES = 1.1, 900.0
"""Growth that would settle a question: at least a tenth more requests; if more than this multiple is needed, nothing would."""
MOST_MORE = 20
"""If labels could prove a plan on up to this multiple of the requests, the question is open; beyond that the current setup is
kept."""
Advice = Literal["switch", "keep", "undecided", "not enough data"]
LEADS = {"switch": "SWITCH", "keep": "KEEP", "undecided": "UNDECIDED", "not enough data": "NOT ENOUGH DATA"}
MOST_WORDS = 120
"""How many characters of a plan a sentence shows: mixtures and graphs are too long, and the table below has them."""
EARLY, NEARLY_ALL = 3.0 / 1.6449, 1.75 / 1.6449
"""Factors of :func:`early_reach`: three standard errors, and what O'Brien and Fleming's bound has at its end."""
CHOSEN = 2.3263 / 1.6449
"""The usual reach is multiplied by this for a plan that is chosen by answers after another has failed: 99 % instead of 95 %."""
_MANY = 2.2 * 0.5
_FIGURES = (
    "accuracy", "gain", "gain_low", "gain_high", "best_low", "best_high", "saved_usd", "saved_low", "saved_high", "hidden",
)  # fmt: skip


def require_max_loss(value: float, name: str = "max_loss") -> float:
    """Return ``value``, the fraction of accuracy that a cheaper plan may lose, if it is a valid setting.

    ``name`` is the name of the setting in the error message.

    Raises:
        ConfigError: The value is not in [0, 1).
    """
    if not 0.0 <= value < 1.0:
        raise ConfigError(f"{name} is {value}: it must be a fraction of accuracy in [0, 1)")
    return value


def early_reach(share: float) -> float:
    """Return the factor by which the interval of a plan is widened while requests are left that have not run it.

    A profile looks at its verdict several times. With the usual interval, five looks, each at twice the rows, would be wrong in
    16 % of cases; with these factors in 5.4 %. The bound is O'Brien and Fleming's (1979), which is wide at first and hardly
    wider than usual at the end, but at most three standard errors (Haybittle 1971, Peto 1976).

    Args:
        share: the share of the requests that have run the plan, in [0, 1].
    """
    return min(EARLY, NEARLY_ALL / math.sqrt(max(share, 1e-9)))


@dataclass(frozen=True, kw_only=True)
class ComparedPlan:
    """A plan compared with the baseline on the same requests, which were not used for choosing the plan.

    Attributes:
        policy: What the plan depends on: the stages and models so far (``"paths"``), also what answers show without labels
            (``"signals"``), or nothing (``"fixed"``).
        words: The plan in words. This is the plan that results from all requests for the same budget. The comparison tests
            plans that result from some of the requests, which may differ from it.
        models: The models that the plan may run.
        cost_usd: Expected cost in dollars per request, according to the requests that were used for choosing the plan.
        cap_usd: The limit on the mean cost, in dollars per request, for which planning over all results gives this plan;
            None if unknown.
        accuracy: Accuracy on the test requests, a fraction.
        gain: Accuracy above the baseline's, a fraction. ``gain_low`` and ``gain_high`` are the ends of its interval, each
            of which holds with 95 % for this plan.
        best_low, best_high: The ends of the gain's interval that hold with 95 % for all compared plans together, so also for
            the best plan.
        saved_usd: Dollars per request that the plan saves. ``saved_low`` and ``saved_high`` are the ends of its interval,
            each of which holds with 95 %.
        latency_s: Seconds per request on the test requests; None if unknown.
        answers: The number of requests that ran both the plan and the baseline to the end. None if none did, or if the plan or
            the baseline is a traffic split.
        lost: The number of these requests on which the plan is worse than the baseline; None if ``answers`` is None.
        followed: The effective number of requests, given their weights, for which the results of both the plan and the
            baseline were recorded. None if unknown.
        is_rung: Whether the verdict's rule may test the plan (:attr:`Verdict.rungs`); other plans are only displayed.
        hidden: The maximum accuracy that may be lost on answers that count as equal to the current setup's, estimated from
            people's labels of such answers. It is already subtracted from the lower ends of the gain. 0 if equal answers
            always have equal scores.
        is_same: Whether the plan is the baseline itself.
        is_identified: Whether the plan's effect can be computed from the results alone; otherwise the numbers come from a
            statistical model and prove nothing.
        code: The models of a fixed plan, as pairs (stage or invocation, model). Empty for other plans, and if the plan ends
            requests that the application would continue.
    """

    policy: str
    cost_usd: float
    gain: float
    gain_low: float
    gain_high: float
    best_low: float
    best_high: float
    saved_usd: float
    saved_low: float
    saved_high: float
    is_same: bool
    is_identified: bool
    accuracy: float = math.nan
    cap_usd: float | None = None
    words: str = ""
    models: tuple[str, ...] = ()
    latency_s: float | None = None
    answers: int | None = None
    lost: int | None = None
    followed: float | None = None
    is_rung: bool = True
    hidden: float = 0.0
    code: tuple[tuple[str, str], ...] = ()

    @property
    def is_saving(self) -> bool:
        """Whether the plan costs less with 95 % confidence, and is expected to save enough to be worth a change."""
        return self.saved_low > 0.0 and self.saved_usd >= LEAST_SAVED * (self.cost_usd + self.saved_usd)

    def passes(self, max_loss: float) -> bool:
        """Return whether the plan saves money and loses at most this fraction of accuracy, each with 95 % confidence."""
        return self.gain_low > -max_loss and self.is_saving

    def lowered(self, loss: float) -> Self:
        """Return a copy whose ``gain_low`` and ``best_low``, the lower ends of the plan's gain, are reduced by ``loss``.

        ``loss`` is the accuracy, a fraction, that may be lost on answers that count as equal to those of the current setup.
        """
        return replace(self, gain_low=self.gain_low - loss, best_low=self.best_low - loss, hidden=loss)

    def widened(self, factor: float) -> Self:
        """Return a copy of the plan whose gain has wider intervals.

        Their lower ends are ``factor`` times as far from the gain as before.
        """
        low, best_low = (self.gain - factor * (self.gain - end) for end in (self.gain_low, self.best_low))
        return replace(self, gain_low=low, best_low=best_low)

    def serving(self, share: float) -> Self:
        """Return the results over all requests if the plan serves this share of the requests and the baseline serves the rest.

        Requests are assigned at random, so accuracy and cost are weighted means of the plan's and the baseline's.
        """
        names = [name for name in _FIGURES if name != "accuracy"]
        return replace(
            self,
            accuracy=self.accuracy - (1.0 - share) * self.gain,
            answers=None,
            lost=None,
            **{name: share * getattr(self, name) for name in names},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain JSON types; an unknown accuracy is None."""
        own = asdict(self)
        return own | {
            "accuracy": None if math.isnan(self.accuracy) else self.accuracy,
            "code": [list(one) for one in self.code],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the plan from the result of :meth:`to_dict`."""
        known = {one.name: data[one.name] for one in fields(cls) if one.name in data}
        known["accuracy"] = math.nan if known.get("accuracy") is None else known["accuracy"]
        known["models"] = tuple(known.get("models", ()))
        known["code"] = tuple((str(where), str(model)) for where, model in known.get("code", ()))
        return cls(**known)


@dataclass(frozen=True, kw_only=True)
class ByToday:
    """The basis of a verdict on requests without labels.

    The current setup's answer is the reference until a person labels the request.

    Attributes:
        requests: The number of requests without a label.
        asked: The number of questions that people have answered.
        failed: The number of requests on which the current setup failed, so that there is no reference answer.
        digest: A digest of the labels and answers; if it changes, a new verdict is needed.
        plan: The plan, in words, that labels may prove next. Empty if there is none, or if the verdict is for an allowed loss
            for which no such plan was searched.
        differing: The number of answers of ``plan`` that differ from the current setup's and have no label. They count as
            lost.
        questions: Pairs (request id, digest of an answer) that people should label; empty if labels cannot prove ``plan``.
            They include answers of other plans, if these have to be labelled as well.
        is_put: Whether ``vinelm label`` already asks these questions.
        needed: The estimated total number of requests with which labels could prove the plan; 0 if the present requests
            suffice, or if unknown.
    """

    requests: int
    asked: int = 0
    failed: int = 0
    digest: str = ""
    plan: str = ""
    differing: int = 0
    questions: tuple[tuple[str, str], ...] = ()
    is_put: bool = False
    needed: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the object that ``asdict`` converted to ``data``."""
        known = {one.name: data[one.name] for one in fields(cls) if one.name in data}
        return cls(**{**known, "questions": tuple((str(one), str(other)) for one, other in data.get("questions", ()))})


@dataclass(frozen=True, kw_only=True)
class Settling:
    """The additional labels or runs that would decide an undecided verdict.

    Attributes:
        requests: The number of labelled requests that have to run both the plan and the baseline, estimated from the requests
            that did.
        labels: The number of labelled requests that are missing; 0 if the present requests suffice.
        runs: The number of requests that still have to run the plan or the baseline.
        usd: The cost of these runs in dollars.
    """

    requests: int
    labels: int
    runs: int
    usd: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether to switch from the current setup, or the strongest single model, to another plan.

    Attributes:
        opponent: The baseline as it appears in sentences: ``"what runs today"``, the name of a model or, if the plans are for
            an objective, ``"the best single model"``.
        is_today: Whether the baseline is the application's current setup; otherwise it is the single model with the best
            results.
        models: The baseline's model of each stage.
        accuracy, accuracy_low, accuracy_high: The baseline's accuracy with the ends of its 90 % interval; None if unknown.
        cost_usd, latency_s: The baseline's cost in dollars and its seconds per request; None if unknown.
        requests: The number of labelled requests that were compared.
        rows: The number of results (rows) of these requests.
        spent_usd: The cost of these results in dollars.
        plans: The compared plans, in the order of rising cost.
        max_loss: The accuracy that a cheaper plan may lose, as a fraction.
        why_not: The reason why nothing could be compared, in a few words; empty if plans were compared.
        tried_only: Whether the comparison was limited to plans that enough requests have run; if so, the trie allows no
            other plans.
        cheaper: Models that some stage may run at a lower list price than the baseline's model.
        is_judged: Whether a model, as a judge, decided which answers are right.
        is_served: Whether the plans were really served; otherwise the numbers are estimates from stored results.
        by_today: The basis of the verdict if requests have no label; None if all have one.
    """

    opponent: str = "what runs today"
    is_today: bool = True
    models: Mapping[str, str] = field(default_factory=dict)
    accuracy: float | None = None
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    requests: int = 0
    rows: int = 0
    spent_usd: float = 0.0
    plans: Sequence[ComparedPlan] = ()
    max_loss: float = MAX_LOSS
    why_not: str = ""
    tried_only: bool = False
    cheaper: tuple[str, ...] = ()
    is_judged: bool = False
    is_served: bool = False
    by_today: ByToday | None = None

    # -- the rule --------------------------------------------------------------------------------------------------

    def at(self, max_loss: float) -> Self:
        """Return the verdict for another allowed loss of accuracy (``max_loss``), from the same intervals.

        If the loss changes, the new verdict does not say what further labels could prove: this is known only for the old loss.
        """
        by_today = self.by_today
        if by_today is not None and max_loss != self.max_loss:
            by_today = replace(by_today, plan="", differing=0, questions=(), is_put=False, needed=0)
        return replace(self, max_loss=require_max_loss(max_loss), by_today=by_today)

    def untimed(self) -> Self:
        """Return a copy of the verdict without latencies; used if the latencies of some results are unknown."""
        return replace(self, latency_s=None, plans=tuple(replace(plan, latency_s=None) for plan in self.plans))

    @property
    def rungs(self) -> list[ComparedPlan]:
        """The plans that the verdict's rule tests in turn, the most expensive first.

        These are the plans that are predicted to save enough. The first plan that fails ends the tests, so plans with few
        results, which would often fail, are left out. Which plans are in the list does not depend on the answers of the test
        requests.
        """
        found = [
            plan
            for plan in self.plans
            if plan.is_rung and plan.is_identified and not plan.is_same and plan.cost_usd <= self._worth_usd
        ]
        least = LEAST_FOLLOWED * max((plan.followed or 0.0 for plan in found), default=0.0)
        return sorted((one for one in found if one.followed is None or one.followed >= least), key=lambda one: -one.cost_usd)

    @cached_property
    def _decided(self) -> tuple[Advice, ComparedPlan | None, float]:
        """(Advice, plan that the advice is about, share of the requests that this plan should serve).

        The plan is None if there is too little data.
        """
        if self.why_not:
            return "not enough data", None, 0.0
        passed = failed = None
        shown = [plan for plan in self.plans if plan.is_identified and not plan.is_same and plan.is_rung]
        # Ordered by predicted dollars, which no answer of the test decides. Each test is at 5 % and the first failure ends the
        # ladder, so that a wrong switch needs one particular test to fail: 5 % in total, however many plans there are.
        for plan in self.rungs:
            if not plan.passes(self.max_loss):
                failed = plan
                break
            passed = plan
        if passed is not None:
            return "switch", passed, 1.0
        # A more expensive plan has to gain more than what a cheaper plan may lose.
        gaining = [plan for plan in shown if plan.best_low > (0.0 if plan.saved_usd >= 0.0 else self.max_loss)]
        if gaining:
            # Of the plans that surely gain, one for no more dollars; otherwise the one whose gain is most certain.
            return "switch", max(gaining, key=lambda plan: (plan.saved_usd >= 0.0, plan.best_low)), 1.0
        shared, share = self._shared(failed)
        if shared is not None and share * shared.saved_usd >= LEAST_SAVED * (self.cost_usd or 0.0) and share:
            return "switch", shared, share
        # Unlabelled answers are not known to be worse: people are asked, or more requests make the plan worth it.
        by_today = self.by_today
        if failed is not None and by_today is not None and failed.is_saving and by_today.plan in ("", failed.words):
            may_do = by_today.differing and 0 < by_today.needed <= MOST_MORE * self.requests
            if self.waiting or may_do or not by_today.plan:
                return "undecided", failed, 0.0
        seen = [plan for plan in self.plans if plan.is_identified and not plan.is_same]
        if self.uncompared or not seen:
            return "not enough data", None, 0.0
        open_ = [plan for plan in shown if plan.gain_high > -self.max_loss and self._may_be_worth_it(plan)]
        if open_:
            return "undecided", min(open_, key=self._distance), 0.0
        if self.promising:  # that plans of other models are worse says nothing of these
            return "not enough data", None, 0.0
        return "keep", max(shown or seen, key=lambda plan: plan.gain), 0.0

    def _may_be_worth_it(self, plan: ComparedPlan) -> bool:
        """Return whether a plan may be worth a change.

        True if it is expected to save enough dollars. Also True if it is expected to gain accuracy, and the upper end of
        the gain's interval is above ``max_loss``.
        """
        saves = plan.saved_usd >= LEAST_SAVED * (self.cost_usd or 0.0) > 0.0
        return saves or (plan.gain > 0.0 and plan.best_high > self.max_loss)

    def _distance(self, plan: ComparedPlan) -> tuple[bool, bool, float, float]:
        """Return a sort key by which a plan comes early if little is missing for the advice to switch to it.

        Such a plan needs few more requests, saves money, and loses little.
        """
        times = self._times(plan)
        return times > MOST_TIMES, plan.saved_usd <= 0.0, times, -plan.gain_low

    def _shared(self, failed: ComparedPlan | None) -> tuple[ComparedPlan | None, float]:
        """Return (plan, share): the plan that saves most if it serves only a share of the requests, and this share.

        Each plan is given the largest share at which its loss of accuracy stays within :attr:`max_loss`. ``failed`` is the
        first plan that failed its test; if it is None, the result is (None, 0). The shares of other plans are computed from
        wider intervals, because several plans are compared.
        """
        if failed is None:
            return None, 0.0
        # The first failure's own interval keeps the error of all tests at 5 %; the others' hold together at 99 %: 1 % more.
        shares = [(self._share(failed, failed.gain_low, 0.99), failed)]
        shares += [(self._share(one, one.widened(CHOSEN).best_low, 1.0), one) for one in self.rungs if one is not failed]
        share, plan = max(shares, key=lambda found: found[0] * found[1].saved_usd)
        return plan, share

    def _share(self, plan: ComparedPlan, low: float, most: float) -> float:
        """Return the largest share of requests that the plan may serve without losing more than allowed; at most ``most``.

        ``low`` is the lower end of the plan's gain. The result is 0 if the share would be below :data:`LEAST_SHARE`. It is also
        0 if ``low`` is not negative, no saving is proven, or the expected loss is larger than allowed.
        """
        if not (plan.is_saving and plan.gain > -self.max_loss and low < 0.0):
            return 0.0
        share = math.floor(100 * min(self.max_loss / -low, most)) / 100
        return share if share >= LEAST_SHARE else 0.0

    def _times(self, plan: ComparedPlan) -> float:
        """Return the factor by which the number of requests has to grow so that the plan passes its test, if its gain stays
        the same.
        """
        saves = plan.saved_usd >= LEAST_SAVED * (self.cost_usd or 0.0) > 0.0
        distance = plan.gain + (self.max_loss if saves else 0.0 if plan.saved_usd >= 0.0 else -self.max_loss)
        reach = plan.gain - (plan.gain_low if saves else plan.best_low)
        # If no answer differs, the possible loss shrinks with the number of requests itself, not with its root.
        power = 1 if plan.lost == 0 and abs(plan.gain) < 1e-9 else 2
        return math.inf if distance <= 1e-6 else (reach / distance) ** power

    @property
    def waiting(self) -> int:
        """The number of open questions to people; their answers may prove the advised plan, or a plan that saves more."""
        return 0 if self.by_today is None else len(self.by_today.questions)

    @property
    def advice(self) -> Advice:
        """The advice: ``"switch"``, ``"keep"``, ``"undecided"`` or ``"not enough data"``."""
        return self._decided[0]

    @property
    def plan(self) -> ComparedPlan | None:
        """The plan that the advice is about; None if there is too little data.

        If the advice is "switch", the plan to switch to; if "undecided", the plan nearest to a switch; if "keep", the plan with
        the highest gain.
        """
        return self._decided[1]

    @property
    def share(self) -> float:
        """The share of the requests that the plan serves: above 0 only if the advice is to switch."""
        return self._decided[2]

    @property
    def is_fixed(self) -> bool:
        """Whether the advice is to switch to a plan that is the same for every request, so that it can run without VineLM."""
        return self.advice == "switch" and self.plan is not None and bool(self.plan.code) and self.share == 1.0

    @property
    def served(self) -> ComparedPlan | None:
        """The figures for a service in which :attr:`plan` answers its share of the requests and the baseline the rest.

        None without a plan. If the share is 0, they are the figures of the plan alone. If the advice is to switch to a plan
        that does not cost more, the lower end of the gain (``best_low``) is raised to at least ``-max_loss``, since the
        tests have excluded a larger loss.
        """
        if self.plan is None:
            return None
        plan = self.plan.serving(self.share) if 0.0 < self.share < 1.0 else self.plan
        if self.advice != "switch" or plan.saved_usd < 0.0:
            return plan
        return replace(plan, best_low=max(plan.best_low, -self.max_loss))

    @property
    def gain(self) -> tuple[float, float, float] | None:
        """A tuple: the accuracy gained over the baseline, and the lower and upper end of its interval; None without a plan.

        The interval holds for all compared plans together, so also for the best of them.
        """
        plan = self.served
        return None if plan is None else (plan.gain, plan.best_low, plan.best_high)

    @property
    def loss(self) -> float | None:
        """The largest loss of accuracy, a fraction, that is still possible at 95 % confidence; None without a plan.

        0 if every loss is excluded.
        """
        return None if self.served is None else max(-self.served.best_low, 0.0)

    @property
    def compared(self) -> tuple[str, ...]:
        """The models that compared plans run and the baseline does not; if there are none, all models of the compared
        plans.
        """
        now = frozenset(self.models.values())
        shown = [plan for plan in self.plans if plan.is_identified and not plan.is_same]
        names = sorted({name for plan in shown for name in plan.models}, key=lambda name: (name in now, name))
        return tuple(name for name in names if name not in now) or tuple(names)

    @property
    def uncompared(self) -> tuple[str, ...]:
        """The models with a lower list price than the baseline's, if no plan that saves money could be compared; otherwise
        empty.

        A plan cannot be compared if too few requests have run it to the end.
        """
        is_shown = any(plan.is_identified and plan.saved_usd > 0.0 for plan in self.plans if not plan.is_same)
        return () if is_shown else self.cheaper

    @property
    def promising(self) -> tuple[str, ...]:
        """The models whose results are too few for a proof, but which are predicted to save enough if they run every stage."""
        return tuple(plan.code[0][1] for plan in self._unproven_models if plan.cost_usd <= self._worth_usd)

    @property
    def _unproven_models(self) -> list[ComparedPlan]:
        """The plans that run one model at every stage and are predicted to lose less accuracy than allowed, but lack the
        results to prove it.
        """
        alone = [plan for plan in self.plans if not plan.is_identified and len({model for _, model in plan.code}) == 1]
        return [plan for plan in alone if plan.gain > -self.max_loss]

    @property
    def _worth_usd(self) -> float:
        """The maximum cost, in dollars per request, of a plan that saves enough to be worth a change."""
        return (1.0 - LEAST_SAVED) * (self.cost_usd or 0.0)

    @property
    def settling(self) -> Settling | None:
        """The labels or runs that would decide an undecided verdict; None for other verdicts, or if too many are needed."""
        plan = self.plan
        if self.advice != "undecided" or plan is None or not self.requests:
            return None
        times = self._times(plan)
        if times > MOST_TIMES:
            return None
        known = min(max(plan.followed or self.requests, 1.0), self.requests)
        requests = math.ceil(known * max(times, LEAST_TIMES))
        runs, pair_usd = requests - math.floor(known), (self.cost_usd or 0.0) + max(plan.cost_usd, 0.0)
        return Settling(requests=requests, labels=max(requests - self.requests, 0), runs=runs, usd=pair_usd * runs)

    @property
    def ends_buying(self) -> bool:
        """Whether a profile that recomputes the verdict repeatedly may stop now, although the budget is not used up.

        True if the advice is to keep, or if the next step is to ask people. If the advice is to switch, three conditions have
        to hold. First, the plan serves all requests, or no further result can raise its share: all requests have run it and
        every more expensive plan that is tested before it. Second, it is still advised if plans that lack results get wider
        intervals (by :func:`early_reach`). Third, further results cannot prove another plan that saves clearly more.
        """
        if self.advice != "switch" or self.plan is None or self.served is None:
            return self.advice == "keep" or bool(self.waiting)  # people are asked next
        early = replace(self, plans=tuple(self._as_early(one) for one in self.plans))
        is_same = early.plan is not None and early.plan.words == self.plan.words
        is_final = early.share == 1.0 or not self.missing
        return early.advice == "switch" and is_final and is_same and not self._saves_more_elsewhere(self.served)

    def _as_early(self, plan: ComparedPlan) -> ComparedPlan:
        """Return a plan with the interval that it has if further results may follow; unchanged if all requests have run it."""
        if plan.answers == self.requests:
            return plan
        return plan.widened(early_reach(min((plan.followed or 0.0) / max(self.requests, 1), 1.0)))

    @property
    def missing(self) -> list[ComparedPlan]:
        """The plans whose further results may raise the share of :attr:`plan`: itself and the more expensive plans that are
        tested before it, the first of which to fail limits the share. Plans that all requests have run are left out.
        """
        least_usd = math.inf if self.plan is None else self.plan.cost_usd
        return [one for one in self.rungs if one.cost_usd >= least_usd and one.answers != self.requests]

    def _saves_more_elsewhere(self, than: ComparedPlan) -> bool:
        """Return whether more results may prove another plan that saves clearly more than the plan ``than``."""
        open_ = [one for one in self.rungs if one.answers != self.requests and one.gain > -self.max_loss]
        most_usd = than.cost_usd - LEAST_SAVED * (self.cost_usd or 0.0)
        return any(one.cost_usd <= most_usd for one in (*open_, *self._unproven_models))

    @property
    def max_cost_usd(self) -> float | None:
        """The limit on the mean cost, in dollars per request, with which a service gets :attr:`plan` from the planner.

        It is rounded to three digits, and not below the plan's cost. None without a plan.
        """
        if self.plan is None:
            return None
        # Rounded to three digits, not below the plan's dollars.
        return float(f"{1.005 * (self.plan.cost_usd if self.plan.cap_usd is None else self.plan.cap_usd):.3g}")

    def on(self, cost_usd: float, policy: str) -> Verdict | None:
        """Return the verdict on a plan that was not compared itself, such as the plan for another objective.

        Its figures are interpolated between the two compared plans whose costs are next to its cost. It was not chosen as the
        best of several plans, so the interval that holds for a single plan is used. The plan passes if, with 95 % confidence,
        it saves money and loses at most ``max_loss``, or gains accuracy.

        Args:
            cost_usd: The plan's expected cost in dollars per request.
            policy: What the plan depends on, see :class:`ComparedPlan`. It is estimated from compared plans of this type
                and from fixed plans.

        Returns: The verdict; None if no similar plan was compared.
        """
        plans = sorted(
            (plan for plan in self.plans if plan.policy in (policy, "fixed") and plan.is_rung), key=lambda plan: plan.cost_usd
        )
        if not plans or not plans[0].cost_usd * (1 - NEAR) <= cost_usd <= plans[-1].cost_usd * (1 + NEAR):
            return None
        below = [plan for plan in plans if plan.cost_usd <= cost_usd * (1 + 1e-6)]
        above = [plan for plan in plans if plan.cost_usd >= cost_usd * (1 - 1e-6)]
        beside = [*below[-1:], *above[:1]]
        if not all(plan.is_identified for plan in beside):
            return None
        plan = _between(beside[0], beside[-1], cost_usd)
        own = replace(
            plan, best_low=plan.gain_low, best_high=plan.gain_high, cost_usd=(self.cost_usd or 0.0) - plan.saved_usd,
            cap_usd=cost_usd, answers=None, lost=None, code=(),
        )  # fmt: skip
        return replace(self, plans=(own,))

    # -- words -----------------------------------------------------------------------------------------------------

    @property
    def sentence(self) -> str:
        """The verdict as a sentence that begins with its word, such as SWITCH."""
        return sentence(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as a dict of JSON types: the stored fields, and conclusions such as the advice."""
        settling = self.settling
        return self.held() | {
            "advice": self.advice,
            "sentence": self.sentence,
            "share": self.share,
            "is_fixed": self.is_fixed,
            "plan": None if self.plan is None else self.plan.to_dict(),
            "gain": None if self.gain is None else list(self.gain),
            "loss": self.loss,
            "settling": None if settling is None else asdict(settling),
            "waiting": self.waiting,
        }

    # -- the file --------------------------------------------------------------------------------------------------

    def held(self) -> dict[str, Any]:
        """Return the stored fields as a dict of JSON types. Everything else about a verdict is computed from these."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        return own | {
            "models": dict(self.models),
            "cheaper": list(self.cheaper),
            "plans": [plan.to_dict() for plan in self.plans],
            "by_today": None if self.by_today is None else asdict(self.by_today),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the verdict whose stored fields are in ``data``, a dict that :meth:`held` returned."""
        known = {one.name: data[one.name] for one in fields(cls) if one.name in data}
        plans = tuple(ComparedPlan.from_dict(plan) for plan in known.get("plans", ()))
        by_today = None if known.get("by_today") is None else ByToday.from_dict(known["by_today"])
        return cls(**{**known, "plans": plans, "cheaper": tuple(known.get("cheaper", ())), "by_today": by_today})


def _between(one: ComparedPlan, other: ComparedPlan, cost_usd: float) -> ComparedPlan:
    """Return the figures of a plan that costs ``cost_usd`` dollars per request, interpolated between the plans ``one`` and
    ``other``.

    Accuracy rises ever more slowly with cost, so linear interpolation underestimates the plan's accuracy.
    """
    width = other.cost_usd - one.cost_usd
    share = min(max((cost_usd - one.cost_usd) / width, 0.0), 1.0) if width > 0.0 else 0.0
    at = {name: (1.0 - share) * getattr(one, name) + share * getattr(other, name) for name in ("cost_usd", *_FIGURES)}
    models = tuple(dict.fromkeys((*one.models, *other.models)))
    return replace(one, **at, is_same=one.is_same and other.is_same, models=models, cap_usd=None, words="")


# -- words -------------------------------------------------------------------------------------------------------------


def lead_of(advice: Advice, opponent: str = "what runs today") -> str:
    """Return the words with which a verdict with this advice begins, such as SWITCH.

    For ``"keep"``, it is KEEP and the name of the baseline, ``opponent``.
    """
    return f"{LEADS[advice]} {opponent}" if advice == "keep" else LEADS[advice]


def sentence(found: Verdict) -> str:
    """Return the verdict as text: the advice (such as SWITCH), costs, accuracies, and the accuracy loss that is ruled out."""
    lead, plan = lead_of(found.advice, found.opponent), found.served
    if found.advice == "not enough data" or plan is None:
        return f"{lead}: {why_not_enough(found)}."
    if found.advice == "keep":
        among = f"plans of {_and(found.compared)}" if found.compared else "the compared plans"
        name = f" ({plan.words})" if _is_short(plan) else ""
        best = f"The best of these{name} has {_costs(found, plan)} and {_points(plan)}"
        return f"{lead}: nothing cheaper or better is left among {among}. {best}{_counted(found)}."
    if found.is_fixed:
        named = plan.words if _is_short(plan) else "one plan for all requests"
        tail = "You need no runtime: `vinelm plan TRIE --as-code` prints the lines to write."
        return f"{lead}, A FIXED PLAN IS ENOUGH: {named}. {_figures(found, plan)} {_loss(found)} {tail}{_unlabelled(found)}"
    if found.advice == "switch":
        part = "" if found.share >= 1.0 else f" for {100 * found.share:.0f} % of the requests"
        named = f": {plan.words}." if _is_short(plan) else "."
        return f"{lead}{part}{named} {_figures(found, plan)} {_loss(found)}{_unlabelled(found)}"
    name = f"{plan.words} is the nearest plan" if _is_short(plan) else "the nearest plan is not proven"
    return f"{lead}: {name}. {_figures(found, plan)} {_loss(found)}{_unlabelled(found)}{_settles(found)}"


def why_not_enough(found: Verdict) -> str:
    """Return a clause that says why there are too few results for a verdict, and what to do."""
    if found.why_not:
        return found.why_not
    if found.uncompared:
        return (
            f"no cheaper plan than {found.opponent} was compared, since too few requests have run "
            f"{' or '.join(found.uncompared)} to the end: profile more (a larger --budget-usd, or more requests)"
        )
    if found.promising:
        alone = "it" if len(found.promising) == 1 else "them"
        return (
            f"{' and '.join(found.promising)} may do as well for less, but too few requests have run {alone} to the end:"
            " profile more (a larger --budget-usd, or more requests)"
        )
    return (
        f"no other plan than {found.opponent} was compared: too few requests have run another one to its end; profile more (a"
        " larger --budget-usd)"
    )


def columns(found: Verdict) -> tuple[str, ...]:
    """Return the headings of the table of :func:`table_rows`. A ``<`` at the beginning of a heading means that the column is
    aligned left.
    """
    right = "right" if found.by_today is None else "as good"
    return "<plan", right, "points, 95 %", "$/1,000", "dollars"


def table_rows(found: Verdict) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a table, as texts: the baseline, then each compared plan; the verdict's plan is marked with ``*``."""
    usd = found.cost_usd
    if usd is None:
        return
    now = "today" if found.is_today else found.opponent
    yield now, percent(found.accuracy), "", dollars(usd), ""
    shown = [plan for plan in found.plans if plan.is_identified and not plan.is_same]
    room = MOST_WORDS // 2
    while len({_cut(plan.words, room) for plan in shown}) < len({plan.words for plan in shown}):
        room += MOST_WORDS // 2  # leaves room to distinguish two plans that begin alike
    for plan in sorted(shown, key=lambda plan: -plan.saved_usd):
        mark = " *" if plan is found.plan else ""
        cost = usd - plan.saved_usd
        points = f"{100 * plan.gain:+z.1f} ({100 * plan.best_low:+z.1f} to {100 * plan.best_high:+z.1f})"
        yield f"{_cut(plan.words, room)}{mark}", percent(_accuracy(found, plan)), points, dollars(cost), change(cost, usd)


def short_words(words: str) -> str:
    """Return a plan's words, with equal steps in a row shortened to one step and their number: ``repair a (2 times)``."""
    found = [(step, len(list(times))) for step, times in groupby(words.split(", "))]
    return ", ".join(step if n == 1 else f"{step} ({n} times)" for step, n in found)


def _cut(words: str, room: int) -> str:
    return words if len(words) <= room else f"{words[: room - 3]}..."


def what_can_be_proven(requests: int, max_loss: float, *, labelled: bool = True) -> str:
    """Return a sentence that says how small a loss of accuracy could be excluded with ``requests`` requests.

    It covers two cases: that no answer differs, and that a plan changes a quarter of the answers, equally for better and worse.
    ``labelled`` says whether all of these requests have labels, and only changes the words.
    """
    if requests < 1:
        return f"No {'labelled ' if labelled else ''}request: nothing can be proven."
    what = "labelled requests" if labelled else "requests"
    least, many = nothing_differs(requests), _MANY / requests**0.5
    enough = "" if max_loss <= 0.0 else (
        f" {100 * max_loss:g} points take {_round_up(3.0 / max_loss):,} to {_round_up((_MANY / max_loss) ** 2):,} {what}."
    )  # fmt: skip
    return (
        f"With {requests:,} {what} a loss below {100 * least:.1f} points cannot be excluded, whatever is bought;"
        f" for a plan that changes many answers about {100 * many:.0f}.{enough}"
    )


def why_hopeless(requests: int, wrong: float, max_loss: float) -> str:
    """Return a line that says why the labelled requests are too few to prove any plan; empty if they may suffice.

    Even the best possible plan is considered: it loses no answer and is right whenever the baseline is wrong. Serving this plan
    to half of the requests would suffice, so a loss of twice the allowed size has to be ruled out.

    Args:
        requests: The number of labelled requests.
        wrong: The number of these requests on which the baseline may be wrong. An answer with a score counts as one minus
            the score, a missing answer as wrong.
        max_loss: Accuracy that a cheaper plan may lose, a fraction.
    """
    least = nothing_differs(requests)
    if wrong > 0.0 or least <= max_loss / LEAST_SHARE:
        return ""
    enough = f"about {_round_up(3.0 / max_loss):,} would do" if max_loss > 0.0 else "no number of them would do"
    return (
        f"what runs today is right on all {requests:,} labelled requests, and on so few a loss below {100 * least:.1f} points"
        f" cannot be excluded even for a plan that loses no answer, where {100 * max_loss:g} are allowed: {enough}"
    )


def nothing_differs(requests: int, level: float = 0.95) -> float:
    """Return the smallest loss of accuracy (a fraction) that is ruled out if a plan is worse on none of n ``requests``.

    ``level`` is the confidence; at 95 % the result is about 3/n (the rule of three).
    """
    return float(1.0 - (1.0 - level) ** (1.0 / max(requests, 1)))


def _round_up(value: float) -> int:
    """Return the number rounded up to two significant digits."""
    digits = 10 ** max(len(str(int(value))) - 2, 0)
    return int(-(-value // digits) * digits)


def _figures(found: Verdict, plan: ComparedPlan) -> str:
    """Return a sentence that compares the costs, accuracies and seconds of the plan and the baseline."""
    right = f"with {percent(_accuracy(found, plan))} right instead of {percent(found.accuracy)} ({_points(plan)})"
    if found.by_today is not None:  # how often today's answers are right is unknown
        right = f"with {_points(plan)} against today's answers"
    took = ""
    if plan.latency_s is not None and found.latency_s is not None:
        took = f", {seconds(plan.latency_s)} instead of {seconds(found.latency_s)}"
    against = "" if found.is_today else f", against {_named(found)}"
    return f"It costs {_costs(found, plan)}, {right}{took}{against}."


def _named(found: Verdict) -> str:
    """Return the name of a baseline that is not the current setup, as used in sentences.

    If the name is only a model's, ", the strongest single model" is added.
    """
    return found.opponent if found.opponent.startswith("the ") else f"{found.opponent}, the strongest single model"


def _costs(found: Verdict, plan: ComparedPlan) -> str:
    usd = found.cost_usd or 0.0
    cost = usd - plan.saved_usd
    return f"{dollars(cost)} instead of {dollars(usd)} per 1,000 requests ({change(cost, usd)})"


def change(after: float, before: float) -> str:
    """Return the change from the amount ``before`` to ``after`` in whole percent, with its sign; "-" if ``before`` is 0."""
    return f"{100 * (after / before - 1.0):+z.0f} %" if before else "-"


def _points(plan: ComparedPlan) -> str:
    return f"{100 * plan.gain:+z.1f} points, {100 * plan.best_low:+z.1f} to {100 * plan.best_high:+z.1f}"


def _counted(found: Verdict) -> str:
    by = "as the judge counts, " if found.is_judged else ""
    if found.by_today is not None:
        count, every = found.by_today.requests, found.requests
        some = "" if count >= every else f" on {count:,} of {every:,} requests"
        by = f"as today's answers count{some}, "
    return f" (95 %, {by}as of these requests)"


def _unlabelled(found: Verdict) -> str:
    """Return sentences on requests without labels, and on what people's labels may still decide; empty if all requests have
    labels.
    """
    by_today = found.by_today
    if by_today is None:
        return ""
    parts = []
    if by_today.failed:
        parts.append(f" What runs today failed on {counted(by_today.failed, 'request')}, where no other answer counts.")
    if by_today.asked:
        parts.append(f" {counted(by_today.asked, 'question')} answered so far.")
    served = found.served
    if served is not None and served.hidden:
        parts.append(
            " The same answer need not be as good: by those that persons were asked about, up to"
            f" {100 * served.hidden:.1f} points could be lost there, which the figures have taken off."
        )
    what = "it" if found.plan is not None and found.plan.words == by_today.plan else f"{by_today.plan}, which saves more"
    if found.waiting:
        wait = "would be asked" if not by_today.is_put else "waits" if found.waiting == 1 else "wait"
        how = "`vinelm label`, then the same line again" if by_today.is_put else "`vinelm try` with this --max-loss asks"
        parts.append(
            f" {counted(found.waiting, 'question')} {wait}, which may prove {what}: an answer that differs from today's"
            f" counts as lost until a person has said otherwise ({how})."
        )
    elif not by_today.plan and found.advice == "undecided":
        parts.append(" Whether labels could prove it at this loss an estimate at this --max-loss says.")
    elif by_today.differing and by_today.needed:
        parts.append(
            f" {by_today.differing:,} answers of {what} differ from today's, and nobody has said which are right. On so few"
            " requests labels could not prove it, so that none is asked for: about"
            f" {_round_up(by_today.needed):,} requests would do."
        )
    return "".join(parts)


def _loss(found: Verdict) -> str:
    """Return a sentence on the largest loss of accuracy that is still possible."""
    plan, loss = found.served, found.loss
    assert plan is not None
    assert loss is not None
    lost = "answers lost" if found.by_today is None else "answers count as lost"
    seen = "" if plan.lost is None else f"{plan.lost} of {plan.answers} {lost}; "
    allowed = ""
    if found.advice == "undecided":
        allowed = f", and {100 * found.max_loss:g} are allowed (--max-loss)" if plan.saved_usd > 0.0 else ""
    if loss == 0.0:
        return f"No accuracy is lost{_counted(found)}."
    begin = seen or "At most "
    most = "at most " if seen else ""
    return f"{begin}{most}{100 * loss:.1f} points could be lost{_counted(found)}{allowed}."


def _settles(found: Verdict) -> str:
    settling = found.settling
    if found.by_today is not None and found.by_today.differing:
        return ""
    if settling is None:
        return " More requests like these would hardly settle it."
    price = f", about {plain_dollars(settling.usd)} of runs" if settling.usd else ""
    if not settling.labels:
        return f" Running it on about {settling.runs:,} more of these requests would settle it{price}."
    if found.by_today is not None:
        return f" About {settling.requests:,} requests would settle it{price}."
    return f" About {settling.requests:,} labelled requests would settle it: {settling.labels:,} more labels{price}."


def _accuracy(found: Verdict, plan: ComparedPlan) -> float | None:
    return None if found.accuracy is None else found.accuracy + plan.gain


def _is_short(plan: ComparedPlan) -> bool:
    return 0 < len(plan.words) <= MOST_WORDS


def _and(names: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def percent(share: float | None) -> str:
    """Return a share of answers as a percentage with one digit, within 0 and 100 %; "-" for None."""
    return "-" if share is None else f"{100 * min(max(share, 0.0), 1.0):.1f} %"


def dollars(per_request: float) -> str:
    """Format dollars per request as dollars per 1,000 requests."""
    return plain_dollars(1000 * per_request)


def counted(number: int, what: str) -> str:
    """Return a number with a noun in singular or plural, such as "1 label" and "2 labels"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def plain_dollars(usd: float) -> str:
    """Format an amount in dollars: with cents from one dollar on, otherwise with three significant digits."""
    sign, size = "-" if usd < 0 else "", abs(usd)
    return f"{sign}${size:,.2f}" if size >= 1 else f"{sign}${size:.3g}"


def seconds(value: float | None) -> str:
    """Format seconds: with two significant digits below 10 s, otherwise with tenths; return "" for None."""
    return "" if value is None else f"{value:.2g} s" if value < 10 else f"{value:.1f} s"
