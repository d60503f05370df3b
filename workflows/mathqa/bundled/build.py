"""Draws the bundled problems: the same on every machine, the topics spread evenly."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from vinelm.workflows.mathqa.arithmetic import value_of
from vinelm.workflows.mathqa.bundled import everyday, reasoning
from vinelm.workflows.mathqa.bundled.problem import MathProblem, ProblemTemplate
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice

SEED = "vinelm-mathqa-1"
COUNT = 638
"""Problems: 29 of each template."""
_MOST_DRAWS = 1_000


@cache
def problems() -> tuple[MathProblem, ...]:
    """Return the problems: all different, the templates take turns, so that the first n are a fair sample."""
    templates = everyday.TEMPLATES + reasoning.TEMPLATES
    drawn = [_drawn(template, COUNT // len(templates)) for template in templates]
    return tuple(problem for turn in zip(*drawn, strict=True) for problem in turn)


def _drawn(template: ProblemTemplate, count: int) -> list[MathProblem]:
    dice = Dice(f"{SEED}:{template.__name__}")
    found: dict[str, MathProblem] = {}
    for _ in range(_MOST_DRAWS):
        problem = _with_real_mistakes(template(dice))
        if len(problem.mistakes) > 1:
            found.setdefault(problem.question, problem)
        if len(found) == count:
            return list(found.values())
    raise AssertionError(f"{template.__name__} has too few different problems")


def _with_real_mistakes(problem: MathProblem) -> MathProblem:
    """Without the mistakes that have no value, or by chance that of the answer or of another mistake."""
    values = {problem.answer}
    kept = []
    for mistake in problem.mistakes:
        value = value_of(mistake)
        if value is not None and value not in values:
            values.add(value)
            kept.append(mistake)
    return replace(problem, mistakes=tuple(kept))
