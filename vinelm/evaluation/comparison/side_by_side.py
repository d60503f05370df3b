"""Finds the results of two plans for the same request among recorded rows, as examples for a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vinelm.evaluation.comparison.cross_fit import CrossFit
from vinelm.evaluation.comparison.fit import ChosenPolicy
from vinelm.evaluation.off_policy.followed import followed_rows
from vinelm.rows.observation import Observation


class FollowedPlan(NamedTuple):
    """The results of a plan for one request.

    Args:
        rows: The recorded results of the plan's calls, in order.
        returned: The one of these results whose answer was returned.
    """

    rows: tuple[Observation, ...]
    returned: Observation

    @property
    def success(self) -> float:
        """The score of the answer, in [0, 1]; 0 if a call failed."""
        return 0.0 if self.rows[-1].failure is not None else float(self.returned.success or 0.0)

    @property
    def cost_usd(self) -> float:
        """The cost of the request in dollars, including tools."""
        return sum(row.cost_usd + row.tool_cost_usd for row in self.rows)


def side_by_side(
    fit: CrossFit, before: Sequence[ChosenPolicy], after: Sequence[ChosenPolicy]
) -> Iterator[tuple[str, FollowedPlan, FollowedPlan]]:
    """Yield (request id, result of ``before``, result of ``after``) for each request with recorded results for all
    calls of both plans.

    Args:
        fit: The parts into which requests are divided.
        before: For each part, a plan that was chosen on other requests and serves all requests of the part.
        after: For each part, the plan to compare with it, chosen in the same way.
    """
    for bought, *plans in zip(fit.bought, before, after, strict=True):
        for request in bought.requests:
            one, two = (followed_rows(plan.parts[0][1], bought, request) for plan in plans)
            if one is not None and two is not None:
                yield request, FollowedPlan(*one), FollowedPlan(*two)
