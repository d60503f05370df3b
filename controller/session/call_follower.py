"""Interfaces for objects that are notified of a request's calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, SupportsFloat

from vinelm.controller.planning.decision import Decision
from vinelm.plans.assignment import Assigned
from vinelm.requests.protocols import Invocation


class CallFollower(Protocol):
    """Notified of each invocation of a request while no lock is held. Must not block; its errors are noted in the trace."""

    __slots__ = ()

    def began(self, stage: str, path: tuple[str, ...], elapsed_s: float, decision: Decision | None) -> None:
        """Called when the invocation at the end of ``path`` begins, ``elapsed_s`` seconds after the request's arrival.

        ``decision`` is the plan that it follows; None without a plan.
        """

    def ended(self, invocation: Invocation, excess_s: float | None) -> None:
        """Called when an invocation has ended, ``excess_s`` seconds slower than at zero load; None if failed or unknown."""

    def interrupted(self, path: tuple[str, ...]) -> None:
        """Called when the invocation was interrupted without a result; it will run again."""


class RequestFollower(CallFollower, Protocol):
    """A :class:`CallFollower` that is also notified of events of the whole request."""

    __slots__ = ()

    def edge(self, goes_on: bool) -> None:
        """Called when an edge of the graph was decided; ``goes_on``: whether the request continues."""

    def resumed(self, assigned: Assigned, costs_usd: Sequence[float | None]) -> None:
        """Called when another run began the request, with its assignment and the dollars of each invocation so far."""


class RequestWatcher(CallFollower):
    """Follows one request for a watcher of all requests: notified of each invocation, and asked for notes.

    The base class does nothing; the fleet derives from it.
    """

    __slots__ = ()

    def gate(self, path: tuple[str, ...], waits: bool, sent_to: str | None = None) -> None:
        """Record that an invocation waits for its engine's rate limits, or was sent (``sent_to``: to which replica)."""

    def standing(self, stage: str, priority: float) -> SupportsFloat:
        """Return the priority of a call whose request has ``priority``."""
        return priority

    def note(self) -> str:
        """Return the watchers' note for the request's trace; empty if there is none."""
        return ""
