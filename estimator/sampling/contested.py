"""Which invocations the fits to resampled requests disagree about, when each picks its own best plan over what requests show.

At a price of dollars in accuracy, the plan chosen by the mean of the fits is compared with the one that each fit would choose.
If the fit were the truth, keeping the chosen plan would cost its *regret*. The nodes at which one of the two plans asks a model
and the other does not are contested: more answers there may change the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vinelm.estimator.signals.answers import AnswerTable, Ints
from vinelm.estimator.signals.histories import histories
from vinelm.estimator.signals.history_level import HistoryLevel
from vinelm.estimator.signals.predictive import Predictive
from vinelm.observation import Observation
from vinelm.template import Template
from vinelm.trie import FloatArray, Trie

LEAST_REACH = 5e-3
"""Histories that are less likely than this, given their models, are not continued: coarser than for a plan."""
PRICES = 9
"""Prices of a dollar that are tried where no goal names one."""


@dataclass(frozen=True, eq=False)
class PlanContest:
    """What the fits say about the best plan at one price of dollars.

    Args:
        cost_usd: Expected dollars per request of the plan that the mean of the fits chooses.
        accuracy: Its expected accuracy, a fraction.
        nodes: Regret of that plan by each fit, in accuracy, times how often a request reaches an invocation that only one of
            the plans makes: the mean over the fits, by node of the path trie, shape (n + 1,).
    """

    cost_usd: float
    accuracy: float
    nodes: FloatArray


def contests(rows: Sequence[Observation], template: Template, trie: Trie) -> list[PlanContest]:
    """Compare the fits' best plans at prices from "ask whatever helps" to "ask hardly anything", ascending.

    Args:
        rows: All rows; plans over what they show must be possible (:func:`~vinelm.estimator.why_without_signals`).
        template: A bound template.
        trie: Its path trie.
    """
    table = AnswerTable.of(rows, [stage.name for stage in template.invocations])
    model = Predictive.of(table)
    stages = [(stage.name, stage.models or ()) for stage in template.invocations]
    goes_on = any(row.is_continued for row in rows)
    tree = HistoryTree(model, histories(model, stages, trie.models, goes_on=goes_on, least_reach=LEAST_REACH), trie)
    costs = model.cost_usd[model.cost_usd > 0.0]
    if not len(costs):
        return [tree.contest(0.0)]
    return [tree.contest(float(price)) for price in np.geomspace(0.01 / costs.max(), 0.3 / costs.min(), PRICES)]


class _Asked(NamedTuple):
    """The invocations of one depth: a history before (``parent``, ascending) and a model. Arrays of shape (invocations,).

    ``node`` is that of the path trie, ``reach`` the chance of the history before, ``cost_usd`` expected dollars, weighted
    by it. ``of_history``: for each history that ends with one of them, which one.
    """

    parent: Ints
    node: Ints
    reach: FloatArray
    cost_usd: FloatArray
    of_history: Ints


class _Best(NamedTuple):
    """The best way on from each history, in columns by fit and then by their mean.

    ``choice`` is an invocation, -1 for ending; ``value`` in accuracy. ``kept``: what the mean's choice is worth, by fit.
    """

    choice: Ints
    value: FloatArray
    kept: FloatArray


class HistoryTree:
    """The histories as a tree of decisions: at each one a request ends or asks a model."""

    def __init__(self, model: Predictive, levels: Sequence[HistoryLevel], trie: Trie) -> None:
        self._levels, self._n_nodes, self._n_fits = levels, len(trie), model.n_fits
        self._asked: list[_Asked] = []
        node, reach, size = np.zeros(1, np.int64), np.ones(1), np.ones(1)
        for level in levels:
            code, first, of = np.unique(level.parent * len(trie.models) + level.model, return_index=True, return_inverse=True)
            parent, models = code // len(trie.models), code % len(trie.models)
            below = [trie.child(int(node[p]), trie.models[m]) for p, m in zip(parent.tolist(), models.tolist(), strict=True)]
            cost_usd = reach[parent] * size[parent] * model.cost_usd[level.context[first]]
            self._asked.append(_Asked(parent, np.array(below, np.int64), reach[parent], cost_usd, of))
            node, reach, size = np.array(below, np.int64)[of], level.reach, level.size

    def contest(self, price: float) -> PlanContest:
        """Return where the plans differ at that price, in accuracy per dollar."""
        start = np.full((1, self._n_fits), -np.inf)  # a request cannot end without an answer
        ends = [start, *(level.spread for level in self._levels)]
        last = ends[-1]
        best = _Best(np.full((len(last), self._n_fits + 1), -1), _with_mean(last), last)
        chosen = []
        for asked, end in zip(reversed(self._asked), reversed(ends[:-1]), strict=True):
            best = self._before(asked, end, best, price)
            chosen.append(best.choice)
        regret = np.maximum(best.value[0, :-1] - best.kept[0], 0.0)
        used, cost_usd = self._followed(chosen[::-1])
        differs = np.abs(used[:, :-1] - used[:, -1:])
        return PlanContest(cost_usd, float(best.value[0, -1]) + price * cost_usd, (differs * regret).mean(axis=1))

    def _before(self, asked: _Asked, ends: FloatArray, after: _Best, price: float) -> _Best:
        """Choose at the histories before an invocation; ``ends`` is the value of ending there, by fit."""
        value, kept = (_summed(asked, values) - price * asked.cost_usd[:, None] for values in (after.value, after.kept))
        best, choice, followed = _with_mean(ends), np.full((len(ends), self._n_fits + 1), -1), ends.copy()
        starts = np.flatnonzero(np.diff(asked.parent, prepend=-1))
        at = asked.parent[starts]  # the histories that are continued
        top = np.maximum.reduceat(value, starts, axis=0)
        is_top = value >= np.repeat(top, np.diff(starts, append=len(value)), axis=0)
        first = np.minimum.reduceat(np.where(is_top, np.arange(len(value))[:, None], len(value)), starts, axis=0)
        goes_on = top > best[at]
        choice[at] = np.where(goes_on, first, -1)
        best[at] = np.maximum(best[at], top)
        on = choice[:, -1] >= 0
        followed[on] = kept[choice[on, -1]]
        return _Best(choice, best, followed)

    def _followed(self, chosen: Sequence[Ints]) -> tuple[FloatArray, float]:
        """How often each plan asks at each node, shape (n + 1, fits + 1); and the dollars of the mean's plan."""
        used, cost_usd = np.zeros((self._n_nodes, self._n_fits + 1)), 0.0
        is_there = np.ones((1, self._n_fits + 1), np.bool_)
        for asked, choice in zip(self._asked, chosen, strict=True):
            asks = is_there[asked.parent] & (choice[asked.parent] == np.arange(len(asked.parent))[:, None])
            np.add.at(used, asked.node, asks * asked.reach[:, None])
            cost_usd += float(asked.cost_usd[asks[:, -1]].sum())
            is_there = asks[asked.of_history]
        return used, cost_usd


def _with_mean(by_fit: FloatArray) -> FloatArray:
    """The values by fit and, as the last column, their mean."""
    return np.column_stack((by_fit, by_fit.mean(axis=1)))


def _summed(asked: _Asked, values: FloatArray) -> FloatArray:
    """Sums over the histories that end with each invocation."""
    sums = [np.bincount(asked.of_history, column, len(asked.parent)) for column in values.T]
    return np.stack(sums, axis=1)
