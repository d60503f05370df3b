"""What this process may spend for one tenant: dollars that it has leased, of a cap by the day that all processes share."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition

from vinelm.policies import SpendGuard

PATIENCE_S = 0.2
"""Longest that a call waits for a lease while Redis answers. Without Redis no call waits."""
REFUSED_FOR_S = 1.0
"""After the cap did not allow a lease, calls that need one are refused at once for so long."""
NANO = 1_000_000_000
"""Billionths in a dollar."""


class TenantAccount(SpendGuard):
    """Authorizes the calls for one tenant within what this process has leased; a :class:`vinelm.protocols.CallGuard`.

    The lease grows in the background. A call that comes before its lease waits for it at most ``PATIENCE_S`` seconds, and only
    while Redis answers; then it is refused.

    Args:
        tenant: the tenant's name; shown in refusals.
        daily_usd: the cap of all processes together; shown in refusals.
        is_alone: returns whether Redis does not answer.
        wake: asks the background to look after the lease now.
    """

    def __init__(self, tenant: str, daily_usd: float, *, is_alone: Callable[[], bool], wake: Callable[[], None]) -> None:
        super().__init__(0.0)
        self.tenant, self.daily_usd = tenant, daily_usd
        self._is_alone, self._wake = is_alone, wake
        self._changed = Condition()  # guards what follows; taken after the lock of the guard, never before
        self._leased_nano = 0
        self._short_usd = 0.0
        self._refused_usd, self._refused_until = 0.0, -1.0

    # -- for the background ------------------------------------------------------------------------------------

    def wanted_usd(self) -> float:
        """Return the dollars that a lease has to bring for the call that waits, and for what calls cost beyond their bounds."""
        with self._lock:
            overdrawn_usd = self.spent_usd + self.reserved_usd - self._leased_usd
        with self._changed:
            return max(self._short_usd, overdrawn_usd, 0.0)

    def free_usd(self) -> float:
        """Return the dollars that are leased, not spent and not reserved; negative if calls cost more than their bounds."""
        with self._lock:
            return self._leased_usd - self.spent_usd - self.reserved_usd

    def add_lease(self, nano_usd: int) -> None:
        """Count a lease; a call that waits for it goes on."""
        with self._changed:
            self._leased_nano += nano_usd
            self._changed.notify_all()

    def refuse(self) -> None:
        """The cap does not allow another lease: refuse the call that waits."""
        with self._changed:
            self._refused_usd, self._refused_until = self._short_usd, time.monotonic() + REFUSED_FOR_S
            self._changed.notify_all()

    def take_back(self, most_nano: int) -> int:
        """Take what is free out of the lease, at most so much, and return it in billionths of a dollar."""
        with self._lock, self._changed:
            self.limit_usd = self._leased_usd
            free_nano = int((self.limit_usd - self.spent_usd - self.reserved_usd) * NANO) - 1  # never more than is free
            taken = max(min(free_nano, most_nano), 0)
            self._leased_nano -= taken
            self.limit_usd = self._leased_usd
            return taken

    @property
    def _leased_usd(self) -> float:
        return self._leased_nano / NANO

    # -- of the guard, with its lock held ------------------------------------------------------------------------

    def _raise_limit(self, needed_usd: float) -> bool:
        with self._changed:
            self.limit_usd = self._leased_usd
            until = time.monotonic() + PATIENCE_S
            while needed_usd > self.limit_usd:
                left_s = until - time.monotonic()
                if left_s <= 0.0 or self._is_alone() or self._is_refused(needed_usd - self.limit_usd):
                    break
                self._short_usd = needed_usd - self.limit_usd
                self._wake()
                self._changed.wait(left_s)
                self.limit_usd = self._leased_usd
            self._short_usd = 0.0
            return needed_usd <= self.limit_usd

    def _is_refused(self, short_usd: float) -> bool:
        """Whether as much has lately been asked for in vain."""
        return short_usd >= self._refused_usd and time.monotonic() < self._refused_until

    def _refusal(self, upper_usd: float, left_usd: float) -> str:
        why = "the fleet's Redis does not answer" if self._is_alone() else "other processes may hold the rest"
        return (
            f"the call may cost up to ${upper_usd:.6f}, and this process has ${left_usd:.6f} left of tenant {self.tenant!r}'s "
            f"${self.daily_usd:g} for today ({why}): raise daily_usd, or lower the model's max_tokens"
        )
