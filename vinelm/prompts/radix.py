"""A radix tree of prompts, which shows what prompts of the same stage or request have in common.

It tells which tokens all requests of a stage send, several requests send, or one request sends repeatedly.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from vinelm.prompts.shape import BLOCK_TOKENS, Shape

IntArray: TypeAlias = npt.NDArray[np.integer[Any]]

STATIC_SHARE = 0.9
"""The share of a stage's requests that send a prefix for it to be static."""


@dataclass(frozen=True, slots=True)
class TokensByLabel:
    """Approximate numbers of a call's tokens, in four groups.

    The group of a token depends on which other calls send the same prompt up to and including this token. Each token is
    in one group.

    Args:
        static: sent by at least :data:`STATIC_SHARE` of the stage's requests; 0 if the stage has only one request.
        shared: not ``static``, but sent by another request, from any stage.
        request: neither ``static`` nor ``shared``, but sent by another call of the same request.
        own: sent by no other call.
    """

    static: float
    shared: float
    request: float
    own: float

    @property
    def total(self) -> float:
        """The number of tokens of the whole prompt, approximately."""
        return self.static + self.shared + self.request + self.own


class PromptTree:
    """A radix tree of prompts: prompts with a common prefix share the prefix's nodes. A prompt of 2,000 tokens takes
    about 300 bytes and 20 µs.

    Prompts are added as shapes (hashes of their prefixes), all made with the same key.
    """

    def __init__(self) -> None:
        self._stages: dict[str, int] = {}
        self._requests: dict[str, int] = {}
        self._calls = (array("I"), array("I"), array("I"))  # stage, request and last node of each call
        # An edge is a slice of two flat arrays; node 0 is the root, whose edge is empty.
        self._digests, self._tokens = array("Q"), array("I")
        self._start, self._stop, self._parent = array("I", [0]), array("I", [0]), array("I", [0])
        self._child: dict[int, int] = {}  # a digest identifies its whole prefix, so that nodes need no table of their children

    def __len__(self) -> int:
        return len(self._calls[0])

    def add(self, stage: str, request: str, shape: Shape) -> None:
        """Add the prompt of a call of a stage, given by its shape; ``request`` is the id of the call's request."""
        digests, tokens = points_of(shape)
        node, at, split = self._found(digests)
        if split is not None:
            node = self._split(node, split)
        if at < len(digests):
            start = len(self._digests)
            self._digests.extend(digests[at:])
            self._tokens.extend(tokens[at:])
            node = self._new(start, len(self._digests), node)
        stages, requests, ends = self._calls
        stages.append(self._stages.setdefault(stage, len(self._stages)))
        requests.append(self._requests.setdefault(request, len(self._requests)))
        ends.append(node)

    def longest_match(self, shape: Shape) -> int:
        """Return the approximate number of tokens in the longest prefix of the given prompt that some prompt in the
        tree begins with.
        """
        digests, tokens = points_of(shape)
        at = self._found(digests)[1]
        return tokens[at - 1] if at else 0

    def labels(self) -> IntArray:
        """Return, for each added prompt, the numbers of its tokens in four groups, shape (calls, 4).

        The columns are the fields of :class:`TokensByLabel`, which depend on how many other calls send the same tokens. All
        prompts added so far count. Takes about half a second for 100,000 calls.
        """
        stages, requests, ends = (np.asarray(column, np.int64) for column in self._calls)
        n_stages, n_requests = max(len(self._stages), 1), max(len(self._requests), 1)
        call, node = _passed(ends, np.asarray(self._parent, np.int32))
        tokens = np.asarray(self._tokens, np.int64)[np.asarray(self._stop, np.int64)[node] - 1]
        pair, inverse, times = np.unique(
            node.astype(np.int64) * n_requests + requests[call], return_inverse=True, return_counts=True
        )
        others = np.bincount(pair // n_requests, minlength=len(self._parent))[node]
        of_stage = np.bincount(np.unique(stages * n_requests + requests) // n_requests, minlength=n_stages)[stages[call]]
        place = node.astype(np.int64) * n_stages + stages[call]
        passed, senders = np.unique(np.unique(place * n_requests + requests[call]) // n_requests, return_counts=True)
        is_static = (senders[np.searchsorted(passed, place)] >= STATIC_SHARE * of_stage) & (of_stage >= 2)
        reached = np.zeros((len(ends), 4), np.int64)  # tokens of the longest prefix with each label
        for column, chosen in enumerate((is_static, others >= 2, times[inverse] >= 2, others >= 1)):
            np.maximum.at(reached[:, column], call[chosen], tokens[chosen])
        return np.diff(np.maximum.accumulate(reached, axis=1), axis=1, prepend=0)

    def by_stage(self) -> dict[str, tuple[int, TokensByLabel]]:
        """Return (number of calls, mean tokens per call) of each stage, keyed by its name, in order of first appearance.

        The tokens are divided into the groups of :class:`TokensByLabel`. The means are rounded to one decimal.
        """
        rows, stages = self.labels(), np.asarray(self._calls[0])
        here = {name: rows[stages == number] for name, number in self._stages.items()}
        return {name: (len(some), TokensByLabel(*some.mean(axis=0).round(1).tolist())) for name, some in here.items()}

    def _found(self, digests: array[int]) -> tuple[int, int, int | None]:
        """Return how much of a prompt is in the tree, given the digests of the prompt's prefixes from short to long.

        Returns:
            Three items: the last node reached; how many of the digests, from the first on, are in the tree; where the
            match ends. The last item is an index into the tree's digests if the match ends within the edge that leads to
            the node; None if it ends at the node.
        """
        node = at = 0
        while at < len(digests):
            child = self._child.get(digests[at])
            if child is None:
                break
            start, stop = self._start[child], self._stop[child]
            known = _common(self._digests, start, stop, digests, at)
            at += known
            node = child
            if start + known < stop:
                return node, at, start + known
        return node, at, None

    def _split(self, node: int, at: int) -> int:
        """Insert a node into the edge that leads to ``node``, and return the inserted node; ``node`` keeps its number.

        ``at`` is the index in the tree's digests where the edge is divided.
        """
        upper = self._new(self._start[node], at, self._parent[node])
        self._start[node], self._parent[node] = at, upper
        self._child[self._digests[at]] = node
        return upper

    def _new(self, start: int, stop: int, parent: int) -> int:
        node = len(self._start)
        self._start.append(start)
        self._stop.append(stop)
        self._parent.append(parent)
        self._child[self._digests[start]] = node
        return node


def common_tokens(one: Shape, other: Shape) -> int:
    """Return the approximate number of tokens that the prompts ``one`` and ``other`` share at their beginning."""
    digests, tokens = points_of(one)
    others = points_of(other)[0]
    if not (digests and others and digests[0] == others[0]):
        return 0
    return tokens[_common(digests, 0, len(digests), others, 0) - 1]


def known_tokens(points: Iterable[int], tokens: Iterable[int], known: Container[int]) -> int:
    """Return how many tokens at the beginning of a prompt are known.

    The prompt's prefixes are tried from short to long, until the digest of one is not in ``known``. The result is the length of
    the last prefix before that one, in tokens; 0 if there is none.

    Args:
        points: Digests of the prompt's prefixes, from short to long, as :func:`points_of` returns them.
        tokens: The number of tokens at the end of each prefix.
        known: The digests that count as known.
    """
    found = 0
    for point, here in zip(points, tokens, strict=True):
        if point not in known:
            break
        found = here
    return found


def points_of(shape: Shape) -> tuple[array[int], array[int]]:
    """Return (digests, numbers of tokens) of those prefixes of a prompt that end with a block or with a part, from short to
    long.

    A block has :data:`BLOCK_TOKENS` tokens; a part is a message or a piece of a message.
    """
    digests, tokens = array("Q"), array("I")
    blocks, taken = shape.blocks, 0
    for end in shape.ends:
        whole = end.tokens // BLOCK_TOKENS
        if whole > taken:
            digests.extend(blocks[taken:whole])
            tokens.extend(range((taken + 1) * BLOCK_TOKENS, whole * BLOCK_TOKENS + 1, BLOCK_TOKENS))
            taken = whole
        if not digests or digests[-1] != end.digest:
            digests.append(end.digest)
            tokens.append(end.tokens)
    return digests, tokens


def _common(known: Sequence[int], start: int, stop: int, digests: Sequence[int], at: int) -> int:
    """Return how many digests ``known[start:stop]`` and ``digests[at:]`` have in common at their beginning.

    The first digests must be equal. Uses binary search: equal digests have equal digests before them.
    """
    low, high = 1, min(stop - start, len(digests) - at)
    while low < high:
        middle = (low + high + 1) // 2
        if known[start + middle - 1] == digests[at + middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


def _passed(ends: IntArray, parent: IntArray) -> tuple[IntArray, IntArray]:
    """Return two arrays (calls, nodes) that pair each call with every node, except the root, on the path to the end of
    its prompt.

    Args:
        ends: the node at which each call's prompt ends.
        parent: the parent of each node.
    """
    call: IntArray = np.arange(len(ends), dtype=np.int32)
    node: IntArray = ends.astype(np.int32)
    calls, nodes = [call[:0]], [node[:0]]
    while len(call):
        call, node = call[node > 0], node[node > 0]
        calls.append(call)
        nodes.append(node)
        node = parent[node]
    return np.concatenate(calls), np.concatenate(nodes)
