"""The money of one request, call by call: what no plan can promise, a refused call keeps (DESIGN §5)."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from vinelm.errors import CallRefused
from vinelm.observation import Usage


class SpendGuard:
    """Lets a call start only if everything spent, everything that calls under way may cost, and its own upper bound stay within
    ``cap_usd``. So a request exceeds its cap by no more than a call's real price exceeds its bound.

    ``recorded_usd`` tells what else the request has spent: invocations that another process ran. Safe from many threads.
    """

    def __init__(self, cap_usd: float, recorded_usd: Callable[[], float]) -> None:
        self.cap_usd = cap_usd
        self._recorded_usd = recorded_usd
        self._under_way: list[float] = []
        self._paid_usd = 0.0
        self._refused: list[str] = []
        self._lock = Lock()

    def before(self, upper_bound_usd: float) -> None:
        """See :class:`vinelm.protocols.CallGuard`."""
        with self._lock:
            left_usd = self.cap_usd - max(self._recorded_usd(), self._paid_usd) - sum(self._under_way)
            if upper_bound_usd > left_usd:
                line = (
                    f"the call may cost up to ${upper_bound_usd:.6f}, and ${max(left_usd, 0.0):.6f} is left of the request's "
                    f"${self.cap_usd:g}: raise max_cost_usd, or lower the model's max_tokens"
                )
                self._refused.append(line)
                raise CallRefused(line)
            self._under_way.append(upper_bound_usd)

    def paid(self, usage: Usage) -> None:
        """See :class:`vinelm.protocols.CallGuard`. Which call it was is not known: the smallest sum is taken back, for safety,
        until the others have come back too.
        """
        with self._lock:
            self._paid_usd += usage.cost_usd
            if self._under_way:
                self._under_way.remove(min(self._under_way))

    def take_refusals(self) -> list[str]:
        """Why calls were refused since this was last asked."""
        with self._lock:
            taken, self._refused = self._refused, []
        return taken
