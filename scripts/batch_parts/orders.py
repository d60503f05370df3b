"""Orders of a batch on one engine: ours, and those that others use or that need no tool at all."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from batch_parts.engine import Engine, RadixCache
from batch_parts.loads import Call, Load

from vinelm.batches.call_order import CallOrder, WaitingCall
from vinelm.batches.order import depth_first

WINDOW = 256
"""Calls that an engine with SGLang's ``lpm`` is shown at a time."""
RIVALS = ("arrival", "operator-wise", "longest prefix", "depth-first", "sorted data set")
OURS = "vinelm"
UNDER_WAY = 8
"""Requests under way in our order, times the calls in flight: among their calls there is something to choose."""


class Run(NamedTuple):
    """What a batch took.

    Args:
        seconds: From the first call to the last answer, in virtual time.
        prefilled: Tokens of prompts that were computed.
        prompted: Tokens of all prompts.
    """

    seconds: float
    prefilled: int
    prompted: int


def ranks(load: Load, order: str) -> list[list[Any]]:
    """Return what each call of each request is served by, among those whose answers are there: the lowest first."""
    requests = load.requests
    if order == "operator-wise":
        return [[(call.depth, call.stage, number) for call in calls] for number, calls in enumerate(requests)]
    if order == "depth-first":
        found = iter(_positions(depth_first(call.shape for calls in requests for call in calls).places))
        return [[next(found) for _ in calls] for calls in requests]
    if order == "sorted data set":
        position = _positions(sorted(range(len(requests)), key=load.sorted_by.__getitem__))
    else:
        position = list(range(len(requests)))
    return [[(position[number], at) for at in range(len(calls))] for number, calls in enumerate(requests)]


def _positions(places: Sequence[int]) -> list[int]:
    found = [0] * len(places)
    for position, place in enumerate(places):
        found[place] = position
    return found


def served(load: Load, ranked: Sequence[Sequence[Any]], memory: int, window: int, *, longest_first: bool = False) -> Run:
    """Serve a batch, so many calls in flight at a time, on an engine with a memory of so many tokens.

    With ``longest_first`` the engine is shown :data:`WINDOW` calls and chooses among them.
    """
    return _served(load, Client(load.requests, ranked), memory, window, longest_first=longest_first)


def served_by_us(load: Load, memory: int, window: int) -> Run:
    """Serve a batch as VineLM does where engines take so many calls at a time, and more requests are under way."""
    order = depth_first(calls[0].shape for calls in load.requests).places
    return _served(load, OurClient(load.requests, order, UNDER_WAY * window), memory, window)


def _served(load: Load, client: Client | OurClient, memory: int, window: int, *, longest_first: bool = False) -> Run:
    engine = Engine(RadixCache(memory // load.block_tokens, load.sizes), load.block_tokens, window, longest_first)
    in_flight = max(window, WINDOW) if longest_first else window
    while True:
        while engine.under_way < in_flight and client.ready:
            number, call = client.take()
            engine.submit(number, call.prompt)
        if not engine.under_way:
            return Run(engine.now_s, engine.prefilled, engine.prompted)
        for number in engine.advance():
            client.answered(number, engine.cached.pop(number))


class _Needs:
    """Which calls of each request can be made."""

    def __init__(self, requests: Sequence[Sequence[Call]]) -> None:
        self.requests = requests
        self._missing = [[len(set(call.needs)) for call in calls] for calls in requests]
        self._left = [len(calls) for calls in requests]
        self._after: list[dict[int, list[int]]] = []
        for calls in requests:
            after: dict[int, list[int]] = {}
            for at, call in enumerate(calls):
                for one in set(call.needs):
                    after.setdefault(one, []).append(at)
            self._after.append(after)

    def first(self, number: int) -> list[int]:
        """The calls of a request that need no other."""
        return [at for at, missing in enumerate(self._missing[number]) if not missing]

    def answered(self, number: int, at: int) -> list[int]:
        """The calls of a request that an answer makes ready."""
        self._left[number] -= 1
        ready = self._after[number].get(at, [])
        for one in ready:
            self._missing[number][one] -= 1
        return [one for one in ready if not self._missing[number][one]]

    def has_ended(self, number: int) -> bool:
        """Whether all calls of a request are answered."""
        return not self._left[number]


class Client:
    """The calls of a batch that can be made, by rank."""

    def __init__(self, requests: Sequence[Sequence[Call]], ranked: Sequence[Sequence[Any]]) -> None:
        self._needs, self._ranked = _Needs(requests), ranked
        self._place: list[tuple[int, int]] = []
        self.ready = [(ranked[number][at], number, at) for number in range(len(requests)) for at in self._needs.first(number)]
        heapq.heapify(self.ready)

    def take(self) -> tuple[int, Call]:
        """The next call, and its number."""
        _, number, at = heapq.heappop(self.ready)
        self._place.append((number, at))
        return len(self._place) - 1, self._needs.requests[number][at]

    def answered(self, call: int, cached: int) -> None:
        """Make ready what waits for a call."""
        number, at = self._place[call]
        for one in self._needs.answered(number, at):
            heapq.heappush(self.ready, (self._ranked[number][one], number, one))


class OurClient:
    """The calls that can be made of the requests under way, by the product's own rank.

    Args:
        requests: The calls of each.
        order: In which requests begin.
        under_way: The most requests under way.
    """

    def __init__(self, requests: Sequence[Sequence[Call]], order: Sequence[int], under_way: int) -> None:
        self._needs, self._places, self._next = _Needs(requests), order, 0
        self._position = _positions(order)
        self._calls, self._version = CallOrder(len(requests)), 0
        self._sent: list[tuple[int, int, WaitingCall]] = []
        self.ready: list[tuple[Any, int, int, WaitingCall]] = []
        for _ in range(min(under_way, len(order))):
            self._begin()

    def take(self) -> tuple[int, Call]:
        """The next call, and its number."""
        if self._version != self._calls.version:
            self._version = self._calls.version
            self.ready = [(self._calls.rank(call), number, at, call) for _, number, at, call in self.ready]
            heapq.heapify(self.ready)
        _, number, at, call = heapq.heappop(self.ready)
        self._calls.sent(call)
        self._sent.append((number, at, call))
        return len(self._sent) - 1, self._needs.requests[number][at]

    def answered(self, call: int, cached: int) -> None:
        """Make ready what waits for a call, and begin a request if one has ended."""
        number, at, waited = self._sent[call]
        self._calls.answered(waited, cached)
        for one in self._needs.answered(number, at):
            self._wait(number, one)
        if self._needs.has_ended(number):
            self._calls.ended(self._position[number])
            if self._next < len(self._places):
                self._begin()

    def _begin(self) -> None:
        number = self._places[self._next]
        self._next += 1
        for at in self._needs.first(number):
            self._wait(number, at)

    def _wait(self, number: int, at: int) -> None:
        call = self._needs.requests[number][at]
        waiting = self._calls.waits(self._position[number], call.depth, call.shape)
        heapq.heappush(self.ready, (self._calls.rank(waiting), number, at, waiting))


def fitting(load: Load, memory: int) -> tuple[Load, int]:
    """Return the batch without the requests that have a call beyond the engine's memory, and how many these are."""
    blocks = memory // load.block_tokens
    fits = [
        all(-(-(one.prompt.tokens + one.prompt.tokens_out) // load.block_tokens) <= blocks for one in calls)
        for calls in load.requests
    ]
    kept = [at for at, one in enumerate(fits) if one]
    some = replace(load, requests=[load.requests[at] for at in kept], sorted_by=[load.sorted_by[at] for at in kept])
    return some, len(fits) - len(kept)


def placed(load: Load, memory: int, window: int, *, by_prefix: bool) -> float:
    """Serve a batch in our order on two engines, half of the calls in flight on each; returns the seconds of the slower one.

    By prefix, requests whose first prompts share more than nearly all do go to one engine, the one that has got fewer tokens so
    far; else requests take turns.
    """
    found = depth_first(calls[0].shape for calls in load.requests)
    parts: list[list[int]] = [[], []]
    tokens, at, group = [0, 0], 0, None
    for turn, (place, mine) in enumerate(zip(found.places, found.groups, strict=True)):
        if not by_prefix:
            at = turn % 2
        elif mine != group:
            at, group = tokens.index(min(tokens)), mine
        parts[at].append(place)
        tokens[at] += sum(call.prompt.tokens + call.prompt.tokens_out for call in load.requests[place])
    seconds = []
    for part in parts:
        some = replace(
            load, requests=[load.requests[place] for place in part], sorted_by=[load.sorted_by[place] for place in part]
        )
        seconds.append(served(some, ranks(some, "arrival"), memory, window // 2).seconds)
    return max(seconds)
