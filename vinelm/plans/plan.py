"""A contingent plan: a model for each branch that the application may take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, islice
from typing import Any, NamedTuple

import numpy as np

from vinelm.plans.expected import Errors, Figures
from vinelm.plans.promise import contingent_standard_error, error_between_fits, merged_standard_error
from vinelm.trie.arrays import BoolArray, FloatArray, Integers
from vinelm.trie.decision_graph import END, NOTHING, DecisionGraph

_DEEPEST = 10_000
"""How many steps deep :attr:`Plan.steps` shows a plan."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A contingent plan: which model to run after each history of a request and each branch that the application may
    take.

    The graph has a position for each history and, after the position, a group of edges for each branch. Each edge of a
    group stands for a model. The plan's choice for a group is the index of one of its edges, or a negative number if
    the request ends. The figures apply to requests that continue from ``start``; if this is the root, to every request.
    They are computed on first use.

    If the trie has separate rates for easier and harder requests, accuracy and cost from the root take into account how
    difficult the requests at each node are under the plan. Otherwise the requests at each node are assumed to be like
    the profiled requests.

    If histories are merged and a limit holds for each request, the plan's choice at a node also depends on the time and
    money left. :attr:`choice` then holds the choices for a request whose calls have average cost and latency.

    Args:
        start: The position that the plan begins at; 0 is the root.
        first: The choice for each branch at the start, keyed by the index of the branch's group.
        below: The choice for each group after the start, as an array over all groups; only groups that a request may
            reach under the plan are read. May be a function that returns the array, called when a figure is first read.
    """

    graph: DecisionGraph
    start: int
    first: Mapping[int, int]
    below: Integers | Callable[[], Integers]

    @cached_property
    def choice(self) -> Integers:
        """The plan's choice for each branch of the graph, as an array: the index of an edge, or a negative number to end.

        Elements for the branches that leave :attr:`start` are not used; :attr:`first` has the choices for these branches.
        """
        return self.below() if callable(self.below) else self.below

    # -- what it runs ------------------------------------------------------------------------------------------

    @property
    def runs(self) -> BoolArray:
        """A mask over the trie's nodes, the root first: whether the plan, from its start on, may run the node's call."""
        runs = np.zeros(len(self.graph.nodes), np.bool_)
        for at, _ in self._levels[1:]:
            runs[self.graph.nodes[at]] = True
        return runs

    def next_model(self, node: int, stage: str) -> str | None:
        """Return the model that runs if the application continues from ``node`` to ``stage``; None if the request ends.

        Raises ``KeyError`` if the trie has no such stage after the node.
        """
        for group in self.graph.groups_at(int(self.graph.position[node]), (stage,)):
            edge = self.chosen(group)
            return None if edge < 0 else self._model(edge)
        raise KeyError(stage)

    def chosen(self, group: int) -> int:
        """Return the choice for the group with index ``group``: the index of an edge, or a negative number if the
        request ends or no model meets the limits.
        """
        return self.first[group] if group in self.first else int(self.choice[group])

    def is_same_as(self, other: Plan) -> bool:
        """Return whether another plan over the same graph makes the same choice after every possible history."""
        pairs = zip(self._arms, other._arms, strict=False)
        return len(self._arms) == len(other._arms) and all(
            np.array_equal(one.group, same.group) and np.array_equal(one.edge, same.edge) for one, same in pairs
        )

    # -- its predictions ---------------------------------------------------------------------------------------

    @cached_property
    def accuracy(self) -> float:
        """Expected accuracy of a request that continues from the plan's start, the position where the plan begins."""
        return sum(share * part._accuracy() for share, part in self._parts)

    @cached_property
    def figures(self) -> Figures:
        """The expected accuracy, cost and latency of a request that continues from the plan's start."""
        return Figures(self.accuracy, self.cost_usd, self.latency_s, self.expected_latency_s)

    @cached_property
    def errors(self) -> Errors:
        """The standard errors of accuracy and cost."""
        return Errors(self.standard_error, self.cost_error_usd, self.right_by_fit)

    @property
    def promised_accuracy(self) -> float:
        """Expected accuracy under the assumption that the requests at every node are like the profiled requests."""
        return self._accuracy()

    @property
    def cost_usd(self) -> float:
        """Expected cost from the plan's start on, in dollars. If the start is the root, costs before the first call are
        included.
        """
        total = self._at_root(self.graph.annotated.cost_usd)
        return total + sum(share * part._expected(self.graph.cost_usd) for share, part in self._parts)

    @property
    def expected_latency_s(self) -> float:
        """Expected seconds from the plan's start on if no server is busy.

        The requests at every node are assumed to be like the profiled requests.
        """
        return self._at_root(self.graph.annotated.latency_s) + self._expected(self.graph.latency_s)

    @cached_property
    def latency_s(self) -> float:
        """Seconds of the slowest possible sequence of calls from the plan's start on, if no server is busy."""
        return self.longest(self.graph.latency_s) + self._at_root(self.graph.annotated.latency_s)

    def longest(self, of_edges: FloatArray) -> float:
        """Return the largest possible sum of an amount, such as seconds, over a request's calls after the plan's start.

        ``of_edges`` has the amount of each edge of the graph. An edge stands for a call of one model.
        """
        return max(part._longest(of_edges) for share, part in self._parts if share)

    @cached_property
    def lost(self) -> float:
        """Probability that a request reaches a branch where no model meets the limits while it has no answer to return
        yet.
        """
        total = sum(float(arms.chance[arms.edge == NOTHING].sum()) for arms in self._arms)
        return total + sum(float(reach @ self.graph.lost[at]) for at, reach in self._levels[1:])

    @property
    def standard_error(self) -> float | None:
        """The standard error of :attr:`accuracy`; None if the trie has no standard errors.

        Four cases. If histories are merged, it is :func:`~vinelm.plans.promise.merged_standard_error`. If branches are
        outcomes of calls (a trie over signals), it is computed from fits to resampled requests by
        :func:`~vinelm.plans.promise.error_between_fits`. If the plan starts at the root and the trie knows its number
        of requests, the errors of the nodes where the plan ends are combined by
        :func:`~vinelm.plans.promise.contingent_standard_error`. Otherwise it is an upper bound: the sum of these nodes'
        errors, as if they were fully correlated, divided by the chance of reaching the start.
        """
        annotated = self.graph.annotated
        if annotated.trie.is_merged:
            return None if annotated.accuracy_se is None else merged_standard_error(annotated, self._visited(), self.accuracy)
        reach, by_fit = self._reach, self.right_by_fit
        if by_fit is not None:
            return float(error_between_fits(by_fit)) / (1.0 if self.start == 0 else reach)
        if annotated.accuracy_se is None:
            return None
        ends = np.array(self.ends, np.intp)
        found = None if self.start else contingent_standard_error(annotated, ends, self.accuracy)
        if found is not None:
            return found
        return float(annotated.accuracy_se[ends].sum()) / reach

    @property
    def cost_error_usd(self) -> float | None:
        """The standard error of :attr:`cost_usd`, computed from fits of the trie to resampled requests.

        None unless branches are outcomes of calls (a trie over signals) and the trie has the cost of each fit.
        """
        by_fit = self.graph.cost_by_fit
        if by_fit is None:
            return None
        below = np.concatenate([at for at, _ in self._levels[1:]])
        return float(error_between_fits(by_fit[below].sum(0))) / (1.0 if self.start == 0 else self._reach)

    @property
    def reached(self) -> FloatArray:
        """An array with an element for each node of the trie, the root first.

        The element is the probability that a request which continues from the plan's start runs the node's call.
        """
        found = np.zeros(len(self.graph.annotated.trie))
        for share, part in self._parts:
            for at, reach in part._levels[1:]:
                np.add.at(found, self.graph.nodes[at], share * reach)
        return found

    @property
    def mass(self) -> FloatArray:
        """An array of probabilities, shape (positions, difficulties).

        Each is the probability that a request has the column's difficulty and reaches the row's position under the plan.
        """
        found = np.zeros((len(self.graph.nodes), len(self._parts)))
        for column, (share, part) in enumerate(self._parts):
            for at, reach in part._levels:
                found[at, column] += share * reach
        return found

    def _visited(self) -> FloatArray:
        """Return an array with a row for each node that a request may reach after the start, shape (nodes, 3).

        The columns are: the node's index, the probability of reaching it, and the probability of a correct answer
        later, given that it is reached.
        """
        graph, n = self.graph, len(self.graph.nodes)
        reach, correct, later = np.zeros(n), np.zeros(n), np.zeros(n)
        going = 1.0 if self.start == 0 else float(graph.arm[list(self.first)].sum())
        for share, part in self._parts:
            for depth, (at, chance) in enumerate(part._levels):
                reach[at] += share * chance * (going if depth else 1.0)
                correct[at] += share * chance * (going if depth else 1.0) * part.graph.ended_right[at]
            for arms in part._arms:
                ends = arms.edge == END
                np.add.at(correct, graph.source[arms.group[ends]], share * arms.right[ends] * going)
        for arms in reversed(self._arms):  # a later answer may correct an error, so start at the last level
            runs = arms.edge >= 0
            source, target = graph.source[arms.group[runs]], graph.target[arms.edge[runs]]
            flow = reach[source] * graph.arm[arms.group[runs]]
            inflow = np.bincount(target, flow, n)
            part_of = np.divide(flow, inflow[target], out=np.zeros_like(flow), where=inflow[target] > 0.0)
            np.add.at(later, source, part_of * (correct + later)[target])
        visited = np.flatnonzero(reach > 0.0)
        visited = visited[visited != self.start]
        return np.stack([graph.nodes[visited].astype(np.float64), reach[visited], later[visited] / reach[visited]], axis=1)

    @property
    def _reach(self) -> float:
        """The probability that a request, from its beginning, reaches the plan's start and continues there."""
        graph = self.graph
        return float(graph.annotated.reach[graph.nodes[self.start]] * graph.arm[list(self.first)].sum()) or 1.0

    @cached_property
    def right_by_fit(self) -> FloatArray | None:
        """The probability that a request ends with a correct answer, according to each fit to resampled requests, shape
        (fits,).

        None unless branches are outcomes of calls (a trie over signals) and there are at least two fits.
        """
        known = self.graph.right_by_fit
        if known is None:
            return None
        ended, right = known
        below = [at for at, _ in self._levels[1:]]
        ends = [arms.group[arms.edge == END] for arms in self._arms]
        return np.asarray(ended[np.concatenate(below)].sum(0) + right[np.concatenate(ends)].sum(0))

    @cached_property
    def ends(self) -> list[int]:
        """The indices of the trie's nodes at which a request may end, because the plan ends it there or because no
        further call is possible.
        """
        graph, found = self.graph, set()
        for arms in self._arms:
            found.update(graph.nodes[graph.source[arms.group[arms.edge == END]]].tolist())
        for at, _ in self._levels[1:]:
            found.update(graph.nodes[at[graph.first_group[at] == graph.first_group[at + 1]]].tolist())
        return sorted(found)

    # -- as text and JSON --------------------------------------------------------------------------------------

    @property
    def words(self) -> str:
        """The plan in one line: the models of each stage, most used first; only the model's name if the plan has just one.

        In ``router a, search b, reply c or d``, the reply runs on c in most requests and on d in others.
        """
        annotated, trie = self.graph.annotated, self.graph.annotated.trie
        reached = self.reached
        shares: dict[str, dict[str, float]] = {stage: {} for stage in annotated.stage_names}
        for node in np.flatnonzero(reached).tolist():
            of_stage, model = shares[annotated.stage_names[trie.stage[node]]], trie.models[trie.model[node]]
            of_stage[model] = of_stage.get(model, 0.0) + float(reached[node])
        models = {model for of_stage in shares.values() for model in of_stage}
        if len(models) == 1:
            return models.pop()
        ordered = ((stage, sorted(found, key=lambda name: -found[name])) for stage, found in shares.items() if found)
        return ", ".join(f"{stage} {' or '.join(names)}" for stage, names in ordered) or "no invocation"

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The plan as nested dicts, one for each branch.

        The keys are ``stage``, ``probability``, ``model`` (None if the request ends) and ``steps``, the dicts of the
        branches that may follow. After the first 10,000 dicts, deeper ``steps`` are empty.
        """
        return self._steps(self.start, [_DEEPEST])

    def lines(self, limit: int | None = None) -> list[str]:
        """Return the plan as an indented tree: each stage with its model, then its branches with their probabilities.

        If the application never branches, one line covers consecutive calls of the same stage and model, such as calls
        2-4.

        Args:
            limit: the maximum number of lines; if there are more, the last line is ``...``. None returns all lines.
        """
        every = self._runs() if self.graph.annotated.arm is None else self._tree(self.start, 0)
        found = list(islice(every, limit if limit is None else limit + 1))
        if limit is not None and len(found) > limit:
            found[max(limit - 1, 0) :] = ["..."]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the plan and its figures as plain JSON types."""
        return {
            "accuracy": self.accuracy,
            "standard_error": self.standard_error,
            "cost_usd": self.cost_usd,
            "latency_s": self.latency_s if self.graph.annotated.knows_latency else None,
            "expected_latency_s": self.expected_latency_s if self.graph.annotated.knows_latency else None,
            "steps": self.steps,
            **({} if self.graph.annotated.difficulty is None else {"promised_accuracy": self.promised_accuracy}),
        }

    def _runs(self) -> Iterator[str]:
        steps, position, groups = [], self.start, list(self.first)
        while groups and self.chosen(groups[0]) >= 0:
            steps.append((self._stage(groups[0]), self._model(self.chosen(groups[0]))))
            position = int(self.graph.target[self.chosen(groups[0])])
            groups = self._all_groups(position)
        at = int(self.graph.annotated.trie.depth[self.graph.nodes[self.start]])
        for (stage, model), run in groupby(steps):
            n = len(list(run))
            turns = f"{at + 1}" if n == 1 else f"{at + 1}-{at + n}"
            yield f"{turns:>7}  {stage}: {model}"
            at += n
        yield f"{at + 1:>7}  end" if steps else "end"

    def _steps(self, position: int, room: list[int]) -> list[dict[str, Any]]:
        found = []
        for group in self._groups(position):
            room[0] -= 1
            edge = self.chosen(group)
            step: dict[str, Any] = {"stage": self._stage(group), "probability": self._probability(group)}
            step["model"] = None if edge < 0 else self._model(edge)
            step["steps"] = self._steps(int(self.graph.target[edge]), room) if edge >= 0 and room[0] > 0 else []
            found.append(step)
        return found

    def _tree(self, position: int, depth: int) -> Iterator[str]:
        groups = self._groups(position)
        for group in groups:
            share = f"{self._probability(group):4.0%} " if len(groups) > 1 or self._probability(group) < 0.995 else ""
            edge = self.chosen(group)
            what = {END: "end", NOTHING: "no model fits the bounds"}.get(edge) or self._model(edge)
            yield f"{'  ' * depth}{share}{self._stage(group)}: {what}"
            if edge >= 0:
                yield from self._tree(int(self.graph.target[edge]), depth + 1)
        stops = 1.0 - sum(map(self._probability, groups))
        if stops > 0.005 and groups and not (position == self.start and len(self.first) < len(self._all_groups(position))):
            yield f"{'  ' * depth}{stops:4.0%} the workflow ends"

    # -- the choices -------------------------------------------------------------------------------------------

    def _all_groups(self, position: int) -> list[int]:
        return self.graph.groups_at(position)

    def _groups(self, position: int) -> list[int]:
        return list(self.first) if position == self.start else self._all_groups(position)

    def _stage(self, group: int) -> str:
        return str(self.graph.annotated.trie.stages[self.graph.stage[group]])

    def _model(self, edge: int) -> str:
        return str(self.graph.annotated.trie.models[self.graph.model[edge]])

    def _probability(self, group: int) -> float:
        """Return the probability that a request takes the branch ``group``, given that it reaches the position before the
        branch.

        For a branch at the plan's start, it is also given that the request takes one of the branches that the plan has there.
        """
        if group in self.first:
            return float(self._weights[list(self.first).index(group)])
        return float(self.graph.arm[group])

    @cached_property
    def _weights(self) -> FloatArray:
        return self.graph.weights(list(self.first))

    def _at_root(self, values: FloatArray) -> float:
        return float(values[0]) if self.start == 0 else 0.0

    @cached_property
    def _parts(self) -> tuple[tuple[float, Plan], ...]:
        """Pairs (share of the requests with one difficulty, this plan with the rates of that difficulty). A single pair
        (1, this plan) if the trie has no difficulties or the start is not the root.
        """
        if self.start or len(self.graph.mixture) == 1:
            return ((1.0, self),)
        return tuple((share, replace(self, graph=graph)) for share, graph in self.graph.mixture)

    def _accuracy(self) -> float:
        graph = self.graph
        total = float(graph.ended_right[0]) if self.start == 0 else 0.0
        for depth, (at, reach) in enumerate(self._levels):
            if depth:
                total += float(reach @ graph.ended_right[at])
        return total + sum(float(arms.right[arms.edge == END].sum()) for arms in self._arms)

    def _longest(self, of_edges: FloatArray) -> float:
        longest = {self.start: 0.0}
        for arms in self._arms:
            below: dict[int, float] = {}
            sources = self.graph.source[arms.group].tolist()
            for e, source, p in zip(arms.edge.tolist(), sources, arms.chance.tolist(), strict=True):
                if e >= 0 and p > 0.0:
                    target = int(self.graph.target[e])
                    below[target] = max(below.get(target, 0.0), longest[source] + float(of_edges[e]))
            longest = longest | below
        return max(longest.values())

    def _expected(self, of_edges: FloatArray) -> float:
        """Return the expected sum of an amount, such as dollars, over a request's calls after the plan's start.

        ``of_edges`` has the amount of each edge of the graph. An edge stands for a call of one model.
        """
        runs = ((arms, arms.edge >= 0) for arms in self._arms)
        return sum(float(arms.chance[those] @ of_edges[arms.edge[those]]) for arms, those in runs)

    @property
    def _levels(self) -> list[tuple[Integers, FloatArray]]:
        """A list whose item k has the positions that a request may have reached after k calls, and their probabilities."""
        return self._walk[0]

    @property
    def _arms(self) -> list[_Arms]:
        """A list whose item k has the branches that may follow after k calls."""
        return self._walk[1]

    @cached_property
    def _walk(self) -> tuple[list[tuple[Integers, FloatArray]], list[_Arms]]:
        graph = self.graph
        levels: list[tuple[Integers, FloatArray]] = [(np.array([self.start]), np.ones(1))]
        first = list(self.first)
        arms = [_Arms(np.array(first), np.array(list(self.first.values())), self._weights, graph.rights(first))]
        while True:
            runs = arms[-1].edge >= 0
            at, which = np.unique(graph.target[arms[-1].edge[runs]], return_inverse=True)
            reach = np.asarray(np.bincount(which, arms[-1].chance[runs], len(at)), np.float64)
            levels.append((at, reach))
            low = graph.first_group[at]
            count = graph.first_group[at + 1] - low
            group = np.repeat(low - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
            if not len(group):
                return levels, arms
            reach = np.repeat(reach, count)
            arms.append(_Arms(group, self.choice[group], reach * graph.arm[group], reach * graph.right[group]))


class _Arms(NamedTuple):
    """The branches that a plan may meet after the same number of calls, one per array element.

    Attributes:
        group: The branch's index in the graph.
        edge: The plan's choice for the branch: the index of an edge, or a negative number if the request ends.
        chance: The probability that the branch is taken.
        right: The probability that it is taken and the answer so far is correct.
    """

    group: Integers
    edge: Integers
    chance: FloatArray
    right: FloatArray
