"""A spending limit that is enforced for each call.

The call's maximum cost is reserved before the call, and replaced by the real cost afterwards.
"""

from __future__ import annotations

import math
import os
from contextvars import ContextVar
from threading import Lock

from vinelm.errors import CallRefused
from vinelm.rows.observation import Usage

IN_FORK = (
    "a call in a process that was forked while its request ran cannot be counted under the request's cost cap: make it in the "
    "request's own process, in a thread that is run as contextvars.copy_context().run(function, ...)"
)
OWED: ContextVar[bool] = ContextVar("vinelm_owed", default=False)
"""True while authorizing a call that has been bought before: its answer is only fetched, so a limit would save no money."""


class SpendPermit:
    """The permit of one call that a :class:`SpendGuard` has authorized. It is settled or closed once; see
    :class:`vinelm.requests.protocols.CallPermit`.

    It can be used in a ``with`` statement, which closes the permit at the end of the block.
    """

    __slots__ = ("_guard", "upper_usd")

    def __init__(self, guard: SpendGuard, upper_usd: float) -> None:
        self._guard = guard
        self.upper_usd = upper_usd

    def settle(self, usage: Usage) -> None:
        """Replace the reservation by the real cost. Has no effect if the call is already settled."""
        self._guard._settle(self, usage)

    def close(self) -> None:
        """Charge the call's maximum cost, because its real cost is unknown. Has no effect if the call is already
        settled.
        """
        self._guard._settle(self, None)

    def __enter__(self) -> SpendPermit:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class SpendGuard:
    """Authorizes calls within a spending limit in dollars; a :class:`vinelm.requests.protocols.CallGuard`. Thread-safe.

    A call is authorized only if everything spent, everything reserved for calls in flight and the call's own maximum
    cost together stay within the limit. So the limit is exceeded only if a call costs more than its stated maximum.
    Spending is what others spent before (:meth:`add_inherited`) plus what was spent under this guard. The second part
    is the cost of the settled calls or the recorded total (:meth:`note_recorded`), whichever is larger, because a
    backend may make calls without asking the guard.

    Args:
        limit_usd: the spending limit in dollars, at least 0.
    """

    def __init__(self, limit_usd: float) -> None:
        self.limit_usd = limit_usd
        self.calls = 0
        """Number of settled calls."""
        self.settled_usd = 0.0
        """Dollars of the settled calls."""
        self._inherited_usd = 0.0
        self._recorded_usd = 0.0
        self._open: set[SpendPermit] = set()
        self._refusals: list[str] = []
        self._lock = Lock()
        self._pid = os.getpid()

    @property
    def spent_usd(self) -> float:
        """The dollars spent so far, under this guard and earlier by others; reservations are not included."""
        return self._inherited_usd + max(self.settled_usd, self._recorded_usd)

    @property
    def left_usd(self) -> float:
        """Dollars that are neither spent nor reserved, at least 0."""
        with self._lock:
            return max(self.limit_usd - self.spent_usd - self.reserved_usd, 0.0)

    @property
    def reserved_usd(self) -> float:
        """The maximum cost of the calls in flight in dollars."""
        return math.fsum(permit.upper_usd for permit in self._open)

    def authorize(self, upper_usd: float) -> SpendPermit:
        """Reserve ``upper_usd`` dollars, the maximum cost of a call, and return the call's permit.

        A call that an earlier run has paid for already is never refused for its cost (:data:`OWED`).

        Raises:
            CallRefused: the limit does not allow the call, so it must not be made. Also raised in a process forked from
                the one that created this guard, since each fork could spend the whole limit again.
        """
        if os.getpid() != self._pid:  # before taking the lock, which another thread may have held during the fork
            raise CallRefused(IN_FORK)
        with self._lock:
            used_usd = self.spent_usd + self.reserved_usd
            is_within = OWED.get() or upper_usd <= self.limit_usd - used_usd
            if not is_within and not self._raise_limit(used_usd + upper_usd):
                line = self._refusal(upper_usd, max(self.limit_usd - used_usd, 0.0))
                self._refusals.append(line)
                raise CallRefused(line)
            permit = SpendPermit(self, upper_usd)
            self._open.add(permit)
            try:
                self._reservation_changed()
            except BaseException:  # nobody receives the permit
                self._open.remove(permit)
                raise
            return permit

    def add_inherited(self, usd: float) -> None:
        """Count against the limit ``usd`` dollars that others, such as another process, have already spent."""
        with self._lock:
            self._inherited_usd += usd

    def charge(self, usage: Usage) -> None:
        """Add the cost of a call that a backend made without a permit."""
        with self._lock:
            self._count(usage.cost_usd)

    def note_recorded(self, total_usd: float) -> None:
        """Raise the dollars spent under this guard to at least ``total_usd``, the recorded cost of all its calls so
        far.

        Calls that a backend made without a permit are thus counted, too.
        """
        with self._lock:
            self._recorded_usd = max(self._recorded_usd, total_usd)

    def take_refusals(self) -> list[str]:
        """Return one line for each call that was refused since the last call of this method, with the reason."""
        if not self._refusals:
            return []
        with self._lock:
            taken, self._refusals = self._refusals, []
        return taken

    def _settle(self, permit: SpendPermit, usage: Usage | None) -> None:
        with self._lock:
            if permit not in self._open:
                return
            self._count(permit.upper_usd if usage is None else usage.cost_usd)
            self._open.remove(permit)  # last, so that the reservation stays if counting fails
            self._reservation_changed()

    def _count(self, cost_usd: float) -> None:
        self.settled_usd += cost_usd
        self.calls += 1
        self._settled(cost_usd)

    # -- for budgets that can grow, and for their observers; called with the lock held ----------------------------

    def _raise_limit(self, needed_usd: float) -> bool:
        """Return False, because this limit is fixed. A subclass may raise ``limit_usd`` so that ``needed_usd`` fits, and return
        True.
        """
        return False

    def _refusal(self, upper_usd: float, left_usd: float) -> str:
        """Return the message for a refused call, in one line."""
        return (
            f"the call may cost up to ${upper_usd:.6f}, and ${left_usd:.6f} is left of the request's ${self.limit_usd:g}: "
            "raise max_cost_usd, or lower the model's max_tokens"
        )

    def _settled(self, cost_usd: float) -> None:
        """Do nothing. Subclasses override this hook, which is called with the cost of a call in dollars when the call
        is settled.
        """

    def _reservation_changed(self) -> None:
        """Do nothing. Subclasses override this hook, which is called when ``reserved_usd`` has changed."""
