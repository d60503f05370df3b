"""Which nodes may change the plan over what requests show: Neyman allocation to the invocations that fits disagree about."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.sampling.candidate_cells import CandidateCells
from vinelm.estimator.sampling.contested import contests
from vinelm.estimator.sampling.draws import DrawnNode, draw_index
from vinelm.estimator.sampling.goal import Goal
from vinelm.observation import Observation
from vinelm.template import Template
from vinelm.trie import FloatArray, Trie


class PlanDesign:
    """Draws models by what one more answer of them takes off the regret (:class:`~vinelm.estimator.sampling.draws.NodeSource`).

    With D the contested share of a model, n its rows and c its dollars, one more answer reduces D^2 / n by about D^2 / n^2, so
    that models are drawn in proportion to (D / n)^2 / c; this leads to n in proportion to D / sqrt(c). The nodes of the model
    are drawn in proportion to how contested each is. Where a node has no candidate, a first answer of its model stands for it:
    it tells as much about the model.

    Args:
        trie: The path trie.
        contested: How contested each node is, >= 0, shape (n + 1,).
        n_rows: Rows of each model so far, shape (models,).
        cost_usd: Expected dollars of one more run at each node, > 0, shape (n + 1,).
    """

    def __init__(self, trie: Trie, contested: FloatArray, n_rows: FloatArray, cost_usd: FloatArray) -> None:
        self._contested = contested
        self._n_rows = n_rows + 1.0
        self._first = [trie.child(0, name) for name in trie.models]
        self._cost_usd = cost_usd[self._first]
        is_contested = [(trie.model == m) & (contested > 0.0) for m in range(len(trie.models))]
        self._nodes: list[list[int]] = [np.flatnonzero(here).tolist() for here in is_contested]
        self._share = np.array([contested[nodes].sum() for nodes in self._nodes])

    @classmethod
    def of(
        cls, rows: Sequence[Observation], cells: ObservationTable, template: Template, goal: Goal, cost_usd: FloatArray
    ) -> PlanDesign:
        """Fit what requests show to the rows; ``cells`` are the same rows, ``cost_usd`` as above."""
        trie = cells.trie
        contested = goal.contested(contests(rows, template, trie))
        n_rows = np.bincount(trie.model[cells.node], minlength=len(trie.models)).astype(np.float64)
        return cls(trie, contested, n_rows, cost_usd)

    def draw(self, candidates: CandidateCells, rng: random.Random) -> DrawnNode | None:
        """See :meth:`~vinelm.estimator.sampling.draws.NodeSource.draw`."""
        weights = (self._share / self._n_rows) ** 2 / self._cost_usd
        for model in np.flatnonzero(weights > 0.0).tolist():
            if not candidates.is_open(self._first[model]) and not any(map(candidates.is_open, self._nodes[model])):
                weights[model] = 0.0
        if not weights.any():
            return None
        model, chance = draw_index(weights, rng)
        self._n_rows[model] += 1.0
        shares = self._open_shares(model, candidates)
        at = draw_index(np.array(list(shares.values())), rng)
        return DrawnNode(list(shares)[at.node], chance * at.chance)

    def _open_shares(self, model: int, candidates: CandidateCells) -> dict[int, float]:
        """How contested the open nodes of a model are. A node without a candidate adds to the first answer, if that has one."""
        shares: dict[int, float] = {}
        first = self._first[model]
        for node in self._nodes[model]:
            stands = node if candidates.is_open(node) else first
            if candidates.is_open(stands):
                shares[stands] = shares.get(stands, 0.0) + float(self._contested[node])
        return shares
