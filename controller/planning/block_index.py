"""A long list of ends, cut into tiles that are passed over or looked into as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.trie import BoolArray, FloatArray

FEW, MANY = 4, 8
"""Ends of a tile: few where few ends share their engine visits."""
FIRST = 1024
"""So many tiles are asked first; then four times as many, and so on."""
AT_ONCE = 64
"""So many tiles that may hold a fitting end are looked into first; the others only if they may hold an earlier one."""
_NONE = np.iinfo(np.int32).max


class BlockIndex:
    """Ends with the same engine visits, a few to a tile in the objective's order, and the least of each quantity in each tile.

    Arguments run over ends in the objective's order: the ``bounded`` quantities (time first where load counts) and each end's
    row of ``visits``, which has shape (groups, engines); the latter two are None where no load counts.
    """

    __slots__ = ("bounded", "earliest", "least", "place", "visits")

    def __init__(self, bounded: Sequence[FloatArray], group: npt.NDArray[Any] | None, visits: FloatArray | None) -> None:
        size = len(bounded[0])
        if group is None or visits is None:
            group, visits = np.zeros(size, np.uint16), None
        width = MANY if visits is None or size >= 2 * MANY * len(visits) else FEW
        order = np.argsort(group, kind="stable")
        sizes = np.bincount(group)
        column = (np.arange(size) - np.repeat(np.cumsum(sizes) - sizes, sizes)) % width
        starts = np.flatnonzero(column == 0)
        by_place = np.argsort(order[starts])
        row = np.argsort(by_place)[np.cumsum(column == 0) - 1]

        def tiled(values: npt.NDArray[Any], filler: float) -> npt.NDArray[Any]:
            tiles = np.full((len(starts), width), filler, values.dtype)
            tiles[row, column] = values[order]
            return tiles

        self.bounded = [tiled(values, np.inf) for values in bounded]
        self.least = [values.min(1) for values in self.bounded]
        self.place = tiled(np.arange(size, dtype=np.int32), _NONE)
        self.earliest = self.place[:, 0].copy()
        self.visits = None if visits is None else visits[group[order[starts[by_place]]]]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        visits = [] if self.visits is None else [self.visits]
        return sum(values.nbytes for values in (*self.bounded, *self.least, *visits, self.place, self.earliest))

    def first(self, limits: Sequence[float], load_s: FloatArray | None) -> int:
        """Place of the first end whose quantities are within the limits, -1 for none."""
        best, low, high = _NONE, 0, FIRST
        while low < len(self.earliest) and self.earliest[low] < best:
            delay_s = None if load_s is None or self.visits is None else self.visits[low:high].dot(load_s)
            tiles = within([values[low:high] for values in self.least], limits, delay_s).nonzero()[0]
            count = AT_ONCE
            while len(tiles):
                now, tiles = tiles[:count], tiles[count:]
                best = min(best, self._first_in(now + low, limits, None if delay_s is None else delay_s[now, None]))
                if best < _NONE and len(tiles):
                    tiles = tiles[: self.earliest[tiles + low].searchsorted(best)]
                count *= 4
            low, high = high, 4 * high
        return best if best < _NONE else -1

    def _first_in(self, tiles: npt.NDArray[np.intp], limits: Sequence[float], delay_s: FloatArray | None) -> int:
        """The same in these tiles alone; ``_NONE`` for none."""
        fits = within([values.take(tiles, 0) for values in self.bounded], limits, delay_s)
        return int(self.place.take(tiles, 0)[fits].min(initial=_NONE))


def within(bounded: Sequence[FloatArray], limits: Sequence[float], delay_s: FloatArray | None) -> BoolArray:
    """Where each quantity is within its limit, the first (time) with its delay."""
    fits: BoolArray = (bounded[0] if delay_s is None else bounded[0] + delay_s) <= limits[0]
    for i in range(1, len(limits)):
        fits &= bounded[i] <= limits[i]
    return fits
