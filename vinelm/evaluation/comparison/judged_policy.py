"""The accuracy, cost and latency of a policy, tested on requests that were not used to choose it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vinelm.evaluation.comparison.fit import TITLES, PolicyName
from vinelm.evaluation.off_policy.intervals import OffPolicyEstimate


@dataclass(frozen=True, kw_only=True)
class JudgedPolicy:
    """One policy, chosen on some requests and tested on others, once for each part.

    Attributes:
        name: The policy's name.
        plans: The plan that the other parts chose for each part, in words; for a sweep, the plan at its middle.
        accuracy: Share of right answers (in time, under a latency cap).
        cost_usd, latency_s: Dollars and seconds per request.
        promised_accuracy: The accuracy predicted from the requests that chose it, averaged over the parts (and over a
            sweep).
        against: Paired gain over the ``static`` plan and the ``single`` model, in the objective's quantity: share of
            right answers, or dollars or seconds saved.
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
        """Predicted minus tested accuracy, the optimism of choosing the best of many; None if the rows do not suffice
        to test the accuracy.
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
