"""Dollars and seconds of one invocation per node: multiplicative effects of request size, depth x model, and node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vinelm.estimator.cells import Cells
from vinelm.estimator.pooling import pooled_mean, shrunk_mean
from vinelm.trie import FloatArray

NODE_WEIGHT = 8.0
"""Observations that a node's depth x model is worth in the node's own mean: an amount is mostly the model's and the depth's."""
TURNS = 6


@dataclass(frozen=True, eq=False)
class Amount:
    """Mean and variance of one invocation per node, squared standard error of that mean. Shape (n + 1,); 0 at the root."""

    mean: FloatArray
    var: FloatArray
    mean_var: FloatArray


def estimate_amount(cells: Cells, values: FloatArray, reaching: FloatArray | None = None) -> Amount:
    """Moments of ``values`` (one per cell); failed calls count with what they cost until then.

    A value is taken as (depth x model) x (node) x (size of the request) x noise, so that a model tried on long requests only is
    not called expensive. With ``reaching``, the expected number of requests at each node, the observed values enter as they are
    and only those of the other requests are predicted.
    """
    trie, size = cells.trie, len(cells.trie)
    if not values.any():
        nothing = np.zeros(size)
        return Amount(nothing, nothing.copy(), nothing.copy())
    count = cells.count.astype(np.float64)
    request = np.ones(cells.n_requests)
    expected = _typical(cells, values, count)
    for _ in range(TURNS):
        request = _request_factor(cells, values / np.maximum(expected[cells.node], 1e-300))
        expected = _typical(cells, values / request[cells.request], count)
    relative = values / np.maximum(expected[cells.node] * request[cells.request], 1e-300)
    noise = np.bincount(cells.node, (relative - 1.0) ** 2, size)
    spread = pooled_mean(trie, noise, count, prior=float(((relative - 1.0) ** 2).mean()))
    mean = expected.copy()
    if reaching is not None:
        total = np.bincount(cells.node, values, size)
        predicted = np.maximum(reaching - count, 0.0) * expected
        mean = np.where(count > 0, (total + predicted) / np.maximum(reaching, 1e-300), expected)
    of_request = float(request.var())
    pair_count = _pair_count(cells, count)
    mean_var = mean**2 * (spread / (pair_count + 1.0) + spread / (count + NODE_WEIGHT) / 4.0 + of_request / cells.n_requests)
    var = mean**2 * (spread + of_request)
    for array in (mean, var, mean_var):
        array[0] = 0.0
    return Amount(mean, var, mean_var)


def _typical(cells: Cells, values: FloatArray, count: FloatArray) -> FloatArray:
    """Mean of each node for a request of size 1: its depth x model's, times the node's own shrunken factor."""
    size = len(cells.trie)
    total = np.bincount(cells.node, values, size)
    pair = pooled_mean(cells.trie, total, count, prior=float(values.mean()), weight=0.1)
    ratio = np.bincount(cells.node, values / np.maximum(pair[cells.node], 1e-300), size)
    return pair * shrunk_mean(ratio, count, np.ones(size), NODE_WEIGHT)


def _request_factor(cells: Cells, ratio: FloatArray) -> FloatArray:
    """Size of each request relative to the mean one, leaning on 1 by the ratio of the noise to the spread of sizes."""
    n_rows = np.bincount(cells.request, minlength=cells.n_requests).astype(np.float64)
    total = np.bincount(cells.request, ratio, cells.n_requests)
    mean = total / n_rows
    repeated = n_rows > 1
    within = np.bincount(cells.request, (ratio - mean[cells.request]) ** 2, cells.n_requests)[repeated].sum()
    noise = within / max(float((n_rows[repeated] - 1.0).sum()), 1.0)
    spread = max(float(((mean - 1.0) ** 2).mean() - noise * float((1.0 / n_rows).mean())), 0.0)
    weight = noise / spread if spread > 1e-9 and repeated.any() else 1e9
    factor = (total + weight) / (n_rows + weight)
    return np.asarray(factor / factor.mean())


def _pair_count(cells: Cells, count: FloatArray) -> npt.NDArray[np.float64]:
    trie = cells.trie
    pair = trie.depth.astype(np.int64) * len(trie.models) + np.maximum(trie.model, 0)
    return np.asarray(np.bincount(pair, count)[pair], dtype=np.float64)
