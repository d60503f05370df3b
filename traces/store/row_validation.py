"""Whether a row can be one of a workflow's: its prefix, its stage and what a failed invocation may claim."""

from __future__ import annotations

from typing import get_args

from vinelm.errors import FailureKind
from vinelm.observation import Observation
from vinelm.template import Template

_FAILURES = frozenset(get_args(FailureKind))


def misfit(row: Observation, template: Template) -> str | None:
    """Why this cannot be a row of a profile of ``template`` (bound to its catalog), in a few words; None if it can."""
    stage = template.stage_after(row.depth - 1)
    if stage is None:
        return f"the workflow has {template.depth} invocations, the prefix {row.depth}"
    for model, at in zip(row.prefix, template.invocations, strict=False):
        if model not in (at.models or ()):
            return f"stage {at.name!r} does not allow the model {model!r}"
    if row.stage != stage.name:
        return f"invocation {row.depth} is of stage {stage.name!r}, not {row.stage!r}"
    if row.failure is not None and row.failure not in _FAILURES:
        return f"unknown kind of failure {row.failure!r}"
    if row.failure is not None and (row.success is not None or row.stopped is not None):
        return "it failed, so it can be neither right nor wrong"
    return None


def cell(request_id: str, prefix: tuple[str, ...]) -> str:
    """How messages name a cell."""
    return f"request {request_id!r}, prefix {'/'.join(prefix)}"
