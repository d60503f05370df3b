"""A path of models, followed until the workflow's stop rule ends the request."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from vinelm.controller.planning.path_decision import ahead_along
from vinelm.evaluation.off_policy.steps import Rest, Seen, Step
from vinelm.trie.annotated_trie import AnnotatedTrie


@dataclass(frozen=True, eq=False)
class PathSteps:
    """The path to one node of a linear trie.

    Args:
        annotated: The trie that it was chosen from.
        target: The node to end at.
    """

    annotated: AnnotatedTrie
    target: int

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The models, from the root."""
        return self.annotated.trie.prefix(self.target)

    def step(self, seen: Seen) -> Step:
        """See :meth:`StepPolicy.step`."""
        if len(seen) >= len(self.path) or (seen and seen[-1].ended(self.annotated.template.stop)):
            return Step(None)
        return Step(self.path[len(seen)])

    def rest(self, seen: Seen) -> Rest:
        """See :meth:`StepPolicy.rest`."""
        return self._rests[len(seen)]

    @cached_property
    def _rests(self) -> list[Rest]:
        return rests(self.annotated, self.target)


def rests(annotated: AnnotatedTrie, target: int) -> list[Rest]:
    """Return what is to come after each number of invocations on the way to a node, for requests that are still open there."""
    return [Rest(*ahead) for ahead in ahead_along(annotated, target)]
