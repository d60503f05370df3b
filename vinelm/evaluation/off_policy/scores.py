"""Doubly robust scores of a policy, one for each test request (Jiang and Li 2016; Murphy 2005 for sequences of choices).

Let q_0 be the expected result of the policy before the first call, x_t what call t adds, and q_t the expected rest
after it. The score of a request is

    q_0 + sum over t of w_t (x_t + q_t - q_(t-1)),    w_t = product over s <= t of (row s exists) / (chance of buying it)

The mean score is the policy's value if the chances are right, whatever q is; and also if q is right, whatever the
chances are.

Each chance is estimated as a share: of the requests at one place (with the same models and outcomes so far), the share for
which the next row was bought. Each chance adds a column to ``balance``: w_(t-1) (row t exists / its chance - 1) for the
requests at that place, and 0 for others. The column sums to 0. The part of the scores that these columns explain is not
an error of the mean, and is removed from its variance (Hirano, Imbens and Ridder 2003).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vinelm.evaluation.off_policy.buying import BoughtRows, Place
from vinelm.evaluation.off_policy.steps import Seen, Step, StepPolicy, StepsByStart, steps_for
from vinelm.rows.observation import Observation
from vinelm.trie.arrays import FloatArray

_ARRAYS = ("success", "cost_usd", "latency_s", "weight", "unsupported")


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of one policy: for each request, doubly robust estimates of its success, cost and latency under the policy.

    Arrays have shape (requests,).

    Args:
        success: Estimates of whether the answer is right (and in time, if latency is capped). May lie outside [0, 1].
        cost_usd: Estimates of the cost, in dollars.
        latency_s: Estimates of the latency, in seconds.
        weight: For requests with a result of every call of the policy: 1 / the chance that all of them were recorded. 0
            for others. 1 if the policy was served.
        unsupported: The weight of a request that reached a step for which no request has a recorded result, so that
            the rest of its score is only an estimate; 0 for others.
        balance: Arrays of shape (requests,) that explain a part of the scores' sampling error; see the module's docstring.
            They are keyed by (place, model); a place is the models and outcomes so far.
        parts: If this is a mean over a sweep of budgets, the scores under each budget; otherwise empty.
    """

    success: FloatArray
    cost_usd: FloatArray
    latency_s: FloatArray
    weight: FloatArray
    unsupported: FloatArray
    balance: Mapping[tuple[Place, str], FloatArray] = field(default_factory=dict)
    parts: tuple[Scores, ...] = ()

    def __len__(self) -> int:
        return len(self.success)

    def utility(self, target: str) -> FloatArray:
        """Return the scores of ``accuracy``, ``cost`` or ``latency`` such that higher is better (cost and latency are
        negated), shape (requests,).
        """
        return {"accuracy": self.success, "cost": -self.cost_usd, "latency": -self.latency_s}[target]

    @classmethod
    def mean(cls, scores: Sequence[Scores]) -> Scores:
        """Return, for each request, the mean of its scores under several policies: one policy for each budget of a
        sweep.
        """
        return replace(cls.mixed(scores, [1.0 / len(scores)] * len(scores)), parts=tuple(scores))

    @classmethod
    def mixed(cls, scores: Sequence[Scores], shares: Sequence[float]) -> Scores:
        """Return the expected scores if each request is assigned at random to one of the policies, with probabilities
        ``shares``, which add up to 1.
        """
        if len(scores) == 1:
            return scores[0]
        # The expectation over the draws has less noise than one draw per request, and the same mean.
        mean: dict[str, Any] = {name: np.tensordot(shares, [getattr(one, name) for one in scores], axes=1) for name in _ARRAYS}
        return cls(**mean, balance={key: column for one in scores for key, column in one.balance.items()})

    def equals(self, other: Scores) -> bool:
        """Return whether both objects have the same success and cost scores, weights and unsupported weights on every
        request.

        Latencies are not compared.
        """
        names = ("success", "cost_usd", "weight", "unsupported")
        return all(np.allclose(getattr(self, name), getattr(other, name), rtol=1e-9, atol=1e-12) for name in names)

    def share_unlike(self, other: Scores) -> float:
        """Return the share of a sweep's limits under which these scores differ from those in ``other``.

        Without a sweep, the result is 1 if the scores differ, else 0.
        """
        pairs = zip(self.parts or (self,), other.parts or (other,), strict=True)
        return float(np.mean([not one.equals(two) for one, two in pairs]))


def scored(policy: StepPolicy | StepsByStart, bought: BoughtRows, *, max_latency_s: float | None = None) -> Scores:
    """Return the scores of a policy on the requests of ``bought``.

    Args:
        policy: The policy, planned from other requests.
        bought: The test requests and their rows.
        max_latency_s: A right answer after a longer time, in seconds, counts as wrong; None means no cap.
    """
    kinds = [bought.kinds.get(request) for request in bought.requests]
    walks = {kind: _Walk(policy, bought, max_latency_s, kind) for kind in dict.fromkeys(kinds)}
    found = np.array(
        [walks[kind].scores(row, request) for row, (request, kind) in enumerate(zip(bought.requests, kinds, strict=True))]
    )
    success, cost_usd, latency_s, weight, unsupported = found.reshape(-1, len(_ARRAYS)).T.copy()
    balance = {key: column for walk in walks.values() for key, column in walk.balance.items()}
    return Scores(success, cost_usd, latency_s, weight, unsupported, balance)


class _Walk:
    """Follows a policy through the rows of many requests of one type.

    Args:
        policy: The policy.
        bought: The requests and their rows.
        cap: A right answer after more seconds counts as wrong; None means no cap.
        kind: The type of the requests; None without types.
    """

    def __init__(self, policy: StepPolicy | StepsByStart, bought: BoughtRows, cap: float | None, kind: str | None) -> None:
        self._policy, self.bought, self.cap, self.kind = policy, bought, cap, kind
        self._starts: dict[str | None, tuple[StepPolicy, Step, FloatArray]] = {}
        self.balance: dict[tuple[Place, str], FloatArray] = {}

    def scores(self, at: int, request: str) -> tuple[float, ...]:
        """Return the success, cost, latency, weight and unsupported weight of one request, as in :class:`Scores`.

        ``at`` is the request's index.
        """
        seen: Seen = ()
        first = self.bought.first(request)
        if first not in self._starts:
            found = steps_for(self._policy, self.kind, first)
            self._starts[first] = found, found.step(()), np.array(found.rest(()))
        policy, step, rest = self._starts[first]
        total, weight = rest.copy(), 1.0
        while step.model is not None:
            # The chance that this row exists is the share of the requests at the same place for which it was bought: samplers
            # choose requests without looking at their contents, so these requests are exchangeable.
            chance = self.bought.chance(seen, step.model, request)
            if chance == 0.0:
                return (*total, 0.0, weight)
            row = self.bought.row(request, seen, step.model)
            # Also recorded if the row is missing: the mean of this is 0 if rows were drawn with these chances.
            self._note(at, request, seen, step.model, weight * ((row is not None) / chance - 1.0))
            if row is None:
                # Not drawn for this request: its score ends with the estimate, and the requests that were drawn count for more.
                return (*total, 0.0, 0.0)
            # Each request whose row exists stands for 1 / chance requests, those without a row included.
            weight, seen = weight / chance, (*seen, row)
            step = policy.step(seen)
            if step.model is None:
                end = seen[step.returned]
                if end.success is None and seen[-1].failure is None:
                    return (*total, 0.0, weight)  # led to a scored row but is unscored: the result of ending here is unknown
                after = np.array((right_in_time(seen, end, self.cap), 0.0, 0.0))
            else:
                after = np.array(policy.rest(seen))
            added = (0.0, row.cost_usd + row.tool_cost_usd, row.latency_s + row.tool_latency_s)
            # The step's result beyond its estimate. Weighted, it corrects the estimate in the mean, however far off that is.
            total += weight * (added + after - rest)
            rest = after
        return (*total, weight, 0.0)

    def _note(self, at: int, request: str, seen: Seen, model: str, value: float) -> None:
        if self.kind is not None and (seen or self.kind not in self.bought.apart):
            return  # a chance that kinds share is no share of these requests alone: the interval stays as wide as without it
        place = self.bought.place(seen, request)
        assert place is not None
        if value:
            self.balance.setdefault((place, model), np.zeros(len(self.bought.requests)))[at] = value


def right_in_time(seen: Seen, returned: Observation, cap: float | None) -> float:
    """Return the score, in [0, 1], of the answer in the row ``returned``.

    The result is 0 if the last of the rows ``seen`` failed, or if all of them together took more than ``cap`` seconds.
    """
    if seen[-1].failure is not None or (cap is not None and sum(row.latency_s + row.tool_latency_s for row in seen) > cap):
        return 0.0
    return float(returned.success or 0.0)
