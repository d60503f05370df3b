"""Finds the loop bound that a request has exceeded, if the template does not allow its next stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vinelm.errors import TemplateError
from vinelm.template.steps import Branch, Loop, Step, walk
from vinelm.template.template import Template


def exceeded_loop(template: Template, stages: Sequence[str], stage: str) -> Loop | None:
    """Return the loop that has too few turns for ``stage`` to come next; None if more turns would not help.

    ``stages`` are the request's stages so far. More turns do not help if the template lacks a branch to the stage.
    """
    for loop in walk(template.steps):
        if not isinstance(loop, Loop):
            continue
        wider = replace(loop, times=loop.times + 1 + list(stages).count(stage))  # it may have exceeded the bound before
        try:
            following = replace(template, steps=_with(template.steps, loop, wider)).choices_after(stages)
        except TemplateError:  # too large
            continue
        if following and stage in following:
            return loop
    return None


def exceeded_words(template: Template | None, stages: Sequence[str], stage: str) -> str | None:
    """Return a clause for an error message that says which loop's bound is exceeded; None without such a loop or without a
    template.

    See :func:`exceeded_loop`.
    """
    loop = None if template is None else exceeded_loop(template, stages, stage)
    if loop is None:
        return None
    return f"{stage!r} is a turn more than its loop's times={loop.times}: raise it, or bound the loop with vine.route(times=)"


def _with(steps: tuple[Step, ...], loop: Loop, wider: Loop) -> tuple[Step, ...]:
    return tuple(wider if step is loop else _inside(step, loop, wider) for step in steps)


def _inside(step: Step, loop: Loop, wider: Loop) -> Step:
    if isinstance(step, Loop):
        return replace(step, stages=_with(step.stages, loop, wider))
    if isinstance(step, Branch):
        return Branch({label: _with(steps, loop, wider) for label, steps in step.ways.items()})
    return step
