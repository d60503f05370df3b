"""Validate observations against a workflow's template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from vinelm.errors import FailureKind
from vinelm.rows.observation import Observation
from vinelm.template import Template

_FAILURES = frozenset(get_args(FailureKind))


def misfit(row: Observation, template: Template) -> str | None:
    """Describe why ``row`` does not fit ``template``; None if it does.

    Args:
        row: the observation; its prefix, stage, failure kind and outcome are checked.
        template: bound to the catalog.
    """
    problem = _place_misfit(row, template)
    if problem is not None:
        return problem
    if row.failure is not None and row.failure not in _FAILURES:
        return f"unknown failure kind {row.failure!r}"
    if row.failure is not None and (row.success is not None or row.stopped is not None):
        return "a failed invocation has neither success nor stopped"
    return None


def _place_misfit(row: Observation, template: Template) -> str | None:
    """As far as one row tells: which stages ran before it is in the rows before it."""
    levels = template.flow.stages_at
    if row.depth > len(levels):
        return f"the workflow has at most {len(levels)} invocations, but the prefix has {row.depth}"
    for model, level in zip(row.prefix, levels, strict=False):
        if not any(model in (template.stage(name).models or ()) for name in level):
            return f"stage {' or '.join(map(repr, level))} does not allow the model {model!r}"
    level = levels[row.depth - 1]
    if row.stage not in level:
        return f"invocation {row.depth} is of stage {' or '.join(map(repr, level))}, not {row.stage!r}"
    if row.model not in (template.stage(row.stage).models or ()):
        return f"stage {row.stage!r} does not allow the model {row.model!r}"
    arms = level[row.stage]
    if row.arm is not None and row.arm not in arms:
        return f"after stage {row.stage!r} as invocation {row.depth} there is no arm {row.arm!r}"
    if row.arm is not None and (row.failure is not None or row.stopped):
        return f"it ended and has the arm {row.arm!r}"
    if row.arm is None and len(arms) > 1 and row.failure is None and row.stopped is False:
        return f"it went on, and does not say to which of {', '.join(map(repr, arms))}: set its arm"
    return None


def cell_name(request_id: str, prefix: Sequence[str]) -> str:
    """Return the words by which messages name a cell."""
    return f"request {request_id!r}, prefix {'/'.join(prefix)}"
