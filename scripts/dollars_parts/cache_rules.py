"""The rules of two kinds of prompt caches, on any clock. Nothing here reads a text but :func:`steps_of`.

Both match prefixes, keep an entry for a time after its last use, and let nobody read one before the answer of the call that
writes it has begun: calls that start side by side are all cold. Tokens are characters / 4.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CHARS_PER_TOKEN = 4
LEAST_TOKENS = 1024
"""The shortest prefix that is kept: of GPT-5 and of Claude Sonnet 4.5 (other Claude models have 2,048 or 4,096)."""
MOST_MARKS, LOOK_BACK = 4, 20
STEP_TOKENS, ROUTED_TOKENS = 128, 256
"""Automatic caches keep whole steps; a call is routed by its first tokens and by its ``prompt_cache_key``."""
TTL_S, LONG_TTL_S = 300.0, 3600.0


class TooManyMarks(ValueError):
    """A prompt has more marks than the provider allows: HTTP 400."""


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a prompt: what it is equal by, its characters, and how long it is to be kept up to here (None: no mark)."""

    content: Hashable
    chars: int
    kept_s: float | None = None


@dataclass(slots=True)
class Entry:
    """A prefix that is kept. ``readable_s`` is when the answer of the call that wrote it began."""

    kept_s: float
    readable_s: float
    used_s: float

    def is_warm(self, now_s: float) -> bool:
        """Whether it can be read now."""
        return self.readable_s <= now_s <= self.used_s + self.kept_s


@dataclass(frozen=True, slots=True)
class Lookup:
    """The tokens of a call: all of its prompt, those read, and those written (a part of them for an hour).

    ``keys`` are the prefixes that it keeps once its answer begins, each with the seconds.
    """

    tokens: int
    read: int = 0
    written: int = 0
    written_long: int = 0
    keys: tuple[tuple[Hashable, float], ...] = ()


@dataclass
class Kept:
    """What a cache holds."""

    entries: dict[Hashable, Entry] = field(default_factory=dict)

    def warm(self, key: Hashable, now_s: float) -> Entry | None:
        """The entry of a prefix, if it can be read now."""
        entry = self.entries.get(key)
        return entry if entry is not None and entry.is_warm(now_s) else None

    def answers_at(self, found: Lookup, first_s: float) -> None:
        """The answer of a call begins at ``first_s``: what it wrote can be read from then on, by its own clock."""
        for key, kept_s in found.keys:
            old = self.entries.get(key)
            if old is None or not old.is_warm(first_s) or old.readable_s > first_s:
                self.entries[key] = Entry(kept_s, first_s, first_s)
            else:  # another call wrote the same meanwhile
                old.used_s = max(old.used_s, first_s)


class MarkedCache(Kept):
    """Anthropic's: a prefix is written where a block is marked, and read from there or up to 20 blocks before a mark."""

    def look(self, model: Hashable, blocks: Sequence[Block], now_s: float) -> Lookup:
        """Read the longest prefix that is kept, and say what the marks write.

        Raises:
            TooManyMarks: more than four blocks are marked.
        """
        marks = [at for at, block in enumerate(blocks) if block.kept_s is not None]
        if len(marks) > MOST_MARKS:
            raise TooManyMarks(f"a maximum of {MOST_MARKS} blocks with cache_control may be provided: found {len(marks)}")
        keys, ends = chained(model, blocks)
        tokens = ends[-1] if ends else 0
        seen = {at for mark in marks for at in range(max(mark - LOOK_BACK + 1, 0), mark + 1)}
        hit = max((at for at in seen if self.warm(keys[at], now_s)), default=-1)
        for at in {hit, *(mark for mark in marks if mark < hit)}:
            if at >= 0 and (entry := self.warm(keys[at], now_s)):
                entry.used_s = now_s
        read = ends[hit] if hit >= 0 else 0
        fresh = [at for at in marks if at > hit and ends[at] >= LEAST_TOKENS]
        written = ends[fresh[-1]] - read if fresh else 0
        long = max((ends[at] - read for at in fresh if blocks[at].kept_s == LONG_TTL_S), default=0)
        return Lookup(tokens, read, written, long, tuple((keys[at], float(blocks[at].kept_s or 0.0)) for at in fresh))


class AutomaticCache(Kept):
    """OpenAI's: every prefix of whole steps of 128 tokens from 1,024 tokens on is kept, and nothing is charged for it.

    Calls reach the same cache if their first 256 tokens and their ``prompt_cache_key`` are equal. That a busy key spills over
    to other machines is left out.
    """

    def look(self, model: Hashable, steps: Sequence[Hashable], tokens: int, now_s: float, route: Hashable = None) -> Lookup:
        """Read the longest prefix that is kept. ``steps`` has a key for each prefix of whole steps."""
        least = LEAST_TOKENS // STEP_TOKENS
        if len(steps) < least:
            return Lookup(tokens)
        place = (model, steps[ROUTED_TOKENS // STEP_TOKENS - 1], route)
        keys = [(*place, step) for step in steps[least - 1 :]]
        hit = next((at for at in range(len(keys) - 1, -1, -1) if self.warm(keys[at], now_s)), -1)
        for key in keys[: hit + 1]:
            if entry := self.warm(key, now_s):
                entry.used_s = now_s
        read = (hit + least) * STEP_TOKENS if hit >= 0 else 0
        return Lookup(tokens, read, keys=tuple((key, TTL_S) for key in keys[hit + 1 :]))


def chained(model: Hashable, blocks: Iterable[Block]) -> tuple[list[Hashable], list[int]]:
    """The key of the prefix that ends with each block, and its tokens."""
    keys: list[Hashable] = []
    ends: list[int] = []
    key, chars = hash(model), 0
    for block in blocks:
        key, chars = hash((key, block.content)), chars + block.chars
        keys.append(key)
        ends.append(chars // CHARS_PER_TOKEN)
    return keys, ends


def steps_of(text: str) -> list[Hashable]:
    """The keys of a text's prefixes of whole steps."""
    size = STEP_TOKENS * CHARS_PER_TOKEN
    key, found = 0, []
    for at in range(0, len(text) - size + 1, size):
        key = hash((key, text[at : at + size]))
        found.append(key)
    return list[Hashable](found)


def steps_of_blocks(blocks: Sequence[Block]) -> list[Hashable]:
    """The same of blocks that differ from their first characters on, wherever they differ."""
    size = STEP_TOKENS * CHARS_PER_TOKEN
    found: list[Hashable] = []
    key, chars = 0, 0
    for block in blocks:
        key, chars = hash((key, block.content)), chars + block.chars
        found += [hash((key, chars - size * (at + 1))) for at in range(len(found), chars // size)]
    return found


def blocks_of_messages(body: Mapping[str, Any]) -> Iterator[Block]:
    """The blocks of a body of Anthropic's Messages API, in the order in which they are cached: tools, system, messages.

    ``cache_control`` of the body itself marks its last block.
    """
    system = body.get("system") or []
    parts: list[Any] = [*body.get("tools", ()), *([{"type": "text", "text": system}] if isinstance(system, str) else system)]
    for message in body["messages"]:
        content = message["content"]
        plain = [{"type": "text", "text": content}] if isinstance(content, str) else content
        parts += [{"role": message["role"], **part} for part in plain]
    for at, part in enumerate(parts):
        control = part.get("cache_control") or (body.get("cache_control") if at == len(parts) - 1 else None)
        rest = {key: value for key, value in part.items() if key != "cache_control"}
        kept_s = None if not control else LONG_TTL_S if control.get("ttl") == "1h" else TTL_S
        text = rest["text"] if rest.get("type") == "text" else repr(rest)
        yield Block((rest.get("role"), text), len(text), kept_s)
