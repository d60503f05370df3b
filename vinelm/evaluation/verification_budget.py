"""The money of a verification: one limit over all requests, with every call reserved durably before it is made."""

from __future__ import annotations

from vinelm.errors import CallRefused
from vinelm.evaluation.verification_log import VerificationLog
from vinelm.money.spend_guard import SpendGuard, SpendPermit
from vinelm.requests.protocols import CallPermit
from vinelm.rows.observation import Usage

_NOTHING = Usage(model="", cost_usd=0.0, latency_s=0.0)


class VerificationBudget(SpendGuard):
    """Authorizes the calls of all requests of a verification.

    Attributes:
        is_exhausted: Whether a call was refused.

    Args:
        limit_usd: The most that the verification may cost, interrupted runs included.
        log: Gets the upper bound of what may have been spent before each call; has the dollars of interrupted runs.
    """

    def __init__(self, limit_usd: float, log: VerificationLog) -> None:
        super().__init__(limit_usd)
        self.is_exhausted = False
        self._log = log
        self.add_inherited(log.spent_usd)

    def _reservation_changed(self) -> None:
        self._log.bound(self.spent_usd + self.reserved_usd)

    def _refusal(self, upper_usd: float, left_usd: float) -> str:
        self.is_exhausted = True
        return (
            f"the call may cost up to ${upper_usd:.6f}, and ${left_usd:.6f} is left of the verification's ${self.limit_usd:g}"
        )


class RequestGuard(SpendGuard):
    """Authorizes the calls of one request: within its own cap, if it has one, and within the verification's budget.

    Args:
        limit_usd: The request's cap in dollars; infinity without one.
        total: The budget of all requests.
    """

    def __init__(self, limit_usd: float, total: VerificationBudget) -> None:
        super().__init__(limit_usd)
        self._total = total

    def authorize(self, upper_usd: float) -> SpendPermit:
        """Reserve money for a call from both.

        Raises:
            CallRefused: One of them does not allow the call.
        """
        own = super().authorize(upper_usd)
        try:
            total = self._total.authorize(upper_usd)
        except CallRefused:
            own.settle(_NOTHING)
            raise
        return _JointPermit(self, own, total)


class _JointPermit(SpendPermit):
    """One call that two guards have authorized."""

    __slots__ = ("_both",)

    def __init__(self, guard: SpendGuard, own: SpendPermit, total: SpendPermit) -> None:
        super().__init__(guard, own.upper_usd)
        self._both: tuple[CallPermit, CallPermit] = (own, total)

    def settle(self, usage: Usage) -> None:
        for permit in self._both:
            permit.settle(usage)

    def close(self) -> None:
        for permit in self._both:
            permit.close()
