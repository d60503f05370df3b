"""The sampler's request paths in canonical order, and the price bounds that apply to each (docs/architecture.md#invariants).

Units run in parallel and finish in any order. The cells that are *admitted* are nevertheless those that a run of one unit at a
time would admit: cells are committed in the order of the paths, the limits are checked there, and a later cell is started early
only if it would be admitted whatever the outcome of the cells before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vinelm.profiler.execution.ledger import PriceBound
from vinelm.profiler.scheduling.active_path import ActivePath, activate
from vinelm.requests.protocols import RequestPath, Sampler
from vinelm.rows.observation import Observation
from vinelm.template import Template

LARGEST_BLOCK = 256


class ActivePaths:
    """The request paths under way, in the sampler's order; the first is the oldest that is not fully committed.

    Args:
        sampler: proposes them.
        template: a bound template.
        may_go_on: whether the workflow can go on below an answer that its own check passed.
    """

    def __init__(self, sampler: Sampler, template: Template, *, may_go_on: bool = True) -> None:
        self._sampler, self._template, self._may_go_on = sampler, template, may_go_on
        self._round = -1
        self._proposed: Iterator[RequestPath] = iter(())
        self._is_round_empty = False
        self._is_exhausted = False
        self._taken = 0
        self.active: list[ActivePath] = []

    def next_round(self, observations: Sequence[Observation]) -> bool:
        """Begin the next round; False if the last one was empty: the sampler proposes nothing more."""
        if self._round >= 0 and self._is_round_empty:
            return False
        self._round += 1
        self._proposed = iter(self._sampler.propose(self._round, observations))
        self._is_round_empty, self._is_exhausted = True, False
        return True

    def take(self) -> bool:
        """Activate one more path, if the round has one that is not too far ahead of the first. Returns whether it did."""
        if self._is_exhausted or (self.active and self._taken >= block_end(block_of(self.active[0].number) + 1)):
            return False
        request_path = next(self._proposed, None)
        if request_path is None:
            self._is_exhausted = True
            return False
        self._is_round_empty = False
        path = activate(request_path, self._taken, self._template, self._round, may_go_on=self._may_go_on)
        self.active.append(path)
        self._taken += 1
        return True


class PriceBounds:
    """The price bound that applies to each path: learned from all paths up to the block before the previous one, however far
    other paths have come. Blocks double in size from one path up to :data:`LARGEST_BLOCK`.
    """

    def __init__(self, bound: PriceBound) -> None:
        self._bound = bound
        self._of_block: dict[int, PriceBound] = {0: bound.copy(), 1: bound.copy()}

    def learn(self, observation: Observation) -> None:
        """Learn from a committed cell."""
        self._bound.add(observation)

    def reached(self, number: int) -> None:
        """Note that all paths before that one are committed."""
        block = block_of(number)
        if block + 1 not in self._of_block:
            self._of_block = {k: bound for k, bound in self._of_block.items() if k >= block}
            self._of_block[block + 1] = self._bound.copy()
            self._of_block.setdefault(block, self._of_block[block + 1])

    def of(self, number: int) -> PriceBound:
        """Return the bound for the units of that path."""
        return self._of_block[block_of(number)]


def block_of(number: int) -> int:
    """Return the block of a path."""
    doubling = LARGEST_BLOCK.bit_length() - 1
    if number < LARGEST_BLOCK - 1:
        return (number + 1).bit_length() - 1
    return doubling + (number - (LARGEST_BLOCK - 1)) // LARGEST_BLOCK


def block_end(block: int) -> int:
    """Return the number of the first path after the block."""
    doubling = LARGEST_BLOCK.bit_length() - 1
    if block < doubling:
        return int(2 ** (block + 1)) - 1
    return LARGEST_BLOCK - 1 + (block - doubling + 1) * LARGEST_BLOCK
