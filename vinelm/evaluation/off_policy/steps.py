"""Policies as sequences of steps: the next model after what a request has shown, and the returned answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from vinelm.controller.planning.path_decision import ahead_along
from vinelm.rows.observation import Observation
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
    """Return the expected rest after each number of invocations on the way to a node, for requests still open there."""
    return [Rest(*ahead) for ahead in ahead_along(annotated, target)]


Seen = tuple[Observation, ...]
"""The rows of one request along one path, from its first invocation on."""


class Step(NamedTuple):
    """The next step of a policy.

    Args:
        model: The model that runs next; None: the request ends.
        returned: If it ends, the index among the seen rows of the returned answer.
    """

    model: str | None
    returned: int = -1


class Rest(NamedTuple):
    """The expected rest of a policy from here on, by the rows that it was planned from.

    Args:
        success: Chance that the answer returned in the end is right, in [0, 1].
        cost_usd: Dollars still to come, >= 0.
        latency_s: Seconds still to come, >= 0.
    """

    success: float
    cost_usd: float = 0.0
    latency_s: float = 0.0


class StepRule(Protocol):
    """The next step, given what a request has shown. It never sees whether an answer is right."""

    def step(self, seen: Seen) -> Step:
        """Return the next step. The request has not failed, and the workflow has not ended it for this policy."""


class StepPolicy(StepRule, Protocol):
    """A policy that can be followed row by row, with its expectations of the rest."""

    def rest(self, seen: Seen) -> Rest:
        """Return the expectation after these rows, for a request that :meth:`step` continues."""


@dataclass(frozen=True, eq=False)
class StepsByStart:
    """A policy that depends on what is known before the first call: the request's kind, and the stage that it begins with.

    Args:
        of_start: The policy to follow, by kind ("" without kinds) and first stage (None if it does not matter).
        usual: The first stage to assume if it is unknown or not among these.
    """

    of_start: Mapping[tuple[str, str | None], StepPolicy]
    usual: str | None = None


def steps_for(policy: StepPolicy | StepsByStart, kind: str | None, first: str | None = None) -> StepPolicy:
    """Return the steps for requests of a kind that begin with a stage; None if nothing was bought for them."""
    if not isinstance(policy, StepsByStart):
        return policy
    found = policy.of_start.get((kind or "", first))
    return policy.of_start[kind or "", policy.usual] if found is None else found
