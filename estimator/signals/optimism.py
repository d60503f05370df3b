"""How much the best plan over histories promises too much: chosen on resampled requests, judged on all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vinelm.estimator.signals.answer_model import AnswerFit
from vinelm.estimator.signals.answers import Ints
from vinelm.estimator.signals.histories import HistoryLevel
from vinelm.trie import FloatArray

END = -1


@dataclass(frozen=True, eq=False)
class HistoryPolicy:
    """A model for each history, :data:`END` where the request ends; item 0 of ``choices`` belongs to the first level."""

    first: int
    choices: tuple[Ints, ...]


def best_policy(model: AnswerFit, levels: Sequence[HistoryLevel], n_models: int, price: float) -> HistoryPolicy:
    """Return the policy with the highest accuracy less ``price`` times dollars, by backward induction."""
    value: FloatArray | None = None
    choices: list[Ints] = []
    for d in range(len(levels) - 1, -1, -1):
        level = levels[d]
        end = level.right.max(axis=1)
        chosen = np.full(len(level), END)
        if value is not None:
            on = _of_choices(levels[d + 1], value, price * levels[d + 1].usd(model), (len(level), n_models))
            best = on.argmax(axis=1)
            gain = on[np.arange(len(level)), best]
            chosen = np.where(gain > end, best, END)
            end = np.maximum(end, gain)
        choices.append(chosen)
        value = end
    assert value is not None
    first = int(_of_choices(levels[0], value, price * levels[0].usd(model), (1, n_models))[0].argmax())
    return HistoryPolicy(first, tuple(choices[::-1]))


def _of_choices(below: HistoryLevel, value: FloatArray, usd: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """What each next model is worth at each history, in masses, shape (histories, models); -inf where it is not offered.

    ``usd`` are priced dollars of the level below.
    """
    code, size = below.parent * shape[1] + below.model, shape[0] * shape[1]
    worth = np.bincount(code, value - usd, size)
    return np.where(np.bincount(code, minlength=size) > 0, worth, -np.inf).reshape(shape)


def worth(model: AnswerFit, levels: Sequence[HistoryLevel], policy: HistoryPolicy) -> tuple[float, float]:
    """Return (accuracy, expected dollars) of a policy."""
    accuracy = cost = 0.0
    runs = levels[0].model == policy.first
    for d, level in enumerate(levels):
        cost += float(level.usd(model)[runs].sum())
        ends = runs & (policy.choices[d] == END)
        accuracy += float(level.right[ends].max(axis=1).sum())
        if d + 1 < len(levels):
            below = levels[d + 1]
            goes_on = runs & ~ends
            runs = goes_on[below.parent] & (policy.choices[d][below.parent] == below.model)
    return accuracy, cost


def carried_over(
    policy: HistoryPolicy, made_for: Sequence[HistoryLevel], to: Sequence[HistoryLevel], n_labels: int
) -> HistoryPolicy:
    """Return the policy on the histories of another fit; those that the first fit lacks end."""
    place = np.zeros(1, np.int64)  # of each history of ``to`` among those of ``made_for``, -1: none
    choices: list[Ints] = []
    for ours, theirs, chosen in zip(to, made_for, policy.choices, strict=True):
        known = _codes(theirs, theirs.parent, n_labels)
        wanted = _codes(ours, place[ours.parent], n_labels)
        order = np.argsort(known)
        at = order[np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)]
        place = np.where((known[at] == wanted) & (place[ours.parent] >= 0), at, -1)
        choices.append(np.where(place >= 0, chosen[np.maximum(place, 0)], END))
    return HistoryPolicy(policy.first, tuple(choices))


def _codes(level: HistoryLevel, parent: Ints, n_labels: int) -> Ints:
    return ((parent * 1024 + level.model) * 64 + level.kind + 1) * n_labels + level.label


def selection_optimism(
    fit: tuple[AnswerFit, Sequence[HistoryLevel]],
    resampled: Sequence[tuple[AnswerFit, Sequence[HistoryLevel]]],
    n_models: int,
    prices: FloatArray,
) -> dict[str, Any]:
    """Return the curve of optimism over dollars, in the form of :class:`~vinelm.promise.SelectionOptimism`.

    For each price the best policy of a resampled fit is worth more by its own fit than by the fit to all requests; the mean
    difference is the optimism of a choice on as many requests as there are (Efron's correction). The standard error is the
    spread of the worth of the chosen policy over the resampled fits.
    """
    model, levels = fit
    n_labels = len(model.labels)
    cost, optimism, error = [], [], []
    for price in prices.tolist():
        chosen = best_policy(model, levels, n_models, price)
        gaps, values = [], []
        for other, histories in resampled:
            theirs = best_policy(other, histories, n_models, price)
            promised = worth(other, histories, theirs)[0]
            gaps.append(promised - worth(model, levels, carried_over(theirs, histories, levels, n_labels))[0])
            values.append(worth(other, histories, carried_over(chosen, levels, histories, n_labels))[0])
        cost.append(worth(model, levels, chosen)[1])
        optimism.append(max(float(np.mean(gaps)), 0.0))
        error.append(float(np.std(values)))
    order = np.argsort(cost, kind="stable")
    keep = [int(i) for k, i in enumerate(order) if k == 0 or cost[i] > cost[order[k - 1]]]
    return {
        "cost_usd": [cost[i] for i in keep],
        "accuracy": [optimism[i] for i in keep],
        "advantage": [optimism[i] for i in keep],  # at most as large: what it is compared with is chosen among fewer
        "standard_error": [error[i] for i in keep],
    }
