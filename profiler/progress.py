"""What a profile tells while it runs, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

StoppedBy = Literal["coverage", "budget", "complete", "sampler", "interrupted"]
"""``complete``: every reached cell is executed; ``sampler``: it proposes no more; ``interrupted``: Ctrl-C."""


@dataclass(frozen=True, slots=True)
class Progress:
    """After a new row. Dollars and coverage are the store's over these requests, earlier runs included."""

    executed: int
    failures: int
    coverage: float
    target: float | None
    spent_usd: float
    budget_usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileResult:
    """How a profile stands. Figures are the store's over the requests asked for; ``executed`` and ``failures`` are this run's.

    ``counts`` has the executed cells of each depth, from 1. ``exhaustive_usd`` (every reached cell once) and ``naive_usd``
    (every leaf path from the root, nothing shared) are estimates until ``stopped_by`` is ``"complete"``. ``committed_usd`` is
    what counts against the budget: all dollars settled, and the bounds of ``abandoned`` units, whose run died in the call.
    ``message`` says in one line why the budget ended the run.
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

    @property
    def is_resumable(self) -> bool:
        """The same call would go on from here if its caps allowed."""
        return self.stopped_by in ("budget", "interrupted")
