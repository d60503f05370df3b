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
from vinelm.template.template import Template, stage_title

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
    """Return a request's kind if it is one of ``kinds``, else :data:`OTHER`; ``""`` where there are no kinds."""
    return kind if kind is not None and kind in kinds else OTHER * bool(kinds)


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


@dataclass(frozen=True, eq=False)
class StageKinds:
    """What the stages of a template stand for, by their index.

    Attributes:
        stage: The application's stage, as an index into those of the template without kinds; shape (stages,).
        kind: The kind, as an index into ``Template.kinds``; shape (stages,).
    """

    stage: npt.NDArray[np.int64]
    kind: npt.NDArray[np.int64]

    @classmethod
    def of(cls, template: Template) -> StageKinds:
        """Return the kinds of a template; a template without kinds has one."""
        each = len(template.stages) // max(len(template.kinds), 1)
        number = np.arange(len(template.stages), dtype=np.int64)
        return cls(number % each, number // each)


def _titled(stage: Stage, kind: str) -> Stage:
    return replace(stage, name=stage_title(stage.name, kind))
