"""An inference engine in virtual time: iteration-level batching, and a radix cache that drops what was used longest ago.

A step takes t0 + a * prefilled + b * running + c * KV seconds: tokens of new prompts that no cached prefix has, sequences under
way, and tokens that they attend to. Every sequence gets a token in a step, a new one its first. Prompts share whole blocks; at
least one token of each is computed. Only counts of tokens are held against a real engine (`batch_parts/real_engine.py`).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import NamedTuple

PREFILL_LIMIT = 8192
"""New tokens of one step; what waits beyond them is admitted in the next one."""


class Constants(NamedTuple):
    """Seconds of a step, of a prefilled token, of a running sequence and of a token attended to."""

    step_s: float
    prefilled_s: float
    running_s: float
    kv_s: float


DERIVED = Constants(16e9 / 3.35e12, 2 * 8e9 / (0.5 * 990e12), 1e-5, 131072 / 3.35e12)
"""Derived, not measured: 8e9 parameters of two bytes on an H100 (3.35 TB/s, half of 990 TFLOP/s), 128 KiB of KV a token."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A call as the engine sees it.

    Args:
        path: The prefixes of whole blocks of the prompt, each with a number that no other prefix has; or edges, see
            :func:`compressed`.
        blocks: Whole ones, of the prompt.
        tokens: Of the prompt.
        answer: The prefixes of whole blocks of prompt and answer, beyond those of the prompt.
        tokens_out: Of the answer, >= 1.
    """

    path: tuple[int, ...]
    blocks: int
    tokens: int
    answer: tuple[int, ...]
    tokens_out: int


class Prefixes:
    """Numbers for the prefixes of texts, by blocks of so many characters."""

    def __init__(self, block_tokens: int = 32, characters: int = 4) -> None:
        self.block_tokens, self._characters = block_tokens, characters
        self._numbers: dict[tuple[int, str], int] = {}

    def prompt(self, text: str, answer: str) -> Prompt:
        """Return the call with this prompt, and the answer that a simulated model gives."""
        size = self.block_tokens * self._characters
        path: list[int] = []
        whole = text + answer
        for start in range(0, len(whole) - size + 1, size):
            key = (path[-1] if path else -1, whole[start : start + size])
            path.append(self._numbers.setdefault(key, len(self._numbers)))
        tokens = -(-len(text) // self._characters)
        own = len(text) // size
        return Prompt(tuple(path[:own]), own, tokens, tuple(path[own:]), max(-(-len(answer) // self._characters), 1))


def compressed(prompts: Sequence[Prompt]) -> tuple[list[Prompt], list[int]]:
    """Return the same calls with the edges of their common radix tree in place of blocks, and the blocks of each edge.

    A cache of edges forgets whole edges, as SGLang's does; edges of all calls are never longer than those of some of them.
    """
    after: dict[int, int] = {}  # the one block that follows; -1 where several do, or a call has its prompt or all end here
    for prompt in prompts:
        whole = (*prompt.path, *prompt.answer)
        for one, other in pairwise(whole):
            if after.setdefault(one, other) != other:
                after[one] = -1
        for end in (prompt.path[-1:], whole[-1:]):
            after.update(dict.fromkeys(end, -1))
    sizes: list[int] = []
    number: dict[int, int] = {}  # of the edge that ends with a block

    def edges(blocks: Sequence[int]) -> tuple[int, ...]:
        found, size = [], 0
        for block in blocks:
            size += 1
            if after[block] == -1:
                if block not in number:
                    number[block] = len(sizes)
                    sizes.append(size)
                found.append(number[block])
                size = 0
        return tuple(found)

    return [replace(prompt, path=edges(prompt.path), answer=edges(prompt.answer)) for prompt in prompts], sizes


class RadixCache:
    """The edges in memory: those of running sequences stay, of the others the one used longest ago goes first.

    Args:
        capacity: Blocks.
        sizes: Blocks of each edge.
    """

    def __init__(self, capacity: int, sizes: Sequence[int]) -> None:
        self._free, self._sizes = capacity, sizes
        self._idle: OrderedDict[int, None] = (
            OrderedDict()
        )  # a prefix before its beginnings: they are used as late as it, or later
        self._held: dict[int, int] = {}
        self._in_idle = 0  # blocks

    def known(self, path: Sequence[int]) -> int:
        """Return how many blocks of a path are in memory."""
        blocks = 0
        for edge in path:
            if edge not in self._idle and edge not in self._held:
                break
            blocks += self._sizes[edge]
        return blocks

    def hold(self, path: Sequence[int], private: int) -> int | None:
        """Hold a path and so many blocks of its own; returns the blocks that were known, None if there is no room."""
        idle = [edge for edge in path if edge in self._idle]
        waking = sum(self._sizes[edge] for edge in idle)
        needed = sum(self._sizes[edge] for edge in path if edge not in self._held) - waking + private
        if needed > self._free + self._in_idle - waking:
            return None
        known = self.known(path)
        for edge in idle:
            del self._idle[edge]
        self._in_idle -= waking
        for edge in path:
            self._held[edge] = self._held.get(edge, 0) + 1
        while needed > self._free:
            self._drop()
        self._free -= needed
        return known

    def _drop(self) -> None:
        size = self._sizes[self._idle.popitem(last=False)[0]]
        self._in_idle -= size
        self._free += size

    def release(self, path: Sequence[int], answer: Sequence[int], private: int) -> None:
        """Let go of a path; it stays known with its answer until the room is needed."""
        self._free += private
        for edge in reversed(answer):
            if edge in self._held:
                continue
            if edge not in self._idle:
                self._in_idle += self._sizes[edge]
                self._free -= self._sizes[edge]
            self._idle[edge] = None
            self._idle.move_to_end(edge)
        for edge in reversed(path):
            if self._held[edge] == 1:
                del self._held[edge]
                self._idle[edge] = None
                self._in_idle += self._sizes[edge]
            else:
                self._held[edge] -= 1


@dataclass
class Engine:
    """An engine. Its time begins at 0.

    Args:
        cache: Its memory.
        block_tokens: Tokens of a block.
        most_running: Sequences in a step.
        longest_first: Whether the waiting call with the longest known prefix goes first (SGLang's ``lpm``), else the first one.
        constants: What its steps take.
        cached: Tokens of the prompt of each call that was admitted that the memory had.
    """

    cache: RadixCache
    block_tokens: int
    most_running: int
    longest_first: bool = False
    constants: Constants = DERIVED
    now_s: float = 0.0
    prefilled: int = 0
    prompted: int = 0
    cached: dict[int, int] = field(default_factory=dict)
    waiting: list[tuple[int, Prompt]] = field(default_factory=list)
    _running: list[tuple[int, int, int, Prompt, int]] = field(default_factory=list)  # by the step at which they end
    _steps: int = 0
    _kv: int = 0
    _numbers: Callable[[], int] = field(default_factory=lambda: count().__next__)

    @property
    def under_way(self) -> int:
        """Calls that wait or run."""
        return len(self.waiting) + len(self._running)

    def submit(self, number: int, prompt: Prompt) -> None:
        """Put a call into the queue."""
        self.waiting.append((number, prompt))

    def advance(self) -> list[int]:
        """Run until calls end; returns their numbers. Something must be under way."""
        while True:
            prefilled = self._admit()
            if not self._running:
                raise ValueError("a call does not fit into the engine's memory")
            # One step with the new prompts, or all up to the next end: nothing is admitted before.
            steps = 1 if prefilled and self.waiting else self._running[0][0] - self._steps
            self._pass(steps, prefilled)
            ended = self._ended()
            if ended:
                return ended

    def _admit(self) -> int:
        prefilled = 0
        if self.longest_first:
            self.waiting.sort(key=lambda one: self.cache.known(one[1].path), reverse=True)
        while self.waiting and len(self._running) < self.most_running and prefilled < PREFILL_LIMIT:
            number, prompt = self.waiting[0]
            private = -(-(prompt.tokens + prompt.tokens_out) // self.block_tokens) - prompt.blocks
            known = self.cache.hold(prompt.path, private)
            if known is None:
                break
            del self.waiting[0]
            self.cached[number] = known * self.block_tokens
            new = max(prompt.tokens - known * self.block_tokens, 1)
            prefilled += new
            self.prompted += prompt.tokens
            self._kv += prompt.tokens
            ends = self._steps + prompt.tokens_out
            heapq.heappush(self._running, (ends, self._numbers(), number, prompt, private))
        self.prefilled += prefilled
        return prefilled

    def _pass(self, steps: int, prefilled: int) -> None:
        one, running = self.constants, len(self._running)
        attended = steps * self._kv + running * steps * (steps - 1) // 2
        self.now_s += steps * (one.step_s + one.running_s * running) + one.prefilled_s * prefilled + one.kv_s * attended
        self._kv += running * steps
        self._steps += steps

    def _ended(self) -> list[int]:
        ended = []
        while self._running and self._running[0][0] <= self._steps:
            _, _, number, prompt, private = heapq.heappop(self._running)
            self._kv -= prompt.tokens + prompt.tokens_out
            self.cache.release(prompt.path, prompt.answer, private)
            ended.append(number)
        return ended
