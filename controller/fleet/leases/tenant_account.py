"""One process's account of a tenant: the dollars that the process has leased from the tenant's daily cap."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition

from vinelm.controller.fleet.redis_link import SILENT_REDIS
from vinelm.errors import CallRefused
from vinelm.money.spend_guard import SpendGuard, SpendPermit

PATIENCE_S = 1.0
"""The longest time that a call waits for a lease while Redis answers. Without Redis no call waits."""
FIRST_S = 5.0
"""The longest wait before the background thread has answered for the first time, since a new process has other work, too."""
LOOKS_S = 0.1
"""How often a waiting call checks whether Redis still answers."""
ASYNC_LOOKS_S = 0.01
"""How often a waiting coroutine checks for its lease."""
REFUSED_FOR_S = 1.0
"""After the cap has refused a lease, calls that need one are refused at once for this long."""
NANO = 1_000_000_000
"""Billionths in a dollar."""


class TenantAccount(SpendGuard):
    """Authorizes a tenant's calls within the leased dollars; a :class:`vinelm.requests.protocols.CallGuard`.

    The lease grows in the background. A call that exceeds the lease waits at most ``PATIENCE_S`` seconds for it to grow,
    and only while Redis answers; then it is refused.

    Args:
        tenant: the tenant's name; shown in refusals.
        daily_usd: the tenant's daily cap in dollars for all processes together; shown in refusals.
        is_alone: returns True if Redis does not answer.
        wake: asks the background thread to update the lease now.
        why_alone: returns the reason why Redis cannot be reached; empty if the reason is unknown.
    """

    def __init__(
        self,
        tenant: str,
        daily_usd: float,
        *,
        is_alone: Callable[[], bool],
        wake: Callable[[], None],
        why_alone: Callable[[], str] = str,
    ) -> None:
        super().__init__(0.0)
        self._why_alone = why_alone
        self.tenant, self.daily_usd = tenant, daily_usd
        self._is_alone, self._wake = is_alone, wake
        self._changed = Condition()  # guards the fields below; taken after the guard's lock, never before it
        self._leased_nano = 0
        self._waiting: list[float] = []
        self._refused_usd, self._refused_until = 0.0, -1.0
        self._has_answer, self._why = False, ""

    def authorize(self, upper_usd: float) -> SpendPermit:
        """Reserve money for a call that costs at most ``upper_usd`` dollars; may wait for a lease.

        Raises:
            CallRefused: the lease does not cover the call and did not grow in time; the call must not be made.
        """
        until, is_over = self._until(), False
        while True:
            # Read before the attempt, so that a lease arriving in between ends the wait below at once.
            leased_nano = self._leased_nano
            try:
                return super().authorize(upper_usd)
            except CallRefused:
                if is_over:  # read the current reason: before the wait there may have been none
                    raise
            with self.waiting(upper_usd):
                self._wake()
                is_over = not self._wait(upper_usd, leased_nano, until)

    async def aauthorize(self, upper_usd: float) -> SpendPermit:
        """Like :meth:`authorize`, for coroutines: the event loop keeps running while the call waits for a lease."""
        until, is_over = self._until(), False
        while True:
            leased_nano = self._leased_nano
            try:
                return super().authorize(upper_usd)
            except CallRefused:
                if is_over:
                    raise
            with self.waiting(upper_usd):
                self._wake()
                # Polled, not notified: leases arrive in another thread, which knows nothing of this loop.
                while self._leased_nano == leased_nano and not (is_over := self._is_over(upper_usd, until)):
                    await asyncio.sleep(ASYNC_LOOKS_S)

    def _until(self) -> float:
        # A new process is busy with other work before its thread first answers, so its first call waits longer.
        return time.monotonic() + (PATIENCE_S if self._has_answer else FIRST_S)

    @contextmanager
    def waiting(self, upper_usd: float) -> Iterator[None]:
        """During the block, ask for a lease that also covers a call that costs at most ``upper_usd`` dollars."""
        with self._changed:
            self._waiting.append(upper_usd)
        try:
            yield
        finally:
            with self._changed:
                self._waiting.remove(upper_usd)

    def _wait(self, upper_usd: float, leased_nano: int, until: float) -> bool:
        """Wait until the lease differs from ``leased_nano`` billionths of a dollar, and return True.

        Return False if the call should no longer wait for that: at the monotonic time ``until``, after a refusal, or if Redis
        does not answer.
        """
        with self._changed:
            while self._leased_nano == leased_nano:
                if self._is_over(upper_usd, until):
                    return False
                self._changed.wait(min(until - time.monotonic(), LOOKS_S))
        return True

    def _is_over(self, upper_usd: float, until: float) -> bool:
        """Return whether a call that costs at most ``upper_usd`` dollars should stop waiting for a larger lease.

        It should stop at the monotonic time ``until``, after a refusal, or if Redis does not answer.
        """
        return time.monotonic() >= until or self._was_refused(upper_usd) or self._is_alone()

    def _was_refused(self, upper_usd: float) -> bool:
        """Return whether, in the last ``REFUSED_FOR_S`` seconds, a lease was refused for a call of this or a lower cost."""
        return upper_usd >= self._refused_usd and time.monotonic() < self._refused_until

    # -- for the background thread -----------------------------------------------------------------------------

    def wanted_usd(self) -> tuple[float, float]:
        """Return the dollars that the lease lacks to cover all waiting calls, and to cover only the cheapest of them.

        Both amounts are 0 if the lease suffices. They include dollars that were spent beyond the lease, by calls that cost more
        than their maximum.
        """
        with self._lock, self._changed:
            used_usd = self.spent_usd + self.reserved_usd - self._leased_usd
            return (
                max(used_usd + math.fsum(self._waiting), 0.0) if self._waiting or used_usd > 0.0 else 0.0,
                max(used_usd + min(self._waiting, default=0.0), 0.0),
            )

    def free_usd(self) -> float:
        """Return the leased dollars that are neither spent nor reserved; negative if calls exceeded their maximum cost."""
        with self._lock:
            return self._leased_usd - self.spent_usd - self.reserved_usd

    def add_lease(self, nano_usd: int) -> None:
        """Add a lease to the account, in billionths of a dollar, and let waiting calls try again."""
        with self._changed:
            self._leased_nano += nano_usd
            self._has_answer, self._why = True, ""
            self._changed.notify_all()

    def refuse(self, why: str = "", *, is_cap: bool = False) -> None:
        """Refuse the waiting calls because no lease is available.

        Args:
            why: the reason, for error messages; may be empty if the daily cap is reached.
            is_cap: True if the daily cap is the cause although ``why`` is not empty. At the cap, only calls at least as
                expensive as the cheapest waiting call are refused; otherwise every call is.
        """
        with self._changed:
            self._has_answer = True
            self._why = why
            self._refused_usd = 0.0 if why and not is_cap else min(self._waiting, default=0.0)
            self._refused_until = time.monotonic() + REFUSED_FOR_S
            self._changed.notify_all()

    def take_back(self, most_nano: int) -> int:
        """Remove unused dollars from the lease, at most ``most_nano`` billionths of a dollar.

        Return the removed amount, in billionths of a dollar.
        """
        with self._lock, self._changed:
            free_nano = int((self._leased_usd - self.spent_usd - self.reserved_usd) * NANO) - 1  # never more than is free
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
        return needed_usd <= self.limit_usd

    def _refusal(self, upper_usd: float, left_usd: float) -> str:
        if self._was_refused(upper_usd):
            why = self._why or "other processes may hold the rest"
        elif self._is_alone():
            why = self._why_alone() or SILENT_REDIS
        else:
            why = "no answer to the wish for more came in time"
        return (
            f"the call may cost up to ${upper_usd:.6f}, and for tenant {self.tenant!r} this process has "
            f"${left_usd:.6f} left of ${self.daily_usd:g} for today ({why}): raise daily_usd, or lower the model's max_tokens"
        )
