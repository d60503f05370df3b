"""The next step of one request on a merged trie, given what it has left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from vinelm.controller.planning.merged.graph import Ints, MergedGraph
from vinelm.controller.planning.merged.policies import MergedPolicy
from vinelm.controller.planning.merged.values import END, NOTHING, Resource, Values, at_left
from vinelm.trie.arrays import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class StepOptions:
    """What may run next, and what it leads to.

    Args:
        graph: the graph.
        values: of the nodes, over the grids of ``resources``.
        resources: bounds of the request itself.
        price: of accuracy, as in ``values``.
        weight: of accuracy.
        fastest: seconds of each edge if the next answer has to come as early as possible; None: worth decides.
        without: models that must not run next.
        may_stop: whether the request may end where it is.
    """

    graph: MergedGraph
    values: Values
    resources: Sequence[Resource]
    price: float
    weight: float
    fastest: Resource | None = None
    without: Collection[str] = ()
    may_stop: bool = True

    def worth(self, edges: Ints, left: Sequence[float]) -> tuple[FloatArray, FloatArray]:
        """Return (worth, dollars) of going on along edges; a worth of -inf where that is not admitted."""
        graph = self.graph
        target = graph.trie.target[edges]
        own = graph.annotated.cost_usd[target]
        if self.fastest is not None:
            value = -(self.fastest.use[edges] + self.fastest.need[target])
            cost = own
        else:
            rest = [amount - resource.use[edges] for amount, resource in zip(left, self.resources, strict=True)]
            value = at_left(self.values.value[target], self.resources, rest) - self.price * own
            cost = at_left(self.values.cost_usd[target], self.resources, rest) + own
        return np.where(self.admitted(edges, left), value, -np.inf), cost

    def admitted(self, edges: Ints, left: Sequence[float], ignored: Collection[str] = ()) -> BoolArray:
        """Return whether edges may be taken; bounds of these names are not looked at."""
        allowed = ~self.graph.barred[edges] & ~self._excluded[self.graph.trie.model[self.graph.trie.target[edges]]]
        for resource, amount in zip(self.resources, left, strict=True):
            if resource.name not in ignored:
                allowed = allowed & resource.admits(self.graph, edges, amount)
        return np.asarray(allowed)

    def best(self, arm: int, left: Sequence[float]) -> tuple[int, float]:
        """Return the best edge of an arm and its worth; :data:`NOTHING` where none is admitted."""
        edges = np.array(self.graph.edges_of(arm))
        worth, cost = self.worth(edges, left)
        best = float(worth.max())
        if best == -np.inf:
            return NOTHING, best
        tied = np.flatnonzero(worth == best)
        return int(edges[tied[np.argmin(cost[tied])]]), best

    def ending(self, arm: int) -> float:
        """Return what it is worth to end the request, given that the arm comes."""
        if self.fastest is not None:
            return 0.0
        going = float(self.graph.going[arm])
        return self.weight * float(self.graph.right[arm]) / going if going > 0.0 else 0.0

    def options(self, arm: int, left: Sequence[float]) -> list[tuple[str | None, float, float]]:
        """Return what each admitted model leads to: (model or None to end, accuracy, dollars), given that the arm comes."""
        edges = np.array(self.graph.edges_of(arm))
        worth, cost = self.worth(edges, left)
        found: list[tuple[str | None, float, float]] = []
        if self.may_stop and self.graph.ends[self.graph.arm_source[arm]]:
            going = float(self.graph.going[arm])
            found.append((None, float(self.graph.right[arm]) / going if going > 0.0 else 0.0, 0.0))
        if self.fastest is None and self.weight:
            for edge, value, usd in zip(edges, worth, cost, strict=True):
                if value > -np.inf:
                    name = self.graph.model_of(int(edge))
                    found.append((name, float(value + self.price * usd), float(usd)))
        return found

    @cached_property
    def _excluded(self) -> BoolArray:
        return np.array([name in self.without for name in self.graph.trie.models])


def next_step(
    step: StepOptions, arms: Sequence[int], left: Sequence[float], policy: MergedPolicy | None, *, is_joint: bool
) -> tuple[dict[int, int], tuple[str, ...]]:
    """Return the choice for each arm that may come next, and the bounds that it goes beyond.

    Args:
        step: what may run.
        arms: of one node; at least one.
        left: of each resource.
        policy: the plan that is followed where its choice may be taken; None: the best is chosen.
        is_joint: the request ends in all of the arms or in none, because the arm is seen only afterwards.
    """
    graph = step.graph
    can_end = step.may_stop and bool(graph.ends[graph.arm_source[arms[0]]])
    first: dict[int, int] = {}
    worth: dict[int, float] = {}
    for arm in arms:
        edge, worth[arm] = step.best(arm, left)
        planned = END if policy is None else int(policy.choice[arm])
        if policy is not None and planned >= 0 and step.admitted(np.array([planned]), left)[0]:
            edge, worth[arm] = planned, np.inf
        elif can_end and ((policy is not None and planned == END) or worth[arm] <= step.ending(arm)):
            edge = END
        first[arm] = edge
    if is_joint and can_end:
        chance = np.array([max(float(graph.going[arm]), 1e-300) for arm in arms])
        total = sum(c * max(step.best(arm, left)[1], 0.0) for c, arm in zip(chance, arms, strict=True))
        ends = total <= sum(c * step.ending(arm) for c, arm in zip(chance, arms, strict=True))
        first = {arm: END if ends or step.best(arm, left)[0] < 0 else step.best(arm, left)[0] for arm in arms}
    missed = tuple(resource.name for resource, amount in zip(step.resources, left, strict=True) if amount < 0.0)
    stuck = [arm for arm in arms if first[arm] == NOTHING]
    return (first, missed) if not stuck else _least_beyond(step, first, stuck, left)


def _least_beyond(
    step: StepOptions, first: dict[int, int], stuck: Sequence[int], left: Sequence[float]
) -> tuple[dict[int, int], tuple[str, ...]]:
    """Ignore as few bounds as possible, time before dollars, and go as little beyond the first of them as possible."""
    names = [resource.name for resource in step.resources]
    for n in range(1, len(names) + 1):
        for ignored in combinations(names, n):
            allowed = {arm: _allowed(step, arm, left, ignored) for arm in stuck}
            if all(len(edges) for edges in allowed.values()):
                resource = step.resources[names.index(ignored[0])]
                for arm, edges in allowed.items():
                    need = resource.use[edges] + resource.need[step.graph.trie.target[edges]]
                    first[arm] = int(edges[np.argmin(need)])
                return first, ignored
    return first, tuple(names)


def _allowed(step: StepOptions, arm: int, left: Sequence[float], ignored: Collection[str]) -> Ints:
    edges = np.array(step.graph.edges_of(arm))
    return np.asarray(edges[step.admitted(edges, left, ignored)])


def follow(
    step: StepOptions,
    node: int,
    first: Mapping[int, int],
    left: Sequence[float],
    policy: MergedPolicy | None = None,
) -> Ints:
    """Return what each arm below a node does for a request whose invocations use what they do on average, shape (arms,).

    Arms that such a request does not reach end it. Where it reaches a node with different amounts left, the least is taken.
    """
    graph = step.graph
    below = replace(step, without=(), may_stop=True)
    choice = np.full(graph.n_arms, END, np.int64)
    here: dict[int, list[float]] = {node: list(left)}
    while here:
        reached: dict[int, list[float]] = {}
        for at in sorted(here):
            for arm in graph.arms_of(at):
                found = first if at == node else next_step(below, [arm], here[at], policy, is_joint=False)[0]
                edge = choice[arm] = found.get(arm, END)
                if edge >= 0:
                    rest = [amount - float(r.use[edge]) for amount, r in zip(here[at], step.resources, strict=True)]
                    target = int(graph.trie.target[edge])
                    reached[target] = [min(pair) for pair in zip(rest, reached.get(target, rest), strict=True)]
        here = reached
    return choice
