"""Which plan a population follows: those at several prices and the fixed ones compete for the bounds on averages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from vinelm.controller.planning.merged.policies import MergedPolicy
from vinelm.controller.planning.metric import COST_CAP, FLOOR
from vinelm.errors import ConfigError
from vinelm.objective import Objective

TURNS = 24
HIGHEST = 1e9


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan from the root on.

    Args:
        accuracy: expected; with ``confidence`` its lower bound is compared.
        cost_usd: expected dollars.
        price: of accuracy, for requests whose own time and dollars matter.
        weight: of accuracy; 0 where dollars alone are minimized.
        policy: what each arm does; None where that depends on what is left.
    """

    accuracy: float
    cost_usd: float
    price: float
    weight: float
    policy: MergedPolicy | None = None

    def judged(self, objective: Objective) -> float:
        """Return the accuracy, or its lower bound with ``confidence``."""
        if objective.confidence is None:
            return self.accuracy
        error = None if self.policy is None else self.policy.outlook.standard_error
        if error is None:
            raise ConfigError(
                "confidence needs standard errors, and this estimate of a merged trie has none for this objective: leave it out"
            )
        return max(self.accuracy - NormalDist().inv_cdf(objective.confidence) * error, 0.0)


def near_the_bounds(at: Callable[[float], Candidate], objective: Objective, scale: float) -> list[Candidate]:
    """Return the plans that a bisection of the price meets while it looks for those at the bounds on averages."""
    found = [at(0.0)]
    budget = objective.max_cost_usd if objective.cost_budget == "population" else None
    if budget is not None and found[0].cost_usd > budget:
        found += _bisected(at, lambda plan: plan.cost_usd <= budget, scale)
    floor = objective.min_accuracy
    if floor is not None and objective.target == "cost" and found[0].judged(objective) >= floor:
        found += _bisected(at, lambda plan: plan.judged(objective) < floor, scale)
    return found


def _bisected(at: Callable[[float], Candidate], is_high: Callable[[Candidate], bool], scale: float) -> list[Candidate]:
    low, high = 0.0, scale
    found = [at(high)]
    while not is_high(found[-1]) and high < HIGHEST * scale:
        low, high = high, high * 8.0
        found.append(at(high))
    for _ in range(TURNS):
        middle = (low * high) ** 0.5 if low > 0.0 else high / 64.0
        found.append(at(middle))
        low, high = (low, middle) if is_high(found[-1]) else (middle, high)
        if high <= low * (1.0 + 1e-4):
            break
    return found


@dataclass(frozen=True)
class Chosen:
    """The best candidate, the bounds on averages that none meets, and the best value of the first of these."""

    candidate: Candidate
    relaxed: tuple[str, ...]
    best: float


def choose(candidates: Sequence[Candidate], objective: Objective) -> Chosen:
    """Return the best candidate within the bounds; where none is, the floor is relaxed before the budget."""
    budget = objective.max_cost_usd if objective.cost_budget == "population" else None
    floor = objective.min_accuracy
    affordable = [plan for plan in candidates if budget is None or plan.cost_usd <= budget]
    good = [plan for plan in affordable if floor is None or plan.judged(objective) >= floor]

    def by_accuracy(plan: Candidate) -> tuple[float, float]:
        return plan.judged(objective), -plan.cost_usd

    if good and objective.target == "cost":
        return Chosen(min(good, key=lambda plan: (plan.cost_usd, -plan.judged(objective))), (), float("nan"))
    if good:
        return Chosen(max(good, key=by_accuracy), (), float("nan"))
    if affordable:
        best = max(affordable, key=by_accuracy)
        return Chosen(best, (FLOOR,), best.judged(objective))
    best = min(candidates, key=lambda plan: (plan.cost_usd, -plan.judged(objective)))
    missed = floor is not None and best.judged(objective) < floor
    return Chosen(best, (COST_CAP, FLOOR) if missed else (COST_CAP,), best.cost_usd)
