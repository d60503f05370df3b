"""Walks in canonical order, and what every unit that is started must be certain of (DESIGN §6.3).

Units run in parallel and end in any order. What is *admitted* is nevertheless what a run of one unit at a time would admit:
cells are counted in the order of the walks, the caps are looked at there, and a cell further on is started early only if it
would be admitted whatever the cells before it come to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from vinelm.observation import Observation
from vinelm.profiler.budget.ledger import PriceBound
from vinelm.profiler.execution.job import Cell
from vinelm.profiler.samplers import RequestPath, Sampler
from vinelm.template import StopRule

LARGEST_BLOCK = 256


class ActivePath:
    """A walk under way: ``number`` counts all walks, ``counted`` is how many of its cells are."""

    __slots__ = ("_known", "counted", "number", "path", "request_id")

    def __init__(self, walk: RequestPath, number: int) -> None:
        self.request_id, self.path = walk
        self.number = number
        self.counted = 0
        self._known = 0

    def cell(self, length: int) -> Cell:
        """The cell after that many invocations."""
        return self.request_id, self.path[:length]

    def frontier(self, known: Mapping[Cell, Observation], rule: StopRule) -> int | None:
        """Length of the first prefix that has no row yet; None where the walk is over without one."""
        while self._known < len(self.path):
            row = known.get(self.cell(self._known + 1))
            if row is None:
                return self._known + 1
            if row.ended(rule):
                return None
            self._known += 1
        return None

    @property
    def known(self) -> int:
        """How many of its cells have a row and went on, as of the last look."""
        return self._known


class ActivePaths:
    """The sampler's walks in order, some of them under way; the first one is the oldest that is not all counted."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._round = -1
        self._source: Iterator[RequestPath] = iter(())
        self._is_round_empty = False
        self._is_over = False
        self._pulled = 0
        self.going: list[ActivePath] = []

    def next_round(self, seen: Sequence[Observation]) -> bool:
        """Begin the next round; False if the last one was empty: the sampler has no more to propose."""
        if self._round >= 0 and self._is_round_empty:
            return False
        self._round += 1
        self._source = iter(self._sampler.walks(self._round, seen))
        self._is_round_empty, self._is_over = True, False
        return True

    @property
    def is_round_over(self) -> bool:
        """All walks of the round are counted."""
        return self._is_over and not self.going

    def pull(self) -> bool:
        """Take one more walk under way, if the round has one and it is not too far ahead of the first."""
        if self._is_over or (self.going and self._pulled >= block_end(block_of(self.going[0].number) + 1)):
            return False
        walk = next(self._source, None)
        if walk is None:
            self._is_over = True
            return False
        self._is_round_empty = False
        self.going.append(ActivePath(walk, self._pulled))
        self._pulled += 1
        return True


class PriceBounds:
    """The price bound that holds for each walk: learned from all walks up to the block before last, no matter how far others
    have got. Blocks double in size from one walk up to :data:`LARGEST_BLOCK`.
    """

    def __init__(self, bound: PriceBound) -> None:
        self._bound = bound
        self._held: dict[int, PriceBound] = {0: bound.copy(), 1: bound.copy()}

    def learn(self, observation: Observation) -> None:
        """A cell was counted."""
        self._bound.add(observation)

    def reached(self, number: int) -> None:
        """All walks before that one are counted."""
        block = block_of(number)
        if block + 1 not in self._held:
            self._held = {k: held for k, held in self._held.items() if k >= block}
            self._held[block + 1] = self._bound.copy()
            self._held.setdefault(block, self._held[block + 1])

    def of(self, number: int) -> PriceBound:
        """The bound of the walk's units."""
        return self._held[block_of(number)]


def block_of(number: int) -> int:
    """Which block a walk is in."""
    doubling = LARGEST_BLOCK.bit_length() - 1
    if number < LARGEST_BLOCK - 1:
        return (number + 1).bit_length() - 1
    return doubling + (number - (LARGEST_BLOCK - 1)) // LARGEST_BLOCK


def block_end(block: int) -> int:
    """One past the block's last walk."""
    doubling = LARGEST_BLOCK.bit_length() - 1
    if block < doubling:
        return int(2 ** (block + 1)) - 1
    return LARGEST_BLOCK - 1 + (block - doubling + 1) * LARGEST_BLOCK


Upper = Callable[[ActivePath, int], tuple[float, int]]
"""(dollars, calls) that the unit at that length of a walk is expected not to exceed."""
