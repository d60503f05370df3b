"""Chooses where a prompt is marked for a provider's cache, and which calls wait until another has written the cache."""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from vinelm.catalog.model import CACHE_TTL_S, WRITE_FACTOR, Model
from vinelm.clock import Clock
from vinelm.prompts.shape import CACHE_MINIMUM, Point, Shape

MOST_MARKS = 4
"""The most marks per prompt that providers accept."""
LONGEST_WAIT_S = 10.0
"""The longest time that a call waits for another call to write its prefix."""
WORTH_WAITING = 0.1
"""The share of its prompt that a call must additionally find in the cache to wait for it."""
MOST_POINTS = 64
_FIRST_POINTS = 8
_HALF_LIFE_S = 3600.0
_DEEPEST = 31
_FIRST_WEIGHT = 0.35
"""Instructions come first and mostly stay the same: the first part is marked until two calls in a row differ there."""


@dataclass(slots=True, eq=False)
class PromptCall:
    """The prompt of one attempt to make a call, as hashes of its prefixes, and where it is marked for the provider's
    cache.

    Args:
        stage: the stage of the invocation.
        points: the ends of the prefixes that a cache can keep, from short to long, at most :data:`MOST_POINTS`.
        first: digest of the prompt's first part (a message, or a piece of a message); None if nothing is to be cached.
        left_out: number of parts whose ends are missing in ``points`` because the prompt has too many; they come right
            after the first :data:`_FIRST_POINTS` parts.
        may_wait: whether the attempt may wait until another attempt has cached a prefix of its prompt.
        marks: the indices, in ``points``, of the ends to mark; set by :meth:`CachePoints.place`.
        on_begun: called once, when the answer begins; set by :meth:`CachePoints.place`.
    """

    stage: str
    points: tuple[Point, ...] = ()
    first: int | None = None
    left_out: int = 0
    may_wait: bool = False
    marks: tuple[int, ...] = ()
    on_begun: Callable[[], None] | None = None
    _writes: dict[int, Future[None]] = field(default_factory=dict)
    _placed_s: float = 0.0

    @classmethod
    def of(cls, stage: str, shape: Shape, *, takes_marks: bool, may_wait: bool) -> PromptCall:
        """Return the prompt of an attempt, made from the prompt's shape (hashes of its prefixes).

        Args:
            stage: the stage of the invocation.
            shape: the shape of the prompt.
            takes_marks: whether the provider caches only marked blocks; otherwise it caches every block.
            may_wait: whether the attempt may wait until another attempt has cached a prefix of its prompt.
        """
        ends, first = shape.ends, shape.ends[0].digest
        if not takes_marks:
            return cls(stage, shape.steps(MOST_POINTS), first, may_wait=may_wait)
        left_out = max(len(ends) - MOST_POINTS, 0)
        return cls(stage, ends[:_FIRST_POINTS] + ends[_FIRST_POINTS + left_out :], first, left_out, may_wait)

    @classmethod
    def received(cls, sent: Sequence[Any]) -> PromptCall:
        """Return the prompt that ``sent`` describes; ``sent`` is the result of :meth:`to_send` in another process."""
        stage, points, may_wait = sent
        return cls(stage, tuple(Point(*point) for point in points), may_wait=may_wait)

    def to_send(self) -> list[Any]:
        """Return what another process needs to choose the marks, as JSON types: the stage, the prefix ends, and whether to
        wait.
        """
        return [self.stage, self.points, self.may_wait]

    @property
    def marked_parts(self) -> tuple[int, ...]:
        """The indices of the prompt's parts whose ends are marked for the cache; all parts of the prompt are counted."""
        return tuple(mark if mark < _FIRST_POINTS else mark + self.left_out for mark in self.marks)

    def begun(self) -> None:
        """Call ``on_begun`` when the first piece of the answer has arrived; later calls of this method do nothing."""
        if self.on_begun is not None:
            on_begun, self.on_begun = self.on_begun, None
            on_begun()


class Reuse:
    """Counts how often prefixes of prompts are sent again while a cache would still have them. Counts are kept by stage
    and by the prefix's position in the prompt, for each model and for all models together.

    Counts halve every hour, so that they follow changes of the request rate. Callers hold ``lock``.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._cold: defaultdict[tuple[str, int, str], float] = defaultdict(float)
        self._warm: defaultdict[tuple[str, int, str], float] = defaultdict(float)
        self._same: defaultdict[tuple[str, int], float] = defaultdict(float)
        self._last: dict[tuple[str, int], int] = {}
        self._at_s = -math.inf

    def fade(self, now_s: float) -> None:
        """Reduce the counts by half for each hour since they were last reduced, up to the time ``now_s`` in seconds."""
        if now_s - self._at_s > _HALF_LIFE_S / 20:
            kept = 0.5 ** ((now_s - self._at_s) / _HALF_LIFE_S)
            for counts in (self._cold, self._warm, self._same):
                for key in counts:
                    counts[key] *= kept  # type: ignore[index]
            self._at_s = now_s

    def add(self, stage: str, place: int, model: str, digest: int, *, is_warm: bool) -> None:
        """Count a call's prefix.

        Args:
            stage: the call's stage.
            place: the index of the prefix among the prompt's prefixes, from short to long.
            model: the call's model.
            digest: the digest of the prefix.
            is_warm: whether another call had the same prefix so recently that a cache would still have it.
        """
        counts = self._warm if is_warm else self._cold
        for name in (model, ""):
            counts[stage, place, name] += 1
        if self._last.get((stage, place)) == digest:
            self._same[stage, place] += 1
        self._last[stage, place] = digest

    def reads(self, stage: str, place: int, model: str, digest: int) -> float:
        """Return how often a prefix is expected to be read from the cache for each time that it is written, estimated
        from the counts.

        The arguments are those of :meth:`add`.
        """
        prior = _FIRST_WEIGHT if place == 0 else 1.0
        key, of_all = (stage, place, model), (stage, place, "")
        together = (self._warm[of_all] + (prior if place == 0 else 0.0)) / (self._cold[of_all] + prior)
        if place == 0 and self._last.get((stage, place)) == digest:  # the stage's last call began in the same way
            together = max(together, 1.0)
        return (self._warm[key] + together) / (self._cold[key] + 1.0)

    def is_static(self, stage: str, place: int) -> bool:
        """Return whether, in at least 90 % of the stage's calls, the prefix at index ``place`` was the same as in the stage's
        previous call.

        With fewer than two calls, only the prefix at index 0 counts as static.
        """
        calls = self._warm[stage, place, ""] + self._cold[stage, place, ""]
        return place == 0 if calls < 2 else self._same[stage, place] >= 0.9 * (calls - 1)


class CachePoints:
    """The probable contents of one prompt cache, estimated from the calls of this process. Thread-safe.

    A prefix is marked if it is in the cache already, or if reading it from the cache is expected to save more than
    writing it costs: ``E[reads] * (1 - cached / input) > write / input - 1``, where ``cached``, ``input`` and ``write``
    are prices per token. (Helium §5 keeps static prefixes only.) E[reads] is estimated by counting: if another call had
    the same prefix, marked or not, within the cache's time to live, this counts as a read.

    Args:
        model: the entry of the model in the catalog, with its prices and ``cache_points``.
        takes_marks: False if the provider keeps every prefix by itself, so that nothing is marked.
        reuse: the counts of reads, shared with the other models of the process.
        clock: the clock that gives the time in seconds.
    """

    def __init__(self, model: Model, *, takes_marks: bool, reuse: Reuse, clock: Clock) -> None:
        price = model.price
        self._ttl_s = price.cache_ttl_s or CACHE_TTL_S
        fresh = max(price.input, 1e-12)
        self._saved = 1.0 - (price.input if price.cached is None else price.cached) / fresh
        self._extra = (WRITE_FACTOR * price.input if price.cache_write is None else price.cache_write) / fresh - 1.0
        self._model, self._takes_marks, self._reuse, self._clock = model, takes_marks, reuse, clock
        self._lock = reuse.lock
        self._seen_s: dict[int, float] = {}
        self._held_s: dict[int, float] = {}
        self._writing: dict[int, Future[None]] = {}
        self._seconds = LONGEST_WAIT_S
        self._swept_s = -math.inf

    def leader(self, prompt: PromptCall) -> Future[None] | None:
        """Return a future to wait for before sending ``prompt``, so that a prefix of ``prompt`` can be read from the
        cache; None if there is nothing to wait for.

        The future belongs to another call, which is writing a prefix of ``prompt`` to the cache; the call with the
        longest such prefix is chosen. The future is resolved when that call's answer begins, or when the call ends
        without an answer.
        """
        if not prompt.may_wait or not prompt.points:
            return None
        with self._lock:
            now_s = self._clock.now()
            held = max((point.tokens for point in prompt.points if self._is_held(point, now_s)), default=0)
            for point in reversed(prompt.points):
                if point.tokens - held < WORTH_WAITING * prompt.points[-1].tokens:
                    break
                if (written := self._writing.get(point.digest)) is not None:
                    return written
        return None

    @property
    def longest_wait_s(self) -> float:
        """The maximum time that a call waits for another call: the expected seconds of a call, at most
        :data:`LONGEST_WAIT_S`.
        """
        return min(self._seconds, LONGEST_WAIT_S)

    def place(self, prompt: PromptCall) -> None:
        """Choose the prefixes to mark in a prompt that is about to be sent, and store them in ``prompt.marks``. Also
        count the prompt's prefixes.

        :meth:`end` must be called later.
        """
        with self._lock:
            now_s = prompt._placed_s = self._clock.now()
            prompt.on_begun = lambda: self.begin(prompt)
            self._sweep(now_s)
            self._reuse.fade(now_s)
            if self._takes_marks:
                prompt.marks = self._marks(prompt, now_s)
                written = [prompt.points[index] for index in prompt.marks]
            else:
                written = [point for point in prompt.points if point.tokens >= CACHE_MINIMUM]
            for point in written:
                if not self._is_held(point, now_s) and point.digest not in self._writing:
                    prompt._writes[point.digest] = self._writing[point.digest] = Future()
            self._count(prompt, now_s)

    def begin(self, prompt: PromptCall) -> None:
        """Record that the answer to the prompt has begun: from now on other calls can read the prompt from the cache."""
        with self._lock:
            until_s = self._clock.now() + self._ttl_s
            for index in prompt.marks if self._takes_marks else range(len(prompt.points)):
                self._held_s[prompt.points[index].digest] = until_s
        self._release(prompt)

    def end(self, prompt: PromptCall) -> None:
        """Record that the attempt with this prompt is over, successful or not."""
        with self._lock:
            self._seconds += 0.2 * (self._clock.now() - prompt._placed_s - self._seconds)
        self._release(prompt)

    def _release(self, prompt: PromptCall) -> None:
        writes, prompt._writes = prompt._writes, {}
        with self._lock:
            for digest in writes:
                self._writing.pop(digest, None)
        for written in writes.values():  # outside of the lock: callbacks run here
            written.set_result(None)

    def _is_held(self, point: Point, now_s: float) -> bool:
        return self._held_s.get(point.digest, -math.inf) > now_s

    def _count(self, prompt: PromptCall, now_s: float) -> None:
        for place, point in enumerate(prompt.points):
            is_warm = self._seen_s.get(point.digest, -math.inf) > now_s - self._ttl_s
            self._seen_s[point.digest] = now_s
            self._reuse.add(prompt.stage, min(place, _DEEPEST), self._model.name, point.digest, is_warm=is_warm)

    def _marks(self, prompt: PromptCall, now_s: float) -> tuple[int, ...]:
        reads: dict[int, float] = {}
        for index, point in enumerate(prompt.points):
            place = min(index, _DEEPEST)
            if self._model.cache_points == "static" and not self._reuse.is_static(prompt.stage, place):
                break
            expected = self._reuse.reads(prompt.stage, place, self._model.name, point.digest)
            is_worth_it = expected * self._saved > self._extra or self._is_held(point, now_s)
            if point.tokens >= CACHE_MINIMUM and is_worth_it:
                reads[index] = expected
        return _most_useful(reads, prompt.points)

    def _sweep(self, now_s: float) -> None:
        """Forget expired prefixes."""
        if now_s - self._swept_s > self._ttl_s:
            self._swept_s = now_s
            self._seen_s = {digest: at_s for digest, at_s in self._seen_s.items() if at_s > now_s - self._ttl_s}
            self._held_s = {digest: until_s for digest, until_s in self._held_s.items() if until_s > now_s}


def _most_useful(reads: dict[int, float], points: tuple[Point, ...]) -> tuple[int, ...]:
    """Return the indices of the points to mark, at most :data:`MOST_MARKS`, in ascending order.

    The longest candidate is always marked. The others are those that are expected to add the most tokens read from the cache.

    Args:
        reads: The expected reads of each candidate point, keyed by its index in ``points``.
        points: The ends of the prompt's prefixes.
    """
    if len(reads) <= MOST_MARKS:
        return tuple(reads)
    *others, last = reads
    following = dict(zip(others, [*others[1:], last], strict=True))

    def alone(index: int) -> float:
        return (reads[index] - reads[following[index]]) * points[index].tokens

    return tuple(sorted([*sorted(others, key=alone, reverse=True)[: MOST_MARKS - 1], last]))
