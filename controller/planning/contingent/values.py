"""Backward induction over a decision graph: finds, level by level, the plan with the best accuracy minus price times cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from vinelm.controller.planning.contingent.grid import LeftGrid
from vinelm.trie.arrays import BoolArray, FloatArray, Integers
from vinelm.trie.decision_graph import END, NOTHING, DecisionGraph, Span

_FAR = 1e300
"""Subtracted from values that are not admitted: more than any value. Faster than selecting item by item."""


class PlanGoal(NamedTuple):
    """The criterion for plans: ``"accuracy"`` maximizes accuracy minus ``price`` times cost, ``"cost"`` minimizes cost.

    Ties go to higher accuracy, then to lower cost, then to lower worst-case latency. If ending and continuing are equally good,
    the request ends. A price of 0 means ``AnnotatedTrie.least_price``.

    A request for which no model fits (:data:`NOTHING`) has no correct answer and no further cost. With ``answers_first`` or
    ``"cost"``, the probability of this is minimized before everything else.

    ``late`` is None unless times are random (:mod:`.grid`). If it is given, a late answer counts as :data:`NOTHING`. Plans are
    then first compared by ``accuracy - price * cost - late * P(NOTHING)``; ``"cost"`` leaves out the accuracy.
    """

    target: Literal["accuracy", "cost"] = "accuracy"
    price: float = 0.0
    answers_first: bool = False
    late: float | None = None


class Worth(NamedTuple):
    """The value of plans that begin at nodes, edges or branches (groups); each array has one item per node, edge or branch.

    ``accuracy`` and ``cost_usd`` are expected values. ``lost`` is the probability that no model is admitted at some point and
    the request has no answer to end with. It is None if this probability is 0 everywhere. ``longest_s`` is the worst-case
    latency in seconds; None while it is not needed. On a grid of a request's remaining amounts, arrays have the shape (*grid,
    items).
    """

    accuracy: FloatArray
    cost_usd: FloatArray
    lost: FloatArray | None
    longest_s: FloatArray | None

    def take(self, items: Integers | slice) -> Worth:
        """Return the values at these indices of the last axis (nodes, edges or groups)."""
        return self.each(lambda values: values[..., items])

    def picked(self, items: Integers) -> Worth:
        """Return a copy in which each array has only the elements at the indices ``items`` of the flattened array.

        The arrays of the result have the shape of ``items``.
        """
        return self.each(lambda values: values.take(items))

    def each(self, change: Callable[[FloatArray], FloatArray]) -> Worth:
        """Return a copy with ``change`` applied to each array."""
        accuracy, cost_usd, lost, longest_s = self  # not a loop: a plan comes here twice a level
        return Worth(
            change(accuracy),
            change(cost_usd),
            None if lost is None else change(lost),
            None if longest_s is None else change(longest_s),
        )


class Best(NamedTuple):
    """The best edge (next call) of each branch in a range of branches, and its value for a request that takes the branch.

    ``edge`` has one element for each branch, and further axes if plans depend on the remaining time and money. It is
    :data:`NOTHING` if no edge is admitted; then ``worth`` is meaningless. ``has_ties`` is True if some edges were equal in
    every compared quantity.
    """

    edge: Integers
    worth: Worth
    has_ties: bool = False


class Induction:
    """The optimal choice on every branch below a request's position, given the admitted edges.

    Args:
        spans: The levels of the graph from the start on (:meth:`DecisionGraph.spans`). Levels after the first without an
            admitted edge may be left out.
        goal: The criterion of the plan.
        admitted: For each level, a mask of the edges that may be chosen; None for all.
        left: The grid of a request's remaining amounts; None if they do not matter or if, as in a tree, the node determines
            them.
    """

    def __init__(
        self,
        graph: DecisionGraph,
        spans: Sequence[Span],
        goal: PlanGoal,
        admitted: Sequence[BoolArray | None] | None = None,
        left: LeftGrid | None = None,
    ) -> None:
        self.graph, self.spans, self.goal, self.left = graph, spans, goal, left
        self._admitted = admitted
        self._grid = () if left is None else left.shape
        self.below: list[Worth] = []
        """With ``left``: the worth of the nodes of each span but the first, the deepest first."""
        self._price = goal.price or graph.annotated.least_price
        self.choice: Integers = np.empty(len(graph.source), np.int64)
        """The edge chosen in each group below the start's own, or :data:`END` or :data:`NOTHING`. Other items mean nothing."""
        self._ties_remain = False
        self.start = self._run(with_latency=False)
        """The best edges of the start's own groups, the choice to end left out."""
        # Latencies only break ties, and most plans have none: they are computed in a second pass if the first left ties.
        if self._ties_remain and left is None:
            self.start = self._run(with_latency=True)

    def _run(self, *, with_latency: bool) -> Best:
        below: Worth | None = None
        # From the deepest level up: when a node is processed, the best choices below it are known.
        for depth in range(len(self.spans) - 1, 0, -1):
            span = self.spans[depth]
            best = self._best_edges(depth, below, with_latency)
            below = self._of_nodes(span, best, with_latency)
            if self.left is not None:
                self.below.append(below)
        return self._best_edges(0, below, with_latency)

    def _best_edges(self, depth: int, below: Worth | None, with_latency: bool) -> Best:
        """Return the best edge of each branch at the nodes of the level ``depth``, an index into ``spans``.

        Args:
            depth: The level's index.
            below: The values of the next level's nodes under the best plan; None for the last level.
            with_latency: Whether to compute the worst-case latency, too.
        """
        graph, span = self.graph, self.spans[depth]
        low, high = span.edges
        if low == high or below is None:
            return _nothing((*self._grid, span.groups[1] - span.groups[0]), with_latency)
        # `below` is ordered by node. Edges of a merged loop share targets, so the worth is fetched edge by edge; in a tree the
        # order is the same and nothing is copied.
        at = graph.of_targets(span, self.spans[depth + 1])
        if at is not None:
            below = below.take(at)
        if self.left is not None:
            # On the grid an edge's value is first averaged over its random seconds, then shifted by what it uses for certain:
            # only after both does it refer to what is left *before* the edge.
            left, edges = self.left, slice(low, high)
            below = over_times(below, left, edges).each(lambda values: left.shifted(values, edges))
        # Accuracy needs no addend: an edge itself answers nothing, only its target does. Dollars and seconds belong to the
        # edge.
        longest = None if below.longest_s is None else below.longest_s + graph.latency_s[low:high]
        worth = Worth(below.accuracy, below.cost_usd + graph.cost_usd[low:high], below.lost, longest)
        best = self.best_of(span, worth, None if self._admitted is None else self._admitted[depth])
        self._ties_remain |= best.has_ties and not with_latency
        return best

    def best_of(self, span: Span, worth: Worth, admitted: BoolArray | None) -> Best:
        """Return the best edge of each branch (group) of a level, given the value of following each edge."""
        low, high = span.edges
        # A group is a stage that comes next; its edges are the models. The plan picks one edge per group, independently of
        # other groups, so the induction may go level by level.
        starts = self.graph.first_edge[span.groups[0] : span.groups[1]] - low
        grid, size = worth.accuracy.shape[:-1], worth.accuracy.size
        shape = (*grid, len(starts))
        # One search over all points of the grid at once: groups are repeated for each point, with offsets into the flat arrays.
        if grid:
            starts = np.add.outer(np.arange(0, size, high - low), starts).reshape(-1)
            admitted = None if admitted is None else admitted.reshape(-1)
        found = _Search(starts, size, self.graph.width(span)).best(self._keys(worth), admitted)
        items = found.items.reshape(shape) if grid else found.items
        edges = items % (high - low) + low if grid else items + low
        if not found.has_empty:
            return Best(edges, worth.picked(items), found.ties_remain)
        return Best(np.where(items < 0, NOTHING, edges), worth.picked(np.maximum(items, 0)), found.ties_remain)

    def _keys(self, worth: Worth) -> list[Callable[[], FloatArray]]:
        """Return one function for each quantity by which edges are compared, the most important first.

        A function returns the quantity for all edges; larger is better.
        """
        goal, lost, longest_s = self.goal, worth.lost, worth.longest_s
        keys: list[Callable[[], FloatArray]] = []
        if goal.late is not None:
            keys.append(lambda: self._value(worth))
        elif lost is not None and (goal.answers_first or goal.target == "cost"):
            keys.append(lambda: -lost)
        if goal.target == "cost":
            keys += [lambda: -worth.cost_usd, lambda: worth.accuracy]
        else:
            if self._price:
                keys.append(lambda: worth.accuracy - self._price * worth.cost_usd)
            keys += [lambda: worth.accuracy, lambda: -worth.cost_usd]
        if longest_s is not None:
            keys.append(lambda: -longest_s)
        return keys if worth.accuracy.ndim == 1 else [lambda key=key: key().reshape(-1) for key in keys]  # type: ignore[misc]

    def _of_nodes(self, span: Span, best: Best, with_latency: bool) -> Worth:
        """Return the expected accuracy and cost of the best plan from each node of a level.

        The plan follows the best edge of each branch, or ends the request there if that is better. ``with_latency`` adds the
        worst-case latency.
        """
        graph, groups = self.graph, slice(*span.groups)
        right = self._on_grid(graph.ended_right[slice(*span.nodes)])
        if span.groups[0] == span.groups[1]:
            zeros = np.zeros(right.shape)
            none = np.zeros((*self._grid, 0), np.bool_)
            return Worth(right, zeros, self._lost(span, None, zeros[..., :0], none, none), zeros if with_latency else None)
        arm = graph.arm[groups]
        nothing = best.edge == NOTHING
        # If nothing is admitted but the request has an answer, it ends with it: a cap gives up calls, not answers.
        ends = graph.source_may_end[groups] & (nothing | self.prefers_to_end(graph.chance_right[groups], best.worth))
        runs = ~(ends | nothing)
        if self.left is None:
            choice = best.edge.copy()
            choice[ends] = END
            self.choice[groups] = choice
        # Values are conditional on reaching the node; `arm` is the probability that the application takes this branch from
        # here.
        going_on = runs * arm
        longest = None
        # The longest history is a maximum over the possible branches, not a mean, since a deadline has to hold for it.
        if with_latency and best.worth.longest_s is not None:
            longest = self._per_node(span, (going_on > 0.0) * best.worth.longest_s, np.maximum)
        return Worth(
            right + self._sums(span, ends * graph.right[groups] + going_on * best.worth.accuracy),
            self._sums(span, going_on * best.worth.cost_usd),
            self._lost(span, best.worth.lost, arm, ends, nothing & ~ends),
            longest,
        )

    def prefers_to_end(self, right: FloatArray, on: Worth) -> BoolArray:
        """Return, for each node or branch, whether ending the request there is at least as good as continuing.

        ``right`` is the probability that the answer at the end is correct, ``on`` the accuracy and cost of continuing.
        """
        goal = self.goal
        if goal.late is not None:
            return np.asarray(self._value(Worth(right, np.zeros(right.shape), None, None)) >= self._value(on))
        if goal.target == "cost":
            # The cheapest plan pays for nothing that a floor does not require; among free ways it takes the more accurate.
            better: BoolArray = (on.cost_usd > 0.0) | (right >= on.accuracy)
        elif self._price:
            value = on.accuracy - self._price * on.cost_usd
            better = (right > value) | ((right == value) & (right >= on.accuracy))
        else:
            better = right >= on.accuracy
        if on.lost is not None and (goal.answers_first or goal.target == "cost"):
            better = better | (on.lost > 0.0)
        return better

    def _value(self, worth: Worth) -> FloatArray:
        """Return the value of each of the expected results ``worth``, by which plans are compared; larger is better.

        It is the expected accuracy (0 if the goal is to minimize cost) minus price times cost, minus a penalty for the
        probability of :data:`NOTHING` (a late answer or no answer). Used if the goal has such a penalty.
        """
        accuracy = 0.0 if self.goal.target == "cost" else worth.accuracy
        late = 0.0 if worth.lost is None else (self.goal.late or 0.0) * worth.lost
        return np.asarray(accuracy - self._price * worth.cost_usd - late)

    def _lost(
        self, span: Span, below: FloatArray | None, arm: FloatArray, ends: BoolArray, nothing: BoolArray
    ) -> FloatArray | None:
        """Return, for each node of a level, P(a request at the node comes to a stage that no model may run).

        None if it is 0 at every node.

        Args:
            span: The level of the nodes.
            below: The same probability after the best edge of each branch; None if it is 0.
            arm: The probability of each branch, given that the request is at the branch's node.
            ends: Whether the request ends on each branch.
            nothing: Whether each branch has no admitted edge.
        """
        own = self.graph.lost[slice(*span.nodes)]
        if below is None and not nothing.any():
            return self._on_grid(own) if self.graph.loses and own.any() else None
        onward = np.zeros(nothing.shape) if below is None else arm * below
        return np.asarray(own + self._sums(span, np.where(ends, 0.0, np.where(nothing, arm, onward))))

    def _on_grid(self, of_nodes: FloatArray) -> FloatArray:
        return np.broadcast_to(of_nodes, (*self._grid, len(of_nodes))) if self._grid else of_nodes

    def _sums(self, span: Span, of_groups: FloatArray) -> FloatArray:
        """Return for each node of the level the sum of ``of_groups`` over the node's branches."""
        return self._per_node(span, of_groups, np.add)

    def _per_node(self, span: Span, of_groups: FloatArray, combine: np.ufunc) -> FloatArray:
        low, high = span.nodes
        shape, arms = (*of_groups.shape[:-1], high - low), self.graph.arms(span)
        if not of_groups.size:
            return np.zeros(shape)
        if arms == 1:
            return of_groups
        if arms:
            return _by_columns(of_groups, arms, combine).reshape(shape)
        starts = self.graph.first_group[low : high + 1] - span.groups[0]
        has_groups = starts[1:] > starts[:-1]
        totals = np.zeros(shape)
        totals[..., has_groups] = combine.reduceat(of_groups, starts[:-1][has_groups], axis=-1)
        return totals


def over_times(after: Worth, left: LeftGrid, edges: Integers | slice) -> Worth:
    """Return the value of following each edge, averaged over the random time of the edge's call.

    If times are not random, return ``after`` unchanged.
    """
    if left.chance_axis is None:
        return after
    in_time = left.in_time(edges)
    found, late = after.each(lambda values: left.expected(values, in_time)), left.late(in_time)
    return found._replace(lost=np.broadcast_to(late, found.accuracy.shape) if found.lost is None else found.lost + late)


def _nothing(shape: tuple[int, ...], with_latency: bool) -> Best:
    zeros = np.zeros(shape)
    return Best(np.full(shape, NOTHING), Worth(zeros, zeros, None, zeros if with_latency else None))


class _Found(NamedTuple):
    """The result of a search for the best item of each group.

    Attributes:
        items: The index of each group's best item; -1 if the group has no admitted item.
        has_empty: Whether some group has no admitted item.
        ties_remain: Whether some group's best items are equal in every key.
    """

    items: Integers
    has_empty: bool
    ties_remain: bool


class _Search:
    """Finds the best item of each group, where a group is a range of neighbouring items.

    Args:
        starts: The index of each group's first item.
        size: Number of items.
        width: Number of items of every group; 0 if groups differ in size.
    """

    def __init__(self, starts: Integers, size: int, width: int) -> None:
        self._starts, self._size, self._width = starts, size, width

    def best(self, keys: Sequence[Callable[[], FloatArray]], admitted: BoolArray | None) -> _Found:
        """Return the index of the best admitted item (such as an edge) of each group.

        Items are compared by the values that the first of ``keys`` returns. The next keys decide ties, and finally the order of
        the items. ``admitted`` is a mask of the items; None admits all.
        """
        left = admitted
        alive = count = len(self._starts)
        items: Integers = np.empty(0, np.intp)
        # Each key only decides among the items that tied on all keys before. One key is usually enough, so later ones are only
        # computed if needed: they are functions, not arrays.
        for turn, key in enumerate(keys):
            values = key()
            if left is not None:
                values = values - _FAR * ~left
            best = self._highest(values)
            # Items that are not admitted stay in the arrays, far below the others: removing them would cost more than comparing
            # them.
            if left is not None and turn == 0:
                alive = int(np.count_nonzero(best > -_FAR / 2))
            tied = values == self._spread(best)
            left = tied if left is None else tied & left
            items = np.flatnonzero(left)
            if len(items) == alive:
                break
        if len(items) == alive == count:
            return _Found(items, False, False)
        chosen = np.full(count, -1)
        group = items // self._width if self._width else np.searchsorted(self._starts, items, side="right") - 1
        # Written backwards, so that the first of equal items remains: ties go to trie order on every machine.
        chosen[group[::-1]] = items[::-1]
        return _Found(chosen, alive < count, len(items) > alive)

    def _highest(self, values: FloatArray) -> FloatArray:
        if self._width:
            return _by_columns(values, self._width, np.maximum)
        return np.asarray(np.maximum.reduceat(values, self._starts))

    def _spread(self, best: FloatArray) -> FloatArray:
        return np.repeat(best, self._width or np.diff(self._starts, append=self._size))


def _by_columns(values: FloatArray, width: int, combine: np.ufunc) -> FloatArray:
    """Combine every ``width`` consecutive values into one with the ufunc ``combine``, and return the results.

    This is faster than ``reduceat`` for small groups.
    """
    rows = values.reshape(-1, width)
    found = rows[:, 0].copy()
    for column in range(1, width):
        combine(found, rows[:, column], out=found)
    return found
