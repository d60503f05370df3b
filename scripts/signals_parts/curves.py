"""A method's plans for many budgets in one split, and two of them mixed by request: expected results of every request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from science.mixtures import Mixture, concave_frontier, mixture_at
from science.path_rivals import Chooser

from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.rivals import PolicyChoice
from vinelm.trie.arrays import FloatArray

MIXED, UNMIXED = "mixed", "unmixed"
"""VineLM with two of its plans mixed by request, and with one plan for each budget."""
KINDS = "vinelm_kinds"
"""VineLM with the kinds of request declared, two plans mixed."""
UNKNOWN = (float("nan"), float("nan"))


@dataclass(frozen=True, kw_only=True)
class PromisedChoice(PolicyChoice):
    """A choice whose accuracy is promised with a spread: ``promise`` gives the 90 % interval for so many further requests."""

    promise: Any


class Mix(NamedTuple):
    """Expected success and dollars of each request, (requests,), and the accuracy that a further dollar brings there."""

    success: FloatArray
    cost_usd: FloatArray
    slope: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Curve:
    """The distinct plans that a method chose in one split.

    Args:
        success: of each held-out request, (plans, requests).
        cost_usd: dollars spent on it, same shape.
        promised: promised accuracy and dollars, (plans, 2).
        spread: the promised 90 % interval for as many requests as are held out, (plans, 2); NaN where none is promised.
        chosen: the plan of each budget, (budgets,).
        budgets: dollars per request, (budgets,).
    """

    success: FloatArray
    cost_usd: FloatArray
    promised: FloatArray
    spread: FloatArray
    chosen: npt.NDArray[np.intp]
    budgets: FloatArray

    @classmethod
    def of(cls, chooser: Chooser, held_out: OutcomeTable, budgets: Sequence[float]) -> tuple[Curve, list[PolicyChoice]]:
        """Choose for every budget and replay each plan once; also returns the choice of each budget."""
        choices = [chooser.choose(float(usd)) for usd in budgets]
        place: dict[tuple[float, float, str], int] = {}
        chosen = [place.setdefault((one.promised_cost_usd, one.promised_accuracy, one.words), len(place)) for one in choices]
        plans = [choices[chosen.index(i)] for i in range(len(place))]
        served = [plan.policy.run(held_out) for plan in plans]
        n = effective(held_out, np.mean([one.success for one in served], axis=0))
        spread = [(plan.promise.prediction(n) or UNKNOWN) if isinstance(plan, PromisedChoice) else UNKNOWN for plan in plans]
        return cls(
            success=np.array([one.success for one in served], np.float64),
            cost_usd=np.array([one.cost_usd for one in served], np.float64),
            promised=np.array([(plan.promised_accuracy, plan.promised_cost_usd) for plan in plans], np.float64),
            spread=np.array(spread, np.float64),
            chosen=np.array(chosen, np.intp),
            budgets=np.array(budgets, np.float64),
        ), choices

    @property
    def mixed(self) -> list[Mixture]:
        """For each budget the two plans on the hull of the promises that bracket it, mixed to promise its dollars."""
        kept = concave_frontier([(cost, accuracy) for accuracy, cost in self.promised])
        return [self._among(kept, self.promised[:, 1], budget) for budget in self.budgets]

    def spending(self, usd: float, *, hindsight: bool) -> Mix:
        """The mixture of two plans that spends exactly so much on the held-out requests.

        Plans are mixed as they promise (:attr:`by_promise`), and of these the two neighbours in spend; or, in hindsight, those
        whose mixture is most accurate *on these requests*, which nobody can choose beforehand. Where every plan costs
        less (or more), the dearest (cheapest) is served.
        """
        cost, accuracy = self.cost_usd.mean(axis=1), self.success.mean(axis=1)
        kept = concave_frontier(list(zip(cost.tolist(), accuracy.tolist(), strict=True)))
        found = self._among(kept, cost, usd)
        run = cost[found.high] - cost[found.low]
        slope = float((accuracy[found.high] - accuracy[found.low]) / run) if run > 0.0 else 0.0
        plans = self if hindsight else self.by_promise
        if not hindsight:
            found = mixture_at(plans.cost_usd.mean(axis=1).tolist(), usd)
        spent = found.of(plans.cost_usd)
        is_equal = abs(float(spent.mean()) - usd) <= 1e-9 * usd
        return Mix(found.of(plans.success), spent, slope if is_equal else 0.0)

    @cached_property
    def by_promise(self) -> Curve:
        """The mixtures of :attr:`mixed` as plans of their own, one for each budget."""
        mixtures = self.mixed
        named = {
            name: np.array([one.of(getattr(self, name)) for one in mixtures])
            for name in ("success", "cost_usd", "promised", "spread")
        }
        return replace(self, **named, chosen=np.arange(len(mixtures)))

    @staticmethod
    def _among(kept: Sequence[int], amounts: FloatArray, amount: float) -> Mixture:
        found = mixture_at([float(amounts[i]) for i in kept], float(amount))
        return replace(found, low=kept[found.low], high=kept[found.high])


@dataclass(frozen=True, eq=False)
class Held:
    """One split. VineLM's own curves are ``mixed`` and ``unmixed``.

    Args:
        held_out: rows of the table.
        curves: by method; a plan for each budget, those of the mean first.
        references: success and dollars of a fixed policy by name, (2, requests) each.
    """

    held_out: tuple[int, ...]
    curves: Mapping[str, Curve]
    references: Mapping[str, FloatArray]


def effective(table: OutcomeTable, success: FloatArray) -> int:
    """So many independent requests tell as much of an accuracy as these, of which those of one group depend on each other."""
    names, group = np.unique(np.array(table.groups), return_inverse=True)
    if len(names) == len(table):
        return len(table)
    gap = success - success.mean()
    alone, together = float((gap**2).sum()), float((np.bincount(group, gap) ** 2).sum())
    return max(1, min(len(table), round(len(table) * alone / together))) if together > 0.0 else len(table)
