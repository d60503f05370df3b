"""Policies as rules: given the outcomes so far, they return the next model to run or the answer to return."""

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
    """The policy that runs, in order, the models on the path to one node of a trie without branches.

    It stops when the path ends or the workflow's stop rule ends the request.

    Args:
        annotated: The trie that the path was chosen from.
        target: The node to end at.
    """

    annotated: AnnotatedTrie
    target: int

    @cached_property
    def path(self) -> tuple[str, ...]:
        """The path's models, first invocation first."""
        return self.annotated.trie.prefix(self.target)

    def step(self, seen: Seen) -> Step:
        """Return the model to run after the recorded calls ``seen``, or the answer to return; see :meth:`StepPolicy.step`."""
        if len(seen) >= len(self.path) or (seen and seen[-1].ended(self.annotated.template.stop)):
            return Step(None)
        return Step(self.path[len(seen)])

    def rest(self, seen: Seen) -> Rest:
        """Return the success, cost and latency still to expect after the calls ``seen``; see :meth:`StepPolicy.rest`."""
        return self._rests[len(seen)]

    @cached_property
    def _rests(self) -> list[Rest]:
        return rests(self.annotated, self.target)


def rests(annotated: AnnotatedTrie, target: int) -> list[Rest]:
    """Return the success, cost and latency still to expect on the path to node ``target``; item i is for requests that
    have not ended after i calls.
    """
    return [Rest(*ahead) for ahead in ahead_along(annotated, target)]


Seen = tuple[Observation, ...]
"""The rows of one request along one path, from its first invocation on."""


class Step(NamedTuple):
    """The next step of a policy.

    Args:
        model: The model that runs next; None ends the request.
        returned: If the request ends, the index of the returned answer among the rows so far; -1 is the last row.
    """

    model: str | None
    returned: int = -1


class Rest(NamedTuple):
    """The success, cost and latency that are still expected under a policy at some point of a request, estimated from
    the rows used for planning.

    Args:
        success: Chance that the finally returned answer is right, in [0, 1].
        cost_usd: Dollars still to be spent, >= 0.
        latency_s: Seconds still to pass, >= 0.
    """

    success: float
    cost_usd: float = 0.0
    latency_s: float = 0.0


class StepRule(Protocol):
    """A rule that returns the next step from a request's outcomes so far. It never sees whether an answer is right."""

    def step(self, seen: Seen) -> Step:
        """Return the model to run after the recorded calls ``seen``, or the answer to return if the request should end.

        ``seen`` are the rows of a request that has not failed and that the workflow has not ended.
        """


class StepPolicy(StepRule, Protocol):
    """A policy that returns the next step after each recorded row, and predicts the success, cost and latency still to
    come.
    """

    def rest(self, seen: Seen) -> Rest:
        """Return the expected outcome of the calls after ``seen``: the chance of a right answer, dollars and seconds.

        The request must continue after ``seen`` according to :meth:`step`.
        """


@dataclass(frozen=True, eq=False)
class StepsByStart:
    """A policy that depends on what is known before the first call: the request's type and first stage.

    Args:
        of_start: The policies to follow, keyed by (request type, first stage): "" without types, and None if the first
            stage does not matter.
        usual: The first stage to assume if the actual first stage is unknown or not in ``of_start``.
    """

    of_start: Mapping[tuple[str, str | None], StepPolicy]
    usual: str | None = None


def steps_for(policy: StepPolicy | StepsByStart, kind: str | None, first: str | None = None) -> StepPolicy:
    """Return the policy for requests of type ``kind`` that begin with stage ``first``.

    ``kind`` is None without types; ``first`` is None if no row shows the first stage.
    """
    if not isinstance(policy, StepsByStart):
        return policy
    found = policy.of_start.get((kind or "", first))
    return policy.of_start[kind or "", policy.usual] if found is None else found
