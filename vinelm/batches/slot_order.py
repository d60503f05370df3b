"""Orders calls to an engine with separate caches per slot, such as llama.cpp: a slot keeps its last prompt."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from vinelm.prompts.radix import known_tokens
from vinelm.prompts.shape import BLOCK_TOKENS

EVIDENCE_CALLS = 50
"""How many calls must have ended before the engine's own counters show how it caches."""
NO_USE = 0.5
"""If less than this share of the expected tokens was cached in slots, an engine is not ordered by slots."""
COMMON = 0.5
"""If more than this share of the tokens that only other slots should hold was cached, the engine has a common cache."""
SIMILAR = 0.1
"""llama.cpp takes the slot that was free for longest, unless one holds more than this part of the prompt (its default)."""
WARM_PART = 0.5
"""A slot is warm for a call if it holds at least this part of its prompt."""


Key = TypeVar("Key", bound=Hashable)


class Prompted(Protocol):
    """A model call with a known prompt.

    Attributes:
        position: The position of the call's request in the starting order.
        depth: The number of invocations (executions of steps) before this one on the request's path.
        points: Digests of the prompt's prefixes, from short to long.
        tokens: The number of tokens of each prefix.
    """

    position: int
    depth: int
    points: Sequence[int]
    tokens: Sequence[int]


@dataclass(slots=True, eq=False)
class _Slot:
    """One slot of an engine: the prompt in its cache, and the call that it serves.

    Attributes:
        points: Digests of the cached prompt's prefixes.
        call: The call in progress; None if the slot is free.
        depth: The number of invocations before the slot's last call, on the path of its request.
        own: The number of tokens at the beginning of the last call's prompt that some free slot, normally this one, had cached
            when the call was sent.
        other: The number of further tokens of that beginning that a busy slot had cached; 0 if no busy slot had more.
        used: When the slot's last call ended, as a number that increases over time.
    """

    points: frozenset[int] = frozenset()
    call: Prompted | None = None  # in progress
    depth: int = 0  # of the last call
    own: int = 0  # tokens of its prompt that the slot held already
    other: int = 0  # further tokens, which another slot held
    used: int = 0


@dataclass(slots=True)
class _Seen:
    """Numbers of prompt tokens, summed over ended calls, which show whether the slots have separate caches.

    Attributes:
        own: Tokens that the call's own slot should have cached.
        own_cached: The part of ``own`` that the engine reported as cached.
        other: Further tokens that only another slot should have cached.
        other_cached: The part of ``other`` that the engine reported as cached.
        calls: The number of calls.
    """

    own: int = 0
    own_cached: int = 0
    other: int = 0
    other_cached: int = 0
    calls: int = 0


@dataclass(slots=True, eq=False)
class SlotOrder:
    """Estimates which prompt each slot of one engine has cached, and orders the waiting calls accordingly. Does no I/O; not
    thread-safe.

    A freed slot first takes calls whose prompt begins like its cached prompt, longest match first. Of equally long matches, a
    call of the cached prompt's stage goes first, since it may match further than the recorded prefixes show. Next come calls
    that share no beginning with a call in flight. A call that begins like a call in flight waits for that call's slot, because
    parallel slots would compute the same prefix twice. A slot may stay free because of this, unless calls with that beginning
    are frequent enough to fill another slot. Among equals, requests are finished in starting order.

    Args:
        slots: The number of calls that the engine serves at a time.
        under_way: The number of requests in progress at a time.
    """

    slots: int
    under_way: int = 0
    is_used: bool = True
    _slots: list[_Slot] = field(default_factory=list)
    # How many slots hold each prefix: each waiting call is ranked again whenever a call is sent or ends, so that a rank looks
    # its prompt up once, not once a slot.
    _idle: Counter[int] = field(default_factory=Counter)
    _busy: Counter[int] = field(default_factory=Counter)
    _waiting: Counter[int] = field(default_factory=Counter)
    _stages: Counter[tuple[int, int]] = field(default_factory=Counter)  # free slots, by the stage of their last call
    _clock: int = 0
    _seen: _Seen = field(default_factory=_Seen)

    def __post_init__(self) -> None:
        self._slots = [_Slot() for _ in range(self.slots)]

    def rank(self, call: Prompted) -> tuple[int, ...]:
        """Return the sort key of a waiting call; the call with the smallest key is sent first. The key is valid until a call is
        sent or ends.
        """
        idle, busy = self._held(call)
        total = call.tokens[-1] if call.tokens else 0
        half = WARM_PART * total
        is_doubled = total >= BLOCK_TOKENS and busy - idle >= min(half, BLOCK_TOKENS)
        if not call.tokens or idle < half:
            return is_doubled, True, 0, 0, call.position, call.depth
        last = call.points[bisect_left(call.tokens, idle)]
        is_other = not self._stages[last, call.depth]
        return is_doubled, False, -idle, is_other, call.position, call.depth

    def waits(self, call: Prompted) -> None:
        """Record that a call waits."""
        self._waiting.update(call.points)

    def left(self, call: Prompted) -> None:
        """Record that a call no longer waits."""
        _take(self._waiting, call.points)

    def is_held(self, call: Prompted) -> bool:
        """Return whether a waiting call should wait for a particular slot that is busy, even if another slot is free."""
        if not (self.is_used and self._busy and call.tokens and call.tokens[-1] >= BLOCK_TOKENS):
            return False
        idle, busy = self._held(call)
        half = WARM_PART * call.tokens[-1]
        if busy - idle < half:
            return False
        alike = next(point for point, tokens in zip(call.points, call.tokens, strict=True) if tokens >= half)
        return self._waiting[alike] * self.slots <= self._busy[alike] * max(self.under_way, self.slots)

    def _held(self, call: Prompted) -> tuple[int, int]:
        """Return how many tokens at the beginning of the call's prompt are cached in a free slot, and how many in a busy slot.

        If several free (or busy) slots have cached a beginning, the longest one counts.
        """
        return known_tokens(call.points, call.tokens, self._idle), known_tokens(call.points, call.tokens, self._busy)

    def sent(self, call: Prompted) -> None:
        """Record that a call was sent, and assign it to a free slot, if there is one.

        This is the slot whose last prompt has the longest beginning in common with the call's prompt. If no slot has enough in
        common, it is the free slot that was used least recently.
        """
        free = [slot for slot in self._slots if slot.call is None]
        if not free:
            return
        idle, busy = self._held(call)
        least = SIMILAR * call.tokens[-1] if call.tokens else 0
        held = ((known_tokens(call.points, call.tokens, one.points), one) for one in free)
        slot = max(held, key=lambda both: (both[0] if both[0] > least else 0, -both[1].used))[1]
        _take(self._idle, slot.points)
        _take(self._stages, ((point, slot.depth) for point in slot.points))
        slot.depth = call.depth
        slot.points, slot.call = frozenset(call.points), call
        self._busy.update(slot.points)
        slot.own, slot.other = idle, max(busy - idle, 0)

    def slot_of(self, call: Prompted) -> int | None:
        """Return the number of the slot in which a sent call runs; None if calls to the engine are not assigned to slots."""
        return next((number for number, one in enumerate(self._slots) if one.call is call), None) if self.is_used else None

    def ended(self, call: Prompted, cached: float | None) -> None:
        """Record that a call has ended; ``cached`` is the share of its prompt that was cached, in [0, 1], None if unknown."""
        slot = next((one for one in self._slots if one.call is call), None)
        if slot is None:
            return
        self._clock += 1
        slot.call, slot.used = None, self._clock
        _take(self._busy, slot.points)
        self._idle.update(slot.points)
        self._stages.update((point, slot.depth) for point in slot.points)
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

    def forget(self, position: int) -> None:
        """Record that the request at ``position`` in the starting order has no more calls in flight, whether it succeeded or
        failed.
        """
        for slot in self._slots:
            if slot.call is not None and slot.call.position == position:
                self.ended(slot.call, None)


def _take(held: Counter[Key], points: Iterable[Key]) -> None:
    """Decrease the count of each of the prefixes ``points`` in ``held`` by one, and remove counts of 0."""
    for point in points:
        if held[point] == 1:
            del held[point]
        else:
            held[point] -= 1
