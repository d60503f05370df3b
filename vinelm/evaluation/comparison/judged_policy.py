"""The accuracy, cost and latency of a policy, tested on requests that were not used to choose it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vinelm.evaluation.comparison.fit import TITLES, PolicyName
from vinelm.evaluation.off_policy.intervals import OffPolicyEstimate


@dataclass(frozen=True, kw_only=True)
class JudgedPolicy:
    """The figures of one kind of policy, by cross-validation: for each part of the requests, a plan chosen on the other
    parts is tested on that part.

    Attributes:
        name: The policy's name.
        plans: The plans that are tested on the parts, in words, each listed once. In a sweep, the plans at the middle
            budget.
        accuracy: Share of right answers. If the objective limits latency, an answer after the limit counts as wrong.
        cost_usd, latency_s: Dollars and seconds per request.
        promised_accuracy: The accuracy predicted from the requests that were used to choose the plan, averaged over the
            parts and, in a sweep, over the budgets.
        against: The paired gain over another policy, keyed by ``static`` (the best static plan) or ``single`` (the best
            single model). The unit is that of the objective's target: share of right answers, or dollars or seconds
            saved per request.
    """

    name: PolicyName
    plans: tuple[str, ...]
    accuracy: OffPolicyEstimate
    cost_usd: OffPolicyEstimate
    latency_s: OffPolicyEstimate
    promised_accuracy: float
    against: Mapping[str, OffPolicyEstimate] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The policy's name in tables."""
        return TITLES[self.name]

    @property
    def optimism(self) -> float | None:
        """Predicted minus tested accuracy; above 0 if predictions are too high. None if too few requests have recorded
        results for the plans' calls.
        """
        return self.promised_accuracy - self.accuracy.value if self.accuracy.is_identified else None

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as plain JSON types."""
        return {
            "policy": self.name,
            "plans": list(self.plans),
            "accuracy": self.accuracy.to_dict(),
            "cost_usd": self.cost_usd.to_dict(),
            "latency_s": self.latency_s.to_dict(),
            "promised_accuracy": self.promised_accuracy,
            "optimism": self.optimism,
            "gain_over": {name: one.to_dict() for name, one in self.against.items()},
        }
