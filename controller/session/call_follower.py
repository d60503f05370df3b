"""Who is told of the calls that one request makes."""

from __future__ import annotations

from typing import Protocol

from vinelm.controller.planning.decision import Decision
from vinelm.protocols import Invocation


class CallFollower(Protocol):
    """Told of each invocation of a request, without any lock held. Must neither raise nor block."""

    def began(self, stage: str, path: tuple[str, ...], elapsed_s: float, decision: Decision | None) -> None:
        """The invocation at the end of ``path`` begins, ``elapsed_s`` seconds after the request's arrival.

        ``decision`` is the plan that it follows; None if there is none.
        """

    def ended(self, invocation: Invocation, excess_s: float | None) -> None:
        """It has ended, after ``excess_s`` seconds more than at zero load; None if it failed, or if this is not known."""

    def interrupted(self, path: tuple[str, ...]) -> None:
        """It has no result and will be run again."""
