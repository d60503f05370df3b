"""Per node, the few ends that any bound can make optimal, in the objective's order: the first that fits is the answer.

An end is kept unless an earlier-ranked one visits the same engines equally often and is no worse in every bounded quantity:
whatever the bounds and the load, that one would be chosen instead. So the search stays exact without a rebuild.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.controller.known import Known
from vinelm.trie import FloatArray

IntArray = npt.NDArray[np.intp]

SLICES = 12
"""Thresholds on the second quantity by which three-way dominance is looked for."""
LAGS = 8
"""How far back among the same engines' ends dominance is looked for one by one."""
SCAN = 3072
"""Up to so many ends are compared at once; longer lists are skipped through in blocks."""
BLOCK = 192
"""Ends of a block."""
TRIES = 16
"""After so many blocks without a fit the search goes by engine visits instead."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What two objectives must share to share frontiers. ``cost`` is "C", "K" (DESIGN §5) or None where money is not bounded;
    ``has_load`` keeps ends apart by the engines that they visit.
    """

    target: str
    confidence: float | None
    has_floor: bool
    cost: str | None
    has_time: bool
    has_load: bool


class Frontier:
    """The kept ends below one node. All arrays run over ends in the objective's order."""

    __slots__ = (
        "accuracy", "block_accuracy", "block_s", "block_usd", "block_visits", "by_group", "ends", "group", "group_s",
        "group_starts", "group_usd", "n", "names", "rising", "step", "time_s", "usd", "visits",
    )  # fmt: skip

    def __init__(self, known: Known, kind: Kind, node: int, ends: IntArray) -> None:
        self.ends = ends.astype(np.int32)
        self.n = len(ends)
        self.time_s = known.latency_s[ends] - known.latency_s[node] if kind.has_time else None
        self.usd = _money(known, kind, node, ends)
        self.accuracy = known.accuracy(kind.confidence)[ends] if kind.has_floor else None
        self.group: Any = None
        self.visits: Any = None
        if kind.has_load:
            vectors, group = np.unique(known.visit_group[ends], return_inverse=True)
            self.visits = (known.visit_vectors[vectors] - known.visits[node]).astype(np.float64)
            self.group = group.astype(np.intp)
        self.step, self.names = _next_steps(known, node, ends)
        bounded = [values for values in (self.time_s, self.usd) if values is not None]
        bounded += [] if self.accuracy is None else [-self.accuracy]
        self.rising: list[float] | None = None
        if len(bounded) == 1 and not kind.has_load:
            self.rising = (-bounded[0]).tolist()
        self._summarise()

    def _summarise(self) -> None:
        self.block_s: Any = None
        self.block_usd: Any = None
        self.block_accuracy: Any = None
        self.block_visits: Any = None
        self.by_group: Any = None
        self.group_starts: Any = None
        self.group_s: Any = None
        self.group_usd: Any = None
        if self.n <= SCAN:
            return
        starts = np.arange(0, self.n, BLOCK)
        if self.time_s is not None:
            self.block_s = np.minimum.reduceat(self.time_s, starts)
        if self.usd is not None:
            self.block_usd = np.minimum.reduceat(self.usd, starts)
        if self.accuracy is not None:
            self.block_accuracy = np.maximum.reduceat(self.accuracy, starts)
        if self.visits is not None:
            self.block_visits = np.minimum.reduceat(self.visits[self.group], starts)
            order = np.argsort(self.group, kind="stable")
            self.by_group = order.astype(np.int32)
            self.group_starts = np.concatenate(([0], np.cumsum(np.bincount(self.group)))).astype(np.int64)
            assert self.time_s is not None
            self.group_s = np.minimum.reduceat(self.time_s[order], self.group_starts[:-1])
            if self.usd is not None:
                self.group_usd = np.minimum.reduceat(self.usd[order], self.group_starts[:-1])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (getattr(self, name) for name in self.__slots__)
        size = sum(values.nbytes for values in arrays if isinstance(values, np.ndarray))
        return size + 40 * len(self.rising or ())

    def first(self, left_s: float | None, left_usd: float | None, floor: float | None, load_s: FloatArray | None) -> int:
        """Position of the best end within what is left of each bound, -1 for none."""
        if self.n == 0:
            return -1
        if self.rising is not None:
            limit = -floor if floor is not None else left_s if left_s is not None else left_usd
            at = bisect_left(self.rising, -limit)  # type: ignore[operator]
            return at if at < self.n else -1
        if left_s is None and left_usd is None and floor is None:
            return 0
        if self.n <= SCAN:
            return self._scan(slice(None), left_s, left_usd, floor, load_s)
        return self._skip(left_s, left_usd, floor, load_s)

    def _scan(
        self, part: slice, left_s: float | None, left_usd: float | None, floor: float | None, load_s: FloatArray | None
    ) -> int:
        fits = None
        if left_s is not None:
            time_s = self.time_s[part]  # type: ignore[index]
            if load_s is not None:
                group = self.group[part]
                if len(self.visits) <= 4 * len(group):
                    time_s = time_s + self.visits.dot(load_s).take(group)
                else:
                    time_s = time_s + self.visits.take(group, 0).dot(load_s)
            fits = time_s <= left_s
        if left_usd is not None:
            cheap = self.usd[part] <= left_usd  # type: ignore[index]
            fits = cheap if fits is None else fits & cheap
        if floor is not None:
            right = self.accuracy[part] >= floor  # type: ignore[index]
            fits = right if fits is None else fits & right
        assert fits is not None
        at = int(fits.argmax())
        return at if fits[at] else -1

    def _skip(self, left_s: float | None, left_usd: float | None, floor: float | None, load_s: FloatArray | None) -> int:
        """As :meth:`_scan`, passing over blocks in which nothing can fit."""
        may = np.ones(-(-self.n // BLOCK), np.bool_)
        if left_s is not None:
            least = self.block_s if load_s is None else self.block_s + self.block_visits.dot(load_s)
            may &= least <= left_s
        if left_usd is not None:
            may &= self.block_usd <= left_usd
        if floor is not None:
            may &= self.block_accuracy >= floor
        for tried, block in enumerate(may.nonzero()[0].tolist()):
            if tried == TRIES and self.by_group is not None and load_s is not None:
                return self._among_groups(block * BLOCK, left_s, left_usd, floor, load_s)
            at = self._scan(slice(block * BLOCK, (block + 1) * BLOCK), left_s, left_usd, floor, load_s)
            if at >= 0:
                return int(at + block * BLOCK)
        return -1

    def _among_groups(
        self, start: int, left_s: float | None, left_usd: float | None, floor: float | None, load_s: FloatArray
    ) -> int:
        """As :meth:`_scan` from position ``start`` on, among the ends of those engine visits that have one fast enough: few,
        where bounds are so tight that blocks, whose ends visit all kinds of engines, could not be passed over.
        """
        assert left_s is not None
        delay_s = self.visits.dot(load_s)
        may = self.group_s + delay_s <= left_s
        if left_usd is not None:
            may &= self.group_usd <= left_usd
        groups = may.nonzero()[0]
        if not len(groups):
            return -1
        starts, sizes = self.group_starts[groups], np.diff(self.group_starts)[groups]
        offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes)
        ends = self.by_group[offsets + np.arange(len(offsets))]
        fits = (self.time_s[ends] + np.repeat(delay_s[groups], sizes) <= left_s) & (ends >= start)  # type: ignore[index]
        if left_usd is not None:
            fits &= self.usd[ends] <= left_usd  # type: ignore[index]
        if floor is not None:
            fits &= self.accuracy[ends] >= floor  # type: ignore[index]
        found = ends[fits]
        return int(found.min()) if len(found) else -1


def pareto(known: Known, kind: Kind, node: int, ends: IntArray) -> IntArray:
    """``ends`` (in the objective's order) without those that an earlier one makes superfluous."""
    worse: list[npt.NDArray[Any]] = []
    if kind.has_time:
        worse.append(known.latency_place[ends])
    money = _money(known, kind, node, ends)
    if money is not None:
        worse.append(money)
    if kind.has_floor:
        worse.append(-known.accuracy(kind.confidence)[ends])
    if not worse:
        return ends[:1]
    engines = known.visit_group[ends] if kind.has_load else np.zeros(len(ends), np.uint16)
    order = np.argsort(engines, kind="stable")
    group, worse = engines[order].astype(np.int64), [values[order] for values in worse]
    keep = np.ones(len(ends), np.bool_)
    if len(worse) == 1:
        keep = _is_new_low(group, _places(worse[0]))
    else:
        if len(worse) == 2:
            keep &= ~_dominated_by_slices(group, _places(worse[0]), worse[1])
        keep &= ~_dominated_by_lags(group, worse, keep)
    return ends[np.sort(order[keep])]


def _places(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Dense ranks: equal values share one."""
    if values.dtype.kind == "i":
        return values.astype(np.int64)
    order = np.argsort(values, kind="stable")
    steps = np.empty(len(values), np.int64)
    steps[order] = np.concatenate(([0], np.cumsum(np.diff(values[order]) > 0))) if len(values) else 0
    return steps


def _before(group: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Places made to fall from group to group, so that one running minimum serves all groups; and that minimum so far."""
    span = int(places.max(initial=0)) + 2
    number = np.concatenate(([0], np.cumsum(np.diff(group) != 0)))
    shifted = places - number * span
    running = np.minimum.accumulate(shifted)
    before = np.empty_like(running)
    before[:1] = np.iinfo(np.int64).max
    before[1:] = running[:-1]
    return shifted, before


def _is_new_low(group: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    shifted, before = _before(group, places)
    return shifted < before


def _dominated_by_slices(
    group: npt.NDArray[np.int64], places: npt.NDArray[np.int64], second: npt.NDArray[Any]
) -> npt.NDArray[np.bool_]:
    """Where an earlier end of the group is no worse in the first quantity and lies below a threshold that this one exceeds."""
    dominated = np.zeros(len(places), np.bool_)
    if len(places) < 8:
        return dominated
    slices = SLICES if len(places) > 256 else 4
    sample = np.sort(second if len(second) <= 4096 else second[:: len(second) // 2048])
    span = int(places.max(initial=0)) + 2
    number = np.concatenate(([0], np.cumsum(np.diff(group) != 0)))
    shifted = places - number * span
    for threshold in np.unique(sample[np.linspace(0, len(sample) - 1, slices).astype(int)]):
        low = np.where(second <= threshold, shifted, np.iinfo(np.int64).max)
        running = np.minimum.accumulate(low)
        dominated[1:] |= (second[1:] >= threshold) & (running[:-1] <= shifted[1:])
    return dominated


def _dominated_by_lags(
    group: npt.NDArray[np.int64], worse: list[npt.NDArray[Any]], keep: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Where one of the few kept ends just before, of the same group, is no worse in every quantity."""
    kept = np.flatnonzero(keep)
    dominated = np.zeros(len(keep), np.bool_)
    for lag in range(1, min(LAGS, len(kept) - 1) + 1):
        now, then = kept[lag:], kept[:-lag]
        beaten = group[now] == group[then]
        for values in worse:
            beaten &= values[then] <= values[now]
        dominated[now] |= beaten
    return dominated


def _money(known: Known, kind: Kind, node: int, ends: IntArray) -> FloatArray | None:
    if kind.cost is None:
        return None
    if kind.cost == "C":
        return np.asarray(known.cost_usd[ends])
    return np.asarray(known.full_cost_usd[ends] - known.full_cost_usd[node])


def _next_steps(known: Known, node: int, ends: IntArray) -> tuple[Any, list[str | None]]:
    """Which step leads to each end, and the models of the steps; the last one is None, for the node itself."""
    children = np.array(known.trie.children(node), np.intp)
    step = np.searchsorted(children, ends, side="right") - 1
    names: list[str | None] = [known.trie.models[int(known.trie.model[child])] for child in children]
    return step.astype(np.int16), [*names, None]
