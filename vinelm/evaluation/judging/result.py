"""The result of an evaluation: what each policy achieves, the verdict, and what would settle an open question."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from vinelm.evaluation.judging.cross_fit import CrossFit
from vinelm.evaluation.judging.judged_policy import JudgedPolicy
from vinelm.evaluation.judging.planning_half import PolicyName
from vinelm.evaluation.off_policy.intervals import OffPolicyEstimate
from vinelm.objective import Objective
from vinelm.plans.recommendation import MARGIN as ALLOWED_LOSS
from vinelm.template import StopRule

EvaluationVerdict = Literal["gain", "no gain", "open", "not identified", "no advice"]
Z_LEVEL, Z_POWER = 1.96, 0.8416
"""Quantiles of a two-sided 95 % interval and of a power of 80 %."""
MARGIN = 0.02
"""A gain that cannot be larger than this is not worth a controller: a share of right answers, or of the dollars or seconds."""
LEAST_SEEN = 0.03
"""The smallest difference that buying more evidence is priced for, in the same units."""

FIRST_SERVED = 200
"""Held-out requests of which it is said what serving them would cost and tell."""
SERVED: tuple[PolicyName, ...] = ("signals", "paths", "static", "single")
"""The policies that are served."""


@dataclass(frozen=True, kw_only=True)
class SettlingPrice:
    """The cost of a decision between VineLM and its strongest rival, with a power of 80 %.

    Attributes:
        difference: The difference that is to be seen, in what the objective counts; at least :data:`LEAST_SEEN`.
        rows_usd: More dollars of rows by the same sampler; None where all rows there are would not do, or it is not known.
        serve_requests: Held-out requests to serve by both policies; None without dollars or accuracies.
        serve_usd: Their expected dollars.
    """

    difference: float
    rows_usd: float | None
    serve_requests: int | None
    serve_usd: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the price as plain JSON types."""
        return {name: getattr(self, name) for name in ("difference", "rows_usd", "serve_requests", "serve_usd")}


@dataclass(frozen=True, kw_only=True)
class ServingOffer:
    """The offer to serve a policy that the rows do not identify.

    Attributes:
        policy: The policy.
        objective: What to serve it for; of a sweep the middle one.
        without_rows: Share of the requests that come to a step for which no row was bought.
        effective: Effective requests that its rows follow to the end.
        requests: Held-out requests to serve under every plan.
        usd: Expected dollars of that, by the estimates.
        reach: Half of the 95 % interval of its gain then, at most; None without accuracies.
    """

    policy: JudgedPolicy
    objective: Objective
    without_rows: float
    effective: float
    requests: int
    usd: float
    reach: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the offer as plain JSON types, with the gains by the model: no verdict rests on those."""
        gains = {name: one.value for name, one in self.policy.against.items()}
        facts = ("without_rows", "effective", "requests", "usd", "reach")
        numbers = {name: getattr(self, name) for name in facts}
        named = {"policy": self.policy.name, "objective": self.objective.to_dict(), "model_based_gain_over": gains}
        return {**named, **numbers}


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The verdict on one workflow.

    Attributes:
        objectives: What was planned for: one objective, or the budgets of a sweep, whose results are averaged.
        policies: The policies, VineLM first.
        requests: Requests that were judged.
        rows: Stored rows that judged them; 0 where the requests were served.
        spent_usd: Dollars of the rows, or of serving.
        everything_usd: Estimated dollars of every row there could be; None where it is not known.
        is_served: The policies were really served; else the figures are off-policy estimates.
        is_complete: Serving did not reach its budget early.
        is_simulated: Some models are simulated.
        stop: What ended the requests. The oracle is no service's, so that its figures are a bound, and no advice.
        notes: What a reader has to know to trust the figures, one sentence each.
        level: Confidence level of every interval.
        by_budget: Of a sweep, the same for each budget alone; their intervals hold together with 95 % confidence.
        keeps: Against a plan in use: the paired difference in what must not be lost, which is accuracy where dollars are saved,
            and dollars where accuracy is gained; else None.
        aims: Against a plan in use: both aims, as accurate for less and more accurate for as much; this is the one that says
            most.
        kinds: The paired gain of telling the kinds of request apart, at the dollars that this spends; None where none are
            declared.
        fit: The two halves that planned and judged, for a report of the same store; None where requests were served.
    """

    objectives: tuple[Objective, ...]
    policies: tuple[JudgedPolicy, ...]
    requests: int
    rows: int
    spent_usd: float
    everything_usd: float | None = None
    is_served: bool = False
    is_complete: bool = True
    is_simulated: bool = False
    stop: StopRule = "workflow"
    notes: tuple[str, ...] = ()
    level: float = 0.95
    by_budget: tuple[Evaluation, ...] = ()
    keeps: OffPolicyEstimate | None = None
    aims: tuple[Evaluation, ...] = ()
    kinds: OffPolicyEstimate | None = None
    fit: CrossFit | None = field(default=None, repr=False, compare=False)

    def policy(self, name: str) -> JudgedPolicy | None:
        """Return the policy of that name; None if there is none."""
        return next((one for one in self.policies if one.name == name), None)

    @property
    def target(self) -> str:
        """The quantity that is gained or saved: ``accuracy``, ``cost`` or ``latency``."""
        return self.objectives[0].target

    @property
    def headline(self) -> JudgedPolicy:
        """The policy that the verdict is about: VineLM over signals where the rows identify it, else over paths."""
        signals, paths = self.policy("signals"), self.policy("paths")
        if signals is not None and (paths is None or self._is_judged(signals)):
            return signals
        assert paths is not None
        return paths

    @property
    def rival(self) -> JudgedPolicy:
        """The better of the best static plan and the best single model, as judged; the one that VineLM does the same as.

        Against a plan in use, that plan.
        """
        against = self.headline.against
        found = [one for name in ("in_use", "single", "static") if name in against and (one := self.policy(name)) is not None]
        return min(found, key=lambda one: (not against[one.name].is_same, against[one.name].value))

    @property
    def gain(self) -> OffPolicyEstimate:
        """The paired gain of :attr:`headline` over :attr:`rival`."""
        return self.headline.against[self.rival.name]

    @property
    def verdict(self) -> EvaluationVerdict:
        """The verdict that the intervals allow.

        ``gain``: better than the best static plan and the best single model, both intervals above zero, within the bounds.
        Against a plan in use: better than that, while the whole interval of what must not be lost is above
        -:data:`ALLOWED_LOSS`.
        ``no gain``: the same plan, a broken bound, a loss of more than that, or the interval of the gain ends below the margin.
        ``not identified``: the rows do not show what the policies do. ``open``: anything else.
        ``no advice``: under the oracle stop, whatever the figures are.
        """
        if self.stop == "oracle":
            return "no advice"
        compared = self.headline.against.values()
        if self.gain.is_same and (self.keeps is None or self.keeps.is_same):
            return "no gain"
        if not self.is_identified:
            return "not identified"
        if self.breaks_bounds or self.loses:
            return "no gain"
        if all(one.low > 0 for one in compared) and (self.keeps is None or self.keeps.low >= -self._allowed_loss):
            return "gain"
        return "no gain" if self.gain.high <= MARGIN * self._unit else "open"

    @property
    def is_identified(self) -> bool:
        """True if the rows show what VineLM's plan does, and what the plans do that it is compared with."""
        return self._is_judged(self.headline) and (self.keeps is None or self.keeps.is_identified)

    @property
    def loses(self) -> bool:
        """True if VineLM's plan significantly loses more than :data:`ALLOWED_LOSS` of what the plan in use has."""
        return self.keeps is not None and self.keeps.high < -self._allowed_loss

    @property
    def _allowed_loss(self) -> float:
        return ALLOWED_LOSS * (max(self.rival.cost_usd.value, 0.0) if self.target == "accuracy" else 1.0)

    @property
    def breaks_bounds(self) -> bool:
        """True if VineLM's plan significantly misses the accuracy floor or the cost budget (their means, in a sweep).

        Against a plan in use the bounds are what that plan promised, which it may miss itself: what counts is what is lost.
        """
        if self.keeps is not None:
            return False
        own = self.headline
        floors = [one.min_accuracy for one in self.objectives if one.min_accuracy is not None]
        caps = [one.max_cost_usd for one in self.objectives if one.max_cost_usd is not None]
        misses_floor = bool(floors) and own.accuracy.high < sum(floors) / len(floors)
        return misses_floor or (bool(caps) and own.cost_usd.low > sum(caps) / len(caps))

    @property
    def price(self) -> SettlingPrice | None:
        """The price of settling the question; None where it is settled."""
        if self.verdict in ("gain", "no gain", "no advice"):
            return None
        own, other, gain = self.headline, self.rival, self.gain
        wanted = max(abs(gain.value) if gain.is_identified else 0.0, LEAST_SEEN * self._unit)
        if wanted <= 0.0:
            return None
        reach = gain.high - gain.value if gain.is_identified else math.inf
        times = ((1.0 + Z_POWER / Z_LEVEL) * reach / wanted) ** 2
        n = self._requests_to_serve(wanted, times)
        each = own.cost_usd.value + other.cost_usd.value
        return SettlingPrice(
            difference=wanted,
            rows_usd=self._rows_usd(times),
            serve_requests=n,
            serve_usd=None if n is None else n * max(each, 0.0),
        )

    def _rows_usd(self, times: float) -> float | None:
        """Dollars of so many times the evidence, less what is there; None if the rows there could be would not do."""
        more = max(times - 1.0, 0.0) * self.spent_usd
        is_too_much = self.everything_usd is not None and more + self.spent_usd > self.everything_usd
        return None if self.is_served or not math.isfinite(more) or is_too_much else more

    def _requests_to_serve(self, wanted: float, times: float) -> int | None:
        """By the spread of the served differences; else as if the two policies' answers were independent: the most it takes."""
        if self.is_served:
            return math.ceil(times * self.requests)
        if self.target != "accuracy" or self.keeps is not None:
            return None
        variance = _variance(self.headline) + _variance(self.rival)
        return math.ceil(((Z_LEVEL + Z_POWER) / wanted) ** 2 * variance)

    def offers(self) -> tuple[ServingOffer, ...]:
        """Return what serving would say of each VineLM policy that the rows do not identify; a plan in use is not served."""
        names = () if self.is_served or self.keeps is not None or self.stop == "oracle" else ("signals", "paths")
        found = [one for name in names if (one := self.policy(name)) is not None and not self._is_judged(one)]
        return tuple(map(self._offer, found))

    def _offer(self, own: JudgedPolicy) -> ServingOffer:
        served = [one for name in SERVED if (one := self.policy(name)) is not None]
        objective = self.objectives[len(self.objectives) // 2]
        cap = math.inf if objective.max_cost_usd is None else objective.max_cost_usd
        compared = (own.accuracy, *own.against.values())
        reach = None
        if self.target == "accuracy":
            variance = max(_variance(own) + _variance(other) for other in served if other.name in own.against)
            reach = Z_LEVEL * math.sqrt(variance / FIRST_SERVED)
        return ServingOffer(
            policy=own,
            objective=objective,
            without_rows=max(one.unsupported for one in compared),
            effective=min(one.effective for one in compared),
            requests=FIRST_SERVED,
            usd=FIRST_SERVED * sum(min(max(one.cost_usd.value, 0.0), cap) for one in served),
            reach=reach,
        )

    @property
    def _unit(self) -> float:
        """The unit of shares: 1 for accuracy, else the rival's mean dollars or seconds."""
        if self.target == "accuracy":
            return 1.0
        return abs((self.rival.cost_usd if self.target == "cost" else self.rival.latency_s).value)

    @staticmethod
    def _is_judged(policy: JudgedPolicy) -> bool:
        return policy.accuracy.is_identified and all(one.is_identified for one in policy.against.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as plain JSON types."""
        facts = (
            "requests",
            "rows",
            "spent_usd",
            "everything_usd",
            "is_served",
            "is_complete",
            "is_simulated",
            "stop",
            "verdict",
        )
        return {
            **{name: getattr(self, name) for name in facts},
            "objectives": [one.to_dict() for one in self.objectives],
            "target": self.target,
            "headline": self.headline.name,
            "rival": self.rival.name,
            "gain": self.gain.to_dict(),
            "price": None if self.price is None else self.price.to_dict(),
            "policies": [one.to_dict() for one in self.policies],
            "not_identified": [one.to_dict() for one in self.offers()],
            "notes": list(self.notes),
            "level": self.level,
            "by_budget": [one.to_dict() for one in self.by_budget],
            "keeps": None if self.keeps is None else self.keeps.to_dict(),
            "kinds": None if self.kinds is None else self.kinds.to_dict(),
            "aims": [one.to_dict() for one in self.aims],
        }


def _variance(one: JudgedPolicy) -> float:
    """Variance of one request's success. Shares near 0 and 1 are kept off them."""
    share = min(max(one.accuracy.value, 0.02), 0.98)
    return share * (1.0 - share)
