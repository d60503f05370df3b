"""Recorded calls again in virtual time, with any order, marks and leaders, under the rules of the caches.

As in a profile, at most 8 calls are under way, a free place takes the first call in order that can start, and a call can start
once the call before it in its request has ended. Seconds do not depend on what is cached.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from dollars_parts.cache_rules import (
    CHARS_PER_TOKEN,
    LEAST_TOKENS,
    TTL_S,
    AutomaticCache,
    Block,
    Lookup,
    MarkedCache,
    chained,
    steps_of_blocks,
)
from dollars_parts.own_marks import OwnMarks
from dollars_parts.workloads import Call, Scaling

from vinelm.catalog import Price
from vinelm.prompts.cache_points import PromptCall

WORKERS = 8
LONGEST_WAIT_S = 10.0
PREFILL_TOKENS_PER_S = 6000.0
"""As of the simulated models."""


Cell = tuple[str, tuple[str, ...]]
Sent = tuple[tuple[int, ...], Hashable]
"""What a call says to the cache: the parts that it marks (0 static, 1 request, 2 what earlier stages said), and its key."""
NOTHING: Sent = ((), None)


@dataclass(frozen=True)
class Method:
    """How the calls are made: what each says to the cache, whether the order is by prefix, and whether calls wait for a leader.

    ``marks`` are those of every call; ``sent`` is what each cell says instead.
    """

    marks: tuple[int, ...] = ()
    sent: Mapping[Cell, Sent] | None = None
    is_sorted: bool = False
    leads: bool = False

    def of(self, cell: Cell) -> Sent:
        """What the call of a cell says."""
        return (self.marks, None) if self.sent is None else self.sent.get(cell, NOTHING)


@dataclass(frozen=True, slots=True)
class Bill:
    """What the calls cost, how long they took together, and how many waited for a leader. ``began_s`` is of each call."""

    usd: float
    elapsed_s: float
    waited: int
    began_s: Mapping[Cell, float]


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a call at the lengths of a replay, and its seconds."""

    call: Call
    blocks: tuple[Block, ...]
    steps: tuple[Hashable, ...]
    tokens: int
    first_s: float
    seconds: float

    @property
    def cell(self) -> Cell:
        """The request, and the models so far."""
        return self.call.request, self.call.prefix


def prompts_of(calls: Sequence[Call], scaling: Scaling) -> list[Prompt]:
    """The prompts of the calls at these lengths."""
    return [_prompt(call, scaling) for call in calls]


def _prompt(call: Call, scaling: Scaling) -> Prompt:
    blocks = (
        Block(("static", scaling.static_of("", call.stage)), scaling.static * CHARS_PER_TOKEN),
        Block(("request", call.request), scaling.request * CHARS_PER_TOKEN),
        Block(("said", call.request, call.stage, call.prefix), call.said_chars),
    )
    tokens = sum(block.chars for block in blocks) // CHARS_PER_TOKEN
    extra_s = (scaling.static + scaling.request) / PREFILL_TOKENS_PER_S
    steps = tuple(steps_of_blocks(blocks))
    return Prompt(call, blocks, steps, tokens, call.first_s + extra_s, call.seconds + extra_s)


class Replay:
    """One replay under the rules of a cache. ``own`` decides marks and leaders in place of the method."""

    def __init__(
        self, prompts: Sequence[Prompt], price: Price, method: Method, *, is_marked: bool, own: OwnMarks | None = None
    ) -> None:
        self._prompts, self._price, self._method, self._own = list(prompts), price, method, own
        if method.is_sorted:
            self._prompts.sort(key=_by_prefix)
        self._cache: MarkedCache | AutomaticCache = MarkedCache() if is_marked else AutomaticCache()
        self._writing: dict[Hashable, float] = {}  # when the answer that makes a prefix readable begins
        self._usd, self._waited = 0.0, 0
        self._began_s: dict[Cell, float] = {}
        self._now_s, self._free = 0.0, WORKERS
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._ready: list[int] = []
        self._followers: dict[int, list[int]] = {}

    def run(self) -> Bill:
        """Make all calls."""
        order = {one.cell: at for at, one in enumerate(self._prompts)}
        for at, one in enumerate(self._prompts):
            before = order.get((one.call.request, one.call.prefix[:-1]))
            if before is None:
                heapq.heappush(self._ready, at)
            else:
                self._followers.setdefault(before, []).append(at)
        while self._ready or self._events:
            while self._ready and self._free:
                self._free -= 1
                self._admit(heapq.heappop(self._ready))
            if self._events:
                self._now_s, _, do = heapq.heappop(self._events)
                if self._own is not None:
                    self._own.clock.seconds = self._now_s
                do()
        return Bill(self._usd, self._now_s, self._waited, self._began_s)

    def _at(self, when_s: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when_s, next(self._numbers), do))

    def _admit(self, at: int) -> None:
        """Begin a call, or let it wait for its leader."""
        one = self._prompts[at]
        if self._own is not None:
            prompt = self._own.prompt(one.call.stage, one.blocks)
            self._admit_own(at, self._own, prompt, self._now_s + self._own.longest_wait_s(one.call.prefix[-1]))
            return
        wait_s = self._wait_s(one)
        if wait_s <= 0.0:
            self._begin(at, self._method.of(one.cell))
            return
        self._waited += 1
        self._at(self._now_s + wait_s, lambda: self._begin(at, self._method.of(one.cell)))

    def _admit_own(self, at: int, own: OwnMarks, prompt: PromptCall, until_s: float, *, is_again: bool = False) -> None:
        """The same by the product's own rules: until no leader is left, or for so long."""
        model = self._prompts[at].call.prefix[-1]
        leader = own.leader(model, prompt)
        if leader is None or self._now_s >= until_s:
            self._begin(at, (own.place(model, prompt), None), prompt)
            return
        self._waited += not is_again
        resumed: list[bool] = []

        def resume() -> None:
            if not resumed:
                resumed.append(True)
                self._admit_own(at, own, prompt, until_s, is_again=True)

        leader.add_done_callback(lambda _: self._at(self._now_s, resume))
        self._at(until_s, resume)

    def _begin(self, at: int, sent: Sent, prompt: PromptCall | None = None) -> None:
        one = self._prompts[at]
        found = self._look(one, sent)
        self._pay(one, found)
        self._began_s[one.cell] = self._now_s
        for key, _ in found.keys:
            self._writing.setdefault(key, self._now_s + one.first_s)

        def answers() -> None:
            self._cache.answers_at(found, self._now_s)
            for key, _ in found.keys:
                if self._writing.get(key, self._now_s + 1.0) <= self._now_s:
                    del self._writing[key]
            if prompt is not None:
                prompt.begun()

        def end() -> None:
            if prompt is not None and self._own is not None:
                self._own.end(one.call.prefix[-1], prompt)
            self._free += 1
            for later in self._followers.get(at, ()):
                heapq.heappush(self._ready, later)

        self._at(self._now_s + one.first_s, answers)
        self._at(self._now_s + one.seconds, end)

    def _look(self, one: Prompt, sent: Sent) -> Lookup:
        model, (marks, key) = one.call.prefix[-1], sent
        if isinstance(self._cache, AutomaticCache):
            return self._cache.look(model, one.steps, one.tokens, self._now_s, key)
        marked = [replace(block, kept_s=TTL_S if at in marks else None) for at, block in enumerate(one.blocks)]
        return self._cache.look(model, marked, self._now_s)

    def _wait_s(self, one: Prompt) -> float:
        """How long the call waits: its longest prefix that could be read is cold, and another call is writing it."""
        if not self._method.leads:
            return 0.0
        keys = [key for key, _ in self._look(one, self._method.of(one.cell)).keys]
        until_s = next((self._writing[key] for key in reversed(keys) if key in self._writing), self._now_s)
        return min(max(until_s - self._now_s, 0.0), one.seconds, LONGEST_WAIT_S)

    def _pay(self, one: Prompt, found: Lookup) -> None:
        self._usd += self._price.cost_usd(one.tokens, one.call.tokens_out, found.read, found.written, found.written_long)


def _by_prefix(one: Prompt) -> tuple[str, str, str, int, tuple[str, ...]]:
    call = one.call
    return call.prefix[-1], call.stage, call.request, len(call.prefix), call.prefix


def reused(prompts: Sequence[Prompt], began_s: Mapping[Cell, float]) -> dict[Cell, Sent]:
    """The marks of somebody who knows all calls in advance: a part is marked where another call reads its prefix in time.

    One read pays for a write at Claude's prices: it saves 0.9 of the input where the write cost 0.25 more.
    """
    uses: dict[Hashable, list[tuple[float, Cell, int]]] = {}
    for one in prompts:
        keys, ends = chained(one.call.prefix[-1], one.blocks)
        for at, (key, end) in enumerate(zip(keys, ends, strict=True)):
            if end >= LEAST_TOKENS:
                uses.setdefault(key, []).append((began_s[one.cell], one.cell, at))
    found: dict[Cell, set[int]] = {}
    for some in uses.values():
        some.sort()
        for (before_s, before, at), (after_s, after, _) in itertools.pairwise(some):
            if after_s - before_s <= TTL_S:
                found.setdefault(before, set()).add(at)
                found.setdefault(after, set()).add(at)
    return {cell: (tuple(sorted(parts)), None) for cell, parts in found.items()}


def bound_usd(prompts: Sequence[Prompt], price: Price) -> float:
    """The dollars if a prefix cost nothing to write and were read by all later calls, however late: nobody pays less."""
    seen: set[Hashable] = set()
    dollars = 0.0
    for one in prompts:
        keys, ends = chained(one.call.prefix[-1], one.blocks)
        kept = [(key, end) for key, end in zip(keys[:2], ends[:2], strict=True) if end >= LEAST_TOKENS]
        read = max((end for key, end in kept if key in seen), default=0)
        seen.update(key for key, _ in kept)
        dollars += price.cost_usd(one.tokens, one.call.tokens_out, read)
    return dollars
