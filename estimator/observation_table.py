"""Observations as arrays with an entry for each executed call (a pair of request and node), validated against the template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vinelm.errors import EvidenceError, InputError
from vinelm.estimator.arms import arms_of
from vinelm.estimator.row_nodes import below_a_stop, cells_above, rows_with_nodes, told_arms, where_of
from vinelm.estimator.stage_kinds import ONE_KIND, OneKind, StageKinds
from vinelm.rows.observation import Cell, Observation
from vinelm.template import StopRule, Template
from vinelm.template.stop_rules import ENDED_BY
from vinelm.trie import Trie
from vinelm.trie.arrays import BoolArray, FloatArray

Ints = npt.NDArray[np.int64]
_PER_CELL = ("node", "stop", "right", "labelled", "failed", "cost_usd", "latency_s", "in_flight", "arm")


@dataclass(frozen=True, eq=False)
class ObservationTable:
    """The results as arrays of shape (results,), sorted by node, then request id. The order of the observations has no effect.

    Only results at nodes that the request *reaches* are kept, because results after the request's stop carry no information
    about conditional rates.

    Args:
        trie: the trie of the template's prefixes.
        rule: the stop rule.
        request_ids: the distinct requests, sorted.
        request: the request of each result, an index into ``request_ids``.
        node: the index of the result's node in the trie.
        stop: whether the request stops here under the stop rule; True for failed calls.
        right: whether the answer is right, or its score in [0, 1] if scores are graded; False for failed calls.
        labelled: whether ``right`` is known.
        failed: whether the call failed.
        cost_usd: cost in dollars, including the tools after the stage.
        latency_s: latency in seconds, including the tools after the stage; NaN if unknown.
        in_flight: number of calls in flight on the same engine when the call started.
        arm: the stage that came next, as an index into ``trie.stages``; -1 if the request ended here or this is unknown.
        n_beyond_stop: number of results that were dropped because they lie after a stop.
        kinds: the request types that the trie's stages stand for.
    """

    trie: Trie
    rule: StopRule
    request_ids: tuple[str, ...]
    request: Ints
    node: Ints
    stop: BoolArray
    right: BoolArray | FloatArray
    labelled: BoolArray
    failed: BoolArray
    cost_usd: FloatArray
    latency_s: FloatArray
    in_flight: FloatArray
    arm: Ints
    n_beyond_stop: int = 0
    kinds: OneKind = ONE_KIND

    def __len__(self) -> int:
        return len(self.node)

    @property
    def n_requests(self) -> int:
        """Number of distinct requests."""
        return len(self.request_ids)

    @cached_property
    def count(self) -> Ints:
        """Number of results of each node, shape (nodes,)."""
        return np.bincount(self.node, minlength=len(self.trie)).astype(np.int64)

    @cached_property
    def first_stage(self) -> Ints:
        """The stage that ran first in each request, as an index into ``trie.stages``; -1 if unknown; shape (requests,)."""
        only = arms_of(self.trie).only_stage[0]
        first = np.full(self.n_requests, only, np.int64)
        cells = np.flatnonzero(self.trie.depth[self.node] == 1)
        first[self.request[cells]] = self.trie.stage[self.node[cells]]
        return first

    @cached_property
    def count_by_depth(self) -> list[int]:
        """Number of results of each depth; the first number is that of depth 1."""
        per_depth = np.bincount(self.trie.depth[self.node], minlength=self.trie.max_depth + 1)
        return [int(n) for n in per_depth[1:]]

    def of_requests(self, keep: BoolArray) -> ObservationTable:
        """Return a table with only the requests selected by the mask ``keep``, shape (requests,)."""
        cells, place = self.of_cells(keep[self.request]), np.cumsum(keep) - 1
        names = tuple(name for name, is_kept in zip(self.request_ids, keep, strict=True) if is_kept)
        return replace(cells, request_ids=names, request=place[cells.request], n_beyond_stop=0)

    def of_cells(self, keep: BoolArray) -> ObservationTable:
        """Return a table with only the results selected by the mask ``keep``, shape (results,), and with the same requests."""
        return replace(self, request=self.request[keep], **{name: getattr(self, name)[keep] for name in _PER_CELL})

    @classmethod
    def from_observations(cls, observations: Iterable[Observation], template: Template, trie: Trie) -> ObservationTable:
        """Validate and encode observations. Identical observations of a call count once.

        Raises:
            InputError: a prefix or stage is not in the template, a call has two different results, or a result lacks the
                outcome that the stop rule needs.
            EvidenceError: there are no results.
        """
        rows: dict[Cell, Observation] = {}
        node_of: dict[Cell, int] = {}
        for row, node in rows_with_nodes(observations, trie, template.stop):
            _check_labels(row, template.stop)
            node_of[row.request_id, row.prefix] = node
            if rows.setdefault((row.request_id, row.prefix), row) != row:
                raise InputError(f"{where_of(row)}: two different rows for one cell: keep one of them")
        if not rows:
            raise EvidenceError("no observation to estimate from: profile some requests first")
        request_ids = tuple(sorted({request for request, _ in rows}))
        index = {name: i for i, name in enumerate(request_ids)}
        order = sorted(rows, key=lambda cell: (node_of[cell], cell))
        kept = [rows[key] for key in order]
        numbers: dict[str | None, int] = {name: number for number, name in enumerate(trie.stages)}
        return cls.from_arrays(
            trie=trie,
            rule=template.stop,
            request_ids=request_ids,
            request=np.array([index[request] for request, _ in order], np.int64),
            node=np.array([node_of[cell] for cell in order], np.int64),
            stop=np.array([row.ended(template.stop) for row in kept], np.bool_),
            right=_right(kept),
            labelled=np.array([row.success is not None or row.failure is not None for row in kept], np.bool_),
            failed=np.array([row.failure is not None for row in kept], np.bool_),
            cost_usd=np.array([row.cost_usd + row.tool_cost_usd for row in kept], np.float64),
            latency_s=np.array([row.latency_s + row.tool_latency_s for row in kept], np.float64),
            in_flight=np.array([row.in_flight for row in kept], np.float64),
            arm=np.array([-1 if row.ended(template.stop) else numbers.get(row.arm, -1) for row in kept], np.int64),
            above=cells_above(order),
            kinds=StageKinds.of(template),
        )

    @classmethod
    def from_arrays(
        cls,
        *,
        trie: Trie,
        rule: StopRule,
        request_ids: tuple[str, ...],
        request: Ints,
        node: Ints,
        stop: BoolArray,
        right: BoolArray | FloatArray,
        labelled: BoolArray,
        failed: BoolArray,
        cost_usd: FloatArray,
        latency_s: FloatArray,
        above: Ints,
        in_flight: FloatArray | None = None,
        arm: Ints | None = None,
        kinds: OneKind = ONE_KIND,
    ) -> ObservationTable:
        """Build the table from validated arrays; leave out results of calls after the stop rule has ended their request.

        All arrays have the shape (results,) and are sorted by node, then request. ``above`` gives the index of the previous
        result on the request's path; -1 if there is none. Without ``in_flight``, the engines count as idle. ``arm`` gives the
        stage that came next; -1 if it is unknown or follows from a later result or the template.
        """
        in_flight = np.zeros(len(node)) if in_flight is None else in_flight
        arm = np.full(len(node), -1, np.int64) if arm is None else arm
        keep = ~below_a_stop(trie, node, stop, above)
        arm = told_arms(trie, node, stop, arm, above)
        return cls(
            trie, rule, request_ids, request[keep], node[keep], stop[keep], right[keep], labelled[keep], failed[keep],
            cost_usd[keep], latency_s[keep], in_flight[keep], arm[keep], n_beyond_stop=int((~keep).sum()), kinds=kinds,
        )  # fmt: skip


def _check_labels(row: Observation, rule: StopRule) -> None:
    name = ENDED_BY[rule]
    if getattr(row, name) is None and row.failure is None:
        raise InputError(
            f"{where_of(row)}: {name} is unknown, but the {rule} stop needs it: score the rows, or use the other stop rule"
        )
    if rule == "oracle" and row.failure is None and row.success not in (0, 1):
        raise InputError(
            f"{where_of(row)}: the score is {row.success}, but the oracle stop needs right or wrong:"
            " use the stop rule 'workflow'"
        )


def _right(rows: Sequence[Observation]) -> BoolArray | FloatArray:
    """Return whether each result is correct, as booleans, or as scores if some score is strictly between 0 and 1."""
    scores = np.array([float(row.success or 0.0) if row.failure is None else 0.0 for row in rows], np.float64)
    is_plain = (scores == 0.0) | (scores == 1.0)
    return scores == 1.0 if is_plain.all() else scores
