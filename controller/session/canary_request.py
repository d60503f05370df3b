"""Records the result of one request of a canary, which compares a plan with the current setup on live traffic."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.clock import Clock
from vinelm.controller.planning.decision import Decision
from vinelm.plans.assignment import Assigned
from vinelm.requests.protocols import Invocation


class CanaryRequest:
    """Records one canary request's calls. The canary reads the result after the session's end. Never raises or blocks.

    Each event changes a single built-in container or value, so no lock is needed.

    Attributes:
        is_plan: whether the request was assigned to the plan. If another process began the request, the assignment by that
            process counts.
        is_resumed: whether another run has executed part of the request. If so, the seconds measured here are not the time that
            the caller waited.

    Args:
        is_plan: as above.
        clock: the request's clock.
        started_at: the request's arrival in seconds of ``clock``.
    """

    __slots__ = ("_clock", "_failed", "_goes_on", "_open", "_seconds", "_started_at", "_usd", "is_plan", "is_resumed")

    def __init__(self, is_plan: bool, clock: Clock, started_at: float) -> None:
        self.is_plan, self.is_resumed = is_plan, False
        self._clock, self._started_at = clock, started_at
        self._open: set[tuple[int, str]] = set()
        self._failed: dict[tuple[int, str], bool] = {}
        self._usd: list[float | None] = []
        self._goes_on, self._seconds = False, 0.0

    def began(self, stage: str, path: tuple[str, ...], elapsed_s: float, decision: Decision | None) -> None:
        """Record that the call of ``stage`` at the end of ``path`` begins; the other arguments are ignored."""
        self._open.add((len(path), stage))
        self._goes_on = False

    def ended(self, invocation: Invocation, excess_s: float | None) -> None:
        """Record that one attempt of the call has ended; if it failed, another attempt may follow. ``excess_s`` is ignored."""
        place = len(invocation.prefix), invocation.stage
        self._open.discard(place)
        self._failed[place] = invocation.failure is not None
        self._usd.append(invocation.cost_usd)
        self._seconds = self._clock.now() - self._started_at

    def interrupted(self, path: tuple[str, ...]) -> None:
        """Record that the call was interrupted and will run again, so that the request stays open."""

    def edge(self, goes_on: bool) -> None:
        """Record whether the request continues at a conditional edge of the graph."""
        self._goes_on = goes_on
        self._seconds = self._clock.now() - self._started_at

    def resumed(self, assigned: Assigned, costs_usd: Sequence[float | None]) -> None:
        """Record that another run began the request, and the dollars that it paid for each call."""
        self.is_plan, self.is_resumed = assigned.is_plan, True
        self._usd += costs_usd

    @property
    def has_failed(self) -> bool:
        """Whether the last attempt of some call failed."""
        return any(self._failed.values())

    @property
    def has_ended(self) -> bool:
        """Whether the request has failed or is complete.

        It has failed if the last attempt of some call failed. It is complete if at least one call was made, all calls have
        ended, and no edge of the graph continues the request.
        """
        return self.has_failed or bool(self._failed and not self._open and not self._goes_on)

    @property
    def usd(self) -> float | None:
        """The cost of all calls of the request in dollars; None if the cost of an earlier run is unknown."""
        known = [usd for usd in self._usd if usd is not None]
        return sum(known) if len(known) == len(self._usd) else None

    @property
    def seconds(self) -> float | None:
        """The seconds from the request's arrival to the end of its last call or edge; None if the request was resumed."""
        return None if self.is_resumed else max(self._seconds, 0.0)

    @property
    def idle_s(self) -> float:
        """The seconds since the request's last call or edge ended; 0 while a call is in flight."""
        return 0.0 if self._open else self._clock.now() - self._started_at - self._seconds
