"""Two spending guards for the same calls: the request's own cap, and an account that several requests share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from vinelm.requests.protocols import CallGuard, CallPermit
from vinelm.rows.observation import Usage

NOT_MADE = Usage(model="", cost_usd=0.0, latency_s=0.0)
"""Usage of a call that was not made: settling with it gives the reservation back."""


async def aauthorized(guard: CallGuard, upper_usd: float) -> CallPermit:
    """Reserve ``upper_usd`` dollars, the maximum cost of a call, with ``guard``, and return the permit. Does not block the
    event loop if the guard supports that.

    Raises:
        CallRefused: the guard does not allow the call, so the call must not be made.
    """
    ask: Callable[[float], Awaitable[CallPermit]] | None = getattr(guard, "aauthorize", None)
    return guard.authorize(upper_usd) if ask is None else await ask(upper_usd)


class PairPermit:
    """The permit of one call that both guards of a :class:`GuardPair` have authorized; see
    :class:`vinelm.requests.protocols.CallPermit`.
    """

    __slots__ = ("_permits",)

    def __init__(self, first: CallPermit, second: CallPermit) -> None:
        self._permits = first, second

    def settle(self, usage: Usage) -> None:
        """Replace the reservations of both guards by the real cost. The second is replaced even if the first fails."""
        first, second = self._permits
        try:
            first.settle(usage)
        finally:
            second.settle(usage)

    def close(self) -> None:
        """Charge the call's maximum cost to both guards, unless the call is already settled."""
        first, second = self._permits
        try:
            first.close()
        finally:
            second.close()


class GuardPair:
    """Authorizes a call only if two guards both do; a :class:`vinelm.requests.protocols.CallGuard`. Thread-safe if the
    two guards are.

    Args:
        account: the guard that is asked first.
        guard: the guard that is asked second. If it refuses, the reservation in ``account`` is cancelled.
    """

    __slots__ = ("_account", "_guard")

    def __init__(self, account: CallGuard, guard: CallGuard) -> None:
        self._account, self._guard = account, guard

    def authorize(self, upper_usd: float) -> PairPermit:
        """Reserve ``upper_usd`` dollars, the call's maximum cost, with both guards, and return the call's permit.

        Raises:
            CallRefused: one of the guards does not allow the call.
        """
        first = self._account.authorize(upper_usd)
        with _undoing(first):
            second = self._guard.authorize(upper_usd)
            with _undoing(second):
                return PairPermit(first, second)

    async def aauthorize(self, upper_usd: float) -> PairPermit:
        """Do the same as :meth:`authorize`, without blocking the event loop."""
        first = await aauthorized(self._account, upper_usd)
        with _undoing(first):
            second = await aauthorized(self._guard, upper_usd)
            with _undoing(second):
                return PairPermit(first, second)


@contextmanager
def _undoing(permit: CallPermit) -> Iterator[None]:
    """If the ``with`` block fails, cancel the reservation that ``permit`` stands for, because the call is then not
    made.
    """
    try:
        yield
    except BaseException:
        permit.settle(NOT_MADE)
        raise
