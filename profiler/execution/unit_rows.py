"""What a unit's row says: the kind of its failure, and the score of its answer."""

from __future__ import annotations

from typing import Any

from vinelm.errors import CallError, FailureKind, VineLMError
from vinelm.judging import LLMJudge
from vinelm.observation import Observation
from vinelm.profiler.execution.checkpoints import StateError
from vinelm.profiler.execution.failure_place import with_place
from vinelm.profiler.execution.scores import checked_score
from vinelm.profiler.execution.unit_policy import UnitPolicy
from vinelm.profiler.judging.asking import UNIT_JUDGE
from vinelm.workflow import Request, Workflow


def failed_row(policy: UnitPolicy, error: Exception) -> Observation:
    """Return the row of a unit that ended with an exception."""
    last = policy.invocations[-1] if policy.invocations else None
    if isinstance(error, StateError):
        return policy.observation("state", str(error))
    if isinstance(error, MemoryError):
        return policy.observation("crash", "MemoryError: the unit needs more memory than its limit")
    if isinstance(error, VineLMError) and not isinstance(error, CallError):
        return policy.observation("tool", str(error))  # our own text, e.g. a call that reported a cost that is not finite
    if last is not None and last.failure is not None:
        is_own = last.detail == type(error).__name__  # of the application, not of a call
        return policy.observation(last.failure, with_place(last.detail or "", error) if is_own else last.detail)
    kind: FailureKind = error.kind if isinstance(error, CallError) else "tool"
    return policy.observation(kind, with_place(type(error).__name__, error))  # its text may hold a prompt


def scored(workflow: Workflow, request: Request, values: dict[str, Any]) -> tuple[bool | float | None, str | None]:
    """Return the success, and what is wrong with the scorer if it raised or did not return a score.

    The success is None where a judge gives it and gave none, or is not asked.
    """
    if isinstance(workflow.score, LLMJudge):
        unit = UNIT_JUDGE.get()
        return None if unit is None else unit.verdict(workflow, request, values), None
    try:
        verdict: object = workflow.score(request, values)
    except Exception as error:
        return False, with_place(f"score raised {type(error).__name__}", error)
    return checked_score(verdict, is_oracle=workflow.template.stop == "oracle")


__all__ = ["failed_row", "scored"]
