"""Which stages run in one superstep, as the template says."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.errors import TemplateError
from vinelm.template import Parallel, Template
from vinelm.template.steps import walk


class JointStages:
    """The stages of each superstep in the order of the template, which is that of the path.

    Args:
        template: a bound template.
    """

    def __init__(self, template: Template) -> None:
        self._template = template
        self._has_some = any(isinstance(step, Parallel) for step in walk(template.steps))

    def next_after(self, stages: Sequence[str]) -> tuple[str, ...]:
        """Return the stages that may follow; none where the template does not allow these stages."""
        try:
            return tuple(stage.name for stage in self._template.arms_after(stages))
        except TemplateError:
            return ()

    def follows(self, stages: Sequence[str]) -> bool:
        """Return whether the stage after these runs in the superstep of the last of them."""
        return bool(self.group_after(stages))

    def group_after(self, stages: Sequence[str]) -> tuple[str, ...]:
        """Return the stages that are left of the superstep of the last of these."""
        found: list[str] = []
        if not self._has_some:
            return ()
        flow = self._template.flow
        try:
            position = flow.positions[flow.at(stages)]
        except KeyError:
            return ()
        while position.is_joint:
            name, after = next(iter(position.arms.items()))
            found.append(name)
            position = flow.positions[after]
        return tuple(found)

    def begun_before(self, stages: Sequence[str]) -> int:
        """Return how many of the stages before the last one run in its superstep."""
        count = 0
        while count < len(stages) - 1 and self.follows(stages[: len(stages) - 1 - count]):
            count += 1
        return count


__all__ = ["JointStages"]
