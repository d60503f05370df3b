"""Orders of a batch on one engine: ours, and those that others use or that need no tool at all."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from batch_parts.engine import Engine, RadixCache
from batch_parts.loads import Call, Load

from vinelm.batches.order import depth_first

WINDOW = 256
"""Calls that an engine with SGLang's ``lpm`` is shown at a time."""
RIVALS = ("arrival", "operator-wise", "longest prefix", "depth-first", "sorted data set")
OURS = "vinelm"


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
    elif order == OURS:
        position = _positions(depth_first(calls[0].shape for calls in requests).places)
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
    engine = Engine(RadixCache(memory // load.block_tokens, load.sizes), load.block_tokens, window, longest_first)
    client = Client(load.requests, ranked)
    in_flight = max(window, WINDOW) if longest_first else window
    while True:
        while engine.under_way < in_flight and client.ready:
            number, call = client.take()
            engine.submit(number, call.prompt)
        if not engine.under_way:
            return Run(engine.now_s, engine.prefilled, engine.prompted)
        for number in engine.advance():
            client.answered(number)


class Client:
    """The calls of a batch that can be made, by rank."""

    def __init__(self, requests: Sequence[Sequence[Call]], ranked: Sequence[Sequence[Any]]) -> None:
        self._requests, self._ranked = requests, ranked
        self._missing = [[len(set(call.needs)) for call in calls] for calls in requests]
        self._after: list[dict[int, list[int]]] = []
        self._place: list[tuple[int, int]] = []
        self.ready: list[tuple[Any, int, int]] = []
        for number, calls in enumerate(requests):
            after: dict[int, list[int]] = {}
            for at, call in enumerate(calls):
                for one in set(call.needs):
                    after.setdefault(one, []).append(at)
                if not call.needs:
                    self.ready.append((ranked[number][at], number, at))
            self._after.append(after)
        heapq.heapify(self.ready)

    def take(self) -> tuple[int, Call]:
        """The next call, and its number."""
        _, number, at = heapq.heappop(self.ready)
        self._place.append((number, at))
        return len(self._place) - 1, self._requests[number][at]

    def answered(self, call: int) -> None:
        """Make ready what waits for a call."""
        number, at = self._place[call]
        for one in self._after[number].get(at, ()):
            self._missing[number][one] -= 1
            if not self._missing[number][one]:
                heapq.heappush(self.ready, (self._ranked[number][one], number, one))


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
