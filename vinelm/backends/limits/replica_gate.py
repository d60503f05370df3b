"""The queue of a replica group (several endpoints of one model): each call goes to the first replica with room."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, SupportsFloat, runtime_checkable

from vinelm.backends.limits.rate_limits import EngineRateLimiter, EngineTurn, RateLimits
from vinelm.backends.limits.rate_share import WindowPermit, turn_key
from vinelm.clock import Clock, WallClock
from vinelm.errors import CallError
from vinelm.prompts.radix import known_tokens

HEAD_ASKS_S = 0.02
"""Seconds after which the first call of the line asks the replicas again: their limits may have room by then."""
OTHERS_ASK_S = 0.2
"""Seconds after which every other call of the line asks again; it may also start when the first call asks."""
FIRST_REST_S, LONGEST_REST_S = 1.0, 30.0
"""Seconds for which a replica that failed is the last resort; doubled with each further failure, up to the longest."""
_KEPT = 0.7
"""Weight of earlier rounds in the running mean of calls per round."""
WARM_PART = 0.5
"""A replica is warm for a call if it has been sent at least this fraction of the prompt, from its beginning."""
WARM_CALLS, WARM_SPREAD = 1.0, 1.25
"""A warm replica is preferred while it has at most ``WARM_CALLS`` plus ``WARM_SPREAD`` times the mean number of calls."""
WARM_POINTS = 1 << 16
"""How many prompt beginnings are remembered per replica; a prompt of 2,000 tokens has about 17."""
_MOST_SUPPOSED = 40.0
"""The highest estimate of calls that other processes have not reported yet; a higher one would change nothing, since the
replicas are level by then.
"""


@dataclass(slots=True, eq=False)
class Replica:
    """What a :class:`ReplicaGate` has recorded about one replica.

    Attributes:
        engine: the name of the replica's engine.
        limiter: the rate limiter of this engine.
        in_flight: number of this gate's calls that the replica is serving.
        failures: number of consecutive failed attempts.
        rests_until_s: until when the replica is avoided after a failure, in seconds of the gate's clock.
        sent: digests of the beginnings of prompts that were sent to the replica, the latest last.
    """

    engine: str
    limiter: EngineRateLimiter
    in_flight: int = 0
    failures: int = 0
    rests_until_s: float = float("-inf")
    sent: dict[int, None] = field(default_factory=dict)

    def note(self, points: Sequence[int]) -> None:
        """Record that the replica was sent a prompt whose prefixes have these digests. Keep only the latest digests."""
        for point in points:
            self.sent.pop(point, None)
        self.sent.update(dict.fromkeys(points))
        while len(self.sent) > WARM_POINTS:
            del self.sent[next(iter(self.sent))]


class PromptPriority:
    """The priority of a call, together with digests of the beginnings of its prompt. A :class:`ReplicaGate` uses the digests to
    find the replica that may have cached the prompt.

    Attributes:
        points: digests of the beginnings, from short to long.
        tokens: the number of tokens of each beginning.
    """

    __slots__ = ("_priority", "points", "tokens")

    def __init__(self, priority: SupportsFloat, points: Sequence[int], tokens: Sequence[int]) -> None:
        self._priority, self.points, self.tokens = priority, points, tokens

    def __float__(self) -> float:
        return float(self._priority)

    def __bool__(self) -> bool:
        return bool(self._priority)

    @property
    def engine(self) -> str | None:
        """The name of the engine that should serve the call; None if the priority in this object names no engine."""
        found: str | None = getattr(self._priority, "engine", None)
        return found


class SupposedCalls:
    """Estimates how many calls the processes of lower rank have started since they last reported their calls.

    Processes learn of each other's calls once per round. In between, the same replica looks least busy to all of them, and
    would be overloaded if all sent their calls there. So all processes have a rank. Each process assumes that every process of
    lower rank has started as many calls per round as it has itself, always at the best replica. It then takes the best replica
    that remains.
    """

    def __init__(self) -> None:
        self._heard: Mapping[str, int] = {}
        self._started, self._per_round = 0, 0.0

    def by_now(self, heard: Mapping[str, int], rank: int) -> int:
        """Return the estimated number of calls that processes of lower rank have started since their last report, rounded at
        random.

        Args:
            heard: the number of calls in the other processes' last reports, by engine; a new mapping begins a new round.
            rank: number of processes before this process; if 0, the estimate is 0.
        """
        if heard is not self._heard:
            self._heard = heard
            self._per_round = _KEPT * self._per_round + (1 - _KEPT) * self._started
            self._started = 0
        expected = min(rank * self._per_round, _MOST_SUPPOSED)
        return int(expected + random.random()) if expected else 0

    def started(self) -> None:
        """Count a call started by this process."""
        self._started += 1


class ReplicaPermit:
    """The permit of an attempt that may start, with the replica that serves the attempt.

    Attributes:
        replica: the replica's index in the group.
        engine: the replica's engine.
    """

    __slots__ = ("_gate", "_permit", "_turn", "engine", "replica")

    def __init__(self, gate: ReplicaGate, replica: int, turn: EngineTurn, permit: WindowPermit) -> None:
        self.replica, self.engine = replica, gate._replicas[replica].engine
        self._gate, self._turn, self._permit = gate, turn, permit

    def settle(self, tokens: int) -> None:
        """Record the tokens that the attempt used; see :meth:`RatePermit.settle
        <vinelm.requests.protocols.RatePermit.settle>`.
        """
        self._permit.settle(tokens)

    def ended(self, *, failed: bool) -> None:
        """Record that the attempt has ended. If ``failed`` is true, the failure was the replica's fault, and the replica is
        avoided for a while.
        """
        self._gate._note_end(self.replica, failed)

    def free(self) -> None:
        """Release the replica's slot that the attempt used, so that another call may start there."""
        self._turn.end()


@dataclass(slots=True, order=True)
class _Waiting:
    """A call in the queue of a replica group. Calls are sorted by ``key``: the arrival time, made earlier according to the
    priority.

    Attributes:
        turns: the call's place in the queue of each replica's engine, by the replica's index; empty unless the call is the
            first one in the group's queue.
        has_left: True once the call has ended or its caller no longer waits.
        admitted: a future that gets the call's permit when the call may start.
    """

    key: float
    number: int
    tokens: int = field(compare=False)
    arrived_s: float = field(compare=False)
    priority: SupportsFloat = field(compare=False)
    turns: list[EngineTurn] = field(compare=False, default_factory=list)
    has_left: bool = field(compare=False, default=False)
    admitted: Future[ReplicaPermit] = field(compare=False, default_factory=Future)

    def withdraw(self) -> None:
        """Leave the queues of all engines."""
        for turn in self.turns:
            turn.close()
        self.turns = []


class ReplicaGate:
    """Chooses a replica of a group for each call, and makes calls wait until a replica has room. Thread-safe, and safe across
    event loops.

    Implements :class:`~vinelm.requests.protocols.RateLimiter`. Calls leave the queue in order. The first call takes the replica
    that its priority names (the attribute ``engine``). If none is named, it takes the replica that was already sent the longest
    beginning of its prompt (:class:`PromptPriority`), unless that replica is far busier than the others. Otherwise it takes the
    replica with room whose number of calls in flight, divided by its weight, is smallest. A started call is not moved. A
    replica that failed recently is used only if no other has room. Waiting is in real time.

    Args:
        limiters: the rate limiters by engine, in the order of the group's replicas.
        clock: measures arrivals, and how long failed replicas rest.

    Attributes:
        weights: returns weights by engine, >= 0; missing engines have weight 1. A replica of weight 0 is not used, unless all
            are 0. Must not block.
        others: returns how many calls of other processes are in flight, by engine; they count like this process's calls. The
            mapping is a new object after each report of the other processes. Must not block.
        rank: returns the number of processes before this process, in an order that all of them know. Must not block.
        first: the index of the replica that is taken if several are equally good; differs between processes.
    """

    def __init__(self, limiters: Mapping[str, EngineRateLimiter], clock: Clock | None = None) -> None:
        self.weights: Callable[[], Mapping[str, float]] = dict
        self.others: Callable[[], Mapping[str, int]] = dict
        self.rank: Callable[[], int] = int
        self.first = 0
        self._supposed = SupposedCalls()
        self._replicas = [Replica(engine, limiter) for engine, limiter in limiters.items()]
        self._clock: Clock = clock or WallClock()
        self._line: list[_Waiting] = []
        self._asking: _Waiting | None = None  # the only call that waits in the engines' lines
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    @property
    def limits(self) -> RateLimits:
        """The limits of the group: each limit is the sum over the replicas, or None if a replica has no such limit.

        The field ``names_slots`` is False, because slot numbers are unique only within one replica.
        """
        return RateLimits(
            requests_per_min=self._sum("requests_per_min"), tokens_per_min=self._sum("tokens_per_min"),
            concurrency=self._sum("concurrency"),
        )  # fmt: skip

    @property
    def is_limited(self) -> bool:
        """Whether any replica has a limit."""
        return any(replica.limiter.is_limited for replica in self._replicas)

    def in_flight(self) -> dict[str, int]:
        """Return how many of this gate's calls each replica is serving now, keyed by the name of the replica's engine."""
        with self._lock:
            return {replica.engine: replica.in_flight for replica in self._replicas}

    def reorder(self) -> None:
        """Sort waiting calls again after priorities have changed."""
        with self._lock:
            for waiting in self._line:
                waiting.key = turn_key(waiting.arrived_s, waiting.priority)
            heapq.heapify(self._line)
        self._advance()

    @contextmanager
    def admit(self, tokens: int, sleep: Callable[[float], None], priority: SupportsFloat = 0.0) -> Iterator[ReplicaPermit]:
        """Wait for a replica with room, and occupy a slot of that replica during the block; yield the permit.

        ``tokens`` is the estimated number of tokens of the call; ``sleep`` is not used.
        """
        waiting = self._enter(tokens, priority)
        try:
            # Windows empty as time passes, without any event, so each waiting call looks again by itself.
            while not waiting.admitted.done():
                with suppress(TimeoutError):
                    waiting.admitted.result(self._pause_s(waiting))
                self._advance()
            yield waiting.admitted.result()
        finally:
            self._leave(waiting)

    @asynccontextmanager
    async def aadmit(
        self, tokens: int, sleep: Callable[[float], Awaitable[None]], priority: SupportsFloat = 0.0
    ) -> AsyncIterator[ReplicaPermit]:
        """Wait for a replica with room, like :meth:`admit`, without blocking the event loop."""
        waiting = self._enter(tokens, priority)
        try:
            if not waiting.admitted.done():
                admitted = asyncio.wrap_future(waiting.admitted)
                admitted.add_done_callback(_seen)
                while not waiting.admitted.done():
                    # Not wait_for: at its timeout it would cancel the future, and with it the place in the line.
                    await asyncio.wait([admitted], timeout=self._pause_s(waiting))
                    self._advance()
            yield waiting.admitted.result()
        finally:
            self._leave(waiting)

    def _sum(self, key: str) -> int | None:
        found = [getattr(replica.limiter.limits, key) for replica in self._replicas]
        return None if None in found else sum(found)

    def _enter(self, tokens: int, priority: SupportsFloat) -> _Waiting:
        with self._lock:
            now_s = self._clock.now()
            waiting = _Waiting(turn_key(now_s, priority), next(self._numbers), tokens, now_s, priority)
            heapq.heappush(self._line, waiting)
        self._advance()
        return waiting

    def _leave(self, waiting: _Waiting) -> None:
        """Record that the call has ended or that its caller no longer waits, and admit waiting calls if there is room."""
        with self._lock:
            # It may be anywhere in the heap; it is dropped when it reaches the front.
            waiting.has_left = True
            waiting.withdraw()
            if waiting.admitted.done() and waiting.admitted.exception() is None:
                permit = waiting.admitted.result()
                self._replicas[permit.replica].in_flight -= 1
                permit.free()
        self._advance()

    def _pause_s(self, waiting: _Waiting) -> float:
        line = self._line
        return HEAD_ASKS_S if line and line[0] is waiting else OTHERS_ASK_S

    def _advance(self) -> None:
        """Admit calls in order until no replica has room."""
        with self._lock:
            while self._line:
                first = self._line[0]
                if not first.has_left and not self._starts(first):
                    return
                heapq.heappop(self._line)

    def _starts(self, waiting: _Waiting) -> bool:
        """Start the first call of the queue if a replica has room. Return whether the call has left the queue.

        True means that the call was started, or failed because no replica can ever have room for it. False means that it must
        wait.
        """
        if self._asking is not waiting:
            if self._asking is not None:  # it was overtaken, or has left
                self._asking.withdraw()
            self._asking = waiting
            waiting.turns = [replica.limiter.line_up(waiting.tokens, waiting.priority) for replica in self._replicas]
        refused: list[CallError] = []
        for place in self._preferred(waiting):
            try:
                permit = waiting.turns[place].start()
            except CallError as error:
                # This replica will never have room for this call; another may.
                refused.append(error)
                continue
            if permit is not None:
                self._replicas[place].in_flight += 1
                if isinstance(waiting.priority, PromptPriority):
                    self._replicas[place].note(waiting.priority.points)
                self._supposed.started()
                waiting.admitted.set_result(ReplicaPermit(self, place, waiting.turns[place], permit))
                waiting.withdraw()
                return True
        if len(refused) < len(waiting.turns):
            return False
        waiting.admitted.set_exception(refused[0])  # no replica will have room for it
        waiting.withdraw()
        return True

    def _preferred(self, waiting: _Waiting) -> Sequence[int]:
        """Return the indices of the replicas that may be used, best first."""
        now_s, given, others = self._clock.now(), self.weights(), self.others()
        engine = getattr(waiting.priority, "engine", None)
        calls = [replica.in_flight + others.get(replica.engine, 0) + 1 for replica in self._replicas]
        weights = [max(float(given.get(replica.engine, 1.0)), 0.0) for replica in self._replicas]
        usable = [place for place, weight in enumerate(weights) if weight > 0] or range(len(weights))

        def cost(place: int) -> tuple[bool, float, int]:
            rests = self._replicas[place].rests_until_s > now_s
            return rests, calls[place] / (weights[place] or 1.0), (place - self.first) % len(weights)

        for _ in range(self._supposed.by_now(others, self.rank())):
            calls[min(usable, key=cost)] += 1
        pinned = [engine is not None and engine == replica.engine for replica in self._replicas]
        warm = [0] * len(calls) if any(pinned) else self._warm(waiting, usable, calls)
        return sorted(usable, key=lambda place: (cost(place)[0], not pinned[place], -warm[place], cost(place)))

    def _warm(self, waiting: _Waiting, usable: Sequence[int], calls: Sequence[int]) -> list[int]:
        """Return, for each replica, how many tokens at the beginning of the call's prompt have already been sent to it by other
        calls.

        The number is 0 for a replica that is too busy or not usable, or if the tokens are too small a part of the prompt.

        Args:
            waiting: The call.
            usable: The indices of the replicas that may be used.
            calls: The estimated number of calls of each replica, this call included.
        """
        found, prompt = [0] * len(calls), waiting.priority
        if isinstance(prompt, PromptPriority) and prompt.tokens:
            most = WARM_CALLS + WARM_SPREAD * sum(calls[place] for place in usable) / len(usable)
            for place in usable:
                tokens = known_tokens(prompt.points, prompt.tokens, self._replicas[place].sent) if calls[place] <= most else 0
                found[place] = tokens if tokens >= WARM_PART * prompt.tokens[-1] else 0
        return found

    def _note_end(self, place: int, failed: bool) -> None:
        with self._lock:
            replica = self._replicas[place]
            replica.failures = replica.failures + 1 if failed else 0
            rest_s = min(FIRST_REST_S * 2.0 ** (replica.failures - 1), LONGEST_REST_S) if failed else float("-inf")
            replica.rests_until_s = self._clock.now() + rest_s


def _seen(admitted: asyncio.Future[ReplicaPermit]) -> None:
    """Read the error of a future, because asyncio warns of errors that are never read. The waiting caller gets the same error
    as an exception.
    """
    if not admitted.cancelled():
        admitted.exception()


@runtime_checkable
class LimitsGroups(Protocol):
    """A backend with replica groups, whose gates choose the replica for each call."""

    @property
    def replica_gates(self) -> Mapping[str, ReplicaGate]:
        """The :class:`ReplicaGate` of each replica group, by the group's name."""
