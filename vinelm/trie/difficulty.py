"""The probabilities of a merged trie's nodes for requests of different difficulty.

A plan changes which requests reach a node; with these rates, its results are computed for the requests that do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.errors import VineLMError
from vinelm.trie.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class DifficultyRates:
    """The probabilities of every node for requests of each difficulty (docs/estimators.md). Difficulties are numbered.

    The annotations of a merged node are means over the requests that reach it in the profile. Under a plan, other requests
    reach it: after a strong model, the continuing requests are harder. With these rates, a plan is evaluated for the requests
    that reach each node under it.

    Args:
        weight: share of all requests that have each difficulty, shape (difficulties,).
        success, stop, stop_success: the rates of :class:`~vinelm.trie.annotated_trie.AnnotatedTrie` for each node and
            difficulty, shape (nodes, difficulties).
        arm, arm_success: P(the branch comes next), and P(the branch comes next and the answer before it is correct), given that
            its source is reached; shape (branches, difficulties) in the order of :attr:`MergedTrie.edge_arm`. None if only one
            stage can follow each node.

    Raises:
        VineLMError: the shapes do not fit.
    """

    weight: FloatArray
    success: FloatArray
    stop: FloatArray
    stop_success: FloatArray
    arm: FloatArray | None = None
    arm_success: FloatArray | None = None

    def __post_init__(self) -> None:
        points = self.weight.shape
        if (self.arm is None) != (self.arm_success is None):
            raise VineLMError("difficulty has arm and arm_success both or neither")
        for name in (*DIFFICULTY_ARRAYS[1:], *DIFFICULTY_ARM_ARRAYS):
            values = getattr(self, name)
            if values is None:
                continue
            if values.ndim != 2 or values.shape[1:] != points:
                raise VineLMError(f"difficulty.{name} has shape {values.shape}: it needs one column for each of {points}")

    def arms(self, source: npt.NDArray[np.integer[Any]]) -> tuple[FloatArray, FloatArray]:
        """Return P(the branch comes next), and P(the branch comes next and the answer before it is correct), for each branch.

        Both arrays have shape (branches, difficulties); the probabilities are given that the branch's source is reached. They
        are :attr:`arm` and :attr:`arm_success`. If these are None, one stage can follow each node, and follows unless the
        request stops.

        Args:
            source: the node that each branch leaves, shape (branches,).
        """
        if self.arm is None or self.arm_success is None:
            return 1.0 - self.stop[source], (self.success - self.stop_success)[source]
        return self.arm, self.arm_success


DIFFICULTY_ARRAYS = ("weight", "success", "stop", "stop_success")
"""The arrays of :class:`DifficultyRates`, as they are named in a ``.vine`` file."""
DIFFICULTY_ARM_ARRAYS = ("arm", "arm_success")
"""The arrays of :class:`DifficultyRates` that only a trie with branches has."""
