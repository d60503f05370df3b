"""Templates that distinguish request types (*kinds*), each of which is a branch before the first stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from vinelm.template.steps import Branch, Stage, mapped
from vinelm.template.template import OTHER, Template, stage_title

MOST_KINDS = 16
"""How many types are learnt by name."""
LEAST_REQUESTS = 15
"""A type with fewer requests in the profile is not learnt, and counts as :data:`OTHER`."""


LEAST_ANSWERS = 4.0
"""A type with fewer first answers per model, on average, is not learnt either, since plans would follow its noise."""


def learnt_kinds(labels: Iterable[str], answers: Mapping[str, float] | None = None) -> tuple[str, ...]:
    """Return the request types that a template should distinguish, sorted, followed by :data:`OTHER` for all other types.

    Types with too few requests or answers are left out; of the rest, only the most frequent are taken. Empty if no type is
    left, or if all requests have the same type.

    Args:
        labels: The type of each profiled request.
        answers: For each type, how many of its requests have a recorded result for their first call, averaged over the models.
            None assumes that there are enough.
    """
    counts = Counter(labels)
    enough = {kind for kind, count in counts.items() if count >= LEAST_REQUESTS and kind != OTHER}
    if answers is not None:
        enough = {kind for kind in enough if answers.get(kind, 0.0) >= LEAST_ANSWERS}
    often = sorted((-counts[kind], kind) for kind in enough)
    learnt = sorted(kind for _, kind in often[:MOST_KINDS])
    if not learnt or len(counts) < 2:
        return ()
    return (*learnt, OTHER)


def of_kinds(template: Template, kinds: tuple[str, ...]) -> Template:
    """Return the template that begins with a choice between branches, one for each request type in ``kinds``.

    If ``kinds`` is empty, or the template has types already, the template is returned unchanged. The new template has each
    stage of ``template`` once for each type, named by :func:`stage_title`.
    """
    if template.kinds or not kinds:
        return template
    exits = None if template.exits is None else tuple(stage_title(name, kind) for kind in kinds for name in template.exits)
    arms = {kind: mapped(template.steps, partial(_titled, kind=kind)) for kind in kinds}
    return Template((Branch(arms),), template.stop, exits, kinds)


def _titled(stage: Stage, kind: str) -> Stage:
    return replace(stage, name=stage_title(stage.name, kind))
