"""What a unit is given and what it leaves, wherever it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vinelm.judging import Judgement
from vinelm.requests.workflow import Request
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template

TopUp = Callable[[float], bool]
"""Asks for the unit's reservation to be raised to that many dollars; returns whether it was. May block."""


@dataclass(frozen=True, slots=True)
class Job:
    """One unit to run: the last invocation of ``prefix``, for one request.

    Attributes:
        request: the request.
        prefix: the models of the invocations up to and including this one.
        parent: the checkpoint after ``prefix[:-1]``; None for the first invocation.
        upper_usd: the dollars that are reserved for the unit.
        n_again: the number of invocations before this one whose state is not kept. They are executed again first, from
            ``parent``, which is the checkpoint before them.
        stages: on a template that branches the stages of the invocations of ``prefix``, as far as they are known: the last one
            may not be for the first invocation. Otherwise empty.
        is_scoring: nothing is executed: ``parent`` is the state after ``prefix``, and is scored.
        passed: whether the workflow's own check had passed the answer of each invocation before this one, where it had of any
            and the request goes on all the same. Otherwise empty.
        judged: the verdicts of the workflow's judge on this request's answers so far, by what it was asked. None: no judge is
            asked, so that an answer has no score where a judge gives it.
        digest: of the request, which is read anew on another machine and has to be the same there; None on this one.
    """

    request: Request
    prefix: tuple[str, ...]
    parent: bytes | None
    upper_usd: float
    n_again: int = 0
    is_scoring: bool = False
    stages: tuple[str, ...] = ()
    passed: tuple[bool, ...] = ()
    judged: Mapping[str, bool] | None = None
    digest: str | None = None

    @property
    def cell(self) -> Cell:
        """The cell that the unit executes."""
        return self.request.id, self.prefix

    def stage(self, template: Template) -> str:
        """Return the stage of the unit's invocation. Where it is not known before it runs, the first of those that may be."""
        return stage_of(template, len(self.prefix), self.stages)


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """What a unit leaves, from the unit through its worker to the commit.

    Attributes:
        observation: the row; None if the budget did not allow one of the unit's calls, so that it was not finished.
        checkpoint: the state from which the next invocation resumes; None after a failure and the last invocation.
        paid_usd: dollars to settle where they are not the row's: those of an unfinished unit, and of a worker that died
            during a call that may have been billed, and those of a unit whose answer was judged, the judge's included.
        judgement: what the workflow's judge said of the answer; None without a judge.
    """

    observation: Observation | None
    checkpoint: bytes | None = None
    paid_usd: float | None = None
    judgement: Judgement | None = None

    @property
    def settled_usd(self) -> float:
        """The dollars to settle in the ledger."""
        if self.paid_usd is not None or self.observation is None:
            return self.paid_usd or 0.0
        return self.observation.cost_usd + self.observation.tool_cost_usd


@dataclass(frozen=True, slots=True)
class UnitFinished:
    """The message that a unit is over. ``problem`` is what its worker raised in place of an outcome."""

    job: Job
    outcome: UnitOutcome | None
    problem: BaseException | None = None


def stage_of(template: Template, length: int, stages: Sequence[str]) -> str:
    """Return the stage of the last of that many invocations; ``stages`` as in :class:`Job`."""
    if template.is_linear:
        return template.invocations[length - 1].name
    return stages[length - 1] if len(stages) >= length else template.arms_after(stages)[0].name


class Worker(Protocol):
    """Runs units; several at a time where it is called from several threads."""

    def run(self, job: Job, top_up: TopUp) -> UnitOutcome:
        """Run one unit to its end and return what it leaves.

        Args:
            job: the unit.
            top_up: asks for a higher reservation before a call that may cost more than is reserved; may block.

        Raises:
            InputError: an error that every further unit would meet as well.
        """

    def close(self) -> None:
        """Stop every unit that is still running. Idempotent."""


def run_job(worker: Worker, job: Job, top_up: TopUp) -> UnitFinished:
    """Run a unit on this thread. What the worker raises becomes part of the message, except ``KeyboardInterrupt``."""
    try:
        return UnitFinished(job, worker.run(job, top_up))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return UnitFinished(job, None, error)
