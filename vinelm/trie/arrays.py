"""Helper functions for the arrays of tries."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
Integers = npt.NDArray[Any]


def frozen(values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the values as a read-only array; a writeable array of the caller is copied."""
    array = np.asarray(values, dtype=dtype)
    if array.flags.writeable:
        array = array.copy() if array is values else array
        array.flags.writeable = False
    return array


def preorder_misfit(parent: npt.NDArray[Any], end: npt.NDArray[Any], depth: npt.NDArray[Any]) -> str | None:
    """Return the reason why ``parent`` and ``end`` do not match ``depth``, for nodes in pre-order; None if they match.

    ``end`` has, for each node, one past its last descendant.
    """
    depth = depth.astype(np.int64)
    if np.any(depth[1:] > depth[:-1] + 1):
        return "trie.depth is not that of a pre-order"
    n = len(depth)
    own_parent, own_end = np.full(n, -1), np.full(n, n)
    up: npt.NDArray[Any] = np.zeros(1, np.intp)
    for level in range(1, int(depth.max()) + 1):
        here = np.flatnonzero(depth == level)
        own_parent[here] = up[np.searchsorted(up, here) - 1]
        not_deeper = np.flatnonzero(depth <= level)
        own_end[here] = np.append(not_deeper, n)[np.searchsorted(not_deeper, here) + 1]
        up = here
    if not np.array_equal(own_parent, parent):
        return "trie.parent does not fit trie.depth"
    return None if np.array_equal(own_end, end) else "trie.end does not fit trie.depth"
