"""The result of comparing served results with a trie."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Direction = Literal["up", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One annotated quantity of one node that has moved: served results no longer match it.

    Attributes:
        node, path, stage: the node, the models of its path, and the stage of its last call.
        quantity: ``"stop"``, ``"dollars"``, ``"seconds"``, or ``"signal LABEL"`` for the share of a label.
        direction: whether the quantity rose (``"up"``) or fell (``"down"``).
        annotated: the trie's value, conditional on the request reaching the node.
        seen: the quantity's mean over the results since the change.
        count: the number of results that ``seen`` averages.
        since: the position, from 1, among the node's results at which the change most probably happened; an estimate without an
            interval.
        since_request: the id of the request with that result.
        noticed: the position, from 1, among the node's results at which the change was noticed.
    """

    node: int
    path: tuple[str, ...]
    stage: str
    quantity: str
    direction: Direction
    annotated: float
    seen: float
    count: int
    since: int
    since_request: str
    noticed: int

    @property
    def model(self) -> str:
        """The model of the call at :attr:`node`."""
        return self.path[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return this drift as plain JSON types."""
        return {**asdict(self), "path": list(self.path)}


@dataclass(frozen=True, kw_only=True)
class DriftReport:
    """The number of results that were compared, and the annotated quantities that have moved.

    Attributes:
        alpha: the chance of any false alarm.
        rows, nodes: the numbers of results and nodes that were compared.
        moved: the quantities that have moved, in the order in which this was noticed.
        unplaced: results of paths that the trie lacks, or after an answer that passed the workflow's check; not compared.
        left_out: results of later calls that were not compared. Plans that use signals select, by earlier answers, which
            requests make these calls.
        under_load: results whose seconds were not compared, because other calls were in flight on the engine when the result's
            call began.
    """

    alpha: float
    rows: int
    nodes: int
    moved: tuple[Moved, ...]
    unplaced: int = 0
    left_out: int = 0
    under_load: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        return {**asdict(self), "moved": [one.to_dict() for one in self.moved]}
