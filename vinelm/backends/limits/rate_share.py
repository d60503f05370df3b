"""This process's part of an engine's limits per minute, which several processes share.

A share is the maximum number of requests and of tokens that this process may use in any minute. The share may change at any
time, so the start time of a waiting call is unknown: the call asks repeatedly, in the order of the queue.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, SupportsFloat

from vinelm.clock import Clock
from vinelm.errors import CallError

HEAD_POLLS_S = 0.02
"""Seconds after which the first call of the line asks again; the n-th after n times as many, up to ``TAIL_POLLS_S``."""
TAIL_POLLS_S = 0.5


STEP_S = 10.0
"""Seconds of waiting that one step of priority is worth: a call passes calls of one step less for that long."""


def turn_key(arrived_s: float, priority: SupportsFloat) -> float:
    """Return the sort key of a call in a queue; the call with the smallest key is first.

    Each unit of ``priority`` counts like :data:`STEP_S` more seconds of waiting. The key does not depend on the current time,
    and every call is served eventually.
    """
    return arrived_s - STEP_S * float(priority)


class RateAmounts(NamedTuple):
    """A number of requests and a number of tokens. As a limit, 0 means no limit."""

    requests: int
    tokens: int


class RateDemand(NamedTuple):
    """The requests and tokens that this process has and needs for one engine.

    Attributes:
        held: what the process's share allows in a minute.
        used: what the process's calls have used in the last minute.
        lacks: what the share lacks for the first waiting call; zero if no call waits.
        call: the size of the first waiting call; the average size of a call if none waits.
        waited_s: how long the first waiting call has been at the head of the queue, in seconds.
    """

    held: RateAmounts
    used: RateAmounts
    lacks: RateAmounts
    call: RateAmounts
    waited_s: float = 0.0


class WindowPermit:
    """The permit of a call that may start. :meth:`settle` replaces the estimated number of its tokens with the real number."""

    __slots__ = ("start_s", "tokens")

    def __init__(self, start_s: float, tokens: int) -> None:
        self.start_s = start_s
        self.tokens = tokens

    def settle(self, tokens: int) -> None:
        """Record the number of tokens that the call used. This affects only later calls; calls that already wait keep their
        start times.
        """
        self.tokens = tokens


class RateShare:
    """This process's share of an engine's limits. It is initially zero; :meth:`grow`, :meth:`cut` and :meth:`give_back` change
    it. Thread-safe.

    Args:
        limits: the engine's limits for all processes; 0 means no limit.
        window_s: the length of the limits' window in seconds.
        clock: measures the seconds.
        before: the permits of calls that have started already.
        on_short: called once for each call that reaches the head of the queue and does not fit into the share; must not block.
    """

    def __init__(
        self,
        limits: RateAmounts,
        window_s: float,
        clock: Clock,
        before: Iterable[WindowPermit],
        on_short: Callable[[], None],
    ) -> None:
        self.limits = limits
        self._window_s, self.clock, self._on_short = window_s, clock, on_short
        self._log = deque(before)
        self._held = RateAmounts(0, 0)
        self._ceiling = limits
        self._lacks = RateAmounts(0, 0)
        self._first_at = 0.0
        self._told = -1
        self._cut_off = ""
        self._line: dict[int, RateTurn] = {}
        self._order: list[tuple[float, int]] = []  # a heap of keys and numbers; calls that have left may still be in it
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def renew(self, on_short: Callable[[], None]) -> None:
        """Reset the share in a forked process: set it to zero, forget all started calls, and replace the callback by
        ``on_short``.
        """
        with self._lock:
            self._on_short, self._held, self._ceiling = on_short, RateAmounts(0, 0), self.limits
            self._log.clear()

    def cut_off(self, why: str) -> None:
        """From now on, raise an error for calls that need more than the current share, because the share will not grow.

        ``why`` is the error message. With an empty ``why``, such calls wait again.
        """
        self._cut_off = why

    def line_up(self, tokens: int, priority: SupportsFloat = 0.0) -> RateTurn:
        """Queue a call behind waiting calls of the same priority, and return its place in the queue.

        ``tokens`` is the maximum number of tokens that the call may use.
        """
        with self._lock:
            now_s = self.clock.now()
            turn = RateTurn(self, next(self._numbers), tokens, now_s, priority)
            if not self._line:
                self._first_at = now_s
            self._line[turn.number] = turn
            heapq.heappush(self._order, (turn_key(now_s, priority), turn.number))
        return turn

    def reorder(self) -> None:
        """Sort the queue again after priorities of waiting calls have changed."""
        with self._lock:
            self._order = [(turn_key(turn.arrived_s, turn.priority), turn.number) for turn in self._line.values()]
            heapq.heapify(self._order)

    def _first(self) -> RateTurn:
        """Return the first call of the queue, which is not empty."""
        # Calls that gave up stay in the heap and are dropped here: removing each in place would cost a search.
        while self._order[0][1] not in self._line:
            heapq.heappop(self._order)
        return self._line[self._order[0][1]]

    def demand(self) -> RateDemand:
        """Return the requests and tokens that this process holds, has used in the last minute, and lacks for its first waiting
        call.
        """
        with self._lock:
            used, one = self._used(), min(self.limits.requests, 1)
            if not self._line:
                mean = min(-(-used.tokens // max(used.requests, 1)), self.limits.tokens)
                return RateDemand(self._held, used, RateAmounts(0, 0), RateAmounts(one, mean))
            tokens = min(self._first().tokens, self.limits.tokens)
            waited_s = self.clock.now() - self._first_at
            return RateDemand(self._held, used, self._lacks, RateAmounts(one, tokens), waited_s)

    def grow(self, to: RateAmounts) -> None:
        """Raise the share to these numbers of requests and tokens; smaller numbers have no effect."""
        with self._lock:
            self._held = RateAmounts(*map(max, self._held, to))

    def cut(self, to: RateAmounts) -> None:
        """Lower the share to at most these numbers of requests and tokens, because other processes hold the rest."""
        with self._lock:
            self._held = RateAmounts(*map(min, self._held, to))

    def give_back(self, keep: RateAmounts) -> RateAmounts:
        """Lower this process's share to ``keep``. Return the requests and tokens that it holds from then on.

        The returned amounts may exceed ``keep``, because what calls have used in the last minute stays held for a minute. What
        this process no longer holds, other processes may use at once.
        """
        with self._lock:
            self._ceiling = keep
            # What this process used within the minute cannot be given away yet: another process would use it a second time.
            self._held = RateAmounts(*(min(h, max(k, u)) for h, k, u in zip(self._held, keep, self._used(), strict=True)))
            return self._held

    def _used(self) -> RateAmounts:
        now_s = self.clock.now()
        while self._log and self._log[0].start_s <= now_s - self._window_s:
            self._log.popleft()
        return RateAmounts(len(self._log), sum(permit.tokens for permit in self._log))

    def _ask(self, turn: RateTurn) -> float:
        """If the call of ``turn`` may start now, give it its permit and return 0. Otherwise return the seconds after which to
        ask again.
        """
        with self._lock:
            first = self._first()
            if turn is not first:
                return min(HEAD_POLLS_S * max(turn.number - first.number, 1), TAIL_POLLS_S)
            used = self._used()
            # A call larger than a minute's limit counts as the whole of it: it starts alone instead of never.
            needs = (used.requests + 1, used.tokens + min(turn.tokens, self.limits.tokens))
            lacks, fits = [], True
            for need, held, top, limit in zip(needs, self._held, self._ceiling, self.limits, strict=True):
                lacks.append(max(need - held, 0) if limit else 0)
                fits = fits and (not limit or need <= min(held, top))
            if fits:
                self._first_at = self.clock.now()
                turn.permit = WindowPermit(self._first_at, turn.tokens)
                self._log.append(turn.permit)
                del self._line[turn.number]
                self._lacks = RateAmounts(0, 0)
                return 0.0
            if self._cut_off and self._is_too_small(turn.tokens):
                raise CallError(self._cut_off, kind="rate_limit")
            self._lacks = RateAmounts(*lacks)
            # Notified once for each call at the head, not each time that it asks again.
            is_news, self._told = self._told != turn.number, turn.number
        # Outside of the lock, which the callback may need.
        if is_news:
            self._on_short()
        return HEAD_POLLS_S

    def _is_too_small(self, tokens: int) -> bool:
        """Return whether a call with ``tokens`` tokens needs more than the whole share, even if none of the share is in use."""
        call = RateAmounts(1, min(tokens, self.limits.tokens))
        return any(limit and need > held for need, held, limit in zip(call, self._held, self.limits, strict=True))

    def _leave(self, turn: RateTurn) -> None:
        with self._lock:
            self._line.pop(turn.number, None)


class RateTurn:
    """A call's place in the queue of a :class:`RateShare`.

    Attributes:
        permit: the call's permit, or None until the call is admitted.
    """

    __slots__ = ("_share", "arrived_s", "number", "permit", "priority", "tokens")

    def __init__(self, share: RateShare, number: int, tokens: int, arrived_s: float, priority: SupportsFloat) -> None:
        self._share, self.number, self.tokens = share, number, tokens
        self.arrived_s, self.priority = arrived_s, priority
        self.permit: WindowPermit | None = None

    def pause_s(self) -> float:
        """Return 0 once the call is admitted, else the seconds after which to ask again.

        Raises:
            CallError: the share will never be large enough for the call; see :meth:`RateShare.cut_off`.
        """
        return 0.0 if self.permit is not None else self._share._ask(self)

    def __enter__(self) -> RateTurn:
        return self

    def __exit__(self, *raised: object) -> None:
        """Leave the queue. A caller that leaves before the call is admitted no longer waits."""
        self._share._leave(self)
