"""Fixed plans: one model per stage, for every request.

A plan may also end a request after a given number of calls, if the application allows it. If a limit applies to
averages, VineLM may divide requests between two plans, with which a fixed plan is then compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from math import comb, prod
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from vinelm.plans.promise import END_CORRELATION, SAMPLING_PART, error_between_fits, share_variance
from vinelm.template.steps import SKIP
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray, FloatArray, Integers
from vinelm.trie.decision_graph import END, NOTHING, DecisionGraph

MOST = 4096
"""How many assignments of models to stages are compared. Beyond that only assignments with at most two models are, and if those
are too many as well, only those that differ from a single model in at most one stage."""
NEVER = -1
"""Stands for a model if the plan's graph never runs the stage, since no answer can follow it."""
_AT_ONCE = 512
Model = TypeVar("Model", int, str)


def every_assignment(models: Sequence[Sequence[Model]], *, most: int) -> list[tuple[Model, ...]] | None:
    """Return every assignment of one model to each stage, in an order in which the last stage varies fastest.

    Args:
        models: The models that each stage allows, as names or numbers.
        most: The largest number of assignments; the result is None if there are more.
    """
    return list(product(*models)) if prod(map(len, models)) <= most else None


def runs_one_model(assignments: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
    """Return a mask, shape (assignments,): True for assignments with the same model at every stage.

    Stages marked :data:`NEVER` do not run and are ignored.

    Args:
        assignments: The index of each stage's model, shape (assignments, stages).
    """
    one = assignments.max(axis=1, keepdims=True)
    return np.asarray(((assignments == one) | (assignments == NEVER)).all(axis=1) & (one[:, 0] != NEVER))


def assignments(models: Sequence[Sequence[int]]) -> Integers:
    """Return the assignments to compare, shape (assignments, stages): each row has the index of a model for every
    stage.

    If there are more than :data:`MOST`, some are left out.

    Args:
        models: The indices of the models that each stage allows.
    """
    every = every_assignment(models, most=MOST)
    if every is not None:
        return np.array(every, np.int64).reshape(-1, len(models))
    names = sorted(set().union(*models) - {NEVER})
    rows: dict[tuple[int, ...], None] = {}
    if comb(len(names), 2) * 2 ** len(models) <= 4 * MOST:
        for pair in combinations(names, 2):
            kept = [[model for model in allowed if model in pair] or list(allowed[:1]) for allowed in models]
            rows.update(dict.fromkeys(product(*kept)))
    if not 0 < len(rows) <= MOST:
        rows = {}
        for name in names:
            base = [name if name in allowed else allowed[0] for allowed in models]
            rows[tuple(base)] = None
            for i, allowed in enumerate(models):
                rows.update(dict.fromkeys((*base[:i], other, *base[i + 1 :]) for other in allowed))
    return np.array(list(rows)[:MOST], np.int64)


@dataclass(frozen=True, eq=False)
class StaticPlans:
    """The fixed plans over a decision graph, with their expected results from the start of a request, which are
    computed on first use.

    Results are arrays of shape (plans,). Plan ``i`` runs the models in row ``i // depth`` of :attr:`models`, and ends
    after ``i % depth + 1`` calls, or at the next point where a request may end.

    Args:
        graph: The graph: a trie with the edges that plans choose from.
        servable: A mask over the graph's edges: whether the edge's model is available now; None if all are.
        within: A mask over the graph's positions: whether the calls up to the position keep the limits for each single request;
            None if all do.
        limits: The limits for each single request, given if several sequences of calls share a position. Pairs: what each edge
            uses (such as seconds), and how much a request may use in total.
    """

    graph: DecisionGraph
    servable: BoolArray | None
    within: BoolArray | None = None
    limits: Sequence[tuple[FloatArray, float]] = ()

    @classmethod
    def of(cls, annotated: AnnotatedTrie) -> StaticPlans:
        """Return the fixed plans of a trie; all tries of one template have the same plans in the same order."""
        return cls(DecisionGraph.of(annotated), None)

    @classmethod
    def unbounded(cls, graph: DecisionGraph, servable: BoolArray | None) -> StaticPlans:
        """Return the fixed plans without per-request limits; cached for each graph, since computing their results takes
        long.
        """
        key = cls, None if servable is None else servable.tobytes()
        if key not in graph.kept:
            graph.kept[key] = cls(graph, servable)
        return cast("StaticPlans", graph.kept[key])

    @cached_property
    def models(self) -> Integers:
        """The index of each stage's model, one row per assignment of models to stages, shape (assignments, stages).

        For a stage that the graph does not run, the item is :data:`NEVER`.
        """
        graph = self.graph
        usable = slice(None) if self.servable is None else self.servable
        slot, model = graph.slot[graph.group_of_edge[usable]], graph.model[usable]
        allowed = [list(dict.fromkeys(model[slot == index].tolist())) or [NEVER] for index in range(graph.n_slots)]
        return assignments(allowed)

    @property
    def depth(self) -> int:
        """The maximum number of calls of a request, which is also the number of plans for each assignment of models to stages.

        Each of these plans ends requests after another number of calls.
        """
        return len(self.graph.levels) - 2

    @cached_property
    def paid_models(self) -> Integers:
        """A copy of :attr:`models` with :data:`NEVER` in place of the model of each optional stage that is skipped."""
        names = self.graph.annotated.trie.models
        return np.where(self.models == names.index(SKIP), NEVER, self.models) if SKIP in names else self.models

    @cached_property
    def runs_one_model(self) -> BoolArray:
        """A mask of shape (plans,): True for plans with the same model at every stage that they do not skip."""
        return np.repeat(runs_one_model(self.paid_models), self.depth)

    @cached_property
    def is_whole(self) -> BoolArray:
        """A mask of shape (plans,): True for plans of full length, whose requests end only when the application ends
        them.
        """
        return np.asarray(np.arange(len(self.models) * self.depth) % self.depth == self.depth - 1)

    @property
    def accuracy(self) -> FloatArray:
        """Expected accuracy of each plan."""
        return np.asarray(self._worth[0])

    @property
    def cost_usd(self) -> FloatArray:
        """Expected cost of each plan per request, in dollars."""
        return np.asarray(self._worth[1])

    @property
    def longest_s(self) -> FloatArray:
        """Seconds of each plan's longest possible history if no server is busy."""
        return np.asarray(self._worth[2])

    @property
    def error(self) -> FloatArray:
        """The standard error of each plan's accuracy, computed as for a contingent plan; NaN if the trie has no standard
        errors.
        """
        together, squares = self._worth[5:], self._worth[3]
        if self.graph.right_by_fit is not None:
            return error_between_fits(together)
        if self.graph.annotated.accuracy_se is None:
            return np.full(len(self.accuracy), np.nan)
        if not self._requests:
            return np.asarray(together.sum(0))
        effects = END_CORRELATION * (together**2).sum(0) + (1.0 - END_CORRELATION) * squares
        return np.asarray(np.sqrt(effects + share_variance(self.accuracy, self._requests)))

    @property
    def is_allowed(self) -> BoolArray:
        """A mask of shape (plans,): True for plans under which every request gets an answer within the limits that hold
        for each request.
        """
        allowed = self._worth[4] == 0.0
        for amounts, most in self.limits:
            measured = StaticPlans(replace(self.graph, latency_s=amounts), self.servable)
            allowed &= measured.longest_s - self.graph.annotated.latency_s[0] <= most
        return np.asarray(allowed)

    def choice(self, plan: int) -> Integers:
        """Return what the plan with index ``plan`` chooses for each group of edges.

        A group has the edges from one source to one stage. An element is the index of the chosen edge, or a negative number if
        no model runs. Groups that the plan never reaches are included.
        """
        graph = self.graph
        wanted = self.models[plan // self.depth][graph.slot]
        fits = graph.model == wanted[graph.group_of_edge]
        if self.servable is not None:
            fits &= self.servable
        choice = np.where(graph.source_may_end, END, NOTHING)
        edges = np.flatnonzero(fits)
        choice[graph.group_of_edge[edges]] = edges
        is_cut = (graph.source >= graph.levels[plan % self.depth + 1]) | graph.checked
        return np.where(is_cut & graph.source_may_end, END, choice)

    # -- evaluation --------------------------------------------------------------------------------------------

    @cached_property
    def _worth(self) -> FloatArray:
        """The results of all plans: a column for each plan, with the rows that :attr:`_by_rates` describes.

        If the trie has separate rates for easier and harder requests, accuracy and cost are means over the difficulties,
        weighted by their shares of the requests, and the longest seconds are the maximum over the difficulties.
        """
        found = self._by_rates
        if len(self.graph.mixture) > 1:
            parts = [(share, replace(self, graph=graph)._by_rates) for share, graph in self.graph.mixture]
            for row in (0, 1, 4):
                found[row] = sum(share * part[row] for share, part in parts)
            found[2] = np.max([part[2] for share, part in parts if share], axis=0)
        return found

    @property
    def _by_rates(self) -> FloatArray:
        """The results of all plans, as an array with a column for each plan.

        Rows 0 to 2 are the plan's accuracy, its dollars and its longest possible seconds. Row 3 is the sum of the squared
        errors of the nodes at which the plan ends requests. Row 4 is 0 only if every request is answered within the limits.
        Then comes a row for each stage: the sum of the errors of those end nodes that run this stage. If branches are outcomes
        of calls, the last rows are instead the accuracy according to each fit to resampled requests.
        """
        parts = [self._evaluate(self.models[i : i + _AT_ONCE]) for i in range(0, len(self.models), _AT_ONCE)]
        return np.concatenate(parts, axis=1)

    def _evaluate(self, models: Integers) -> FloatArray:
        graph, annotated = self.graph, self.graph.annotated
        count = len(models) * self.depth
        by_fit = graph.right_by_fit
        worth = np.zeros((5 + (len(annotated.trie.stages) if by_fit is None else by_fit[0].shape[1]), count))
        worth[0], worth[1], worth[2] = graph.ended_right[0], annotated.cost_usd[0], annotated.latency_s[0]
        plan: Integers = np.arange(count)
        at: Integers = np.zeros(count, np.int64)
        reach, used_s = np.ones(count), np.full(count, annotated.latency_s[0])
        for depth in range(len(graph.levels) - 1):
            is_cut = graph.may_end[at] & (plan % self.depth < depth)
            edge, arm, row = self._follow(models, plan, at, ~is_cut)
            self._add_ends(worth, (plan, at, reach), is_cut, (edge, arm, row))
            runs = edge >= 0
            edge, arm, row = edge[runs], arm[runs], row[runs]
            plan, reach, used_s = plan[row], reach[row] * graph.arm[arm], used_s[row] + graph.latency_s[edge]
            at = graph.target[edge]
            worth[0] += np.bincount(plan, reach * graph.ended_right[at], count)
            worth[1] += np.bincount(plan, reach * graph.cost_usd[edge], count)
            np.maximum.at(worth[2], plan, used_s)
            worth[4] += np.bincount(plan, reach * graph.lost[at] + self._beyond(at), count)
            if by_fit is not None:
                np.add.at(worth[5:].T, plan, by_fit[0][at])
            plan, at, reach, used_s = self._merged(plan, at, reach, used_s)
        return worth

    def _add_ends(
        self,
        worth: FloatArray,
        histories: tuple[Integers, Integers, FloatArray],
        is_cut: BoolArray,
        arms: tuple[Integers, Integers, Integers],
    ) -> None:
        """Update the results of all plans by the histories (sequences of calls) after which requests end.

        A history ends at the plan's length, or before a branch for which the plan has no model.

        Args:
            worth: The results so far, changed in place: a column for each plan, and the rows of :attr:`_by_rates`.
            histories: Three arrays: each history's plan (its index), its position in the graph, and its probability.
            is_cut: Whether the plan ends each history because it has reached the plan's length.
            arms: The result of :meth:`_follow` for the other histories.
        """
        graph, count, by_fit = self.graph, worth.shape[1], self.graph.right_by_fit
        errors = self._errors if by_fit is None else None
        (plan, at, reach), (edge, arm, row) = histories, arms
        worth[0] += np.bincount(plan[is_cut], (reach * self._right[at])[is_cut], count)
        worth[0] += np.bincount(plan[row], np.where(edge == END, reach[row] * graph.right[arm], 0.0), count)
        worth[4] += np.bincount(plan[row], np.where(edge == NOTHING, reach[row] * graph.arm[arm], 0.0), count)
        if by_fit is not None:
            np.add.at(worth[5:].T, plan[is_cut], self._all_by_fit[at[is_cut]])
            np.add.at(worth[5:].T, plan[row[edge == END]], by_fit[1][arm[edge == END]])
        if errors is not None:
            ends = is_cut | (graph.first_group[at] == graph.first_group[at + 1])
            ends[row[edge == END]] = True
            weight = graph.error_weight(reach, ends)
            counts = weight > 0.0
            self._add_errors(worth, plan[counts], at[counts], weight[counts] * errors[graph.nodes[at[counts]]])

    def _add_errors(self, worth: FloatArray, plan: Integers, at: Integers, own: FloatArray) -> None:
        """Add the standard errors of the accuracies at plans' end positions to the errors of these plans, in place.

        If several histories (sequences of calls) may lead to a position, the errors of all positions on the plans are added.

        Args:
            worth: The accumulated results of all plans, changed in place.
            plan: For each error, the index of its plan.
            at: For each error, the graph position whose accuracy has this error.
            own: The standard errors, each multiplied by its weight in the plan's accuracy.
        """
        graph = self.graph
        stage = graph.annotated.trie.stage[graph.nodes[at]]
        runs = stage >= 0  # the root is not a stage
        worth[3] += np.bincount(plan[runs], own[runs] ** 2, worth.shape[1])
        np.add.at(worth, (5 + stage[runs], plan[runs]), own[runs])

    def _follow(
        self, models: Integers, plan: Integers, at: Integers, goes_on: BoolArray
    ) -> tuple[Integers, Integers, Integers]:
        """Follow several histories (sequences of calls) to the branches that the application may take next.

        Args:
            models: The model of each stage, one row per assignment of models to stages; shape (assignments, stages).
            plan: For each history, the index of the plan that it follows.
            at: For each history, the graph position that it has reached.
            goes_on: Whether each history continues. A history that does not has no items in the result.

        Returns:
            Three arrays with an item for each pair of a history and one of its branches. The first has the plan's choice on the
            branch: the index of an edge, or a negative number to end. The second has the branch's index in the graph. The third
            has the index of the history.
        """
        graph = self.graph
        row = np.flatnonzero(goes_on)
        low = graph.first_group[at[row]]
        count = graph.first_group[at[row] + 1] - low
        group = np.repeat(low - np.cumsum(count) + count, count) + np.arange(int(count.sum()))
        row = np.repeat(row, count)
        happens = graph.arm[group] > 0.0
        group, row = group[happens], row[happens]
        wanted = models[plan[row] // self.depth, graph.slot[group]]
        keys, edges = self._edges
        key = group * self._many + wanted
        found = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        edge = np.where(keys[found] == key, edges[found], np.where(graph.source_may_end[group], END, NOTHING))
        edge = np.where(graph.checked[group] & graph.source_may_end[group], END, edge)
        return edge, group, row

    @property
    def _requests(self) -> int:
        """The number of requests that the trie was estimated from; 0 if unknown."""
        return int(self.graph.annotated.meta.get("requests") or 0)

    @cached_property
    def _errors(self) -> FloatArray | None:
        """The standard error of the accuracy of the path to each node; None if the trie has no standard errors.

        If the number of requests is known, the error that comes from sampling the requests is left out. If several paths may
        lead to a node, it is the standard error of the probability that the node's answer is right.
        """
        annotated = self.graph.annotated
        if annotated.accuracy_se is None or not self._requests:
            return annotated.accuracy_se
        sampling = share_variance(annotated.rated, self._requests)
        return np.sqrt(np.maximum(annotated.accuracy_se**2 - SAMPLING_PART * sampling, 0.0))

    def _beyond(self, at: Integers) -> BoolArray:
        """Return a mask of the graph positions ``at``: True where the calls up to the position exceed a limit for single
        requests.
        """
        return np.zeros(len(at), np.bool_) if self.within is None else ~self.within[at]

    def _merged(
        self, plan: Integers, at: Integers, reach: FloatArray, used_s: FloatArray
    ) -> tuple[Integers, Integers, FloatArray, FloatArray]:
        """Combine histories that belong to the same plan and have reached the same position into one.

        Their probabilities are added, and the longest of their times is kept.

        Args:
            plan: The index of each history's plan.
            at: The position of each history.
            reach: The probability of each history.
            used_s: The seconds that each history has taken.

        Returns:
            The same four arrays for the combined histories.
        """
        joined = self.graph.joined(plan, at)
        if joined is None:
            return plan, at, reach, used_s
        key, which = joined
        longest = np.zeros(len(key))
        np.maximum.at(longest, which, used_s)
        merged = np.asarray(np.bincount(which, reach), np.float64)
        return key // len(self.graph.nodes), key % len(self.graph.nodes), merged, longest

    @property
    def _many(self) -> int:
        return len(self.graph.annotated.trie.models)

    @cached_property
    def _right(self) -> FloatArray:
        """For each position, P(the request continues, and its answer so far is correct | it reaches the position).

        The array has shape (positions,).
        """
        return np.asarray(np.bincount(self.graph.source, self.graph.right, len(self.graph.nodes)), np.float64)

    @cached_property
    def _all_by_fit(self) -> FloatArray:
        """For each position and fit, the probability that the request continues and its answer so far is correct.

        The array has shape (positions, fits). Each fit to resampled requests estimates the probability for requests on which
        the models up to the position have run.
        """
        assert self.graph.right_by_fit is not None
        right = self.graph.right_by_fit[1]
        found = np.zeros((len(self.graph.nodes), right.shape[1]))
        np.add.at(found, self.graph.source, right)
        return found

    @cached_property
    def _edges(self) -> tuple[Integers, Integers]:
        """Two arrays: the sorted keys of the available edges, and the indices of these edges in the same order.

        An edge's key is ``group * number of models + model``.
        """
        graph = self.graph
        edges = np.arange(len(graph.target)) if self.servable is None else np.flatnonzero(self.servable)
        key = graph.group_of_edge[edges] * self._many + graph.model[edges]
        order = np.argsort(key)
        return key[order], edges[order]
