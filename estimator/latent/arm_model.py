"""Models which branch a request takes, by stick-breaking logistic regressions.

A regression has one row per node, branch of the node (except the last) and correctness of the answer there.

With branches (arms) 1 to G the questions are: is it arm 1; if not, is it arm 2; and so on; the last arm takes the remaining
probability. A row's logit is a sum of effects of the decision (the stage that decided, and the arm in question), the model
that decided, and the earlier calls:

========== ===============================================  ==========================================================
group      one effect per                                   meaning
========== ===============================================  ==========================================================
level      stage x arms to choose from x arm                share of the arm
choice     stage x arm                                      the same where other arms are possible (a loop's last turn)
decider    stage x arm x model                              the model that decided changes which arm is taken
turn       stage x arm x depth                              change with each further call
before     stage x arm x stage and model just before        what the decision was based on
history    stage x arm x earlier stage and model (once)     effect of earlier calls
outcome    stage x arm                                      the answer so far is right: the decision may depend on it
verdict    stage x arm x model                              the same for each model
========== ===============================================  ==========================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vinelm.estimator.arm_counts import sets_of_arms
from vinelm.estimator.arms import Arms
from vinelm.estimator.latent.features import FeatureMatrix, Part, certain_nodes, coded, earlier_choices, stack
from vinelm.estimator.latent.logistic_regression import ARM, Regression
from vinelm.estimator.observation_table import ObservationTable
from vinelm.trie import Trie
from vinelm.trie.arrays import BoolArray, FloatArray

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ArmQuestions:
    """The rows of the regression: one per node, branch of the node (except the last) and correctness of the answer there.

    Rows of a node are adjacent and ordered by branch. At an answerable node (where an answer exists), each branch has two rows:
    first for a wrong answer, then for a right one. At other nodes no answer is right yet, so each branch has a single row.

    Args:
        node: the node at which the branch is taken, shape (rows,).
        order: the position of the branch in question among the node's branches, shape (rows,).
        right: whether the answer so far is right, shape (rows,).
        start: index of the first row of each node, shape (nodes,); meaningless at nodes without a choice.
        pairs: number of rows for each branch: 2 at answerable nodes and 1 at others, shape (nodes,).
    """

    arms: Arms
    node: Ints
    order: Ints
    right: BoolArray
    start: Ints
    pairs: Ints

    @classmethod
    def of(cls, trie: Trie, arms: Arms) -> ArmQuestions:
        """Return the regression's rows for all nodes of ``trie`` that have several branches."""
        pairs = np.where(trie.answerable, 2, 1).astype(np.int64)
        n_rows = np.where(arms.is_choice, (arms.count - 1) * pairs, 0)
        start = np.cumsum(n_rows) - n_rows
        node = np.repeat(np.arange(len(trie), dtype=np.int64), n_rows)
        place = np.arange(len(node)) - start[node]
        return cls(arms, node, place // pairs[node], place % pairs[node] == 1, start, pairs)

    @property
    def most_arms(self) -> int:
        """The largest number of branches of a node."""
        return int(self.arms.count.max(initial=0))

    def row(self, node: Ints, order: int, right: int) -> Ints:
        """Return, for each node in ``node``, the index of the regression's row for one of the node's branches.

        ``order`` is the position of the branch among the node's branches. ``right`` is 0 for a wrong answer before the branch,
        1 for a right one. At a node at which no answer exists, both share a row.
        """
        return self.start[node] + order * self.pairs[node] + np.minimum(right, self.pairs[node] - 1)

    def shares(self, probability: FloatArray, nodes: Ints, base: Ints | None = None) -> FloatArray:
        """Return P(branch | the request continues, the answer is wrong or right); shape (nodes, most branches, 2, points).

        The second index is the branch's position among its node's branches, the third is 0 for a wrong and 1 for a right
        answer. Positions beyond a node's branches have 0. A point is a value of the latent difficulty.

        Args:
            probability: The answers of the regressions, shape (rows, points). Each row asks whether a request takes a branch,
                given that it takes no earlier branch of the node.
            nodes: the nodes with several branches.
            base: the index in ``probability`` of each row of the regression; None if ``probability`` holds all rows.
        """
        found = np.zeros((len(nodes), self.most_arms, 2, probability.shape[1]))
        for right in (0, 1):
            left = np.ones((len(nodes), probability.shape[1]))
            for order in range(self.most_arms):
                asks, last = self.arms.count[nodes] - 1 > order, self.arms.count[nodes] - 1 == order
                rows = self.row(nodes[asks], order, right)
                share = probability[rows if base is None else base[rows]]
                found[asks, order, right] = left[asks] * share
                found[last, order, right] = left[last]
                left[asks] *= 1.0 - share
        return found


def arm_features(trie: Trie, questions: ArmQuestions) -> FeatureMatrix:
    """Return the features of each row of the regression.

    A row is the question whether a request takes one branch at a node. At the root, the features do not depend on a call.
    """
    arms, node, order = questions.arms, questions.node, questions.order
    rows = np.arange(len(node), dtype=np.int64)
    stage, model = trie.stage[node].astype(np.int64), trie.model[node].astype(np.int64)
    arm = arms.stage[arms.first[node] + order]
    offered = sets_of_arms(trie, arms)[node]
    up = np.maximum(trie.parent[node], 0).astype(np.int64)
    later, before = earlier_choices(trie, node)
    inner = np.flatnonzero(node > 0)
    based = np.flatnonzero(np.isin(node, certain_nodes(trie)))
    is_right = np.flatnonzero(questions.right)
    parts = [
        coded("level", rows, stage, offered, arm),
        coded("choice", rows, stage, arm),
        coded("decider", inner, stage[inner], arm[inner], model[inner]),
        coded("turn", inner, stage[inner], arm[inner], trie.depth[node][inner].astype(np.int64)),
        coded("before", based, stage[based], arm[based], trie.stage[up][based].astype(np.int64), trie.model[up][based]),
        coded("history", later, stage[later], arm[later], before),
        coded("outcome", is_right, stage[is_right], arm[is_right]),
        coded("verdict", is_right, stage[is_right], arm[is_right], model[is_right]),
    ]
    design, group = stack(parts, len(rows))
    slopes = [
        Part("all", rows, 0 * rows, 1),
        coded("choice", rows, stage, arm),
        coded("decider", inner, stage[inner], arm[inner], model[inner]),
    ]
    slope, slope_group = stack(slopes, len(rows))
    return FeatureMatrix(design, group, tuple(part.name for part in parts), slope, slope_group)


# -- observed decisions ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ArmModel:
    """The regression for branches, and the observed decisions that it is fitted to.

    A decision is one request's choice of a branch at a node with several branches.

    Args:
        questions: for each row of the regression, its node, its branch, and whether the answer so far is right.
        regression: the fitted effects.
        request: the index of the request of each decision, shape (decisions,).
        cell: the index of the result whose call made the decision; -1 for the choice of the first stage, which no call made;
            shape (decisions,).
        place: the index in ``nodes`` of the decision's node, shape (decisions,).
        order: the position, among its node's branches, of the branch that was taken; shape (decisions,).
        nodes: the nodes with decisions.
    """

    questions: ArmQuestions
    regression: Regression
    request: Ints
    cell: Ints
    place: Ints
    order: Ints
    nodes: Ints

    @classmethod
    def start(cls, cells: ObservationTable, arms: Arms, grid: FloatArray) -> ArmModel:
        """Return the model with its initial effects, before the first Newton step.

        ``grid`` has the points of the latent difficulty, shape (points,).
        """
        trie = cells.trie
        questions = ArmQuestions.of(trie, arms)
        cell = np.flatnonzero(arms.is_choice[cells.node] & (cells.arm >= 0))
        request, node, stage = cells.request[cell], cells.node[cell], cells.arm[cell]
        if arms.is_choice[0]:
            first = np.arange(cells.n_requests, dtype=np.int64)
            cell, request = np.concatenate([first * 0 - 1, cell]), np.concatenate([first, request])
            node, stage = np.concatenate([first * 0, node]), np.concatenate([cells.first_stage, stage])
        nodes, place = np.unique(node, return_inverse=True)
        order = arms.order[arms.find(node, stage)] if len(node) else node
        regression = Regression.start(arm_features(trie, questions), grid, ARM)
        return cls(questions, regression, request, cell, np.asarray(place, np.int64), order, nodes)

    @cached_property
    def _rows(self) -> Ints:
        """The indices of the regression's rows for the nodes at which requests were seen to choose a branch."""
        return np.flatnonzero(np.isin(self.questions.node, self.nodes))

    @cached_property
    def _features(self) -> FeatureMatrix:
        features = self.regression.features
        return replace(features, design=features.design[self._rows], slope=features.slope[self._rows])

    @cached_property
    def _base(self) -> Ints:
        base = np.zeros(len(self.questions.node), np.int64)
        base[self._rows] = np.arange(len(self._rows))
        return base

    def log_likelihood(self) -> FloatArray:
        """Return log P(the branch taken) of each decision for a wrong and for a right answer; shape (decisions, 2, points)."""
        shares = self.questions.shares(self.regression.probabilities(self._features), self.nodes, self._base)
        return np.asarray(np.log(np.maximum(shares[self.place, self.order], 1e-12)))

    def step(self, posterior: FloatArray, belief: FloatArray, *, with_variances: bool) -> None:
        """Take one Newton step of the regression, with each decision counted in expectation over difficulty and correctness.

        Args:
            posterior: P(grid point) of each request, shape (requests, points).
            belief: P(right) of each result, shape (results, 1) or (results, points).
            with_variances: also update the variances of the groups.
        """
        if not len(self.nodes):
            return
        shape = (len(self.nodes), self.questions.most_arms, 2, posterior.shape[1])
        taken = np.zeros(shape)
        right = np.where(self.cell[:, None] >= 0, belief[np.maximum(self.cell, 0)], 0.0)
        weight = posterior[self.request]
        np.add.at(taken[:, :, 0], (self.place, self.order), weight * (1.0 - right))
        np.add.at(taken[:, :, 1], (self.place, self.order), weight * right)
        not_before = np.cumsum(taken[:, ::-1], axis=1)[:, ::-1]
        rows, questions = self._rows, self.questions
        place = np.searchsorted(self.nodes, questions.node[rows])
        at = (place, questions.order[rows], questions.right[rows].astype(np.int64))
        self.regression.step(self._features, taken[at], not_before[at])
        if with_variances:
            self.regression.update_variances()

    def shares(self) -> ChoiceProbabilities:
        """Return P(branch | the request continues) of every branch of the trie."""
        arms = self.questions.arms
        nodes = np.flatnonzero(arms.is_choice)
        found = np.ones((len(arms), 2, len(self.regression.grid)))
        shares = self.questions.shares(self.regression.probabilities(), nodes)
        chosen = arms.is_choice[arms.source]
        place = np.searchsorted(nodes, arms.source[chosen])
        found[chosen] = shares[place, arms.order[chosen]]
        return ChoiceProbabilities(found[:, 0], found[:, 1])


@dataclass(frozen=True, eq=False)
class ChoiceProbabilities:
    """P(branch | its node is reached and the request continues), given a wrong or a right answer there.

    Both arrays have the shape (branches, points). The points are values of the latent difficulty.
    """

    if_wrong: FloatArray
    if_right: FloatArray
