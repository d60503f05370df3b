"""Makes plans that depend on a request's remaining time and money, not only on its node.

Different sequences of calls may lead to the same node, so requests reach a node with different amounts left. The best choice
depends on these amounts. Plans are computed for the amounts on a grid of :data:`BINS` equal parts; for amounts between its
points, values are interpolated. So plans under caps are approximate here. But the least amount that a request needs to get an
answer from a node is exact. So no plan exceeds a cap because of the grid's resolution.

With ``risk="dp"`` (not in the VineLM paper), calls take independent log-normal times with the trie's means and variances.
Then a sequence of calls may exceed the remaining time: the value of a call is the mean over the times that it may take, and 0
if it ends too late. The normal distribution is computed here without SciPy, which is a third of an installation's
size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from vinelm.plans.plan import Plan
from vinelm.trie.arrays import BoolArray, FloatArray, Integers
from vinelm.trie.decision_graph import DecisionGraph

_FAR = 37.0
"""Beyond this the tail is less than 1e-299, and floating point underflows."""
_NUMERATOR = (
    3.52624965998911e-02, 0.700383064443688, 6.37396220353165, 33.912866078383, 112.079291497871, 221.213596169931,
    220.206867912376,
)  # fmt: skip
_DENOMINATOR = (
    8.83883476483184e-02, 1.75566716318264, 16.064177579207, 86.7807322029461, 296.564248779674, 637.333633378831,
    793.826512519948, 440.413735824752,
)  # fmt: skip


def normal_cdf(values: FloatArray) -> FloatArray:
    """Return P(Z <= value) for a standard normal Z, in the shape of ``values``; NaN stays NaN.

    Uses Hart's rational approximation of exp(z²/2) P(Z <= -z) (Computer Approximations, 1968, no. 5666). The absolute error
    is at most 3e-16, so tails beyond 7 standard deviations, which are below 2e-12, have few correct digits.
    """
    size = np.minimum(np.abs(values), _FAR)
    tail = _polynomial(_NUMERATOR, size)
    tail /= _polynomial(_DENOMINATOR, size)
    tail *= np.exp(-0.5 * np.square(size))
    return np.where(values > 0.0, 1.0 - tail, tail)


def _polynomial(coefficients: tuple[float, ...], at: FloatArray) -> FloatArray:
    """Return the polynomial's values at ``at`` (Horner's rule); the coefficients begin with the highest power."""
    value = np.full_like(at, coefficients[0])
    for coefficient in coefficients[1:]:
        value *= at
        value += coefficient
    return value


BINS = 64
"""Parts of a one-dimensional grid."""
BINS_OF_TWO = 24
"""Parts of each dimension if both time and dollars are bounded."""
_ROUNDING = 1e-9
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class GridCap:
    """A limit on one request's seconds or dollars. An edge of the graph is one possible next call.

    Args:
        whole: The seconds or dollars that a request may use from its arrival on; the grid runs from 0 to this value.
        use: The seconds or dollars to reserve for each edge's call, including margins and load; shape (edges,).
        need: The seconds or dollars that a request must have left at each position to surely get an answer; 0 where the
            request may end; shape (positions,).
        mean: The mean seconds or dollars of each edge's call, at zero load; shape (edges,).
        z: The number of standard deviations that ``use`` adds to the mean; None if ``use`` is the maximum.
        used: The seconds or dollars that the request has used so far.
        sigma: The standard deviation of the logarithm of each edge's use, shape (edges,); None if the use is certain.
    """

    whole: float
    use: FloatArray
    need: FloatArray
    mean: FloatArray
    z: float | None = 0.0
    used: float = 0.0
    sigma: FloatArray | None = None

    @property
    def limit(self) -> float:
        """The seconds or dollars that the request has left."""
        return self.whole - self.used

    @property
    def kind(self) -> tuple[object, ...]:
        """A cache key: two caps with equal keys allow the same sequences of calls from the root at zero load."""
        return self.z, self.limit

    def with_left(self, left: float) -> Self:
        """Return a copy of this cap for a request that has ``left`` seconds or dollars left."""
        return replace(self, used=self.whole - left)

    def leaves(self, enough: FloatArray, edges: Integers | slice, target: Integers) -> BoolArray:
        """Return for each edge whether a request can make the edge's call and still get an answer.

        If times are random, return whether the edge can lead to an answer at all.

        Args:
            enough: The seconds or dollars that the request has left before the edge.
            edges: The edges.
            target: The position that each edge leads to.
        """
        if self.sigma is not None:
            return np.broadcast_to(np.isfinite(self.need[target]), np.broadcast_shapes(np.shape(enough), target.shape))
        # The need after the edge is exact, not read from the grid: an interpolated need could admit an edge after which no
        # answer fits any more.
        return np.asarray(enough - self.use[edges] - self.need[target] >= -_ROUNDING * max(self.whole, _TINY))

    def holds(self, plan: Plan) -> bool:
        """Return whether every sequence of calls under the plan stays within the limit."""
        return plan.longest(self.use) <= self.limit

    def most_used(self, plan: Plan) -> float:
        """Return the mean seconds (or dollars) of a plan's longest (or most expensive) sequence of calls, at zero load."""
        return plan.longest(self.mean)


class LeftGrid:
    """A grid over the time and money that a request may have left, with one axis for each of one or two caps.

    Args:
        caps: The caps, at most two.
        servable: Whether each edge's model can be served; None if all can.
    """

    def __init__(self, graph: DecisionGraph, caps: Mapping[str, GridCap], servable: BoolArray | None) -> None:
        self.graph, self.caps, self.servable = graph, tuple(caps.values()), servable
        bins = BINS if len(self.caps) == 1 else BINS_OF_TWO
        self.shape = (bins + 1,) * len(self.caps)

    def admitted(self, edges: slice) -> BoolArray:
        """Return whether each edge's call can still lead to an answer, for each amount of time and money left before it.

        These amounts form a grid. The result has the shape (*grid, edges).
        """
        found = np.ones((*self.shape, edges.stop - edges.start), np.bool_)
        if self.servable is not None:
            found &= self.servable[edges]
        for axis, cap in enumerate(self.caps):
            left = np.linspace(0.0, cap.whole, self.shape[axis])[:, None]
            fits = cap.leaves(left, edges, self.graph.target[edges])
            found &= fits.reshape(*(size if k == axis else 1 for k, size in enumerate(self.shape)), -1)
        return found

    @cached_property
    def chance_axis(self) -> int | None:
        """The index of the grid's axis that holds the remaining time, if calls take random times; None if they do not."""
        return next((axis for axis, cap in enumerate(self.caps) if cap.sigma is not None), None)

    def in_time(self, edges: Integers | slice) -> FloatArray:
        """Return for each edge and each k from 0 the probability that the edge's call takes at most k steps of the time axis.

        Times are rounded to whole steps. The result has the shape (edges, steps + 1).
        """
        assert self.chance_axis is not None
        cap, bins = self.caps[self.chance_axis], self.shape[self.chance_axis] - 1
        assert cap.sigma is not None
        sigma = cap.sigma[edges]
        # Half a part more: a time that rounds to j parts of the grid is at most j + 1/2 parts.
        upper = np.log((np.arange(bins + 1) + 0.5) * cap.whole / bins)
        # The mean of a log-normal variable is exp(mu + sigma^2 / 2), and the trie has means.
        gap = upper - (np.log(np.maximum(cap.use[edges], 1e-12)) - sigma**2 / 2)[:, None]
        gap /= np.maximum(sigma, 1e-9)[:, None]
        return normal_cdf(gap)

    def expected(self, values: FloatArray, in_time: FloatArray) -> FloatArray:
        """Return, for each amount left before an edge's call, the mean of ``values`` over the random time of the call.

        The value after a call that ends too late counts as 0.

        Args:
            values: Values for each amount left after the call, shape (*grid, edges).
            in_time: The result of :meth:`in_time` for the edges.
        """
        assert self.chance_axis is not None
        if values.strides[self.chance_axis] == 0:  # the same whatever is left, for example if nothing follows
            return values * (1.0 - self.late(in_time))
        if not values.any():
            return values
        # The value with i parts left is the sum over j of P(the invocation takes j parts) times the value with i - j left: a
        # convolution. Negative rests correspond to the zero padding, and count as late.
        rows = np.moveaxis(values, (-1, self.chance_axis), (0, -1))
        chance = np.diff(in_time, axis=1, prepend=0.0)
        if rows.ndim > 2:
            chance = np.repeat(chance, math.prod(rows.shape[1:-1]), axis=0)
        found = _convolved(chance, rows.reshape(len(chance), -1)).reshape(rows.shape)
        return np.moveaxis(found, (0, -1), (-1, self.chance_axis))

    def late(self, in_time: FloatArray) -> FloatArray:
        """Return the probability that each edge's call ends too late, for each amount of time and money left before the call.

        Args:
            in_time: The result of :meth:`in_time` for the edges.

        Returns:
            An array whose shape can be broadcast to (*grid, edges).
        """
        return 1.0 - in_time.T.reshape(*(size if k == self.chance_axis else 1 for k, size in enumerate(self.shape)), -1)

    def shifted(self, values: FloatArray, edges: slice) -> FloatArray:
        """Convert values for the amounts left after each edge's call to values for the amounts left before the call.

        Both have the shape (*grid, edges); values between grid points are interpolated linearly. If calls take random times,
        nothing is shifted along the time axis; :meth:`expected` converts values there.
        """
        for axis, cap in enumerate(self.caps):
            if axis == self.chance_axis:
                continue
            bins = self.shape[axis] - 1
            # Far beyond the grid all uses are alike; without the clipping an infinite use would overflow as an integer.
            steps = np.minimum(cap.use[edges] / max(cap.whole, _TINY) * bins, 4.0 * bins)
            whole = np.floor(steps).astype(np.int64)
            index = (np.arange(bins + 1)[:, None] - whole).reshape(
                *(bins + 1 if k == axis else 1 for k in range(len(self.shape))), len(whole)
            )
            # A negative rest means that the edge does not fit. Such edges are not admitted, so that any value will do.
            here = np.take_along_axis(values, np.maximum(index, 0), axis)
            below = np.take_along_axis(values, np.maximum(index - 1, 0), axis)
            values = (1.0 - (steps - whole)) * here + (steps - whole) * below
        return values

    def at(self, values: FloatArray, left: Sequence[FloatArray]) -> FloatArray:
        """Return the values at given amounts left (seconds, dollars), interpolated between grid points; shape (columns,).

        Args:
            values: The values at the grid's points, shape (*grid, columns). There is a column for each edge, for example.
            left: For each cap, an array of shape (columns,) with the amount left at which each column is evaluated.
        """
        values = np.moveaxis(values, -1, 0)
        for cap, amount in zip(self.caps, left, strict=True):
            bins = values.shape[1] - 1
            place = np.clip(amount / max(cap.whole, _TINY) * bins, 0.0, bins)
            low = np.minimum(place.astype(np.int64), bins - 1)
            share = (place - low).reshape(-1, *(1 for _ in values.shape[2:]))
            rows = np.arange(len(values))
            values = (1.0 - share) * values[rows, low] + share * values[rows, low + 1]
        return values


def _convolved(chance: FloatArray, after: FloatArray) -> FloatArray:
    """Return the convolution of each row of ``chance`` with the same row of ``after``, in the shape of ``after``.

    Element i of a row is the sum over j of chance[j] x after[i - j].
    """
    padded = np.concatenate((np.zeros_like(after[:, 1:]), after), axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(padded, after.shape[1], axis=1)
    return np.asarray(np.einsum("nij,nj->ni", windows, np.ascontiguousarray(chance[:, ::-1])))


def least_need(graph: DecisionGraph, use: FloatArray, servable: BoolArray | None) -> FloatArray:
    """Return for each node of the graph how many seconds or dollars surely suffice for an answer, whichever branches come.

    This is 0 where a request may end, and infinite where no answer can be reached.

    Args:
        graph: The decision graph.
        use: The seconds or dollars of the call on each edge.
        servable: Whether each edge's model can be served; None if all can.
    """
    need = np.where(graph.may_end, 0.0, np.inf)
    for nodes in reversed(list(pairwise(graph.levels))):
        low, high = graph.first_group[nodes[0]], graph.first_group[nodes[1]]
        if low == high:
            continue
        edges = slice(int(graph.first_edge[low]), int(graph.first_edge[high]))
        # The minimum over a group's models, since the plan chooses; the maximum over a node's groups, since the application
        # does.
        through = use[edges] + need[graph.target[edges]]
        if servable is not None:
            through = np.where(servable[edges], through, np.inf)
        least = np.minimum.reduceat(through, graph.first_edge[low:high] - edges.start)
        sources, first = np.unique(graph.source[low:high], return_index=True)
        need[sources] = np.where(graph.may_end[sources], 0.0, np.maximum.reduceat(least, first))
    return need
