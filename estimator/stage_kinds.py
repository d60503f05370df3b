"""The request types that the stages of a trie stand for, and how estimates treat each type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.estimator.shrinkage import Amounts, of_all, shrunk_group_mean
from vinelm.template import Template
from vinelm.trie import Trie
from vinelm.trie.arrays import FloatArray

Ints = npt.NDArray[np.int64]
Labels = tuple[str, Sequence[npt.NDArray[np.int64]]]

KIND_ROWS = 4.0
"""Pseudo-observations that shrink the amounts of one request type towards those of all types."""
FURTHER_REQUESTS = 100.0
"""The number of further requests of each request type that are predicted, in addition to those of the profile."""


class OneKind:
    """How estimates treat request types if none are declared: all requests are of one type."""

    prior = staticmethod(of_all)
    """The prior of a pooled mean; see :data:`vinelm.estimator.shrinkage.Prior`."""

    def labelled(self, stage: Ints, model: Ints) -> tuple[Ints, list[Labels]]:
        """Return the application's stage of each node, and further features that distinguish the nodes of different request
        types.

        Each feature is a pair: its name, and arrays with a number for each node. Here the stages are returned unchanged, and
        there are no features.

        Args:
            stage: for each node, the index of its stage in the template.
            model: for each node, the index of its model.
        """
        return stage, []

    def further(self, of_kind: FloatArray, of_all: FloatArray) -> FloatArray:
        """Return zeros, shape (nodes, points): without request types, no predicted outcomes are added to the observed outcomes.

        The arguments do not matter; see :meth:`StageKinds.further`.
        """
        return np.zeros_like(of_kind)


ONE_KIND = OneKind()


@dataclass(frozen=True, eq=False)
class StageKinds(OneKind):
    """For each stage of a template that distinguishes request types: the application's stage and the type that it stands for.

    Attributes:
        stage: The application's stage, as an index into the stages of the template without types; shape (stages,).
        kind: The request type, as an index into ``Template.kinds``; shape (stages,).
    """

    stage: Ints
    kind: Ints

    @staticmethod
    def of(template: Template) -> OneKind:
        """Return a template's :class:`StageKinds`, or :data:`ONE_KIND` if the template does not distinguish request types."""
        stage = np.array(template.base_numbers, np.int64)
        kind = np.arange(len(stage)) // (1 + stage.max())
        return StageKinds(stage, kind) if kind.any() else ONE_KIND

    def labelled(self, stage: Ints, model: Ints) -> tuple[Ints, list[Labels]]:
        """Return the application's stage of each node, and two features: the request type, and that type with the model.

        A feature is (name, arrays with a label for each node); see :meth:`OneKind.labelled`.
        """
        kind = self.kind[stage]
        return self.stage[stage], [("kind", (kind,)), ("suited", (kind, model))]

    def further(self, of_kind: FloatArray, of_all: FloatArray) -> FloatArray:
        """Return how many predicted outcomes to add to the observed outcomes of a request type; shape (nodes, points).

        There is a number for each node and each point of the grid of latent difficulties. If few requests of a type were
        observed, their outcomes alone would favour a model that was lucky on them.

        Args:
            of_kind: the number of observed requests that begin at each node, by grid point; shape (nodes, points).
            of_all: the number of observed requests of all types, by grid point; shape (points,).
        """
        mix = of_kind + of_all / of_all.sum()
        return np.asarray(FURTHER_REQUESTS * mix / mix.sum(axis=1, keepdims=True))

    def prior(self, trie: Trie, amounts: Amounts, overall: FloatArray, weight: float) -> tuple[FloatArray, float]:
        """Return the value that a model's mean is shrunk towards at each node, shape (nodes,), and the weight of this value.

        The value is the mean of the node's model and stage over all types, times a factor of the node's type. The weight is
        that of :data:`KIND_ROWS` results.

        Args:
            trie: The trie.
            amounts: The sum of the values of each node, and their number.
            overall: The overall mean, towards which the means over all types are shrunk; shape (nodes,).
            weight: Number of pseudo-observations of ``overall``.
        """
        total, count = amounts
        at = np.maximum(trie.stage, 0)
        group = self.stage[at] * len(trie.models) + np.maximum(trie.model, 0)
        n_groups = (int(self.stage.max()) + 1) * len(trie.models)
        of_all = shrunk_group_mean(group, n_groups, total=total, count=count, towards=overall, weight=weight)
        kind, n_kinds = self.kind[at], int(self.kind.max()) + 1
        expected = np.maximum(np.bincount(kind, count * of_all, n_kinds), 1e-300)
        row = float(of_all.mean()) * KIND_ROWS
        factor = (np.bincount(kind, total, n_kinds) + row) / (expected + row) if row > 0.0 else np.ones(n_kinds)
        used = count[count > 0]
        per_row = float(min(used.mean(), 1.0)) if len(used) else 1.0  # the weight of one row in ``count``
        return np.asarray(of_all * factor[kind], dtype=np.float64), KIND_ROWS * per_row
