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
from dollars_parts.workloads import Call, Scaling
from vinelm.catalog import Price

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
        return (self.marks, None) if self.sent is None else self.sent.get(cell, NOTHING)


@dataclass(frozen=True, slots=True)
class Bill:
    """What the calls cost, how long they took together, and how many waited for a leader. ``began_s`` is of each call."""

    usd: float
    elapsed_s: float
    tokens_read: int
    tokens_written: int
    waited: int
    began_s: Mapping[Cell, float]


@dataclass(frozen=True, slots=True)
class Prompt:
    call: Call
    blocks: tuple[Block, ...]
    steps: tuple[Hashable, ...]
    tokens: int
    first_s: float
    seconds: float

    @property
    def cell(self) -> Cell:
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
    """One replay of a family's rules; ``run`` gives its bill."""

    def __init__(self, prompts: Sequence[Prompt], price: Price, method: Method, *, is_marked: bool) -> None:
        self._prompts, self._price, self._method = list(prompts), price, method
        if method.is_sorted:
            self._prompts.sort(key=_by_prefix)
        self._cache: MarkedCache | AutomaticCache = MarkedCache() if is_marked else AutomaticCache()
        self._writing: dict[Hashable, float] = {}  # when the answer that makes a prefix readable begins
        self._usd, self._read, self._written, self._waited = 0.0, 0, 0, 0
        self._began_s: dict[Cell, float] = {}

    def run(self) -> Bill:
        """Make all calls."""
        order = {(one.call.request, one.call.prefix): at for at, one in enumerate(self._prompts)}
        followers: dict[int, list[int]] = {}
        ready: list[int] = []
        for at, one in enumerate(self._prompts):
            before = order.get((one.call.request, one.call.prefix[:-1]))
            if before is None:
                ready.append(at)
            else:
                followers.setdefault(before, []).append(at)
        heapq.heapify(ready)
        now_s, free, number = 0.0, WORKERS, 0
        events: list[tuple[float, int, Callable[[], None]]] = []

        def at_time(when_s: float, do: Callable[[], None]) -> None:
            nonlocal number
            number += 1
            heapq.heappush(events, (when_s, number, do))

        def begin(at: int, waited_until_s: float | None = None) -> None:
            one = self._prompts[at]
            wait_s = 0.0 if waited_until_s is not None else self._wait_s(one, now_s)
            if wait_s > 0.0:
                self._waited += 1
                at_time(now_s + wait_s, lambda: begin(at, now_s))
                return
            found = self._look(one, now_s)
            self._pay(one, found)
            self._began_s[one.cell] = now_s
            for key, _ in found.keys:
                self._writing.setdefault(key, now_s + one.first_s)
            at_time(now_s + one.first_s, lambda: self._answers(one, found, now_s))
            at_time(now_s + one.seconds, lambda: end(at))

        def end(at: int) -> None:
            nonlocal free
            free += 1
            for later in followers.get(at, ()):
                heapq.heappush(ready, later)

        while ready or events:
            while ready and free:
                free -= 1
                begin(heapq.heappop(ready))
            if events:
                now_s, _, do = heapq.heappop(events)
                do()
        return Bill(self._usd, now_s, self._read, self._written, self._waited, self._began_s)

    def _look(self, one: Prompt, now_s: float) -> Lookup:
        model, (marks, key) = one.call.prefix[-1], self._method.of(one.cell)
        if isinstance(self._cache, AutomaticCache):
            return self._cache.look(model, one.steps, one.tokens, now_s, key)
        marked = [replace(block, kept_s=TTL_S if at in marks else None) for at, block in enumerate(one.blocks)]
        return self._cache.look(model, marked, now_s)

    def _answers(self, one: Prompt, found: Lookup, now_s: float) -> None:
        self._cache.answers_at(found, now_s)
        for key, _ in found.keys:
            if self._writing.get(key, now_s + 1.0) <= now_s:
                del self._writing[key]

    def _wait_s(self, one: Prompt, now_s: float) -> float:
        """How long the call waits: its longest prefix that could be read is cold, and another call is writing it."""
        if not self._method.leads:
            return 0.0
        keys = [key for key, _ in self._look(one, now_s).keys]
        until_s = next((self._writing[key] for key in reversed(keys) if key in self._writing), now_s)
        return min(max(until_s - now_s, 0.0), one.seconds, LONGEST_WAIT_S)

    def _pay(self, one: Prompt, found: Lookup) -> None:
        self._usd += self._price.cost_usd(one.tokens, one.call.tokens_out, found.read, found.written, found.written_long)
        self._read += found.read
        self._written += found.written


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
