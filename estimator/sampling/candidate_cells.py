"""The cells that a round may add to those of the base design: reached by rows that exist, and proposed by nobody else."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from vinelm.estimator.observation_table import ObservationTable
from vinelm.observation import Observation
from vinelm.protocols import RequestPath
from vinelm.trie import BoolArray


class CandidateCells:
    """For each node, the requests that can be executed there at the price of one invocation.

    These are the requests whose row at the node's parent goes on (all requests, below the root) and that have no row at the
    node. What a cell leads to is not known before the next round.

    Requests with few first answers come first, in random order: the base design asks many models about the same requests, and
    more of the same would say little about the others. First answers do not depend on how earlier ones turned out.

    Args:
        rows: The rows so far, those below a passed check included: nothing else is open there.
        cells: The same rows, encoded.
        request_ids: The requests of the profile.
        reserved: Paths that are proposed already; no cell on them is open.
        rng: Decides the order of requests with equally many first answers.
    """

    def __init__(
        self,
        rows: Iterable[Observation],
        cells: ObservationTable,
        request_ids: Sequence[str],
        reserved: Iterable[RequestPath],
        rng: random.Random,
    ) -> None:
        self.trie = cells.trie
        self._known = {(row.request_id, row.prefix) for row in rows}
        self._rows: dict[int, dict[str, bool]] = defaultdict(dict)
        n_first = dict.fromkeys(request_ids, 0)
        for request, node, stop in zip(cells.request.tolist(), cells.node.tolist(), cells.stop.tolist(), strict=True):
            name = cells.request_ids[request]
            if name in n_first:
                self._rows[node][name] = stop
                n_first[name] += int(self.trie.depth[node]) == 1
        self._order = list(request_ids)
        rng.shuffle(self._order)
        self._order.sort(key=lambda name: n_first[name])
        self._reserved: dict[int, set[str]] = defaultdict(set)
        for path in reserved:
            for node in self.nodes(path):
                self._reserved[node].add(path.request_id)
        self._requests: dict[int, list[str]] = {}

    def nodes(self, path: RequestPath) -> list[int]:
        """Return the nodes along a path, from the first invocation's."""
        return self.trie.path(self.trie.node(tuple(str(name) for name in path.path)))

    def first_new(self, path: RequestPath) -> int | None:
        """Return the first node of a path at which its request has no row; None if it has all of them."""
        models = tuple(str(name) for name in path.path)
        new = (node for k, node in enumerate(self.nodes(path), 1) if (path.request_id, models[:k]) not in self._known)
        return next(new, None)

    def is_open(self, node: int) -> bool:
        """Return whether some request can be executed at the node."""
        return bool(self._of(node))

    def open_nodes(self) -> BoolArray:
        """Return :meth:`is_open` for every node, shape (n + 1,); False at the root."""
        return np.array([node > 0 and self.is_open(node) for node in range(len(self.trie))], np.bool_)

    def take(self, node: int) -> str:
        """Remove and return the next request of an open node."""
        return self._of(node).pop()

    def _of(self, node: int) -> list[str]:
        """The open requests of a node, the next one last."""
        if node not in self._requests:
            up = int(self.trie.parent[node])
            above = self._rows.get(up, {})
            reached = self._order if up == 0 else [name for name in self._order if above.get(name) is False] if above else []
            taken = self._rows.get(node, {}).keys() | self._reserved.get(node, set())
            self._requests[node] = [name for name in reversed(reached) if name not in taken]
        return self._requests[node]
