"""Validate observations against a workflow's template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from vinelm.errors import FailureKind
from vinelm.observation import Observation
from vinelm.template import Template

_FAILURES = frozenset(get_args(FailureKind))


def misfit(row: Observation, template: Template) -> str | None:
    """Describe why ``row`` does not fit ``template``; None if it does.

    Args:
        row: the observation; its prefix, stage, failure kind and outcome are checked.
        template: bound to the catalog.
    """
    stage = template.stage_after(row.depth - 1)
    if stage is None:
        return f"the workflow has {template.depth} invocations, but the prefix has {row.depth}"
    for model, at in zip(row.prefix, template.invocations, strict=False):
        if model not in (at.models or ()):
            return f"stage {at.name!r} does not allow the model {model!r}"
    if row.stage != stage.name:
        return f"invocation {row.depth} is of stage {stage.name!r}, not {row.stage!r}"
    if row.failure is not None and row.failure not in _FAILURES:
        return f"unknown failure kind {row.failure!r}"
    if row.failure is not None and (row.success is not None or row.stopped is not None):
        return "a failed invocation has neither success nor stopped"
    return None


def cell_name(request_id: str, prefix: Sequence[str]) -> str:
    """Return the words by which messages name a cell."""
    return f"request {request_id!r}, prefix {'/'.join(prefix)}"
