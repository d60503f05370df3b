"""Latency and cost of the requests for which every call of a policy is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinelm.evaluation.off_policy.buying import BoughtRows
from vinelm.evaluation.off_policy.intervals import LEAST_EFFECTIVE, effective_number
from vinelm.evaluation.off_policy.steps import Seen, StepPolicy, StepsByStart, steps_for
from vinelm.rows.observation import Observation
from vinelm.trie.arrays import FloatArray

LEAST_BEYOND = 2.0
"""A quantile needs this many effective requests on either side, or it is determined by a few extremes."""


@dataclass(frozen=True, eq=False)
class Followed:
    """The cost and latency of the requests for which every call of a policy is recorded. Arrays have shape (requests,),
    for these requests only.

    Args:
        weight: The inverse of the chance that all rows of the request were recorded, > 0; may be multiplied by a
            policy's share of the requests.
        cost_usd: Cost of the request in dollars.
        latency_s: Latency of the request in seconds.
    """

    weight: FloatArray
    cost_usd: FloatArray
    latency_s: FloatArray

    @classmethod
    def joined(cls, parts: Sequence[Followed]) -> Followed:
        """Return one object that has the requests of all the objects ``parts``, in their order."""
        return cls(*(np.concatenate([getattr(one, name) for one in parts]) for name in ("weight", "cost_usd", "latency_s")))

    def latency_quantile(self, level: float) -> float | None:
        """Return the weighted quantile of the requests' latency in seconds; None if too few requests lie above or below
        the quantile to determine it.

        Args:
            level: The quantile's level, in (0, 1), such as 0.9.
        """
        if effective_number(self.weight) < max(LEAST_EFFECTIVE, LEAST_BEYOND / min(level, 1.0 - level)):
            return None
        order = np.argsort(self.latency_s, kind="stable")
        share = np.cumsum(self.weight[order]) / self.weight.sum()
        return float(self.latency_s[order][min(int(np.searchsorted(share, level)), len(order) - 1)])

    def share_above(self, *, cost_usd: float | None = None, latency_s: float | None = None) -> float | None:
        """Return the weighted share, in [0, 1], of the requests that exceed ``cost_usd`` or ``latency_s``; None if
        there are too few requests.
        """
        if effective_number(self.weight) < LEAST_EFFECTIVE:
            return None
        above = np.zeros(len(self.weight), np.bool_)
        if cost_usd is not None:
            above |= self.cost_usd > cost_usd
        if latency_s is not None:
            above |= self.latency_s > latency_s
        return float(self.weight @ above / self.weight.sum())


def followed(policy: StepPolicy | StepsByStart, bought: BoughtRows, share: float = 1.0) -> Followed:
    """Return the cost and latency of those requests of ``bought`` with a recorded result for every call of the policy.

    ``share`` multiplies the weights of these requests. If requests are divided between several policies, it is this
    policy's share.
    """
    found = [one for request in bought.requests if (one := _follow(policy, bought, request)) is not None]
    weight, cost_usd, latency_s = np.array(found, np.float64).reshape(-1, 3).T.copy()
    return Followed(share * weight, cost_usd, latency_s)


def followed_rows(policy: StepPolicy | StepsByStart, bought: BoughtRows, request: str) -> tuple[Seen, Observation] | None:
    """Return (the rows of the calls that the policy makes for a request, the row whose answer it returns); None if one
    of these rows was not recorded.
    """
    seen: Seen = ()
    steps = steps_for(policy, bought.kinds.get(request), bought.first(request))
    while (step := steps.step(seen)).model is not None:
        row = bought.row(request, seen, step.model)
        if row is None:
            return None
        seen = (*seen, row)
    return (seen, seen[step.returned]) if seen else None


def _follow(policy: StepPolicy | StepsByStart, bought: BoughtRows, request: str) -> tuple[float, float, float] | None:
    found = followed_rows(policy, bought, request)
    if found is None:
        return None
    seen, weight = found[0], 1.0
    for i, row in enumerate(seen):
        weight /= bought.chance(seen[:i], row.model, request)
    cost = sum(row.cost_usd + row.tool_cost_usd for row in seen)
    return weight, cost, sum(row.latency_s + row.tool_latency_s for row in seen)
