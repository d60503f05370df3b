"""Orders waiting calls: by request as long as the cache keeps the prompts of requests in progress, otherwise by prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vinelm.batches.slot_order import SlotOrder
from vinelm.prompts.radix import known_tokens, points_of
from vinelm.prompts.shape import Shape

EVIDENCE = 8
"""How many requests must have ended before their prompts are judged."""
OWN = 0.2
"""If the prompts of requests repeat less than this share of their own earlier prompts, finishing them early saves little."""
LOST = 0.06
"""If the cache lost more than this share of the expected tokens, it does not hold the requests in progress."""
KEPT = 1 << 17
"""How many prefixes are remembered; a prompt of 2,000 tokens has about 17."""


@dataclass(slots=True)
class WaitingCall:
    """A waiting call whose prompt is known.

    Args:
        position: The position of the call's request in the starting order.
        depth: The number of invocations (executions of steps) before this one on its request's path.
        points: Digests of the prompt's prefixes, from short to long.
        tokens: The number of tokens of each prefix.
        path: A number for each prefix: how many different prefixes had been recorded when it first occurred. It orders prompts
            depth-first.
        rank: The last result of :meth:`CallOrder.rank`.
        expected: How many tokens at the prompt's beginning are the same in the prompt of an earlier call; known once the call
            is sent.
        own: The same number, but only earlier calls of the same request count.
        slots: The object that ranks the calls to an engine with separate slots, instead of :class:`CallOrder`, as long as its
            attribute ``is_used`` is true. None for other engines.
    """

    position: int
    depth: int
    points: Sequence[int]
    tokens: Sequence[int]
    path: tuple[int, ...]
    rank: tuple[int, ...] = ()
    expected: int = 0
    own: int = 0
    slots: SlotOrder | None = None


@dataclass(slots=True)
class _Sums:
    """Numbers of prompt tokens, summed over calls.

    Attributes:
        total: All tokens of the prompts.
        own: Tokens that repeat earlier prompts of the same request.
        expected: Tokens that should be in the engine's cache.
        cached: Expected tokens that the engine reported as cached.
    """

    total: int = 0
    own: int = 0
    expected: int = 0
    cached: int = 0

    def add(self, other: _Sums) -> None:
        self.total += other.total
        self.own += other.own
        self.expected += other.expected
        self.cached += other.cached


@dataclass(slots=True)
class _Request:
    """The prompts of the calls that a request in progress has sent: sums of their tokens, and digests of their prefixes."""

    sums: _Sums = field(default_factory=_Sums)
    points: set[int] = field(default_factory=set)


class CallOrder:
    """Ranks calls that wait until their engine (the endpoint that serves the model) has room. Does no I/O; not thread-safe.

    At first, requests are finished in the order in which they began. This is best if each call extends the previous prompt of
    its request, and that prompt is still cached. If this turns out to be wrong, the calls of all requests are ordered
    depth-first by their prompts instead. When every request has begun, calls of the requests with the fewest calls so far go
    first, so that the last requests end together.

    Attributes:
        version: Changes whenever waiting calls must be ranked again.

    Args:
        requests: The number of requests of the batch that have no answer yet.
    """

    def __init__(self, requests: int) -> None:
        self.version = 0
        self._left = requests
        self._is_across = False
        self._first: dict[int, int] = {}
        self._sent: dict[int, None] = {}
        self._numbers = 0
        self._under_way: dict[int, _Request] = {}
        self._ended, self._sums = 0, _Sums()

    @property
    def is_across(self) -> bool:
        """Whether calls are ordered by their prompts, instead of by their requests."""
        return self._is_across

    def waits(self, position: int, depth: int, shape: Shape, slots: SlotOrder | None = None) -> WaitingCall:
        """Return a new waiting call with its rank. ``shape`` describes its prompt: digests and token counts of the prompt's
        beginnings.

        ``position``, ``depth`` and ``slots`` are fields of the :class:`WaitingCall`.
        """
        points, tokens = points_of(shape)
        # Beginnings of prompts are numbered as they first appear. Sorting by these numbers is then a depth-first walk, which
        # keeps prompts with a common beginning together.
        path = []
        for point in points:
            number = self._first.get(point)
            if number is None:
                number = self._first[point] = self._numbers
                self._numbers += 1
            path.append(number)
        _forget(self._first)
        call = WaitingCall(position, depth, points, tokens, tuple(path), slots=slots)
        if slots is not None:
            slots.waits(call)
            self.version += slots.is_used
        call.rank = self.rank(call)
        return call

    def rank(self, call: WaitingCall) -> tuple[int, ...]:
        """Return the sort key of a waiting call; the lowest is sent first. It is valid while :attr:`version` is unchanged."""
        if call.slots is not None and call.slots.is_used:
            return call.slots.rank(call)
        if not self._left:
            return (call.depth, *call.path) if self._is_across else (call.depth, call.position)
        return call.path if self._is_across else (call.position, call.depth)

    @staticmethod
    def is_held(call: WaitingCall) -> bool:
        """Return whether a call should wait for the slot with its cached prompt, although another slot of its engine is free.

        A slot runs one call at a time. Always False if the engine's slots share one cache.
        """
        return call.slots is not None and call.slots.is_held(call)

    def given_up(self, call: WaitingCall) -> None:
        """Record that a call has left the queue without being sent."""
        if call.slots is not None:
            call.slots.left(call)
            self.version += call.slots.is_used

    def sent(self, call: WaitingCall) -> None:
        """Record that a call has left the queue and was sent."""
        if call.slots is not None:
            call.slots.left(call)
        if call.position not in self._under_way:
            self._under_way[call.position] = _Request()
            self._left -= 1
            self.version += not self._left
        mine = self._under_way[call.position].points
        # Computed before this call's own prompt is added: it can find cached only what was sent before it.
        call.expected, call.own = (known_tokens(call.points, call.tokens, known) for known in (self._sent, mine))
        mine.update(call.points)
        self._sent.update(dict.fromkeys(call.points))
        _forget(self._sent)
        if call.slots is not None and call.slots.is_used:
            call.slots.sent(call)
            self.version += 1

    def over(self, call: WaitingCall, cached: float | None) -> None:
        """Record that a call has ended, if its engine has separate slots; otherwise do nothing.

        A slot runs one call at a time and caches its last prompt. ``cached`` is the cached fraction of the call's prompt, None
        if unknown.
        """
        if call.slots is not None and call.slots.is_used:
            call.slots.ended(call, cached)
            self.version += 1

    def answered(self, call: WaitingCall, cached: int | None) -> None:
        """Record that a call was answered; ``cached`` is the number of cached tokens in its prompt, None if unknown."""
        found = self._under_way.get(call.position)
        if found is not None:
            known = cached is not None
            expected = call.expected if known else 0
            total = call.tokens[-1] if call.tokens else 0
            found.sums.add(_Sums(total, call.own, expected, min(cached or 0, expected)))

    def ended(self, position: int, slots: Iterable[SlotOrder] = ()) -> None:
        """Record that the request at this position in the starting order has ended.

        ``slots`` has an object for each engine whose slots (parallel calls) have separate caches; these objects record it, too.
        """
        for one in slots:
            one.forget(position)
            self.version += one.is_used
        found = self._under_way.pop(position, None)
        if found is None:  # it sent nothing
            self._left -= 1
            self.version += not self._left
            return
        self._ended += 1
        sums = self._sums
        sums.add(found.sums)
        if self._is_across or self._ended < EVIDENCE:
            return
        has_lost = 0 < sums.cached < (1.0 - LOST) * sums.expected  # a cache that never held anything does not count
        if has_lost or sums.own < OWN * sums.total:
            self._is_across = True
            self.version += 1


def _forget(known: dict[int, int] | dict[int, None]) -> None:
    """Remove the oldest entries of a dictionary that has grown too large."""
    while len(known) > KEPT:
        del known[next(iter(known))]
