"""Rate limits of an engine (the endpoint that serves a model), for all threads and tasks of this process.

The limits per minute hold in every sliding window of one minute. Calls wait in a fair queue for the engine's slots; a slot is a
place for one of the calls that may run at the same time.

Maintained libraries do not fit: ``limits`` does not wait, ``aiolimiter`` is bound to one event loop, and ``pyrate-limiter``
stores one entry per token, cannot return unused tokens, and has no concurrency limit.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple, Protocol, SupportsFloat, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from vinelm.backends.limits.rate_share import RateAmounts, RateShare, RateTurn, WindowPermit, turn_key
from vinelm.clock import Clock, WallClock
from vinelm.requests.protocols import Backend

WINDOW_S = 60.0


class RateLimits(BaseModel):
    """The limits of an engine; None means no limit.

    Args:
        requests_per_min: Maximum number of calls that start within a minute, >= 1.
        tokens_per_min: Maximum number of tokens of the calls that start within a minute, >= 1.
        concurrency: Maximum number of calls in flight at a time, >= 1.
        names_slots: The engine accepts a slot number with each call, as llama.cpp's server does (``id_slot``), so that a call
            can reuse the slot that holds the beginning of its prompt. Slots are numbered from 0 to ``concurrency`` - 1. No
            other client may use the engine.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_min: int | None = Field(default=None, ge=1)
    tokens_per_min: int | None = Field(default=None, ge=1)
    concurrency: int | None = Field(default=None, ge=1)
    names_slots: bool = False


class _Waiting(NamedTuple):
    """A call that waits for a slot. Waiting calls are sorted by ``key``, and calls with equal keys by ``number``, which is
    unique.
    """

    key: float
    number: int
    slot: Future[None]
    arrived_s: float
    priority: SupportsFloat


class EngineRateLimiter:
    """Enforces the limits of one engine in every half-open window of one minute.

    Calls start in order of arrival, except that a priority moves a call forward in the queue; see
    :func:`~vinelm.backends.limits.rate_share.turn_key`. A call with more tokens than a minute allows starts in an empty window.
    The tokens of a call are its caller's estimate until the caller reports the real number. Thread-safe, and safe across event
    loops.
    """

    def __init__(self, limits: RateLimits, clock: Clock | None = None) -> None:
        self._limits = limits
        self._is_limited = limits != RateLimits()
        self._clock = clock or WallClock()
        self._lock = threading.Lock()
        self._log: deque[WindowPermit] = deque()
        self._queue: list[_Waiting] = []  # a heap
        self._numbers = itertools.count()
        self._free = limits.concurrency or 0
        self._share: RateShare | None = None

    @property
    def limits(self) -> RateLimits:
        """The limits that are enforced."""
        return self._limits

    @property
    def is_limited(self) -> bool:
        """Whether the engine has any limit."""
        return self._is_limited

    def share(self, on_short: Callable[[], None]) -> RateShare | None:
        """Share the engine's limits with other processes: from now on, calls may use only this process's share.

        Returns the share, which is initially zero, or None if the engine has no limit per minute. Every call returns the same
        object. ``on_short`` is called when a waiting call does not fit into the share. Calls that are already waiting keep
        their start times. The concurrency limit still applies to this process alone.
        """
        amounts = RateAmounts(self._limits.requests_per_min or 0, self._limits.tokens_per_min or 0)
        with self._lock:
            if self._share is None and any(amounts):
                self._share = RateShare(amounts, WINDOW_S, self._clock, self._log, on_short)
            return self._share

    def _line(self) -> RateShare | None:
        """Return the queue in which a call with a higher priority can overtake earlier calls; create the queue if needed.
        Return None if the engine has no limit per minute.

        Unless other processes share the limits, this process's queue may use all of the engine's requests and tokens.
        """
        amounts = RateAmounts(self._limits.requests_per_min or 0, self._limits.tokens_per_min or 0)
        with self._lock:
            if self._share is None and any(amounts):
                self._share = RateShare(amounts, WINDOW_S, self._clock, self._log, _nobody)
                self._share.grow(amounts)
            return self._share

    def reorder(self) -> None:
        """Sort the waiting calls again after priorities have changed. Calls that already have a start time keep it."""
        heirs = []
        with self._lock:
            self._sort()
            while self._free and (heir := self._heir()) is not None:  # it waited although a slot was free
                heirs.append(heir)
            share = self._share
        for heir in heirs:
            heir.set_result(None)
        if share is not None:
            share.reorder()

    def reserve(self, tokens: int) -> tuple[WindowPermit, float]:
        """Reserve one request and ``tokens`` tokens of the limits per minute for a call.

        Returns the call's permit, and the seconds to wait before the call may start.
        """
        with self._lock:
            now_s = self._clock.now()
            start_s = self._first_start(tokens, now_s)
            return self._permit(start_s, tokens), start_s - now_s

    def line_up(self, tokens: int, priority: SupportsFloat = 0.0) -> EngineTurn:
        """Queue a call on this engine without waiting, and return its place in the queue.

        ``tokens`` is the maximum number of tokens that the call may use.
        """
        return EngineTurn(self, None if self._share is None else self._share.line_up(tokens, priority), tokens)

    def _reserve_now(self, tokens: int) -> WindowPermit | None:
        """If the limits per minute allow a call with ``tokens`` tokens now, reserve them and return the call's permit;
        otherwise return None.
        """
        with self._lock:
            now_s = self._clock.now()
            return None if self._first_start(tokens, now_s) > now_s else self._permit(now_s, tokens)

    def _first_start(self, tokens: int, now_s: float) -> float:
        # The window is half open: a call that began exactly a minute ago no longer counts.
        while self._log and self._log[0].start_s <= now_s - WINDOW_S:
            self._log.popleft()
        # Never before a call that asked earlier: a small call must not overtake a large one that waits for tokens, or it would
        # starve.
        start_s = max(now_s, self._log[-1].start_s) if self._log else now_s
        start_s = max(start_s, self._room(self._limits.requests_per_min, 1, lambda permit: 1))
        return max(start_s, self._room(self._limits.tokens_per_min, tokens, lambda permit: permit.tokens))

    def _permit(self, start_s: float, tokens: int) -> WindowPermit:
        permit = WindowPermit(start_s, tokens)
        if self._limits.requests_per_min or self._limits.tokens_per_min:
            self._log.append(permit)
        return permit

    def _room(self, allowed: int | None, wanted: int, weight: Callable[[WindowPermit], int]) -> float:
        """Return the earliest time at which a window of one minute has room for ``wanted`` more requests or tokens; minus
        infinity without a limit.

        ``allowed`` is the limit per window, None without one; ``weight`` returns how many requests or tokens an earlier call
        counts as.
        """
        start_s = float("-inf")
        if allowed is None:
            return start_s
        used = sum(weight(permit) for permit in self._log)
        # The oldest calls leave the window first. If even an empty one is too small, the call starts when the last has left.
        for permit in self._log:
            if used + wanted <= allowed:
                break
            start_s = permit.start_s + WINDOW_S
            used -= weight(permit)
        return start_s

    @contextmanager
    def admit(self, tokens: int, sleep: Callable[[float], None], priority: SupportsFloat = 0.0) -> Iterator[WindowPermit]:
        """Wait until a slot is free and the limits per minute allow the call, and yield its permit. The slot is held until the
        block ends.

        Args:
            tokens: the caller's estimate of the call's tokens.
            sleep: waits the given number of seconds.
            priority: moves the call forward in the queue by 10 s of waiting per unit.
        """
        if not self._is_limited:
            yield WindowPermit(-math.inf, tokens)
            return
        slot = self._take(priority)
        try:
            # The slot comes first. A place in the window has a time, which would pass unused while the call waits for a slot.
            if slot is not None:
                slot.result()
            with self._start(tokens, priority) as turn:
                while (wait_s := turn.pause_s()) > 0:
                    sleep(wait_s)
            assert turn.permit is not None
            yield turn.permit
        finally:
            self._give(slot)

    @asynccontextmanager
    async def aadmit(
        self, tokens: int, sleep: Callable[[float], Awaitable[None]], priority: SupportsFloat = 0.0
    ) -> AsyncIterator[WindowPermit]:
        """Wait until a slot is free and the limits per minute allow the call, like :meth:`admit`, without blocking the event
        loop.
        """
        if not self._is_limited:
            yield WindowPermit(-math.inf, tokens)
            return
        slot = self._take(priority)
        try:
            if slot is not None:
                await asyncio.wrap_future(slot)
            with self._start(tokens, priority) as turn:
                while (wait_s := turn.pause_s()) > 0:
                    await sleep(wait_s)
            assert turn.permit is not None
            yield turn.permit
        finally:
            self._give(slot)

    def _start(self, tokens: int, priority: SupportsFloat) -> RateTurn | _Appointment:
        """Queue a call, and return an object that tells the call how long to wait.

        If other calls may overtake this call, the object is the call's place in the queue; otherwise its fixed start time.
        """
        # Without priorities no call overtakes another, so a call learns its time at once. The first priority makes a line.
        share = self._line() if self._share is None and priority else self._share
        return _Appointment(*self.reserve(tokens)) if share is None else share.line_up(tokens, priority)

    def _take(self, priority: SupportsFloat) -> Future[None] | None:
        """Request a slot. Return a future that completes when the slot is granted, or None without a concurrency limit."""
        if self._limits.concurrency is None:
            return None
        slot: Future[None] = Future()
        with self._lock:
            now_s = self._clock.now()
            key = turn_key(now_s, priority)
            if self._free and key < math.inf:
                self._free -= 1
                slot.set_result(None)
                self._note_granted(priority)
            else:
                heapq.heappush(self._queue, _Waiting(key, next(self._numbers), slot, now_s, priority))
        return slot

    def _note_granted(self, priority: SupportsFloat) -> None:
        """If a call's ``priority`` has the method ``granted``, call that method, because the call now has its slot. Then sort
        the waiting calls again, since their priorities may have changed.
        """
        granted = getattr(priority, "granted", None)
        if granted is not None:
            granted()
            self._sort()

    def _sort(self) -> None:
        self._queue = [one._replace(key=turn_key(one.arrived_s, one.priority)) for one in self._queue]
        heapq.heapify(self._queue)

    def _heir(self) -> Future[None] | None:
        """Take the first call out of the queue, grant a free slot to it, and return the future on which the call waits.

        The code that calls this method has to set the future's result.

        Returns None if no waiting call may start now; the slot then stays free.
        """
        while self._queue and self._queue[0].key < math.inf:
            first = heapq.heappop(self._queue)
            # A waiter that was cancelled meanwhile is passed over, and the slot goes to the next in line.
            if first.slot.set_running_or_notify_cancel():
                self._free -= 1
                self._note_granted(first.priority)
                return first.slot
        return None

    def _take_now(self) -> bool:
        """Take a slot without waiting. Return True if a slot was free or the engine has no limit on concurrent calls."""
        if self._limits.concurrency is None:
            return True
        with self._lock:
            # A group asks several replicas in turn, so that a call must never wait at one of them.
            self._free -= (is_free := self._free > 0)
            return is_free

    def _give_back(self) -> None:
        """Release the slot that :meth:`_take_now` took."""
        if self._limits.concurrency is not None:
            slot: Future[None] = Future()
            slot.set_result(None)
            self._give(slot)

    def _give(self, slot: Future[None] | None) -> None:
        """Release a slot, and grant it to the first call in the queue. Does nothing if the waiter was cancelled before it got
        the slot, or if ``slot`` is None.
        """
        # cancel() succeeds only for a waiter that was never granted a slot; it stays in the heap and is skipped below.
        if slot is None or slot.cancel() or slot.cancelled():
            return
        with self._lock:
            self._free += 1
            heir = self._heir()
        if heir is not None:  # outside of the lock: callbacks of the future may ask for a slot themselves
            heir.set_result(None)


def _nobody() -> None:
    """Do nothing. This is the default callback, used while no other process shares the limits."""


class EngineTurn:
    """A call's place in the queue of one engine, for a call that waits at several engines at once. Use from one thread at a
    time.

    The caller asks repeatedly with :meth:`start`, which never blocks, whether the call may start at this engine.
    """

    __slots__ = ("_limiter", "_tokens", "_turn")

    def __init__(self, limiter: EngineRateLimiter, turn: RateTurn | None, tokens: int) -> None:
        self._limiter, self._turn, self._tokens = limiter, turn, tokens

    def start(self) -> WindowPermit | None:
        """Start the call if the engine has a free slot and the rate limits allow it now, and return its permit. Otherwise
        return None.

        The call holds its slot until :meth:`end`.

        Raises:
            CallError: this process's share will never be large enough for the call; see :meth:`RateShare.cut_off`.
        """
        limiter, turn = self._limiter, self._turn
        if not limiter._take_now():
            return None
        permit = None
        try:
            if turn is None:
                permit = limiter._reserve_now(self._tokens)
            else:
                turn.pause_s()
                permit = turn.permit
        finally:
            if permit is None:
                limiter._give_back()
        return permit

    def end(self) -> None:
        """Release the slot of a started call."""
        self._limiter._give_back()

    def close(self) -> None:
        """Leave the queue. Idempotent."""
        if self._turn is not None:
            self._turn.__exit__()


class _Appointment:
    """The fixed start time of a waiting call. No other call can overtake it, so it waits once, until that time."""

    __slots__ = ("_wait_s", "permit")

    def __init__(self, permit: WindowPermit, wait_s: float) -> None:
        self.permit, self._wait_s = permit, wait_s

    def pause_s(self) -> float:
        """Return the seconds until the start time when called first, and 0 on later calls."""
        wait_s, self._wait_s = self._wait_s, 0.0
        return wait_s

    def __enter__(self) -> _Appointment:
        return self

    def __exit__(self, *raised: object) -> None:
        """Do nothing: a call that is cancelled while waiting keeps its reservation."""


@runtime_checkable
class LimitsCalls(Backend, Protocol):
    """A backend whose calls wait for rate limits."""

    @property
    def rate_limiters(self) -> Mapping[str, EngineRateLimiter]:
        """The rate limiter of each engine, by the engine's name."""
