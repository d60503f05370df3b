"""Whether to serve a plan in place of what an application runs today: what the evidence proves, and what would settle the rest.

A plan is recommended if, with 95 % each, it is as accurate as what runs today less a margin and costs fewer dollars, or is more
accurate within the dollars of the objective. One that saves dollars and may lose more than the margin is recommended for the
share of the requests with which all of them together lose no more. Everything else is a reason to keep what there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np

from vinelm.objective import Objective
from vinelm.template import SKIP
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

MARGIN = 0.01
"""Accuracy that a cheaper plan may lose, as a fraction: an application that saves dollars accepts one point."""
NEAR = 0.1
"""A plan whose dollars are by this share outside of those that were compared is not judged by them."""
THIN_ROWS = 20
"""A plan that leans on fewer rows of a model says so."""
FOR_MORE = 1.6
"""Nobody asked for plans dearer than today's, and of some ten that are compared the best may gain by luck: its lower end has to
stay above zero if it is so many times as far away, as for an interval that holds for all ten (Bonferroni)."""
LEAST_SHARE = 0.5
"""A plan that may serve fewer of the requests is not recommended: little is known of it, and little is saved."""
LEAST_SAVED = 0.01
"""Of today's dollars: a plan that saves less is no reason to change anything."""
LEAST_ASKED = 0.05
LEAST_TIMES, MOST_TIMES = 1.1, 30.0
"""What would settle a question is at least a tenth more requests; beyond a reach so many times the gain nothing would."""
META = "today"
"""The entry of a trie's ``meta``."""
Advice = Literal["switch", "keep"]
_FIGURES = ("gain", "gain_low", "gain_high", "saved_usd", "saved_low", "saved_high")


@dataclass(frozen=True, kw_only=True)
class ComparedPlan:
    """A plan against today's configuration on the same requests, judged by requests that did not choose it.

    Attributes:
        policy: ``"paths"`` or ``"signals"``: what the plan depends on.
        cost_usd: Dollars per request that the plan was expected to cost.
        gain: Accuracy over today's, a fraction; ``gain_low`` and ``gain_high`` each hold with 95 %.
        saved_usd: Dollars per request below today's; its ends likewise.
        is_same: It is today's configuration itself.
        is_identified: The rows show what the plan does; else the figures are the model's alone, and prove nothing.
        models: The models that it may run; empty in files of earlier versions.
    """

    policy: str
    cost_usd: float
    gain: float
    gain_low: float
    gain_high: float
    saved_usd: float
    saved_low: float
    saved_high: float
    is_same: bool
    is_identified: bool
    models: tuple[str, ...] = ()

    def serving(self, share: float) -> Self:
        """Return what the plan does over all requests if it serves this share of them, and what runs today the others.

        A request's draw decides, so that accuracy and dollars lie on the line between the two.
        """
        return replace(self, **{name: share * getattr(self, name) for name in _FIGURES})

    def proven_share(self, margin: float = MARGIN) -> float:
        """Return to which share of the requests the plan may be served so that all of them surely lose less than the margin.

        Returns:
            1, a share of at least :data:`LEAST_SHARE` in percent, or 0: also where the plan does not surely save dollars, saves
            hardly any, or is expected to lose more than the margin.
        """
        is_saving = self.saved_low > 0.0 and self.saved_usd >= LEAST_SAVED * (self.cost_usd + self.saved_usd)
        if self.is_same or not self.is_identified or not is_saving or self.gain <= -margin:
            return 0.0
        if self.gain_low > -margin:
            return 1.0
        share = min(margin / -self.gain_low, 0.99) if margin else 0.0
        return math.floor(100 * share) / 100 if share >= LEAST_SHARE else 0.0

    def proven_saving(self, margin: float = MARGIN) -> float:
        """Return the dollars per request that it saves over all requests where it serves :meth:`proven_share` of them."""
        return self.proven_share(margin) * self.saved_usd


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """Whether to serve a plan.

    Attributes:
        advice: ``"switch"`` or ``"keep"``.
        reason: Why, in one sentence.
        share: Of the requests, that the plan serves: 1, or the part for which it is proven; what runs today serves the others,
            all of them where the advice is to keep it.
        gain: Interval of the accuracy over today's, a fraction, each end with 95 %, over all requests; None where nothing is
            proven.
        saved_usd: Interval of the dollars saved per request; None likewise.
        requests: How many labelled requests in all would settle it for all requests, by the spread of those that there are;
            None where it is settled, or not known.
        usd: Dollars of the rows of these, by what the rows so far cost; None likewise.
        compared: The models of the plans that rows show beside what runs today: what the advice rests on.
    """

    advice: Advice
    reason: str
    share: float = 0.0
    gain: tuple[float, float] | None = None
    saved_usd: tuple[float, float] | None = None
    requests: int | None = None
    usd: float | None = None
    compared: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The advice, its reason, what it rests on where it is to keep what there is, and what would settle it."""
        part = "" if self.share >= 1.0 else f" for {100 * self.share:.0f} % of the requests"
        verdict = f"Switch{part}" if self.advice == "switch" else "Keep what you have"
        more = ""
        if self.requests is not None:
            price = "" if self.usd is None else f", for about ${self.usd:.2g} more"
            what = "it" if self.advice == "keep" else "whether it may serve all"
            more = f" About {self.requests:,} labelled requests would settle {what}{price}."
        beside = (
            f" Compared with it: plans of {' and '.join(self.compared)}." if self.compared and self.advice == "keep" else ""
        )
        return f"{verdict}: {self.reason}.{beside}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Return the recommendation as plain JSON types."""
        return asdict(self) | {"verdict": self.advice, "sentence": self.sentence}


@dataclass(frozen=True, kw_only=True)
class AgainstToday:
    """What a profile shows of plans beside what an application runs today.

    Attributes:
        models: Today's model of each stage.
        accuracy: Of today's configuration, by the requests that ran it.
        cost_usd: Its dollars per request.
        requests: How many labelled requests were compared.
        spent_usd: Dollars of their rows.
        plans: Plans by rising dollars.
        why_not: Why nothing could be compared, in a few words; empty if it could.
        tried_only: Only plans were compared whose steps enough requests took, since of others too little is known. The trie
            has no other plans then, see :attr:`~vinelm.trie.annotated_trie.AnnotatedTrie.tried`.
        cheaper: Models that some stage may run for less than today's, by list price: nothing says that there is no cheaper plan
            before one of them was compared. Empty in files of earlier versions.
    """

    models: Mapping[str, str]
    accuracy: float | None = None
    cost_usd: float | None = None
    requests: int = 0
    spent_usd: float = 0.0
    plans: Sequence[ComparedPlan] = ()
    why_not: str = ""
    tried_only: bool = False
    cheaper: tuple[str, ...] = ()

    @classmethod
    def of(cls, annotated: AnnotatedTrie) -> Self | None:
        """Return what the trie's file holds; None where it is not known what runs today, or the estimate was not checked."""
        found = annotated.meta.get(META)
        if not isinstance(found, Mapping):
            return None
        # Older files lack what came later.
        held = [{one.name: plan[one.name] for one in fields(ComparedPlan) if one.name in plan} for plan in found["plans"]]
        plans = [ComparedPlan(**{**plan, "models": tuple(plan.get("models", ()))}) for plan in held]
        known = {one.name: found[one.name] for one in fields(cls) if one.name in found}
        return cls(**{**known, "plans": tuple(plans), "cheaper": tuple(found.get("cheaper", ()))})

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain JSON types."""
        return asdict(self) | {"models": dict(self.models), "plans": [asdict(plan) for plan in self.plans]}

    def proven(self, margin: float = MARGIN) -> ComparedPlan | None:
        """Return the plan to switch to for all requests: that which saves most, else that which surely gains most; or None.

        One that costs more than today's has to gain more surely, see :data:`FOR_MORE`.
        """
        judged = [plan for plan in self.plans if plan.is_identified and not plan.is_same]
        saving = [plan for plan in judged if plan.proven_share(margin) == 1.0]
        if saving:
            return max(saving, key=lambda plan: plan.saved_usd)
        lower = {id(p): p.gain - (1.0 if p.saved_usd >= 0.0 else FOR_MORE) * (p.gain - p.gain_low) for p in judged}
        gaining = [plan for plan in judged if lower[id(plan)] > 0.0]
        return max(gaining, key=lambda plan: lower[id(plan)], default=None)

    def best(self, margin: float = MARGIN) -> ComparedPlan | None:
        """Return the plan to switch to: for all requests, else for a share of them; None if none is proven for enough."""
        shared = [plan for plan in self.plans if plan.proven_share(margin) > 0.0]
        return self.proven(margin) or max(shared, key=lambda plan: plan.proven_saving(margin), default=None)

    def closest(self) -> ComparedPlan | None:
        """Return the plan that is nearest to being proven: the highest lower end among those that cost no more than today's.

        Where all of these are known to be worse it is the most promising one of which too few rows say anything.
        """
        others = [plan for plan in self.plans if not plan.is_same]
        others = [plan for plan in others if plan.saved_usd > 0.0] or others
        judged = [plan for plan in others if plan.is_identified]
        best = max(judged, key=lambda plan: plan.gain_low, default=None)
        open_ = [plan for plan in others if not plan.is_identified]
        if open_ and (best is None or best.gain_high < 0.0):
            return max(open_, key=lambda plan: plan.gain)
        return best

    def is_settled(self, margin: float = MARGIN) -> bool:
        """Return whether more rows would not change the advice: some plan is proven, or all are known to be worse.

        Nothing is known of plans that were not compared: of none at all, or of cheaper ones while there are cheaper models.
        """
        if self.why_not:
            return False
        if self.proven(margin) is not None:
            return True
        others = [plan for plan in self.plans if not plan.is_same]
        is_worse = bool(others) and all(plan.is_identified and plan.gain_high < -margin for plan in others)
        return is_worse and not self.uncompared

    @property
    def uncompared(self) -> tuple[str, ...]:
        """The models that are cheaper than today's, where rows show no plan that costs less."""
        is_shown = any(plan.is_identified and plan.saved_usd > 0.0 for plan in self.plans if not plan.is_same)
        return () if is_shown else self.cheaper

    def objective(self, margin: float = MARGIN) -> Objective | None:
        """Return what to plan for: the dollars of the best plan, or else of the closest; None if nothing was judged."""
        plan = self.best(margin) or self.closest()
        # As a person types it: three digits, not below the plan's dollars.
        return None if plan is None else Objective(maximize="accuracy", max_cost_usd=float(f"{1.005 * plan.cost_usd:.3g}"))

    def advice(self, margin: float = MARGIN) -> Recommendation:
        """Return whether to switch to the plan of :meth:`objective`."""
        plan = self.best(margin) or self.closest()
        if plan is None:
            return self.recommend(self.cost_usd or 0.0, margin=margin)
        return self.recommend(plan.cost_usd, policy=plan.policy, margin=margin)

    def aims(self) -> Iterator[tuple[str, ComparedPlan]]:
        """Yield the cheapest judged plan that is no less accurate than today's, and the most accurate for no more dollars.

        Where there is none, the one that is nearest to being proven.
        """
        judged = [p for p in self.plans if p.is_identified and not p.is_same and p.saved_usd >= 0.0 and p.gain >= 0.0]
        if judged:
            yield "as accurate, for less", max(judged, key=lambda plan: plan.saved_usd)
            yield "more accurate, for no more", max(judged, key=lambda plan: plan.gain)
        elif (nearest := self.closest()) is not None and nearest.is_identified:
            yield "the nearest to that", nearest

    def recommend(self, cost_usd: float, *, policy: str = "paths", margin: float = MARGIN) -> Recommendation:
        """Say whether to serve a plan of VineLM's that meets its objective.

        The plan is judged by those of the comparison beside it: plans of the same frontier, a little cheaper and dearer.

        Args:
            cost_usd: Dollars per request that the plan is expected to cost.
            policy: What the plan depends on.
            margin: Accuracy that a cheaper plan may lose, a fraction.
        """
        if self.why_not:
            return Recommendation(advice="keep", reason=f"there is not enough to know: {self.why_not}")
        shown = [plan for plan in self.plans if plan.is_identified and not plan.is_same]
        now = frozenset(self.models.values())
        names = sorted({name for plan in shown for name in plan.models}, key=lambda name: (name in now, name))
        compared = tuple(name for name in names if name not in now) or tuple(names)
        beside = self._beside(cost_usd, policy)
        if not beside:
            reason = "no plan near these dollars was compared with what runs today"
            return Recommendation(advice="keep", reason=reason, compared=compared)
        if all(plan.is_same for plan in beside):
            # That today's plan comes out says something only beside others that rows show.
            reason = "the plan is what runs today"
            if self.uncompared:
                reason = f"no cheaper plan was compared yet: too few requests have run {' or '.join(self.uncompared)}"
            elif not shown:
                reason = "nothing was compared with it yet: too few requests have run another plan"
            return Recommendation(advice="keep", reason=reason, compared=compared)
        judged = [plan for plan in beside if plan.is_identified]
        if len(judged) < len(beside):
            reason = "too few requests have run the plan to its end, so that nothing is proven of it"
            return Recommendation(advice="keep", reason=reason, compared=compared)
        plan = _between(judged[0], judged[-1], cost_usd)
        share = plan.proven_share(margin)
        part = plan.serving(share or 1.0)
        facts: dict[str, Any] = {"gain": (part.gain_low, part.gain_high), "saved_usd": (part.saved_low, part.saved_high)}
        facts["compared"] = compared
        between = f"{_points(part.gain_low)} to {_points(part.gain_high)} points of accuracy against what runs today"
        if share:
            saves = f"it saves ${part.saved_usd:.2g} of ${self.cost_usd or 0.0:.2g} per request"
            unsettled = self._unsettled(plan, margin) if share < 1.0 else {}
            return Recommendation(advice="switch", share=share, reason=f"{saves} at {between}", **facts, **unsettled)
        if plan.gain_low > 0.0:
            return Recommendation(advice="switch", share=1.0, reason=f"it brings {between}", **facts)
        if plan.gain_high < -margin:
            return Recommendation(advice="keep", reason=f"the plan is worse: {between}", **facts)
        if plan.gain_low > -margin and plan.saved_low > 0.0:
            return Recommendation(advice="keep", reason=f"it saves hardly any dollars, at {between}", **facts)
        reason = f"it may bring {between}, which proves neither"
        return Recommendation(advice="keep", reason=reason, **facts, **self._unsettled(plan, margin))

    def _beside(self, cost_usd: float, policy: str) -> list[ComparedPlan]:
        plans = sorted((plan for plan in self.plans if plan.policy == policy), key=lambda plan: plan.cost_usd)
        if not plans or not plans[0].cost_usd * (1 - NEAR) <= cost_usd <= plans[-1].cost_usd * (1 + NEAR):
            return []
        below = [plan for plan in plans if plan.cost_usd <= cost_usd * (1 + 1e-6)]
        above = [plan for plan in plans if plan.cost_usd >= cost_usd * (1 - 1e-6)]
        return list({id(plan): plan for plan in (*below[-1:], *above[:1])}.values())

    def _unsettled(self, plan: ComparedPlan, margin: float) -> dict[str, Any]:
        """Requests with which its lower end would suffice for all of them, if the gain stays, and their dollars; or nothing."""
        distance = plan.gain + (margin if plan.saved_usd > 0.0 else 0.0)
        reach = plan.gain - plan.gain_low
        if distance <= 0.0 or not self.requests or reach > MOST_TIMES * distance:
            return {}
        requests = math.ceil(self.requests * max((reach / distance) ** 2, LEAST_TIMES))
        return {"requests": requests, "usd": self.spent_usd * max(requests / self.requests - 1.0, 0.0)}


def recommended(
    annotated: AnnotatedTrie, objective: Objective, cost_usd: Callable[[], float], *, margin: float = MARGIN
) -> Recommendation | None:
    """Return whether to serve the plan over a trie; None where nobody knows what runs today.

    Args:
        annotated: The trie that is planned over: of paths, or of what requests show.
        objective: What is planned for. That of :meth:`AgainstToday.objective` is judged by what was compared under it, also
            where the best plan of all rows spends less.
        cost_usd: Returns the dollars per request of the plan; not asked where there is nothing to compare with.
        margin: As in :meth:`AgainstToday.recommend`.
    """
    compared = AgainstToday.of(annotated)
    if compared is None:
        return None
    policy = "paths" if annotated.outcomes is None else "signals"
    nearest, own = compared.best(margin) or compared.closest(), compared.objective(margin)
    is_compared = own is not None and replace(own, on_infeasible=objective.on_infeasible) == objective
    if is_compared and nearest is not None and nearest.policy == policy:
        return compared.advice(margin)
    return compared.recommend(cost_usd(), policy=policy, margin=margin)


def thin_models(annotated: AnnotatedTrie, reached: FloatArray) -> dict[str, int]:
    """Return the rows of each model that a plan leans on and that has fewer than :data:`THIN_ROWS`.

    Args:
        annotated: The trie that the plan is over; none is returned where it counts no rows.
        reached: P(a request of the plan runs the invocation of each node), shape (n + 1,). A model that one request in twenty
            asks or fewer is not leant on.
    """
    if annotated.count is None:
        return {}
    trie, width = annotated.trie, len(annotated.trie.models)
    invoked = slice(1, None)
    rows = np.bincount(trie.model[invoked], annotated.count[invoked], width)
    calls = np.bincount(trie.model[invoked], reached[invoked], width)
    return {
        name: int(n) for name, n, asked in zip(trie.models, rows, calls, strict=True) if asked > LEAST_ASKED and n < THIN_ROWS
    }


def left_out(annotated: AnnotatedTrie, reached: FloatArray) -> dict[str, Mapping[str, Any]]:
    """Return the optional stages that a plan never runs, with what each costs and does to the accuracy.

    The figures are those of :func:`vinelm.estimator.optional_steps.optional_steps`; stages without any are not returned.

    Args:
        annotated: The trie that the plan is over.
        reached: As for :func:`thin_models`.
    """
    trie, measured = annotated.trie, annotated.meta.get("optional_steps", {})
    is_run = (reached > 0.0) & (trie.model >= 0) & np.array([name != SKIP for name in (*trie.models, SKIP)])[trie.model]
    run = {trie.stages[index] for index in set(trie.stage[is_run].tolist())}
    # Over signals, a stage has a title for each thing that is known when it runs.
    return {
        stage: worth for stage, worth in measured.items() if not any(f"{title} [".startswith(f"{stage} [") for title in run)
    }


def _between(one: ComparedPlan, other: ComparedPlan, cost_usd: float) -> ComparedPlan:
    """A plan of the frontier between two others, by its dollars.

    A frontier bends outwards, so that the straight line promises less than the plan brings.
    """
    width = other.cost_usd - one.cost_usd
    share = min(max((cost_usd - one.cost_usd) / width, 0.0), 1.0) if width > 0.0 else 0.0
    at = {name: (1.0 - share) * getattr(one, name) + share * getattr(other, name) for name in ("cost_usd", *_FIGURES)}
    return replace(one, **at)


def _points(share: float) -> str:
    return f"{100 * share:+.1f}"
