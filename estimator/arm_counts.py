"""Estimates how often requests take each branch from counts alone, for estimators without a model of the requests."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.estimator.arms import Arms, arms_of
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.outcome_rates import ArmRates, Rates
from vinelm.trie import Trie
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]
NODE_WEIGHT = 4.0
"""Pseudo-observations that shrink a node's branch shares towards those of its stage and model."""
KIND_WEIGHT = 2.0
"""Pseudo-observations that shrink the shares of a stage and model towards those of the stage, and those towards equal shares.
"""


def counted_arms(cells: ObservationTable, rates: Rates) -> ArmRates:
    """Return P(branch is taken) and P(branch is taken and the answer is right), given that its node is reached.

    ``rates`` gives the probabilities of continuing with a right and with a wrong answer. Each is multiplied by the branch's
    share of the requests with such an answer. A node's shares are shrunk towards the shares of all nodes with the same stage,
    model and set of branches. Those are shrunk towards the shares of all nodes with the same stage and set of branches, and
    those towards equal shares. A share depends neither on earlier models nor on the difficulty of the requests.
    """
    trie = cells.trie
    arms = arms_of(trie)
    known = np.flatnonzero(~cells.stop & (cells.arm >= 0) & (arms.count[cells.node] > 0))
    arm = arms.find(cells.node[known], cells.arm[known]) if len(known) else known
    score = np.where(cells.labelled, cells.right, 0.0)[known]
    kinds = _kinds(trie, arms)
    right = _shares(arms, kinds, np.bincount(arm, score, len(arms)))
    wrong = _shares(arms, kinds, np.bincount(arm, (1.0 - score) * cells.labelled[known], len(arms)))
    silent = ~trie.answerable[arms.source]  # no answer yet: unlabelled rows count as well
    if silent.any():
        either = _shares(arms, kinds, np.bincount(arm, minlength=len(arms)).astype(np.float64))
        wrong = np.where(silent, either, wrong)
    if arms.count[0] > 1:
        first = arms.find(np.zeros(cells.n_requests, np.int64), cells.first_stage)
        wrong = np.where(arms.source == 0, np.bincount(first, minlength=len(arms)) / max(cells.n_requests, 1), wrong)
    goes_on = 1.0 - rates.stop[arms.source]
    took_right = goes_on * rates.right_if_on[arms.source] * right
    return ArmRates.of(trie, arms, rates, took_right + goes_on * (1.0 - rates.right_if_on[arms.source]) * wrong, took_right)


def _kinds(trie: Trie, arms: Arms) -> tuple[Ints, Ints]:
    """Return two ids for each branch, shape (branches,) each.

    Branches with an equal first id have the same stage, set of branches at their node, and next stage. Branches with an equal
    second id also have the same model.
    """
    sets = sets_of_arms(trie, arms)[arms.source]
    stage, model = trie.stage[arms.source].astype(np.int64) + 1, trie.model[arms.source].astype(np.int64) + 1
    kind = (stage * (int(sets.max(initial=0)) + 1) + sets) * (len(trie.stages) + 1) + arms.stage
    of_stage = np.unique(kind, return_inverse=True)[1]
    of_model = np.unique(of_stage * (len(trie.models) + 2) + model, return_inverse=True)[1]
    return np.asarray(of_stage, np.int64), np.asarray(of_model, np.int64)


def sets_of_arms(trie: Trie, arms: Arms) -> Ints:
    """Return an id for the set of stages that may come next at each node, shape (nodes,).

    Nodes with the same set have the same id.
    """
    number = np.zeros(len(trie), np.int64)
    for order in range(int(arms.count.max(initial=0))):
        has = arms.count > order
        stage = np.zeros(len(trie), np.int64)
        stage[has] = arms.stage[arms.first[has] + order] + 1
        number = np.asarray(np.unique(number * (len(trie.stages) + 1) + stage, return_inverse=True)[1], np.int64)
    return number


def _shares(arms: Arms, kinds: tuple[Ints, Ints], taken: npt.NDArray[Any]) -> FloatArray:
    """Return the shrunk estimate of each branch's share of the requests that continue at its node, shape (branches,).

    ``taken`` is the number of requests observed to take each branch. ``kinds`` has the ids from :func:`_kinds`; the shares of
    branches with equal ids are pooled.
    """
    at = np.bincount(arms.source, taken, len(arms.count))[arms.source]
    share = 1.0 / arms.count[arms.source]
    for kind in kinds:
        total, of_all = np.bincount(kind, taken)[kind], np.bincount(kind, at)[kind]
        share = (total + KIND_WEIGHT * share) / (of_all + KIND_WEIGHT)
    return np.asarray((taken + NODE_WEIGHT * share) / (at + NODE_WEIGHT), dtype=np.float64)
