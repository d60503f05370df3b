"""Figures over all splits: means, what was promised, and paired differences with a bootstrap over groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from signals_parts.calibration import ece_points
from signals_parts.methods import REFERENCES
from signals_parts.protocol import MethodResult, Settings, SplitResult

from vinelm.evaluation import OutcomeTable
from vinelm.trie.arrays import FloatArray

BOOTSTRAP_SEED = 13
RESAMPLES = 2000
"""Number of bootstrap resamples."""
LEVEL = 0.95


def resample_weights(n_groups: int, seed: int) -> FloatArray:
    """Draw bootstrap weights: each group's share of each resample. Shape (resamples, groups), rows sum to 1."""
    draws = np.random.default_rng(seed).multinomial(n_groups, np.full(n_groups, 1.0 / n_groups), size=RESAMPLES)
    return np.asarray(draws / n_groups, dtype=np.float64)


@dataclass(frozen=True)
class Pooled:
    """One method over all splits: sums over the splits in which a request was held out, (budgets, requests)."""

    success: FloatArray
    cost_usd: FloatArray

    @classmethod
    def of(cls, splits: Sequence[SplitResult], method: str, n_requests: int) -> Pooled:
        """Add up the splits."""
        shape = (len(splits[0].served[method].success), n_requests)
        success, cost = np.zeros(shape), np.zeros(shape)
        for one in splits:
            rows = list(one.held_out)
            success[:, rows] += one.served[method].success
            cost[:, rows] += one.served[method].cost_usd
        return cls(success, cost)


@dataclass(frozen=True)
class Comparison:
    """Paired differences: requests are drawn with their groups; the choices of the splits are taken as given.

    Args:
        count: in how many splits each request was held out, (requests,).
        group: of each request, an index.
        weights: of the groups in each resample, (resamples, groups).
    """

    count: FloatArray
    group: npt.NDArray[np.intp]
    weights: FloatArray

    @classmethod
    def of(cls, table: OutcomeTable, splits: Sequence[SplitResult]) -> Comparison:
        """Prepare the resamples."""
        return cls.of_rows(table, [one.held_out for one in splits])

    @classmethod
    def of_rows(cls, table: OutcomeTable, held_out: Sequence[Sequence[int]]) -> Comparison:
        """The same from the held-out rows of each split."""
        count = np.zeros(len(table))
        for rows in held_out:
            count[list(rows)] += 1.0
        names, group = np.unique(np.array(table.groups), return_inverse=True)
        return cls(count, group, resample_weights(len(names), BOOTSTRAP_SEED))

    def mean(self, values: FloatArray) -> float:
        """Mean over all held-out (split, request) pairs; ``values`` are sums over splits, (requests,)."""
        return float(values.sum() / self.count.sum())

    def interval(self, values: FloatArray) -> dict[str, float]:
        """The mean with its 95 % bootstrap interval."""
        top = self.weights @ np.bincount(self.group, values)
        below = self.weights @ np.bincount(self.group, self.count)
        means = np.divide(top, below, out=np.zeros_like(top), where=below > 0)
        low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return {"value": self.mean(values), "low": float(low), "high": float(high)}


def summary(table: OutcomeTable, by_sampler: dict[str, list[SplitResult]], settings: Settings) -> dict[str, Any]:
    """Everything about one table at one depth, by sampler, as plain JSON types.

    ``over_first_sampler`` compares each method with itself and with the static plan on the first sampler's rows.
    """
    first, *_ = by_sampler
    pooled = {
        sampler: {name: Pooled.of(splits, name, len(table)) for name in splits[0].served}
        for sampler, splits in by_sampler.items()
    }
    found: dict[str, Any] = {}
    for sampler, splits in by_sampler.items():
        compare = Comparison.of(table, splits)
        mine, base = pooled[sampler], pooled[first]
        found[sampler] = {
            "rows": float(np.mean([one.n_rows for one in splits])),
            "continued_rows": float(np.mean([one.n_continued for one in splits])),
            "spent_usd": float(np.mean([one.spent_usd for one in splits])),
            "methods": {
                name: method_figures([one.served[name] for one in splits], mine[name], compare, settings) for name in mine
            },
            "differences": {
                reference: {
                    name: differences(mine[name], mine[reference], compare, settings) for name in mine if name != reference
                }
                for reference in REFERENCES
            },
        }
        if "vinelm" in mine:
            found[sampler]["vinelm_over"] = {
                name: differences(mine["vinelm"], mine[name], compare, settings) for name in mine if name != "vinelm"
            }
        if sampler != first:
            found[sampler][f"over_{first}_rows"] = {
                name: {
                    "same_method": differences(mine[name], base[name], compare, settings),
                    "static": differences(mine[name], base["static"], compare, settings),
                }
                for name in mine
            }
    return found


def method_figures(served: Sequence[MethodResult], pooled: Pooled, compare: Comparison, settings: Settings) -> dict[str, Any]:
    """Accuracy and dollars, what was promised, and the times."""
    n = len(settings.budgets)
    accuracy = np.array([compare.mean(values) for values in pooled.success])
    cost = np.array([compare.mean(values) for values in pooled.cost_usd])
    promised = np.mean([one.promised_accuracy for one in served], axis=0)
    promised_cost = np.mean([one.promised_cost_usd for one in served], axis=0)
    lookups = [one.lookup_us for one in served if one.lookup_us is not None]
    return {
        "accuracy": float(accuracy[:n].mean()),
        "cost_usd": float(cost[:n].mean()),
        "promised_less_achieved": plain((promised - accuracy)[:n].mean()),
        "spent_over_promised": plain((cost[:n] / promised_cost[:n]).mean()),
        "plan_s": float(np.median([one.plan_s for one in served])),
        "lookup_us": float(np.median(lookups)) if lookups else None,
        "ece_points": ece_points([one.calibration for one in served]),
        "budgets": [
            {
                "max_cost_usd": budget,
                "is_in_mean": i < n,
                "accuracy": float(accuracy[i]),
                "cost_usd": float(cost[i]),
                "promised_accuracy": plain(promised[i]),
                "promised_cost_usd": plain(promised_cost[i]),
            }
            for i, budget in enumerate(settings.every_budget)
        ],
        "example": served[0].words[n // 2] if served[0].words else "",
    }


def differences(one: Pooled, other: Pooled, compare: Comparison, settings: Settings) -> dict[str, Any]:
    """Accuracy of one method less that of the other: mean over budgets, and under each."""
    gap = one.success - other.success
    return compare.interval(gap[: len(settings.budgets)].mean(axis=0)) | {
        "by_budget": [{"max_cost_usd": budget, **compare.interval(gap[i])} for i, budget in enumerate(settings.every_budget)]
    }


def plain(value: float) -> float | None:
    """A number for JSON; None for NaN."""
    return None if np.isnan(value) else float(value)
