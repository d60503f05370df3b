"""Doubly robust scores of the difference between two policies, from the requests with recorded calls of both policies.

Scores of two policies on different requests also differ because some requests are harder. If a plan and the current
setup agree on each of the 47 requests that ran both, but the current setup ran on 60, their means may differ. Here a
request is used up to the first call that is not recorded for both policies:

    q_0 - q'_0 + sum over t of w_t ((x_t + q_t - q_(t-1)) - (x'_t + q'_t - q'_(t-1))),

where primes mark the reference, and w_t is the product over s <= t of (both rows s exist) / (chance of having both). The
chance of having both is a share of requests. Among the requests on which each policy has the same earlier calls, outcomes
and next model, it is the share with both rows. As in :mod:`~vinelm.evaluation.off_policy.scores`, each such chance adds a
column to ``balance``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from vinelm.evaluation.off_policy.buying import BoughtRows, Place
from vinelm.evaluation.off_policy.scores import Scores, right_in_time
from vinelm.evaluation.off_policy.steps import Seen, Step, StepPolicy, StepsByStart, steps_for
from vinelm.rows.observation import Observation
from vinelm.trie.arrays import FloatArray

Policy = StepPolicy | StepsByStart


def paired_scores(policy: Policy, reference: Policy, bought: BoughtRows, *, max_latency_s: float | None = None) -> Scores:
    """Return a policy's scores minus a reference policy's, one per request. A request has a positive weight only if all
    calls of both policies are recorded for it.

    Args:
        policy: The policy, planned from other requests.
        reference: The policy to compare with.
        bought: The test requests and their rows.
        max_latency_s: A right answer after a longer time, in seconds, counts as wrong; None means no cap.
    """
    sides = [(_Side.of(policy, bought, request), _Side.of(reference, bought, request)) for request in bought.requests]
    n = len(sides)
    total = np.array([own.rest - other.rest for own, other in sides]).reshape(n, 3)
    weight, unsupported = np.ones(n), np.zeros(n)
    balance: dict[tuple[Place, str], FloatArray] = {}
    going = [i for i in range(n) if any(side.step.model is not None for side in sides[i])]
    while going:
        together: dict[Hashable, list[int]] = defaultdict(list)
        for i in going:
            together[tuple(side.place(bought, bought.requests[i]) for side in sides[i])].append(i)
        going = []
        for place, members in together.items():
            rows = {i: [side.next_row(bought, bought.requests[i]) for side in sides[i]] for i in members}
            having = [i for i in members if None not in rows[i]]
            chance = len(having) / len(members)
            if not having:
                unsupported[members], weight[members] = weight[members], 0.0
                continue
            if chance < 1.0:
                column = np.zeros(n)
                column[members] = -weight[members]
                column[having] += weight[having] / chance
                balance[((), ("both", place)), ""] = column
                weight[[i for i in members if None in rows[i]]] = 0.0
            for i in having:
                weight[i] /= chance
                added = [side.taken(row, max_latency_s) for side, row in zip(sides[i], rows[i], strict=True)]
                if added[0] is None or added[1] is None:  # an end that is not scored
                    unsupported[i], weight[i] = weight[i], 0.0
                    continue
                total[i] += weight[i] * (added[0] - added[1])
                if any(side.step.model is not None for side in sides[i]):
                    going.append(i)
    success, cost_usd, latency_s = total.T.copy()
    return Scores(success, cost_usd, latency_s, weight, unsupported, balance)


@dataclass(eq=False)
class _Side:
    """How far one of the two compared policies has come on a request.

    Attributes:
        policy: The policy.
        step: The policy's next step: a model to run, or an answer to return.
        rest: The (success, cost in dollars, latency in seconds) that the policy still expects, shape (3,).
        seen: The rows of the calls that the policy has made so far.
    """

    policy: StepPolicy
    step: Step
    rest: FloatArray
    seen: Seen = ()

    @classmethod
    def of(cls, policy: Policy, bought: BoughtRows, request: str) -> _Side:
        found = steps_for(policy, bought.kinds.get(request), bought.first(request))
        return cls(found, found.step(()), np.array(found.rest(())))

    def place(self, bought: BoughtRows, request: str) -> Hashable:
        """Return a key that is equal for requests with the same models and outcomes so far and the same next model.

        After the policy has ended a request, no call is added and the next model is None, so the key does not change any more.
        """
        return bought.place(self.seen, request), self.seen[-1].prefix if self.seen else (), self.step.model

    def next_row(self, bought: BoughtRows, request: str) -> Observation | bool | None:
        """Return the recorded row of the call that the policy makes next; None if it was not recorded, False if the
        policy has ended.
        """
        return False if self.step.model is None else bought.row(request, self.seen, self.step.model)

    def taken(self, row: Observation | bool | None, cap: float | None) -> FloatArray | None:
        """Advance the policy by one call, and return the call's (success, cost, latency) minus what was expected, shape (3,).

        The result is zeros if the policy had ended already. It is None if the request now ends with an answer without a score.

        Args:
            row: The row of the policy's call; False if the policy has ended.
            cap: A right answer after more seconds counts as wrong; None means no cap.
        """
        if not isinstance(row, Observation):
            return np.zeros(3)
        self.seen = (*self.seen, row)
        self.step = self.policy.step(self.seen)
        if self.step.model is None:
            end = self.seen[self.step.returned]
            if end.success is None and row.failure is None:
                return None
            after = np.array((right_in_time(self.seen, end, cap), 0.0, 0.0))
        else:
            after = np.array(self.policy.rest(self.seen))
        before, self.rest = self.rest, after
        added = np.array((0.0, row.cost_usd + row.tool_cost_usd, row.latency_s + row.tool_latency_s))
        return np.asarray(added + after - before)
