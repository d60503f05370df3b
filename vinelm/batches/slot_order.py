"""The order of calls to an engine with separate caches per slot, such as llama.cpp: a slot keeps its last prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vinelm.prompts.radix import known_tokens
from vinelm.prompts.shape import BLOCK_TOKENS

EVIDENCE_CALLS = 50
"""Calls after which the engine's own counters say what it is."""
NO_USE = 0.5
"""Engines that had a smaller part cached of what their slots should hold are not ordered by slots."""
COMMON = 0.5
"""Engines that had a larger part cached of what only other slots should hold have a common cache."""
WARM_PART = 0.5
"""A slot is warm for a call if it holds at least this part of its prompt."""


class Prompted(Protocol):
    """A call: its request's position, the calls before it there, and digests and tokens of the prefixes of its prompt."""

    position: int
    depth: int
    points: Sequence[int]
    tokens: Sequence[int]


@dataclass(slots=True, eq=False)
class _Slot:
    """A slot, and the prompt in its cache."""

    points: frozenset[int] = frozenset()
    call: Prompted | None = None  # under way
    own: int = 0  # tokens of its prompt that the slot held already
    other: int = 0  # those beyond, which another slot held
    used: int = 0


@dataclass(slots=True)
class _Seen:
    """Tokens expected in the engine's own slot, only in another slot, and found cached in either case."""

    own: int = 0
    own_cached: int = 0
    other: int = 0
    other_cached: int = 0
    calls: int = 0


@dataclass(slots=True)
class SlotOrder:
    """A model of what the slots of one engine have cached, from what they were sent. Pure; not thread-safe.

    A freed slot goes on with the calls that begin as its prompt does. Then come those that begin as nothing under way does. A
    call that begins as one under way waits for the slot of that one, if there is another call to send: side by side each slot
    would compute the same. Among alike, requests are finished in the order in which they began.

    Args:
        slots: How many calls the engine serves at a time.
    """

    slots: int
    is_used: bool = True
    _slots: list[_Slot] = field(default_factory=list)
    # How many slots hold each prefix: each waiting call is ranked again whenever a call is sent or ends, so that a rank looks
    # its prompt up once, not once a slot.
    _idle: Counter[int] = field(default_factory=Counter)
    _busy: Counter[int] = field(default_factory=Counter)
    _clock: int = 0
    _seen: _Seen = field(default_factory=_Seen)

    def __post_init__(self) -> None:
        self._slots = [_Slot() for _ in range(self.slots)]

    def rank(self, call: Prompted) -> tuple[int, ...]:
        """Return the sort key of a waiting call, lowest first; valid until a call is sent or ends."""
        idle, busy = self._held(call)
        is_cold = idle < WARM_PART * call.tokens[-1] if call.tokens else True
        return busy - idle >= BLOCK_TOKENS, is_cold, call.position, call.depth

    def _held(self, call: Prompted) -> tuple[int, int]:
        """Tokens of a prompt cached in a free slot, and in a busy one."""
        return known_tokens(call.points, call.tokens, self._idle), known_tokens(call.points, call.tokens, self._busy)

    def sent(self, call: Prompted) -> None:
        """Record a sent call. It takes the free slot with the longest match, else the least recently used one."""
        free = [slot for slot in self._slots if slot.call is None]
        if not free:
            return
        idle, busy = self._held(call)
        slot = max(free, key=lambda one: (known_tokens(call.points, call.tokens, one.points), -one.used))
        self._clock += 1
        _take(self._idle, slot.points)
        slot.points, slot.call, slot.used = frozenset(call.points), call, self._clock
        self._busy.update(slot.points)
        slot.own, slot.other = idle, max(busy - idle, 0)

    def ended(self, call: Prompted, cached: float | None) -> None:
        """Record that a call has ended, and which part of its prompt was cached, in [0, 1]; None if unknown."""
        slot = next((one for one in self._slots if one.call is call), None)
        if slot is None:
            return
        slot.call = None
        _take(self._busy, slot.points)
        self._idle.update(slot.points)
        if cached is None or not call.tokens:
            return
        tokens, seen = round(cached * call.tokens[-1]), self._seen
        seen.calls += 1
        seen.own += slot.own
        seen.own_cached += min(tokens, slot.own)
        seen.other += slot.other
        seen.other_cached += min(max(tokens - slot.own, 0), slot.other)
        if seen.calls >= EVIDENCE_CALLS:
            self.is_used &= seen.own_cached >= NO_USE * seen.own and seen.other_cached <= COMMON * max(seen.other, BLOCK_TOKENS)


def _take(held: Counter[int], points: Iterable[int]) -> None:
    """Drop these prefixes from one slot."""
    for point in points:
        if held[point] == 1:
            del held[point]
        else:
            held[point] -= 1
