"""When what breaks: a schedule that a seed decides."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = (
    "server-killed",
    "engine-killed",
    "redis-empty",
    "trie",
    "clock",
    "engine-stalled",
    "server-rolled",
    "trie-damaged",
    "redis-kept",
)
"""What can happen. Redis comes back empty or with what it had; a server is killed, or ends in good order and comes back."""
CALM_S = (8.0, 14.0)
"""Seconds without faults at the start and at the end."""
GAP_S = 8.0
"""Mean seconds between two faults of a long run; a short run has each kind once, closer together."""
REDIS_REST_S = 100.0
"""Least seconds between two losses of Redis: for 65 s after each, new processes get no rights of rates, as documented."""
STEPS_S = (3600.0, -3600.0, 90.0, -86_400.0, 86_400.0, -90.0)
"""What the clock of a serving process is set to, in seconds from the true time."""


@dataclass(frozen=True)
class Fault:
    """What happens when, in seconds from the start.

    Attributes:
        lasts_s: until it is repaired.
        which: a number from which the victim is chosen.
    """

    at_s: float
    kind: str
    lasts_s: float
    which: int


def schedule(seconds: float, seed: int) -> list[Fault]:
    """The faults of a run of so many seconds, by time. Two of one kind never overlap, and no two engines are away at once."""
    rng = random.Random(seed)
    span_s = seconds - sum(CALM_S)
    if span_s <= 0:
        return []
    count = max(len(KINDS), int(span_s / GAP_S))
    gap_s = span_s / count
    found: list[Fault] = []
    waiting: list[str] = []
    lost_redis = -REDIS_REST_S
    for number in range(count):
        at_s = CALM_S[0] + gap_s * (number + rng.uniform(0.0, 0.3))
        waiting = waiting or rng.sample(KINDS, len(KINDS))
        allowed = [kind for kind in waiting if not kind.startswith("redis") or at_s - lost_redis >= REDIS_REST_S]
        if not allowed:  # only Redis is left, and it needs a rest
            waiting += rng.sample(KINDS, len(KINDS))
            allowed = [kind for kind in waiting if not kind.startswith("redis")]
        kind = allowed[0]
        waiting.remove(kind)
        if kind.startswith("redis"):
            lost_redis = at_s
        found.append(Fault(at_s, kind, rng.uniform(0.2, 0.65) * gap_s, rng.randrange(1000)))
    return found


def counts(faults: Sequence[Fault]) -> dict[str, int]:
    """How often each kind happened."""
    return {kind: sum(one.kind == kind for one in faults) for kind in KINDS}
