"""The decision graph of a trie: its nodes by level and, for each node and branch, the models that may run next.

A node stands for a history: the stages and models so far. After it, the application takes one of several branches (the
stage that comes next), or its own check ends the request; then the plan runs one of the branch's models, or ends the
request. All numbers are conditional on the request having reached the node, so a graph with merged histories has the same
form as a tree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray, FloatArray, Integers

END = -1
"""The choice to end the request."""
NOTHING = -2
"""The choice if no model is admitted and there is no answer to end with."""
_ROUNDING = 1e-9
"""If less than this probability is missing from a node's branches, it is considered rounding."""


class Span(NamedTuple):
    """The part of one level that can be reached from a given position: ranges of nodes, groups of edges, and edges.

    Each range is a pair (first index, one past the last index).

    Attributes:
        nodes: A range of positions on the level.
        groups: The groups of edges (of one source and stage) that leave these positions.
        edges: The edges of these groups.
    """

    nodes: tuple[int, int]
    groups: tuple[int, int]
    edges: tuple[int, int]


class PositionRates(NamedTuple):
    """The probabilities from which :meth:`DecisionGraph.with_rates` makes a graph: one array element per position or group.

    A position is a node's index in the graph; a group has the edges of one source position and stage.

    Attributes:
        success: P(the answer is correct | the position is reached), by position.
        stop: P(the request ends there | the position is reached), by position.
        stop_success: P(the request ends there with a correct answer | the position is reached), by position.
        arm: P(the group's stage comes next | its source is reached), by group.
        arm_right: P(the group's stage comes next and the answer so far is correct | its source is reached), by group.
    """

    success: FloatArray
    stop: FloatArray
    stop_success: FloatArray
    arm: FloatArray
    arm_right: FloatArray


@dataclass(frozen=True, eq=False)
class DecisionGraph:
    """The graph over which plans are computed: nodes level by level, edges (source, stage, model) -> target, and groups of
    edges with the same source and stage.

    Positions number the nodes level by level; the root is position 0. Groups are sorted by source and, within a source, in
    the order of its branches; edges are sorted by group and, within a group, in the order of the stage's models.

    - ``nodes``: the trie's node at each position. ``levels``: where each level begins, and the number of positions at the
      end.
    - ``first_group``: the index of each position's first group; the last item is the number of groups. ``first_edge``: the
      index of each group's first edge; the last item is the number of edges. ``source``, ``stage``: of each group. ``target``,
      ``model``: of each edge.
    - ``arm``: P(the group's stage comes next | its source is reached). ``right``: P(the group's stage comes next and the
      answer so far is correct | its source is reached).
    - ``ended_right``: P(the workflow ends at the position with a correct answer | it is reached). ``lost``: P(the workflow
      goes from the position to a stage that the trie lacks, and has no answer yet | the position is reached).
    - ``may_end``: whether a plan may end at the position.
    - ``cost_usd``, ``latency_s``: of each edge's invocation at zero load, given that its source and stage are reached.
    - ``slot``: for each group, the index of its slot, from 0. A fixed plan has one model for each slot; see
      :meth:`AnnotatedTrie.slots`. ``n_slots``: the number of slots.
    - ``checked``: for each group, whether the workflow's own check has passed the answer before it, so that a fixed plan ends
      there.
    """

    annotated: AnnotatedTrie
    nodes: Integers
    levels: tuple[int, ...]
    first_group: Integers
    first_edge: Integers
    source: Integers
    stage: Integers
    target: Integers
    model: Integers
    arm: FloatArray
    right: FloatArray
    ended_right: FloatArray
    lost: FloatArray
    may_end: BoolArray
    cost_usd: FloatArray
    latency_s: FloatArray
    slot: Integers
    n_slots: int
    checked: BoolArray
    kept: dict[object, Any] = field(default_factory=dict, init=False, repr=False)
    """Cache of results that take long to compute from this graph, by a key for each."""

    @staticmethod
    def of(annotated: AnnotatedTrie, ends: BoolArray | None = None) -> DecisionGraph:
        """Return the decision graph of a trie: a :class:`TreeGraph` if the trie is a tree.

        Args:
            annotated: The trie with its estimates.
            ends: For each node of the trie, whether plans may end there; None allows every answerable node.
        """
        trie = annotated.trie
        nodes, to_node = np.concatenate(trie.levels), trie.target
        position = np.empty(len(trie), np.int64)
        position[nodes] = np.arange(len(nodes))
        target, first = position[to_node], np.flatnonzero(trie.begins_arm)
        source, stage = position[trie.source[first]], trie.stage[to_node[first]]
        arms, rights = (of_edges[first] for of_edges in annotated.arms_by_edge)
        rates = PositionRates(annotated.success[nodes], annotated.stop[nodes], annotated.stop_success[nodes], arms, rights)
        may_end = (trie.answerable if ends is None else trie.answerable & ends)[nodes]
        slot, n_slots = annotated.slots(stage, trie.depth[nodes[source]])
        return (DecisionGraph if trie.is_merged else TreeGraph)(
            annotated=annotated,
            nodes=nodes,
            levels=(0, *np.cumsum([len(level) for level in trie.levels]).tolist()),
            first_group=np.searchsorted(source, np.arange(len(nodes) + 1)),
            first_edge=np.append(first, len(target)),
            source=source,
            stage=stage,
            target=target,
            model=trie.model[to_node],
            may_end=may_end,
            **_chances(rates, source, may_end),
            cost_usd=annotated.cost_usd[to_node],
            latency_s=annotated.latency_s[to_node],
            slot=slot,
            n_slots=n_slots,
            checked=annotated.outcomes.passed[stage],
        )

    @cached_property
    def position(self) -> Integers:
        """For each node of the trie, its position (index) in the graph."""
        position = np.empty(len(self.nodes), np.int64)
        position[self.nodes] = np.arange(len(self.nodes))
        return position

    @cached_property
    def chance_right(self) -> FloatArray:
        """For each branch, P(the answer so far is correct | the branch is taken). A branch leads from one position to one
        stage.

        A branch that is never taken gets the accuracy over the other branches of its position.
        """
        going, right = self._per_source(self.arm), self._per_source(self.right)
        usual = np.divide(right, going, out=np.zeros(len(going)), where=going > 0.0)
        return np.divide(self.right, self.arm, out=usual, where=self.arm > 0.0)

    @cached_property
    def right_by_fit(self) -> tuple[FloatArray, FloatArray] | None:
        """Two arrays of probabilities of correct answers, given the models so far, for each resampling of the requests.

        The first array has P(the request ends at the position with a correct answer), shape (positions, resamplings). The
        second has P(the branch comes next and the answer so far is correct) for the branch of each group of edges, shape
        (groups, resamplings). None if the trie's branches are not outcomes of calls, or with fewer than two resamplings.
        """
        outcomes = self.annotated.outcomes
        if outcomes.spread.shape[1] < 2:
            return None
        at, n_stages = self.position[outcomes.node], len(self.annotated.trie.stages)
        ends = outcomes.arm < 0
        ended = np.zeros((len(self.nodes), outcomes.spread.shape[1]))
        for fit, spread in enumerate(outcomes.spread.T):
            ended[:, fit] = np.bincount(at[ends], spread[ends], len(self.nodes))
        key = self.source * n_stages + self.stage
        order = np.argsort(key)
        found = np.searchsorted(key[order], at[~ends] * n_stages + outcomes.arm[~ends])
        right = np.zeros((len(key), outcomes.spread.shape[1]))
        right[order[found]] = outcomes.spread[~ends]
        return ended, right

    @cached_property
    def cost_by_fit(self) -> FloatArray | None:
        """The expected cost, in dollars, of each position's call, estimated once per resampling of the requests.

        The shape is (positions, resamplings). A cost is the call's dollars times P(the call is made | the models up to it).
        None without signals, or with fewer than two resamplings.
        """
        outcomes = self.annotated.outcomes
        if outcomes.cost_spread.shape[1] < 2:
            return None
        return np.asarray(outcomes.cost_spread[self.nodes], np.float64)

    # -- requests of each difficulty -----------------------------------------------------------------------------

    @cached_property
    def mixture(self) -> tuple[tuple[float, Self], ...]:
        """For each difficulty of requests: a pair (share of the requests, graph with the probabilities of these requests).

        If difficulties are unknown, the only pair is (1, this graph). The value of a plan is the mean over the difficulties,
        because plans do not know a request's difficulty.
        """
        known = self.annotated.difficulty
        if known is None:
            return ((1.0, self),)
        found = []
        for at, share in enumerate(known.weight.tolist()):
            arms = (of_arms[:, at] for of_arms in known.arms_at(self.nodes[self.source]))
            success, stop, both = (rates[self.nodes, at] for rates in (known.success, known.stop, known.stop_success))
            found.append((share, self.with_rates(PositionRates(success, stop, both, *arms))))
        return tuple(found)

    def with_rates(self, rates: PositionRates) -> Self:
        """Return a copy of the graph in which all probabilities are computed from ``rates``."""
        chances: dict[str, Any] = _chances(rates, self.source, self.may_end)
        return replace(self, **chances)

    def for_mass(self, mass: FloatArray) -> Self:
        """Return a copy of the graph with probabilities for the mix of easy and hard requests at each position under a plan.

        The probabilities at a position are means over the requests that reach it under the plan. Positions that the plan does
        not reach keep their probabilities. If rates by difficulty are unknown, the graph itself is returned.

        Args:
            mass: P(the plan reaches the position and the request has the difficulty), shape (positions, difficulties).
        """
        annotated, known = self.annotated, self.annotated.difficulty
        if known is None:
            return self
        reach = mass.sum(axis=1)
        is_reached = reach > 0.0

        def own(of_nodes: FloatArray, usual: FloatArray) -> FloatArray:
            mean = (mass * of_nodes[self.nodes]).sum(axis=1) / np.where(is_reached, reach, 1.0)
            return np.where(is_reached, mean, usual[self.nodes])

        success, stop, both = (
            own(getattr(known, name), getattr(annotated, name)) for name in ("success", "stop", "stop_success")
        )
        share = mass[self.source] / np.where(is_reached, reach, 1.0)[self.source, None]
        arm, right = (
            np.where(is_reached[self.source], (share * of_arms).sum(axis=1), usual)
            for of_arms, usual in zip(known.arms_at(self.nodes[self.source]), (self.arm, self.right), strict=True)
        )
        return self.with_rates(PositionRates(success, stop, both, arm, right))

    # -- its parts -----------------------------------------------------------------------------------------------

    @cached_property
    def group_of_edge(self) -> Integers:
        """For each edge, the index of its group (the edges with the same source and stage)."""
        return np.repeat(np.arange(len(self.source)), np.diff(self.first_edge))

    @cached_property
    def loses(self) -> bool:
        """Whether a request may reach, before it has an answer, a stage that the trie lacks."""
        return bool(self.lost.any())

    @cached_property
    def source_may_end(self) -> BoolArray:
        """For each group of edges (from one node to one stage), whether a plan may end at that node."""
        return np.asarray(self.may_end[self.source])

    def groups_at(self, position: int, stages: Collection[str] | None = None) -> list[int]:
        """Return the indices of the groups of edges that leave a position: one group for each stage that may come next.

        With ``stages``, only the groups of these stages.
        """
        groups = range(int(self.first_group[position]), int(self.first_group[position + 1]))
        names = self.annotated.trie.stages
        return [group for group in groups if stages is None or names[self.stage[group]] in stages]

    def error_weight(self, reach: FloatArray, is_end: BoolArray) -> FloatArray:
        """Return the weights with which the positions' standard errors add up to the standard error of a plan's accuracy.

        The weight is ``reach``, the probability that the plan reaches the position. :class:`TreeGraph` uses other weights: 1
        where the plan ends (``is_end``), and 0 elsewhere.
        """
        return reach

    def joined(self, plan: Integers, at: Integers) -> tuple[Integers, Integers] | None:
        """Group histories that have the same plan and position.

        A history is a sequence of stages and models that a request may have run so far.

        Args:
            plan: The index of each history's plan, shape (histories,).
            at: Each history's position, shape (histories,).

        Returns:
            Two arrays; None if there are no histories. Always None in a tree, where no two histories share a position. The
                first array has the different pairs (plan, position) in ascending order, each as the number ``plan * number of
                positions + position``. The second has the index of each history's pair in the first array.
        """
        if not len(plan):
            return None
        key, which = np.unique(plan * len(self.nodes) + at, return_inverse=True)
        return key, which

    def width(self, span: Span) -> int:
        """Return how many edges lead from each position to each next stage, in the level that contains ``span``.

        The result is 0 if this number is not the same for all positions and next stages of the level.
        """
        return self._shapes[self.level_of(span.nodes[0])][1]

    def arms(self, span: Span) -> int:
        """Return the number of branches at each position of the level that contains ``span``; 0 if it differs between
        positions.
        """
        return self._shapes[self.level_of(span.nodes[0])][0]

    def level_of(self, position: int) -> int:
        """Return the index, counted from 0, of the level that contains a position."""
        return bisect_right(self.levels, position) - 1

    @cached_property
    def _shapes(self) -> list[tuple[int, int]]:
        """For each level, (number of groups that leave a position, number of edges in a group).

        A group has the edges from one position to one stage. A number is 0 if it differs between the positions or groups of
        the level.
        """
        found = []
        for low, high in pairwise(self.levels):
            arms = np.diff(self.first_group[low : high + 1])
            width = np.diff(self.first_edge[self.first_group[low] : self.first_group[high] + 1])
            found.append((_common(arms), _common(width)))
        return found

    def weights(self, groups: Sequence[int]) -> FloatArray:
        """Return, for each of these branches, the probability that a request takes it, given that it takes one of them.

        Each branch is given by its group of edges; all must leave the same position. If no request takes any of them, the
        values are equal.
        """
        arm = self.arm[list(groups)]
        total = float(arm.sum())
        return np.full(len(arm), 1.0 / len(arm)) if total == 0.0 else np.asarray(arm / total)

    def rights(self, groups: Sequence[int]) -> FloatArray:
        """Return, for each of these branches, P(it is taken and the answer so far is correct | one of these branches is taken).

        Each branch is given by its group of edges; all must leave the same position.
        """
        total = float(self.arm[list(groups)].sum())
        if total == 0.0:
            return np.asarray(self.weights(groups) * self.chance_right[list(groups)])
        return np.asarray(self.right[list(groups)] / total)

    def edges_of(self, group: int) -> range:
        """Return the indices of the edges of a group, which lead from one source to one stage."""
        return range(int(self.first_edge[group]), int(self.first_edge[group + 1]))

    def spans(self, position: int, groups: Sequence[int] | None = None) -> Iterator[Span]:
        """Yield, level by level, the part of the graph that can be reached from a position. It begins with the position itself.

        A group has the edges from one position to one stage. ``groups`` are the position's groups to follow, with consecutive
        indices; None means all.
        """
        low, high = position, position + 1
        while low < high:
            if groups:
                ends, groups = (groups[0], groups[-1] + 1), None
            else:
                ends = int(self.first_group[low]), int(self.first_group[high])
            edges = int(self.first_edge[ends[0]]), int(self.first_edge[ends[1]])
            yield Span((low, high), ends, edges)
            if edges[0] == edges[1]:
                return
            low, high = self._led_to(low, edges)

    def _led_to(self, position: int, edges: tuple[int, int]) -> tuple[int, int]:
        """Return a range of positions on the next level that contains the targets of all ``edges``, and possibly others.

        Both the result and ``edges``, a range of edge indices, are pairs (first, one past the last). ``position`` is any
        position on the level that these edges leave.
        """
        level = self.level_of(position) + 1
        return self.levels[level], self.levels[level + 1]

    def of_targets(self, span: Span, below: Span) -> Integers | None:
        """Return, for each edge of ``span``, the index of its target among the positions of ``below``, the next level's span.

        None in a tree, in which the edges and their targets have the same order.
        """
        return np.asarray(self.target[slice(*span.edges)] - below.nodes[0])

    def _per_source(self, values: FloatArray) -> FloatArray:
        """Return, for each branch, the sum of ``values`` over all branches that leave the same node; shape (branches,)."""
        return np.asarray(np.bincount(self.source, values, len(self.nodes))[self.source])


class TreeGraph(DecisionGraph):
    """The graph of a tree: each position except the root is the target of one edge; edge ``e`` leads to position ``e + 1``."""

    def error_weight(self, reach: FloatArray, is_end: BoolArray) -> FloatArray:
        """Return the weights with which the positions' standard errors add up to the standard error of a plan's accuracy.

        The weight is 1 where the plan ends and 0 elsewhere: in a tree, the error at an end is that of its whole path.
        """
        return np.where(is_end, 1.0, 0.0)

    def joined(self, plan: Integers, at: Integers) -> None:
        """Return None, because histories never share a position; see :meth:`DecisionGraph.joined`."""

    def of_targets(self, span: Span, below: Span) -> None:
        """Return None: in a tree, edges and their targets have the same order; see :meth:`DecisionGraph.of_targets`."""

    def _led_to(self, position: int, edges: tuple[int, int]) -> tuple[int, int]:
        return edges[0] + 1, edges[1] + 1


def _common(counts: Integers) -> int:
    """Return the value that all counts have; 0 if they differ."""
    return int(counts[0]) if len(counts) and (counts == counts[0]).all() else 0


def _chances(rates: PositionRates, source: Integers, may_end: BoolArray) -> dict[str, FloatArray]:
    """Return four arrays of a :class:`DecisionGraph`, which explains them: ``arm``, ``right``, ``ended_right`` and ``lost``.

    Args:
        rates: The rates of the graph's positions and of its groups of edges. A group has all edges from one position to one
            stage.
        source: The position that the edges of each group leave.
        may_end: Whether a plan may end at each position.
    """
    success, stop, stop_success, arm, right = rates
    rest = 1.0 - stop - np.bincount(source, arm, len(stop))
    rest_right = success - stop_success - np.bincount(source, right, len(stop))
    is_open = (rest > _ROUNDING) | (np.bincount(source, minlength=len(stop)) == 0)
    return {
        "arm": arm,
        "right": right,
        "ended_right": stop_success + np.where(is_open & may_end, rest_right, 0.0),
        "lost": np.where(is_open & ~may_end, np.maximum(rest, 0.0), 0.0),
    }
