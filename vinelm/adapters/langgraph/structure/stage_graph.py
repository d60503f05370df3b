"""Finds the stages that may follow each stage in a compiled graph, directly or after tools, without running anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product

from langgraph.graph import END, START

from vinelm.adapters.langgraph.structure.ways import Bound, Ways
from vinelm.errors import WorkflowError

Together = frozenset[str]
"""The names of the stages that run in one superstep, mostly a single one. The empty set stands for the end of the workflow."""
ENDED: Together = frozenset()
_MOST_WAYS = 1_000


@dataclass(slots=True)
class StageGraph:
    """The sets of stages that a graph may run together (in one superstep of LangGraph), and which sets may follow each set.

    Attributes:
        start: the supersteps that may begin a request, as sets of stages, each with the ``times=`` limits of the routes that
            lead to it.
        after: the supersteps that may follow each superstep, with the ``times=`` limits of the routes between them.
        order: the stages, in the order of the graph's nodes.
        unclear: nodes with an edge whose target is unknown, keyed by the stage that runs before this edge is taken; "" stands
            for the start.
    """

    start: dict[Together, frozenset[Bound]]
    after: dict[Together, dict[Together, frozenset[Bound]]] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    unclear: dict[str, str] = field(default_factory=dict)

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Every pair of stages in which the second may follow the first; "" stands for the start."""
        found = {("", self.sorted(first)[0]) for first in self.start if first}
        for stages, following in self.after.items():
            ordered = self.sorted(stages)
            found |= set(pairwise(ordered))
            found |= {(ordered[-1], self.sorted(then)[0]) for then in following if then}
        return found

    def sorted(self, stages: Together) -> list[str]:
        """Return the stages of one superstep as a list, in the graph's order of stages."""
        return sorted(stages, key=self.order.index)

    def reordered(self, order: Iterable[str]) -> StageGraph:
        """Return the same graph with the stages in ``order`` first, in that order, and the other stages after them."""
        return StageGraph(self.start, self.after, tuple(dict.fromkeys((*order, *self.order))), self.unclear)


class NodeGraph:
    """Computes which stages may follow each stage, from the successors of every node of a graph.

    Args:
        ways: the successors of each place: of a node, or of a stage inside a subgraph or on an edge.
    """

    def __init__(self, ways: Ways) -> None:
        self._stage_of, self._choices, self.unclear = ways.stage_of, ways.choices, ways.unclear
        self._order = tuple(dict.fromkeys(ways.stage_of.values()))

    def stage_graph(self) -> StageGraph:
        """Return the graph of the supersteps that run stages and can be reached from the start.

        Raises:
            WorkflowError: two stages run in parallel only sometimes, or there are too many combinations.
        """
        found = StageGraph(self._outcomes([START]), order=self._order)
        nodes: dict[str, list[str]] = {}
        for node, stage in self._stage_of.items():
            nodes.setdefault(stage, []).append(node)
        waiting = [stages for stages in found.start if stages]
        for stages in waiting:  # grows while it is read
            if stages in found.after:
                continue
            following = self._outcomes([node for stage in sorted(stages) for node in nodes[stage]])
            found.after[stages] = following
            waiting += [then for then in following if then]
        for stage in ("", *self._order):
            for node in self._passed([START] if not stage else nodes[stage]):
                if node in self.unclear:
                    found.unclear[stage] = node
        return found

    @property
    def side_by_side(self) -> frozenset[str]:
        """The stages that run together with other stages in some superstep."""
        found = self.stage_graph()
        return frozenset().union(*(stages for stages in (*found.start, *found.after) if len(stages) > 1))

    def arms(self, place: str) -> frozenset[str]:
        """Return the stages that a request may run next if it goes to ``place``.

        If the place runs a stage, only this stage is returned.
        """
        return frozenset(name for stages in self._outcomes_of(place, 0, frozenset()) for name, _ in stages)

    def is_clear(self, place: str) -> bool:
        """Return whether it is known which stages a request may run first after it has reached ``place``.

        It is known if no edge between ``place`` and these stages has an unknown target.
        """
        if place == END or place in self._stage_of:
            return True
        return not any(node in self.unclear for node in self._passed([place]))

    def _passed(self, nodes: Iterable[str]) -> Iterator[str]:
        """Yield the given nodes, and the nodes without a stage that a request may reach from them before its next stage."""
        waiting = list(nodes)
        for node in waiting:  # grows while it is read
            yield node
            targets = [target for choice in self._choices.get(node, ()) for target in choice]
            waiting += [t for t in targets if t not in waiting and t != END and t not in self._stage_of]

    def _outcomes(self, nodes: Collection[str]) -> dict[Together, frozenset[Bound]]:
        """Return the sets of stages that may run together next, after the ``nodes``, which also run together.

        Each set is mapped to the ``times=`` limits of the routes that lead to it. If several ways through the graph lead to a
        set, only the limits that are on all of them apply.
        """
        sets = [self._behind(node, 0, frozenset()) for node in nodes]
        if len(nodes) > 1 and len({self._stage_of.get(node) for node in nodes}) == 1:  # one stage in several nodes: one runs
            merged: dict[_Timed, frozenset[Bound]] = {}
            for one in sets:
                _add(merged, one)
            sets = [merged]
        found: dict[Together, frozenset[Bound]] = {}
        for timed, bounds in _together(sets).items():
            stages = frozenset(name for name, _ in timed)
            if len(stages) > 1 and len({steps for _, steps in timed}) > 1:
                names = ", ".join(sorted(stages))
                raise WorkflowError(
                    f"the stages {names} start together but not in one superstep: let them begin at once, or give the template"
                )
            found[stages] = found[stages] & bounds if stages in found else bounds
        return found

    def _behind(self, node: str, steps: int, seen: frozenset[str]) -> dict[_Timed, frozenset[Bound]]:
        """Return the sets of stages that may start together after a place of the graph, as the keys of a dictionary.

        A place is a node, or a stage inside a subgraph or on an edge. A request takes all edges of the place, and each edge
        leads to one of its targets. So a set has the stages that start after one target of each edge, each with the number
        of places passed before it. The values are the limits ``times=`` of the routes that lead to the stages of a set.

        Args:
            node: the place.
            steps: the number of places without a stage that were passed so far, including ``node``.
            seen: the places passed before ``node``.
        """
        sets: list[dict[_Timed, frozenset[Bound]]] = []
        for choice in self._choices.get(node, ()):
            ways: dict[_Timed, frozenset[Bound]] = {}
            for target, bounds in choice.items():
                reached = self._outcomes_of(target, steps, seen | {node})
                _add(ways, {timed: passed | bounds for timed, passed in reached.items()})
            sets.append(ways)
        return _together(sets)

    def _outcomes_of(self, target: str, steps: int, seen: frozenset[str]) -> dict[_Timed, frozenset[Bound]]:
        if target in self._stage_of:
            return {frozenset(((self._stage_of[target], steps),)): frozenset()}
        if target == END:
            return {frozenset(): frozenset()}
        if target in seen:  # a loop of tools leads nowhere new
            return {}
        return self._behind(target, steps + 1, seen)


_Timed = frozenset[tuple[str, int]]
"""Stages that start together, each with the number of tools before it."""


def _add(found: dict[_Timed, frozenset[Bound]], more: Mapping[_Timed, frozenset[Bound]]) -> None:
    for timed, bounds in more.items():  # without a bound on every way there is no bound
        found[timed] = found[timed] & bounds if timed in found else bounds


def _together(sets: Collection[Mapping[_Timed, frozenset[Bound]]]) -> dict[_Timed, frozenset[Bound]]:
    """Return which sets of stages may start together if a request takes several edges at once.

    Each mapping in ``sets`` belongs to one edge, or to one of several nodes that the request leaves. Its keys are the sets of
    stages that may start then; its values are the ``times=`` limits on the way. For each selection of one key from each
    mapping, the result has one item: the union of the selected keys, with the union of their limits. If several selections
    give the same stages, only limits common to all of them remain. A key has pairs (stage, number of nodes passed before it);
    if a stage is in several keys, the smallest number counts.

    Raises:
        WorkflowError: there are too many combinations.
    """
    found: dict[_Timed, frozenset[Bound]] = {}
    n_ways = 1
    for one in sets:
        n_ways *= max(len(one), 1)
    if n_ways > _MOST_WAYS:
        raise WorkflowError(f"the graph has more than {_MOST_WAYS:,} ways between two stages: give the template")
    for combination in product(*(one.items() for one in sets)):
        merged: dict[str, int] = {}
        for timed, _ in combination:
            merged |= {name: min(steps, merged.get(name, steps)) for name, steps in timed}
        _add(found, {frozenset(merged.items()): frozenset().union(*(bounds for _, bounds in combination))})
    return found
