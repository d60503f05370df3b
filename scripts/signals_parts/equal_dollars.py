"""Methods at equal dollars on held-out requests: a lead in accuracy, and dollars saved at equal accuracy.

Intervals draw requests (with their groups) and profiles (splits), both with replacement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from signals_parts.curves import KINDS, MIXED, UNMIXED, Held
from signals_parts.figures import BOOTSTRAP_SEED, LEVEL, RESAMPLES, Comparison, resample_weights

from vinelm.trie.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Resamples:
    """Resamples of requests and of profiles.

    Args:
        compare: the groups and their weights.
        splits: share of each split in each resample, (resamples, splits).
    """

    compare: Comparison
    splits: FloatArray

    @classmethod
    def of(cls, compare: Comparison, n_splits: int) -> Resamples:
        """Draw the splits beside the groups."""
        return cls(compare, resample_weights(n_splits, BOOTSTRAP_SEED + 1))

    def sums(self, held: Sequence[Held], values: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Sums over splits and requests, (..., ) as they are and (resamples, ...) as drawn; ``values`` are (..., requests)."""
        total = np.sum([one.sum(axis=-1) for one in values], axis=0)
        drawn: Any = 0.0
        for s, (one, value) in enumerate(zip(held, values, strict=True)):
            group, rows = self.compare.group[list(one.held_out)], value.reshape(-1, value.shape[-1])
            by_group = np.array([np.bincount(group, row, self.compare.weights.shape[1]) for row in rows])
            found = (self.compare.weights @ by_group.T) * self.splits[:, s, None]
            drawn = drawn + found.reshape(RESAMPLES, *value.shape[:-1])
        return np.asarray(total), np.asarray(drawn)

    def mean(self, held: Sequence[Held], values: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """The same as means over all held-out (split, request) pairs."""
        total, drawn = self.sums(held, values)
        count, counted = self.sums(held, [np.ones(len(one.held_out)) for one in held])
        return total / count, drawn / np.maximum(counted, 1e-12).reshape(-1, *(1,) * (drawn.ndim - 1))

    def interval(self, held: Sequence[Held], values: Sequence[FloatArray]) -> dict[str, float]:
        """A mean with its 95 % interval; ``values`` are (requests,)."""
        value, drawn = self.mean(held, values)
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return {"value": float(value), "low": float(low), "high": float(high)}


def figures(held: Sequence[Held], compare: Comparison, n_budgets: int) -> dict[str, Any]:
    """Everything at equal dollars about one table, as plain JSON types; accuracies are fractions.

    Args:
        held: the splits.
        compare: of the table.
        n_budgets: so many first budgets are those of the mean.
    """
    drawn = Resamples.of(compare, len(held))
    rivals = [name for name in held[0].curves if name not in (MIXED, UNMIXED, KINDS)]
    has_kinds = KINDS in held[0].curves
    over = {ours: {name: lead(held, drawn, ours, name, n_budgets) for name in rivals} for ours in (MIXED, UNMIXED)}
    best = min(rivals, key=lambda name: over[MIXED][name]["value"])
    return {
        "over": over,
        "over_in_hindsight": {name: lead(held, drawn, MIXED, name, n_budgets, hindsight=True) for name in rivals},
        "best_rival": best,
        "kinds_over": {name: lead(held, drawn, KINDS, name, n_budgets) for name in (MIXED, *rivals)} if has_kinds else {},
        "by_budget": by_budget(held, drawn, best, n_budgets),
        "mixed_less_unmixed_at_the_same_bound": drawn.interval(
            held, [np.mean([at(one, MIXED, b) - at(one, UNMIXED, b) for b in range(n_budgets)], axis=0) for one in held]
        ),
        "promises": {name: promises(held, name, n_budgets) for name in (MIXED, UNMIXED, *((KINDS,) if has_kinds else ()))},
        "saved": {
            reference: {name: saved(held, drawn, name, reference) for name in (MIXED, UNMIXED, *rivals)}
            for reference in held[0].references
        },
    }


def at(one: Held, method: str, budget: int, what: str = "success") -> FloatArray:
    """Success (or dollars) of each held-out request under the method's plan for a budget, (requests,)."""
    curve = one.curves[method]
    return np.asarray(getattr(curve, what)[curve.chosen[budget]])


def gap(one: Held, ours: str, rival: str, budget: int, *, hindsight: bool) -> tuple[FloatArray, float]:
    """Our success less the rival's at our own dollars, (requests,), and the dollars that the rival spends for each of ours.

    In a resample of requests the two spend a little more or less than each other; what the rival makes of a further dollar
    there settles the difference.
    """
    success, cost = at(one, ours, budget), at(one, ours, budget, "cost_usd")
    theirs = one.curves[rival].spending(float(cost.mean()), hindsight=hindsight)
    found = success - theirs.success - theirs.slope * (cost - theirs.cost_usd)
    return found, float(theirs.cost_usd.mean() / cost.mean())


def lead(held: Sequence[Held], drawn: Resamples, ours: str, rival: str, n: int, *, hindsight: bool = False) -> dict[str, float]:
    """The mean lead over ``n`` budgets at equal dollars, and the dollars that the rival spends for each of ours."""
    found = [[gap(one, ours, rival, b, hindsight=hindsight) for b in range(n)] for one in held]
    means = [np.mean([each for each, _ in split], axis=0) for split in found]
    return drawn.interval(held, means) | {"dollars": float(np.mean([ratio for split in found for _, ratio in split]))}


def by_budget(held: Sequence[Held], drawn: Resamples, rival: str, n_budgets: int) -> list[dict[str, Any]]:
    """Under each budget: what VineLM spends, how accurate it is, and its lead over a rival at these dollars."""
    return [
        {
            "max_cost_usd": float(held[0].curves[MIXED].budgets[b]),
            "cost_usd": float(drawn.mean(held, [at(one, MIXED, b, "cost_usd") for one in held])[0]),
            "accuracy": float(drawn.mean(held, [at(one, MIXED, b) for one in held])[0]),
            "lead": drawn.interval(held, [gap(one, MIXED, rival, b, hindsight=False)[0] for one in held]),
        }
        for b in range(n_budgets)
    ]


def promises(held: Sequence[Held], method: str, n_budgets: int) -> dict[str, float]:
    """Promises against results: accuracy too much, how often the interval holds, dollars over promised and the bound."""
    rows = []
    for one in held:
        curve = one.curves[method]
        dearest = float(curve.promised[:, 1].max())
        for b in range(n_budgets):
            plan = curve.chosen[b]
            accuracy, cost = float(curve.success[plan].mean()), float(curve.cost_usd[plan].mean())
            low, high = curve.spread[plan]
            rows.append((
                curve.promised[plan, 0] - accuracy, low <= accuracy <= high,
                cost / curve.promised[plan, 1], cost / min(float(curve.budgets[b]), dearest),
            ))  # fmt: skip
    names = ("promised_less_achieved", "covered_at_90", "spent_over_promised", "spent_over_bound")
    return dict(zip(names, np.mean(rows, axis=0).tolist(), strict=True))


def saved(held: Sequence[Held], drawn: Resamples, method: str, reference: str) -> dict[str, float | None]:
    """Share of the dollars of a reference that a method saves where it is as accurate, by its mean curve over the splits.

    Between the plans of two neighbouring budgets the method mixes them. None where it never is as accurate.
    """
    curves = [one.curves[method] for one in held]
    order = np.argsort(curves[0].budgets, kind="stable")
    (right, right_drawn), (cost, cost_drawn) = (
        drawn.mean(held, [getattr(curve, what)[curve.chosen[order]] for curve in curves]) for what in ("success", "cost_usd")
    )
    (goal, goal_drawn), (paid, paid_drawn) = (drawn.mean(held, [one.references[reference][i] for one in held]) for i in (0, 1))
    value = 1.0 - reached(right[None], cost[None], goal[None])[0] / paid
    kept = paid_drawn > 0.0  # of few groups a resample may have none that was held out
    resampled = 1.0 - reached(right_drawn[kept], cost_drawn[kept], goal_drawn[kept]) / paid_drawn[kept]
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="lower")
    return {name: float(one) if np.isfinite(one) else None for name, one in (("value", value), ("low", low), ("high", high))}


def reached(accuracy: FloatArray, cost_usd: FloatArray, goal: FloatArray) -> FloatArray:
    """Least dollars at which a curve, (..., budgets), is as accurate as a goal, (...,); infinite where it never is."""
    is_there = accuracy >= goal[:, None]
    first, row = is_there.argmax(axis=1), np.arange(len(goal))
    before = np.maximum(first - 1, 0)
    rise = accuracy[row, first] - accuracy[row, before]
    share = np.where(rise > 0.0, (goal - accuracy[row, before]) / np.where(rise > 0.0, rise, 1.0), 1.0)
    found = cost_usd[row, before] + np.clip(share, 0.0, 1.0) * (cost_usd[row, first] - cost_usd[row, before])
    return np.where(is_there.any(axis=1), np.where(first == 0, cost_usd[:, 0], found), np.inf)
