"""Estimates by how much the best plan's accuracy is predicted too high, because the plan was chosen as the best.

Each fit chooses a plan, and the other fits test it. For plans over outcomes, fits to resampled requests differ from their mean
as the estimate differs from the truth (bootstrap). So a fit's prediction for the plan that it considers best, minus the other
fits' prediction for this plan, is a sample of a chosen plan's optimism. For plans over branches or request types, the two fits
are to the two halves of the requests. The optimism is measured at several prices of a dollar (the accuracy that a plan must
gain for one more dollar), which lead to plans of different cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from vinelm.estimator.signals.answers import Ints
from vinelm.estimator.signals.history_level import HistoryLevel
from vinelm.estimator.signals.predictive import Predictive
from vinelm.plans.promise import SelectionOptimism
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray, FloatArray
from vinelm.trie.decision_graph import DecisionGraph

PRICES = 8
"""The number of prices of a dollar at which the fits choose a plan."""
OF_HALF = 2.0
"""Half of the requests choose with twice the variance, and so with about twice the optimism."""
_END = -1


@dataclass(frozen=True, eq=False)
class FitMasses:
    """The probabilities of all histories (sequences of models and outcomes) of one length, as predicted by each of several
    fits.

    A node is a shorter history together with the model that is called next. Each history follows from a node.

    Args:
        node: The index of the node that each history follows from; ascending, shape (histories,).
        parent: The shorter history of each node, an index into the histories of the previous length; ascending, shape (nodes,).
            For the first call, it is the way in which the request begins: its type, or the application's choice before any
            call.
        model: The model of each node, shape (nodes,).
        right: P(the history occurs, and an answer of class j is right), shape (histories, classes, fits). Once each fit has
            chosen which answer to return: P(the history occurs, and this answer is right), shape (histories, fits).
        cost_usd: Expected cost of the node's call in dollars, shape (nodes, fits).
        is_open: Whether a request may continue after the history, shape (histories,).
    """

    node: Ints
    parent: Ints
    model: Ints
    right: FloatArray
    cost_usd: FloatArray
    is_open: BoolArray

    @classmethod
    def of(cls, levels: Sequence[HistoryLevel], model: Predictive, shares: FloatArray | None = None) -> list[FitMasses]:
        """Return the probabilities (masses) of the histories, as one object for each length.

        Args:
            levels: The histories of each length from 1.
            model: The combined fits that gave these histories.
            shares: The probability that a request begins in each way, shape (starts,); None if there is only one way.
        """
        shares = np.ones(1) if shares is None else shares
        sizes = [shares[:, None] * model.mean_size, *(level.size_by_fit for level in levels)]
        found = []
        for d, (level, size) in enumerate(zip(levels, sizes, strict=False)):
            code = level.parent * (int(level.model.max(initial=0)) + 1) + level.model
            _, first, node = np.unique(code, return_index=True, return_inverse=True)
            parent = level.parent[first]
            cost = (model.cost_by_fit * model.rise(d)[:, None])[level.context[first]] * size[parent]
            found.append(cls(node, parent, level.model[first], level.right_by_fit, cost, level.is_open))
        return found

    @classmethod
    def of_tries(cls, fits: Sequence[AnnotatedTrie]) -> list[FitMasses]:
        """Return the probabilities (masses) of histories under several fits of a branching trie, as one object for each length.

        Exactly one path leads to each node of the trie. A history ends with the branch that the application takes after a
        call, or with the end of the request; then ``is_open`` is False. ``right`` is minus infinity where no plan may end.
        """
        graphs = [DecisionGraph.of(fit) for fit in fits]
        graph, found = graphs[0], list[FitMasses]()
        reach = np.column_stack([fit.reach[graph.nodes] for fit in fits])
        cost = reach * np.column_stack([fit.cost_usd[graph.nodes] for fit in fits])
        ended = reach * np.column_stack([one.ended_right for one in graphs])
        right = reach[graph.source] * np.column_stack([one.right for one in graphs])
        right[~graph.source_may_end] = -np.inf
        place = np.arange(len(graph.source))  # of each group among the histories of its level
        for low, high in pairwise(graph.levels[1:]):
            into = slice(low - 1, high - 1)  # in a tree an edge leads to the position after its own number
            groups = slice(int(graph.first_group[low]), int(graph.first_group[high]))
            node = np.concatenate((np.arange(high - low), graph.source[groups] - low))
            order = np.argsort(node, kind="stable")
            parent = place[graph.group_of_edge[into]]
            place[groups] = np.argsort(order)[high - low :]
            found.append(
                cls(
                    node=node[order],
                    parent=parent,
                    model=graph.model[into],
                    right=np.concatenate((ended[low:high], right[groups]))[order],
                    cost_usd=cost[low:high],
                    is_open=order >= high - low,
                )
            )
        return found


def selection_optimism(levels: Sequence[FitMasses]) -> SelectionOptimism | None:
    """Return by how much the predicted accuracy of a chosen plan is too high, as a curve over the plan's cost.

    None if there is only one fit.

    Each fit chooses a plan, and the other fits predict the plan's accuracy and cost. The differences are doubled: they then
    hold for a plan that is chosen on half of the requests. By how much the plan's advantage over a single model is predicted
    too high is not measured.
    """
    n_fits = levels[0].cost_usd.shape[1]
    if n_fits < 2:
        return None
    cost, gap, _ = gaps(*by_fit_and_others(levels))
    # Stable: if plans cost the same, the prices keep their order on every machine.
    order = np.argsort(cost, kind="stable")
    return SelectionOptimism.measured(cost[order], OF_HALF * gap[order])


def gaps(own: Sequence[FitMasses], others: Sequence[FitMasses]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the cost and optimism of the plans that fits choose at each price of a dollar, and each fit's own cost.

    A price is the accuracy that a plan must gain for one more dollar. A plan's optimism is its accuracy as the choosing
    fit predicts it, minus its accuracy as the other fits predict it.

    Args:
        own: The predictions of each fit.
        others: The predictions of the other fits for the same plans, as from :func:`by_fit_and_others`.

    Returns:
        Three arrays. The first is the plan's cost in dollars as the other fits predict it, mean over the choosing fits, shape
            (prices,). The second is the optimism, mean over the choosing fits, shape (prices,). The third is the cost in
            dollars that each fit predicts for its own plan, shape (prices, fits).
    """
    cost, gap, expected = np.zeros(PRICES), np.zeros(PRICES), np.zeros((PRICES, own[0].cost_usd.shape[1]))
    for i, price in enumerate(_prices(own)):
        choice = chosen(own, price)
        promised, tested = worth(own, choice), worth(others, choice)
        gap[i], cost[i], expected[i] = (promised[0] - tested[0]).mean(), tested[1].mean(), promised[1]
    return cost, gap, expected


def _prices(levels: Sequence[FitMasses]) -> FloatArray:
    """Return the prices at which the fits choose plans, in falling order; shape (prices,).

    A price is the accuracy that a plan must gain for each additional dollar. At the first price, plans with the cheapest first
    model are best; the last price is almost 0.
    """
    models, of_node = np.unique(levels[0].model, return_inverse=True)
    first = np.bincount(of_node, levels[0].cost_usd.mean(axis=1), len(models))
    dearest = max(float(first.max()), 1e-12)
    return np.geomspace(1.0 / max(float(first.min()), 1e-4 * dearest), 1e-3 / dearest, PRICES)


def by_fit_and_others(levels: Sequence[FitMasses]) -> tuple[list[FitMasses], list[FitMasses]]:
    """Return two lists like ``levels``: how each fit rates the answers that it returns, and how the other fits rate them.

    There is one object for each length of a history (a sequence of calls with their outcomes). After each history, a fit
    returns the answer that it considers most likely to be right. ``right`` becomes P(the history occurs, and the returned
    answer is right), shape (histories, fits). In the second list, ``right`` and ``cost_usd`` are means over all other fits.
    """
    own, others = [], []
    for level in levels:
        n = level.cost_usd.shape[1]
        returned = level.right.argmax(axis=1)[:, None]
        right = np.take_along_axis(level.right, returned, axis=1)[:, 0]
        of_all = np.take_along_axis(level.right.sum(axis=2), returned[:, 0], axis=1)
        own.append(replace(level, right=right))
        cost = (level.cost_usd.sum(axis=1, keepdims=True) - level.cost_usd) / (n - 1)
        others.append(replace(level, right=(of_all - right) / (n - 1), cost_usd=cost))
    return own, others


def chosen(levels: Sequence[FitMasses], price: float) -> list[Ints]:
    """Return the best plan of each fit: the one with the highest predicted accuracy minus ``price`` times predicted cost.

    A history is a sequence of calls with their outcomes. The result has an array of shape (histories, fits) for each length of
    a history, from 0. An element is the index of the node (the next model) with which the fit's plan continues after the
    history; -1 if the plan ends there. For length 0, there is a row for each way in which a request may begin.
    """
    choice: list[Ints] = []
    below: FloatArray | None = None  # the values of the nodes that follow
    for d in range(len(levels) - 1, -1, -1):
        level = levels[d]
        value, picked = level.right, np.full(level.right.shape, _END)
        if below is not None:
            best, going_on = _best(levels[d + 1].parent, below, len(value))
            goes_on = (going_on > value) & level.is_open[:, None]
            picked, value = np.where(goes_on, best, _END), np.where(goes_on, going_on, value)
        choice.append(picked)
        below = _sums(level.node, value, len(level.parent)) - price * level.cost_usd
    assert below is not None
    first = levels[0].parent
    return [_best(first, below, int(first[-1]) + 1)[0], *reversed(choice)]


def worth(levels: Sequence[FitMasses], choice: Sequence[Ints]) -> tuple[FloatArray, FloatArray]:
    """Return the accuracy and the cost in dollars of each fit's plan, as ``levels`` predict them; each of shape (fits,).

    Args:
        levels: The probabilities of the histories of each length.
        choice: The plans, as :func:`chosen` returns them.
    """
    fits = np.arange(levels[0].cost_usd.shape[1])
    accuracy = cost = np.zeros((0, len(fits)))
    for level, picked in zip(reversed(levels), reversed(choice), strict=False):
        right, spent = level.right, np.zeros(level.right.shape)
        if len(accuracy):
            ends = picked == _END
            right, spent = np.where(ends, right, accuracy[picked, fits]), np.where(ends, 0.0, cost[picked, fits])
        accuracy = _sums(level.node, right, len(level.parent))
        cost = _sums(level.node, spent, len(level.parent)) + level.cost_usd
    return accuracy[choice[0], fits].sum(axis=0), cost[choice[0], fits].sum(axis=0)


def _best(parent: Ints, values: FloatArray, n: int) -> tuple[Ints, FloatArray]:
    """Return, for each history and fit, the best node that can follow the history, and this node's value.

    Both arrays have the shape (n, fits). If no node can follow a history, its elements are -1 and minus infinity.

    Args:
        parent: the history before each node, ascending, shape (nodes,).
        values: the value of each node, shape (nodes, fits).
        n: the number of histories.
    """
    value = np.full((n, values.shape[1]), -np.inf)
    best = np.full(value.shape, _END)
    if len(parent):
        starts = np.flatnonzero(np.diff(parent, prepend=-1))
        value[parent[starts]] = np.maximum.reduceat(values, starts, axis=0)
        rows, fits = np.nonzero(values == value[parent])
        # Backwards: of several assignments to one position the last counts, so the first of equal nodes stays.
        best[parent[rows][::-1], fits[::-1]] = rows[::-1]
    return best, value


def _sums(of: Ints, values: FloatArray, n: int) -> FloatArray:
    """Return the sums of the rows of ``values`` that have the same index in ``of``; shape (n, fits).

    Row i of the result is the sum for index i; indices are below ``n``. ``of`` must be ascending.
    """
    starts = np.flatnonzero(np.diff(of, prepend=-1))
    found = np.zeros((n, values.shape[1]))
    found[of[starts]] = np.add.reduceat(values, starts, axis=0)
    return found
