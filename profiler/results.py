"""What a profile tells while it runs, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

StoppedBy = Literal["coverage", "budget", "complete", "sampler", "interrupted"]
"""``complete``: every reached cell is executed; ``sampler``: it proposes no more; ``interrupted``: Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Progress:
    """After a new row. Dollars and coverage are the store's over these requests, earlier runs included; ``executed``, ``calls``
    and ``failures`` (by kind) are this run's. ``interval`` holds coverage with a probability of 0.9 and is refitted each time
    the rows have grown by a twentieth. ``is_draining``: nothing new is started, units in flight are waited for.
    """

    executed: int
    failures: Mapping[str, int]
    coverage: float
    target: float | None
    spent_usd: float
    budget_usd: float | None
    committed_usd: float = 0.0
    calls: int = 0
    in_flight: int = 0
    interval: tuple[float, float] = (0.0, 1.0)
    is_draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileResult:
    """How a profile stands. Figures are the store's over the requests asked for; ``executed`` and ``failures`` are this run's.

    ``counts`` has the executed cells of each depth, from 1. ``exhaustive_usd`` (every reached cell once) and ``naive_usd``
    (every leaf path from the root, nothing shared) are estimates until ``stopped_by`` is ``"complete"``; ``coverage_interval``
    holds the coverage with a probability of 0.9. ``committed_usd`` is what counts against the budget: all dollars settled, and
    the bounds of ``abandoned`` units, whose run died in the call. ``message`` says in one line why the budget ended the run.
    """

    stopped_by: StoppedBy
    executed: int
    failures: Mapping[str, int]
    counts: tuple[int, ...]
    coverage: float
    spent_usd: float
    exhaustive_usd: float
    naive_usd: float
    committed_usd: float
    abandoned: int
    message: str = ""
    coverage_interval: tuple[float, float] = field(default=(0.0, 1.0))

    @property
    def is_resumable(self) -> bool:
        """The same call would go on from here if its caps allowed."""
        return self.stopped_by in ("budget", "interrupted")
