"""A fallback for a spending guard. If the guard fails, a separate account enforces the cap, so that calls can continue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from vinelm.errors import CallRefused
from vinelm.money.guard_pair import GuardPair, aauthorized
from vinelm.requests.protocols import CallGuard, CallPermit
from vinelm.rows.observation import Usage


class BoundPermit:
    """The permit of one call that a :class:`BoundGuard` has authorized; see :class:`vinelm.requests.protocols.CallPermit`."""

    __slots__ = ("_guard", "_permit", "upper_usd")

    def __init__(self, guard: BoundGuard, permit: CallPermit | None, upper_usd: float) -> None:
        self._guard, self._permit, self.upper_usd = guard, permit, upper_usd

    def settle(self, usage: Usage) -> None:
        """Replace the reservation by the real cost. If that fails, the call stays charged at its maximum cost."""
        self._guard._settle(self, usage)

    def close(self) -> None:
        """Charge the call's maximum cost, unless the call is already settled."""
        self._guard._settle(self, None)

    def __enter__(self) -> BoundPermit:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class BoundGuard:
    """Authorizes calls by ``guard`` until the guard fails, and from then on by an account of the spending that this
    object keeps.

    A :class:`~vinelm.requests.protocols.CallGuard`. The account counts every call that this object has authorized, at
    its maximum cost until it is settled. After the guard's first failure only the account decides, so the cap still
    holds. If the limit or earlier spending is unknown, every further call is refused. Thread-safe.

    Args:
        guard: the guard; None if it could not be created.
        limit_usd: the cap in dollars; None if it is unknown.
        on_failure: called as ``on_failure(what, error)`` when the guard fails; ``what`` names the guard's method that
            failed.
    """

    __slots__ = ("_guard", "_limit_usd", "_lock", "_on_failure", "_open", "_used_usd")

    def __init__(
        self, guard: CallGuard | None, limit_usd: float | None, on_failure: Callable[[str, BaseException], None]
    ) -> None:
        self._guard, self._limit_usd, self._on_failure = guard, limit_usd, on_failure
        self._used_usd = 0.0
        self._open: set[BoundPermit] = set()
        self._lock = Lock()

    def authorize(self, upper_usd: float) -> BoundPermit:
        """Reserve ``upper_usd`` dollars, the maximum cost of a call, and return the call's permit.

        Raises:
            CallRefused: the limit does not allow the call, or can no longer be checked; the call must not be made.
        """
        permit: CallPermit | None = None
        if self._guard is not None:
            with self._surviving("guard.authorize", may_refuse=True):
                permit = self._guard.authorize(upper_usd)
        return self._own(permit, upper_usd)

    async def aauthorize(self, upper_usd: float) -> BoundPermit:
        """Do the same as :meth:`authorize`, without blocking the event loop while the guard waits."""
        permit: CallPermit | None = None
        if self._guard is not None:
            with self._surviving("guard.authorize", may_refuse=True):
                permit = await aauthorized(self._guard, upper_usd)
        return self._own(permit, upper_usd)

    @contextmanager
    def _surviving(self, what: str, *, may_refuse: bool) -> Iterator[None]:
        """If the guard fails inside the ``with`` block, stop using it: from then on only this object's account decides.

        Args:
            what: The name of the guard's method, for ``on_failure``.
            may_refuse: Whether the guard may refuse the call. If so, its :class:`CallRefused` is raised; otherwise this error
                counts as a failure of the guard.
        """
        try:
            yield
        except Exception as error:  # the guard may be the application's
            if may_refuse and isinstance(error, CallRefused):
                raise
            self._guard = None
            self._on_failure(what, error)

    def _own(self, permit: CallPermit | None, upper_usd: float) -> BoundPermit:
        """Count a call at its maximum cost in this object's account, and return the call's permit.

        ``permit`` is the guard's permit. None means that there is no working guard; then :class:`CallRefused` is raised
        if the call does not fit into the limit.
        """
        with self._lock:
            if permit is None:
                self._check(upper_usd)
            self._used_usd += upper_usd
            own = BoundPermit(self, permit, upper_usd)
            self._open.add(own)
        return own

    def add_inherited(self, usd: float | None) -> None:
        """Add to the account the dollars that another process has spent on the request. None means that they are
        unknown: if the guard fails, calls are then refused.
        """
        with self._lock:
            if usd is None:
                self._limit_usd = None
            else:
                self._used_usd += usd

    def count_up_to(self, usd: float) -> None:
        """Raise the account's total to at least ``usd`` dollars, which the request is known to have spent so far."""
        with self._lock:
            self._used_usd = max(self._used_usd, usd)

    def _check(self, upper_usd: float) -> None:
        if self._limit_usd is None:
            raise CallRefused("the request's cost cap cannot be checked after a failure of its account: the call was not made")
        left_usd = self._limit_usd - self._used_usd
        if not upper_usd <= left_usd:
            raise CallRefused(
                f"the call may cost up to ${upper_usd:.6f}, and ${max(left_usd, 0.0):.6f} is left of the request's "
                f"${self._limit_usd:g}: raise max_cost_usd, or lower the model's max_tokens"
            )

    def _settle(self, permit: BoundPermit, usage: Usage | None) -> None:
        with self._lock:
            if permit not in self._open:
                return
            self._open.remove(permit)
            if usage is not None:
                self._used_usd += usage.cost_usd - permit.upper_usd
        inner = permit._permit
        if inner is None:
            return
        with self._surviving("guard.settle", may_refuse=False):
            if usage is None:
                inner.close()
            else:
                inner.settle(usage)


def with_account(
    guard: CallGuard | None, account: CallGuard | None, note: Callable[[str, BaseException], None] | None
) -> CallGuard | None:
    """Return a guard that authorizes a call only if both the shared account and the run's own guard do; None if both
    are None.

    If the account fails, the run's further calls are refused, because only the account knows the spending of other
    requests.

    Args:
        guard: the run's own guard; None without one.
        account: the account that several requests share; None without one.
        note: called as ``note(what, error)`` when a guard fails, with the failed method's name and the error. If None,
            the error is raised instead.
    """
    if account is None:
        return guard
    both = account if guard is None else GuardPair(account, guard)
    return both if note is None else BoundGuard(both, None, note)
