"""What a unit is given and what comes back, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from vinelm.observation import Observation
from vinelm.workflow import Request

if TYPE_CHECKING:
    from vinelm.profiler.budget.unit_budget import UnitBudget

Isolation = Literal["process", "thread", "inline"]
"""Where units run: a fresh process each, threads of this process, or this very thread."""

Cell = tuple[str, tuple[str, ...]]
"""(request id, prefix)."""


@dataclass(frozen=True, slots=True)
class Job:
    """One (request, prefix) to run. ``parent`` is the checkpoint after ``prefix[:-1]``, None for the first invocation;
    ``upper_usd`` what is set aside for it.
    """

    request: Request
    prefix: tuple[str, ...]
    parent: bytes | None
    upper_usd: float

    @property
    def cell(self) -> Cell:
        """What its row will stand for."""
        return self.request.id, self.prefix


@dataclass(frozen=True, slots=True)
class Done:
    """What a unit left: its row, the state to go on from, and what it cost where that is not the row's (a worker died in a
    call that may have been billed).
    """

    observation: Observation
    checkpoint: bytes | None = None
    paid_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The unit was not finished because the budget forbade one of its calls; what the calls before it cost."""

    paid_usd: float
    calls: int


class Worker(Protocol):
    """Runs units, several at a time from several threads."""

    def run(self, job: Job, top_up: Callable[[float], bool]) -> Done | Refused:
        """Run it to its end. ``top_up(upper_usd)`` raises what is set aside, or says no; it may wait.

        Raises :class:`~vinelm.errors.InputError` for what makes every further unit pointless.
        """

    def close(self) -> None:
        """End everything that is still running, whatever becomes of it."""


class LocalWorker:
    """Units in this process: ``thread`` and ``inline``."""

    def __init__(self, units: UnitRunner) -> None:
        self._units = units

    def run(self, job: Job, top_up: Callable[[float], bool]) -> Done | Refused:
        """See :class:`Worker`."""
        from vinelm.errors import BudgetExhausted
        from vinelm.profiler.budget.unit_budget import UnitBudget

        purse = UnitBudget(job.upper_usd, top_up)
        try:
            outcome = self._units.run(job.request, job.prefix, job.parent, purse)
        except BudgetExhausted:
            return Refused(purse.spent_usd, purse.calls)
        return Done(outcome.observation, outcome.checkpoint)

    def close(self) -> None:
        """Nothing to end: threads finish what they are at."""


class UnitRunner(Protocol):
    """What :class:`vinelm.profiler.execution.unit.UnitWorker` is to a worker."""

    def run(self, request: Request, prefix: tuple[str, ...], parent: bytes | None, purse: UnitBudget | None) -> UnitOutcome:
        """See :meth:`vinelm.profiler.execution.unit.UnitWorker.run`."""


class UnitOutcome(Protocol):
    """What a unit gives back (:class:`vinelm.profiler.execution.unit.UnitResult`)."""

    @property
    def observation(self) -> Observation:
        """The row."""

    @property
    def checkpoint(self) -> bytes | None:
        """The state to go on from, if the unit left one."""
