"""A zone map over a long Pareto frontier: whole blocks are skipped by the minimum of each quantity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.trie.arrays import BoolArray, FloatArray

FEW, MANY = 4, 8
"""Ends per block: few where few ends share their engine visits."""
FIRST = 1024
"""Blocks whose minima are compared in the first step; each further step takes four times as many."""
AT_ONCE = 64
"""Blocks within the limits whose ends are read first; the others are read only if they may hold an earlier end."""
_NONE = np.iinfo(np.int32).max


class BlockIndex:
    """Ends in blocks of a few with equal engine visits, and the minimum of each bounded quantity in each block.

    A block whose minima exceed the limits holds no feasible end and is skipped (a zone map, as databases call it).

    Args:
        bounded: The bounded quantities of the ends, best end first; latency first if load matters.
        group: Each end's row of ``visits``; None without load.
        visits: Invocations per engine, shape (groups, engines); None without load.
    """

    __slots__ = ("bounded", "earliest", "least", "position", "visits")

    def __init__(self, bounded: Sequence[FloatArray], group: npt.NDArray[Any] | None, visits: FloatArray | None) -> None:
        size = len(bounded[0])
        if group is None or visits is None:
            group, visits = np.zeros(size, np.uint16), None
        width = MANY if visits is None or size >= 2 * MANY * len(visits) else FEW
        order = np.argsort(group, kind="stable")
        sizes = np.bincount(group)
        column = (np.arange(size) - np.repeat(np.cumsum(sizes) - sizes, sizes)) % width
        starts = np.flatnonzero(column == 0)
        by_position = np.argsort(order[starts])
        row = np.argsort(by_position)[np.cumsum(column == 0) - 1]

        def in_blocks(values: npt.NDArray[Any], filler: float) -> npt.NDArray[Any]:
            blocks = np.full((len(starts), width), filler, values.dtype)
            blocks[row, column] = values[order]
            return blocks

        self.bounded = [in_blocks(values, np.inf) for values in bounded]
        self.least = [values.min(1) for values in self.bounded]
        self.position = in_blocks(np.arange(size, dtype=np.int32), _NONE)
        self.earliest = self.position[:, 0].copy()
        self.visits = None if visits is None else visits[group[order[starts[by_position]]]]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        visits = [] if self.visits is None else [self.visits]
        return sum(values.nbytes for values in (*self.bounded, *self.least, *visits, self.position, self.earliest))

    def first(self, limits: Sequence[float], load_s: FloatArray | None) -> int:
        """Position of the first end whose quantities are within the limits, -1 if there is none."""
        best, low, high = _NONE, 0, FIRST
        while low < len(self.earliest) and self.earliest[low] < best:
            delay_s = None if load_s is None or self.visits is None else self.visits[low:high].dot(load_s)
            blocks = within([values[low:high] for values in self.least], limits, delay_s).nonzero()[0]
            count = AT_ONCE
            while len(blocks):
                now, blocks = blocks[:count], blocks[count:]
                best = min(best, self._first_in(now + low, limits, None if delay_s is None else delay_s[now, None]))
                if best < _NONE and len(blocks):
                    blocks = blocks[: self.earliest[blocks + low].searchsorted(best)]
                count *= 4
            low, high = high, 4 * high
        return best if best < _NONE else -1

    def _first_in(self, blocks: npt.NDArray[np.intp], limits: Sequence[float], delay_s: FloatArray | None) -> int:
        """The same among the ends of these blocks; ``_NONE`` if there is none."""
        fits = within([values.take(blocks, 0) for values in self.bounded], limits, delay_s)
        return int(self.position.take(blocks, 0)[fits].min(initial=_NONE))


def within(bounded: Sequence[FloatArray], limits: Sequence[float], delay_s: FloatArray | None) -> BoolArray:
    """Where each quantity is within its limit; ``delay_s`` is added to the first, latency."""
    fits: BoolArray = (bounded[0] if delay_s is None else bounded[0] + delay_s) <= limits[0]
    for i in range(1, len(limits)):
        fits &= bounded[i] <= limits[i]
    return fits
