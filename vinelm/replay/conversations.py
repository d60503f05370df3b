"""Groups dependent requests, such as the turns of a chat, so that the statistical test counts each group once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vinelm.replay.kept import Links, ReplayUnit, number_of

MOST_TOGETHER = 5
"""How many requests of a conversation, or of one prompt, are compared at most: the largest one limits every stake."""
LEAST_KEPT = 0.95
"""Share of the choosing requests that is kept if conversations are cut to fewer requests."""
MOST_PAUSES = 4
"""In a stream a conversation ends at the latest after this many pauses: a prompt that keeps coming holds up all others."""
LATE = 0.1
"""Part of a pause that is waited in addition, since processes may write late, or have different clocks."""


def whole(units: Sequence[ReplayUnit], count: int) -> int:
    """Return the smallest n >= ``count`` such that no conversation has calls among the first n and calls after them."""
    while 0 < count < len(units) and units[count].cluster == units[count - 1].cluster:
        count += 1
    return count


def largest(units: Sequence[ReplayUnit]) -> int:
    """Return the maximum number of sampled calls that are used of any one conversation.

    It is the smallest limit that keeps at least 95 % of all calls, but never above :data:`MOST_TOGETHER`.
    """
    sizes = Counter(unit.cluster for unit in units).values()
    kept = (most for most in range(1, MOST_TOGETHER) if sum(min(size, most) for size in sizes) >= LEAST_KEPT * len(units))
    return next(kept, MOST_TOGETHER)


def cut(units: Iterable[ReplayUnit], most: int) -> list[ReplayUnit]:
    """Return the first ``most`` sampled calls of each conversation, in their original order."""
    seen, found = Counter[str](), []
    for unit in units:
        seen[unit.cluster] += 1
        if seen[unit.cluster] <= most:
            found.append(unit)
    return found


def prompts_of(cluster: str) -> str:
    """Return the part of a conversation's name ``cluster`` before its first blank, a digest of the conversation's prompt.

    Calls with equal prompts have equal digests.
    """
    return cluster.partition(" ")[0]


def began(unit: ReplayUnit) -> int:
    """Return the number of the first sampled call in the conversation of ``unit``.

    The conversation's name, ``unit.cluster``, ends with this number.
    """
    return int(unit.cluster.partition(" ")[2])


class Conversations:
    """Divides a stream of calls into conversations. The statistical test uses a conversation only when it is complete.

    Conversations are defined as in a replay: a session or thread, prompts that continue each other, or equal prompts. A
    conversation is over after a pause without calls; later calls begin a new conversation. All of this follows from the order
    and times of the recorded calls, so every process finds the same conversations.

    Args:
        pause_s: Length of the pause in seconds; 0 makes each call a separate conversation.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_s, self._links = pause_s, Links()
        self._units: list[list[ReplayUnit]] = []
        self._open: dict[str, list[ReplayUnit]] = {}
        self._found: list[ReplayUnit] = []
        self._ended = 0
        self.last = 0
        """The number of the last unit that was added."""

    def add(self, unit: ReplayUnit, prompt: Callable[[], Mapping[str, Any]]) -> ReplayUnit:
        """Add the next sampled call of the stream. Return it with ``cluster`` set to the name of its conversation.

        The name is a digest, a blank, and the number of the conversation's first call. ``prompt`` returns the prompt of the
        call, and is called only if the prompt is needed.
        """
        self.last = unit.unit_id
        if not self._pause_s:
            return self._begin(unit, unit.cluster)
        cluster = self._links.next(unit.cluster, prompt())
        found = self._open.get(cluster)
        if found is None or self._is_over(found, unit.recorded_at or 0.0):
            return self._begin(unit, cluster)
        found.append(replace(unit, cluster=found[0].cluster))
        return found[-1]

    def over(self, now_s: float) -> list[ReplayUnit]:
        """Return all sampled calls of finished conversations, in the order in which the conversations began.

        The calls of one conversation are in a random order. Conversations that began after an open one are held back; otherwise
        short conversations would overtake long ones. ``now_s`` is the time in seconds since 1970.
        """
        while self._ended < len(self._units):
            units = self._units[self._ended]
            if not self._is_over(units, now_s - LATE * self._pause_s):
                break
            self._found += sorted(units, key=lambda one: number_of(f"{one.request}\0{one.call}"))
            self._ended += 1
        return self._found

    def _begin(self, unit: ReplayUnit, cluster: str) -> ReplayUnit:
        self._open[cluster] = [replace(unit, cluster=f"{cluster} {unit.unit_id}")]
        self._units.append(self._open[cluster])
        return self._open[cluster][0]

    def _is_over(self, units: Sequence[ReplayUnit], now_s: float) -> bool:
        first_s, last_s = units[0].recorded_at or 0.0, units[-1].recorded_at or 0.0
        return now_s - last_s >= self._pause_s or now_s - first_s >= MOST_PAUSES * self._pause_s
