"""Templates whose requests are of several kinds, which are the arms of a branch before the first stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.errors import TemplateError
from vinelm.template.steps import Branch, Stage, mapped
from vinelm.template.template import Template

OTHER = "other"
"""The kind of requests whose own kind is not learnt."""
MOST_KINDS = 16
"""The most kinds that are learnt by name."""
LEAST_REQUESTS = 15
"""A kind with fewer requests in the profile is not learnt: they count as :data:`OTHER`."""


LEAST_ANSWERS = 4.0
"""A kind with fewer first answers per model, on average, is not learnt either: plans would follow their noise."""


def learnt_kinds(labels: Iterable[str], answers: Mapping[str, float] | None = None) -> tuple[str, ...]:
    """Return the kinds to learn by name, sorted, and :data:`OTHER`; none where fewer than two could be told apart.

    Args:
        labels: The kind of each profiled request, one label a request.
        answers: First answers about each kind, per model; None: there are enough.
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


def learnt_kind(kind: str | None, kinds: tuple[str, ...]) -> str:
    """Return a request's kind if it is one of ``kinds``, else :data:`OTHER`."""
    return kind if kind is not None and kind in kinds else OTHER


UNTOLD = "untold_kinds"
"""Key of a trie's ``meta`` where declared kinds do not pay: what plans by kind promise more, <= 0, a fraction."""


def untold_words(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why a trie does not tell the declared kinds of request apart, if they do not pay; one line at most."""
    if UNTOLD not in meta:
        return ()
    return (
        "Kinds of request are declared and not told apart: plans by kind promise"
        f" {-100 * meta[UNTOLD]:.1f} points less than plans without them, at equal dollars.",
    )


def stage_title(stage: str, kind: str) -> str:
    """Return the name of a stage of a template of kinds: the stage, and the kind of the requests that it serves."""
    return f"{stage} [{kind}]"


def of_kinds(template: Template, kinds: tuple[str, ...]) -> Template:
    """Return the template whose first choice is the kind of the request; the same one where there are no kinds.

    Its stages are those of ``template`` once for each kind, named by :func:`stage_title`.

    Raises:
        TemplateError: ``template`` has kinds already.
    """
    if not kinds:
        return template
    if template.kinds:
        raise TemplateError("the template has kinds already: declare the kind of a request once")
    exits = None if template.exits is None else tuple(stage_title(name, kind) for kind in kinds for name in template.exits)
    arms = {kind: mapped(template.steps, partial(_titled, kind=kind)) for kind in kinds}
    return Template((Branch(arms),), template.stop, exits, kinds)


def without_kinds(template: Template) -> Template:
    """Return the template that :func:`of_kinds` was given; the same one where it has no kinds."""
    if not template.kinds:
        return template
    first, names = template.kinds[0], base_stages(template)
    assert isinstance(template.steps[0], Branch)
    steps = mapped(template.steps[0].ways[first], lambda stage: replace(stage, name=names[stage.name]))
    exits = template.exits
    own = {stage_title(name, first): name for name in names.values()}
    return Template(steps, template.stop, None if exits is None else tuple(own[name] for name in exits if name in own))


def base_stages(template: Template) -> Mapping[str, str]:
    """Return the application's stage of each stage of a template, by name: itself where the template has no kinds."""
    names = [stage.name for stage in template.stages]
    if not template.kinds:
        return dict(zip(names, names, strict=True))
    return {name: name[: -len(f" [{kind}]")] for name, kind in zip(names, kinds_of_stages(template), strict=True) if kind}


def kinds_of_stages(template: Template) -> tuple[str, ...]:
    """Return the kind of each stage of a template of kinds, in the order of ``template.stages``; none where it has no kinds."""
    each = len(template.stages) // max(len(template.kinds), 1)
    return tuple(kind for kind in template.kinds for _ in range(each))


@dataclass(frozen=True, eq=False)
class StageKinds:
    """What the stages of a template of kinds stand for, by their index.

    Attributes:
        stage: The application's stage, as an index into those of the template without kinds; shape (stages,).
        kind: The kind, as an index into ``Template.kinds``; shape (stages,).
    """

    stage: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]

    @classmethod
    def of(cls, template: Template) -> StageKinds | None:
        """Return those of a template; None where it has no kinds."""
        if not template.kinds:
            return None
        each = len(template.stages) // len(template.kinds)
        number = np.arange(len(template.stages), dtype=np.int64)
        return cls(number % each, number // each)


def _titled(stage: Stage, kind: str) -> Stage:
    return replace(stage, name=stage_title(stage.name, kind))
