"""The probabilities of a merged trie's nodes for requests of different difficulty.

A plan changes which requests reach a node; with these rates, its results are computed for the requests that do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vinelm.errors import VineLMError
from vinelm.trie.arrays import FloatArray

ARM_ARRAYS = ("arm", "arm_success")
"""Annotations of the branch that leads to a node, if the application chooses between several stages."""
DIFFICULTY_ARRAYS = ("weight", "success", "stop", "stop_success", *ARM_ARRAYS)
"""The arrays of :class:`DifficultyRates`, as they are named in a ``.vine`` file."""


class BranchingRates:
    """A base class of objects with rates of nodes and, if several stages may follow a node, of the branches that leave it."""

    success: FloatArray
    stop: FloatArray
    stop_success: FloatArray
    arm: FloatArray | None
    arm_success: FloatArray | None

    @property
    def missing_arms(self) -> list[str]:
        """The names of those of :data:`ARM_ARRAYS` that are None."""
        return [name for name in ARM_ARRAYS if getattr(self, name) is None]

    def arms_at(self, source: Any, items: Any = slice(None)) -> tuple[Any, Any]:
        """Return the chances that a branch comes next, and that it does while the answer so far is right, for some branches.

        If the arrays are None, one stage can follow each node: it follows unless the request stops.

        Args:
            source: the node that each branch leaves, or one node.
            items: the index of each branch, or of one branch; by default all.
        """
        if self.arm is None or self.arm_success is None:
            return 1.0 - self.stop[source], self.success[source] - self.stop_success[source]
        return self.arm[items], self.arm_success[items]


@dataclass(frozen=True, eq=False)
class DifficultyRates(BranchingRates):
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
        if len(self.missing_arms) == 1:
            raise VineLMError("difficulty has arm and arm_success both or neither")
        for name in DIFFICULTY_ARRAYS[1:]:
            values = getattr(self, name)
            if values is None:
                continue
            if values.ndim != 2 or values.shape[1:] != points:
                raise VineLMError(f"difficulty.{name} has shape {values.shape}: it needs one column for each of {points}")
