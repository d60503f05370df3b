"""Interfaces for objects that are notified of a request's calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, SupportsFloat

from vinelm.controller.planning.decision import Decision
from vinelm.plans.assignment import Assigned
from vinelm.requests.protocols import Invocation


class CallFollower(Protocol):
    """The interface of an object that is notified of each call of a request, while no lock is held.

    It must not block; its errors are noted in the trace.
    """

    __slots__ = ()

    def began(self, stage: str, path: tuple[str, ...], elapsed_s: float, decision: Decision | None) -> None:
        """Handle the beginning of the call at the end of ``path``, ``elapsed_s`` seconds after the request's arrival.

        ``decision`` is the plan that the call follows; None without a plan.
        """

    def ended(self, invocation: Invocation, excess_s: float | None) -> None:
        """Handle the end of a call that took ``excess_s`` seconds more than at zero load.

        ``excess_s`` is None if the call failed or if the excess is unknown.
        """

    def interrupted(self, path: tuple[str, ...]) -> None:
        """Handle the interruption of a call that has no result and will run again."""


class RequestFollower(CallFollower, Protocol):
    """A :class:`CallFollower` that is also notified of events which concern the whole request."""

    __slots__ = ()

    def edge(self, goes_on: bool) -> None:
        """Handle the decision at a conditional edge of the graph; ``goes_on`` is True if the request continues."""

    def resumed(self, assigned: Assigned, costs_usd: Sequence[float | None]) -> None:
        """Handle the continuation of a request that another run began.

        ``assigned`` is the plan or setup that the request was assigned to. ``costs_usd`` has the cost of each of its calls so
        far, in dollars (None: unknown).
        """


class RequestWatcher(CallFollower):
    """Base class of objects that watch one request: they are notified of its calls, and asked for notes and priorities.

    This class itself does nothing; the fleet has a subclass.
    """

    __slots__ = ()

    def gate(self, path: tuple[str, ...], waits: bool, sent_to: str | None = None) -> None:
        """Record that the call at the end of ``path`` begins to wait for rate limits, or that it was sent to its engine.

        ``waits`` is True if the call begins to wait, and False if it was sent. ``sent_to`` names the replica that it was sent
        to, if any.
        """

    def standing(self, stage: str, priority: float) -> SupportsFloat:
        """Return the priority of a call, given the ``priority`` of its request."""
        return priority

    def note(self) -> str:
        """Return the watcher's note for the request's trace; empty if there is none."""
        return ""
