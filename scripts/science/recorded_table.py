"""Complete tables of recorded outcomes (request x node): exact annotations, and the ground truth of evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vinelm.catalog import Catalog
from vinelm.estimator import ObservationTable
from vinelm.io.frames import data_frame
from vinelm.rows.observation import Observation
from vinelm.template import StopRule, Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray, FloatArray

Ints = npt.NDArray[np.int64]

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class RecordedTable:
    """The recorded outcome of every request at every node, as if each path had been run to its end without stopping.

    Args:
        template: Bound to ``catalog``; its stop rule determines :attr:`ended`.
        catalog: The models.
        trie: The nodes; n without the root.
        request_ids: The requests, in row order.
        success: The answer after the node is correct, or its score in [0, 1]; shape (requests, n + 1), column 0 being the root.
        stopped: The workflow's own check ended the request at the node; same shape.
        cost_usd: Dollars of the node's invocation and the tools after it; same shape.
        latency_s: Seconds of the node's invocation and the tools after it; same shape.
        failed: The invocation failed, which ends the request without a correct answer; same shape, None if none failed.
        arm: The stage that came next, as an index into ``trie.stages``, -1 where the request ended; same shape, column 0 being
            the first stage. None where the template is linear. Entries that the request does not reach have no meaning.
    """

    template: Template
    catalog: Catalog
    trie: Trie
    request_ids: tuple[str, ...]
    success: npt.NDArray[Any]
    stopped: BoolArray
    cost_usd: FloatArray
    latency_s: FloatArray
    failed: BoolArray | None = None
    arm: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        shape = (len(self.request_ids), len(self.trie))
        for name in ("success", "stopped", "cost_usd", "latency_s"):
            found = getattr(self, name).shape
            if found != shape:
                raise ValueError(f"{name} has shape {found}, the table needs {shape}")
        if (self.arm is None) != self.template.is_linear:
            raise ValueError("a table has `arm` exactly where its template branches")

    @classmethod
    def from_answers(
        cls,
        template: Template,
        catalog: Catalog,
        request_ids: Sequence[str],
        *,
        success: BoolArray,
        stopped: BoolArray,
        cost_usd: FloatArray,
        latency_s: FloatArray,
    ) -> RecordedTable:
        """Return the table of a cascade in which each model answers a request in the same way at any depth.

        Args:
            template: A bound template.
            catalog: Its models.
            request_ids: The requests, in row order.
            success: The model's answer is correct; shape (requests, models), columns in the order of ``template.models``.
            stopped: The workflow's own check accepts the model's answer; same shape.
            cost_usd: Dollars of one invocation; same shape.
            latency_s: Seconds of one invocation; same shape.
        """
        trie = Trie.from_template(template)

        def spread(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            table = values[:, trie.model]
            table[:, 0] = 0
            return table

        return cls(
            template=template,
            catalog=catalog,
            trie=trie,
            request_ids=tuple(request_ids),
            success=spread(success),
            stopped=spread(stopped),
            cost_usd=spread(cost_usd),
            latency_s=spread(latency_s),
        )

    def with_stop(self, stop: StopRule) -> RecordedTable:
        """Return the same outcomes under another stop rule."""
        return replace(self, template=self.template.with_stop(stop))

    def rows(self, requests: Sequence[int]) -> RecordedTable:
        """Return the table of these rows only, given by index."""
        keep = np.asarray(requests, dtype=np.intp)
        arrays = {name: getattr(self, name)[keep] for name in ("success", "stopped", "cost_usd", "latency_s")}
        if self.failed is not None:
            arrays["failed"] = self.failed[keep]
        if self.arm is not None:
            arrays["arm"] = self.arm[keep]
        return replace(self, request_ids=tuple(self.request_ids[i] for i in keep), **arrays)

    @cached_property
    def ended(self) -> BoolArray:
        """True where the request ends at the node, since the stop rule fires or the invocation failed. Shape of ``success``."""
        ended = (self.success if self.template.stop == "oracle" else self.stopped).astype(np.bool_)
        if self.failed is not None:
            ended |= self.failed
        ended[:, 0] = False
        return ended

    @cached_property
    def reached(self) -> BoolArray:
        """True where a request that follows the path invokes the node: no proper ancestor ended it; shape (requests, n + 1).

        On a template that branches, the request also has to take the arms of the path.
        """
        reached = np.ones_like(self.ended)
        for level in self.trie.levels[1:]:
            up = self.trie.parent[level]
            reached[:, level] = reached[:, up] & ~self.ended[:, up]
            if self.arm is not None:
                reached[:, level] &= self.arm[:, up] == self.trie.stage[level]
        return reached

    @cached_property
    def answer_success(self) -> BoolArray:
        """True where the answer is correct when the request follows the path to the node and stops where it ends earlier."""
        right = self.success.copy()
        for level in self.trie.levels[1:]:
            up = self.trie.parent[level]
            right[:, level] = np.where(self.reached[:, level], self.success[:, level], right[:, up])
        return right

    @cached_property
    def exhaustive_cost_usd(self) -> float:
        """Dollars of executing every request on every reached node once: the denominator of coverage."""
        return float((self.cost_usd * self.reached)[:, 1:].sum())

    @cached_property
    def naive_cost_usd(self) -> float:
        """Dollars of running every request on every leaf path from the root without sharing prefixes; early stops count."""
        spent = self.cost_usd * self.reached
        spent[:, 0] = 0.0  # what runs before the first invocation is no choice, and exhaustive_cost_usd leaves it out too
        return float(self.trie.accumulate(spent)[:, self.trie.is_leaf].sum())

    def cells(self, bought: BoolArray, in_flight: FloatArray | None = None) -> ObservationTable:
        """Return these cells of a tree, encoded for an estimator; both arrays have the shape of ``success``."""
        node, request = np.nonzero(bought.T)  # by node, then request
        names = sorted({self.request_ids[i] for i in np.unique(request)})
        rank = {name: i for i, name in enumerate(names)}
        place = np.array([rank[self.request_ids[i]] for i in request], np.int64)
        at = np.lexsort((place, node))
        node, request, place = node[at].astype(np.int64), request[at], place[at]
        failed = np.zeros(len(node), np.bool_) if self.failed is None else self.failed[request, node]
        return ObservationTable.from_arrays(
            trie=self.trie, rule=self.template.stop, request_ids=tuple(names), request=place, node=node,
            stop=self.ended[request, node], right=self.success[request, node], labelled=np.ones(len(node), np.bool_),
            failed=failed, cost_usd=self.cost_usd[request, node], latency_s=self.latency_s[request, node],
            above=_nodes_above(self.trie, place, node), in_flight=None if in_flight is None else in_flight[request, node],
        )  # fmt: skip

    def observation(self, request: int, node: int) -> Observation:
        """Return the observation that a profiler would have stored for this cell, given by row and node."""
        has_failed = self.failed is not None and bool(self.failed[request, node])
        return Observation(
            request_id=self.request_ids[request],
            prefix=self.trie.prefix(node),
            stage=self.trie.stages[self.trie.stage[node]],
            success=None if has_failed else self.success[request, node].item(),
            stopped=None if has_failed else bool(self.stopped[request, node]),
            cost_usd=float(self.cost_usd[request, node]),
            latency_s=float(self.latency_s[request, node]),
            failure="unknown" if has_failed else None,
            arm=self._arm(request, node),
        )

    def _arm(self, request: int, node: int) -> str | None:
        if self.arm is None or self.ended[request, node] or self.arm[request, node] < 0:
            return None
        return self.trie.stages[int(self.arm[request, node])]

    def to_pandas(self) -> pandas.DataFrame:
        """Return one row per request and node but the root, requests outermost. Needs the extra ``pandas``.

        Columns: ``request_id``, ``node``, ``prefix`` (a tuple of model names), ``depth``, ``stage``, ``model``, ``reached``,
        ``success``, ``stopped``, ``failed``, ``cost_usd``, ``latency_s``.

        Raises:
            ConfigError: pandas is not installed.
        """
        n_requests, n_nodes = len(self.request_ids), self.trie.n_nodes
        failed = np.zeros_like(self.success) if self.failed is None else self.failed
        arrays: dict[str, npt.NDArray[Any]] = {
            "reached": self.reached,
            "success": self.success,
            "stopped": self.stopped,
            "failed": failed,
        }
        arrays |= {"cost_usd": self.cost_usd, "latency_s": self.latency_s}
        columns: dict[str, Any] = {
            "request_id": [request_id for request_id in self.request_ids for _ in range(n_nodes)],
            "node": np.tile(np.arange(1, n_nodes + 1), n_requests),
        }
        columns |= {name: values * n_requests for name, values in self.trie.labels().items()}
        return data_frame(columns | {name: values[:, 1:].ravel() for name, values in arrays.items()})

    def annotate(self) -> AnnotatedTrie:
        """Return the exact annotations: means over the requests that reach each node.

        A node that no request reaches gets the means over all requests; its weight in every path metric is zero.
        """
        weight = self.reached.astype(float)
        weight[:, weight.sum(axis=0) == 0] = 1.0
        total = weight.sum(axis=0)

        def mean(values: FloatArray | BoolArray) -> FloatArray:
            return np.asarray((values * weight).sum(axis=0) / total, dtype=np.float64)

        cost, latency = mean(self.cost_usd), mean(self.latency_s)
        return AnnotatedTrie(
            trie=self.trie,
            template=self.template,
            catalog=self.catalog,
            success=mean(self.success),
            stop=mean(self.ended),
            stop_success=mean(self.ended * self.success),
            cost_usd=cost,
            cost_var=mean((self.cost_usd - cost) ** 2),
            latency_s=latency,
            latency_var=mean((self.latency_s - latency) ** 2),
            count=self.reached.sum(axis=0),
            **self._arms(weight),
            meta={"estimator": "exact", "requests": len(self.request_ids)},
        )

    def _arms(self, weight: FloatArray) -> dict[str, Any]:
        """P(the node's stage comes next) and P(that, and the parent's answer is correct) among the requests at the parent."""
        if self.arm is None:
            return {}
        up = np.maximum(self.trie.parent, 0)
        took = (self.arm[:, up] == self.trie.stage) & ~self.ended[:, up]
        arm = (took * weight[:, up]).sum(axis=0) / weight[:, up].sum(axis=0)
        right = (took * self.success[:, up] * weight[:, up]).sum(axis=0) / weight[:, up].sum(axis=0)
        arm[0], right[0] = 1.0, 0.0
        right[~self.trie.answerable[up]] = 0.0
        return {"arm": arm, "arm_success": right}


def _nodes_above(trie: Trie, request: Ints, node: Ints) -> Ints:
    """The cell of its request's longest observed prefix above each cell of a tree, as an index; -1 if there is none."""
    key = request * len(trie) + node
    order = np.argsort(key, kind="stable")
    found = np.full(len(node), -1, np.int64)
    waiting, ancestor = np.arange(len(node)), trie.parent[node].astype(np.int64)
    while True:
        waiting, ancestor = waiting[ancestor > 0], ancestor[ancestor > 0]
        if not len(waiting):
            return found
        wanted = request[waiting] * len(trie) + ancestor
        at = order[np.minimum(np.searchsorted(key, wanted, sorter=order), len(key) - 1)]
        is_there = key[at] == wanted
        found[waiting[is_there]] = at[is_there]
        waiting, ancestor = waiting[~is_there], trie.parent[ancestor[~is_there]].astype(np.int64)
