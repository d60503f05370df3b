"""The ledger of whole requests: before each call, it stores the call's maximum cost, within one budget for all requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

from vinelm.errors import BudgetExhausted, StoreError
from vinelm.profiler.execution.job import UnitBudget
from vinelm.profiler.execution.ledger import Ledger, Reservation
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.traces import ObservationStore
from vinelm.traces.served.answers import Answer
from vinelm.traces.served.served_requests import ServedRequest
from vinelm.traces.store.batches import BatchRecords
from vinelm.traces.store.group_commit import GroupCommit

Result = TypeVar("Result", ServedRequest, Answer)

AHEAD = ""
"""Placeholder for the request of an advance reservation, until the request that took it has ended."""
AHEAD_ROOM = 10
"""Nothing is reserved in advance unless this many times the bounds of all requests in progress would fit into the budget."""
_FADING = 0.99  # decay of the largest bound per request, so that one long prompt is forgotten after some hundred requests


class RequestLedger:
    """Serves requests within a budget, and stores their results with their costs. Thread-safe; one process at a time.

    Before each call, its maximum cost is reserved. If the budget has no room for this, the call waits until another request
    ends, whose real cost is usually lower than reserved.

    Args:
        store: The store; the caller holds its lock. Calls that an interrupted run left open are charged at their maximum
            cost.
        budget_usd: The maximum cost of all requests of the store, in dollars; None sets no limit.
        batches: The store's batches, if calls use them. If a request of an interrupted run is served again, it fetches the
            answers that it has paid for. The request's new ledger entry then replaces the entry that the interrupted run left
            open.
    """

    def __init__(self, store: ObservationStore, budget_usd: float | None, batches: BatchRecords | None = None) -> None:
        self._ledger = Ledger(store, ProfileLimits(budget_usd=budget_usd), batches=batches)
        self._batches = batches
        self._store = store
        self._commits = GroupCommit(store)
        self._changed = threading.Condition()
        self._under_way = self._waiting = self._ended = 0
        self._needed_usd = 0.0
        self._left: Callable[[], int] = lambda: 0
        self._spare: list[Reservation] = []
        self._usual_usd = 0.0

    @property
    def committed_usd(self) -> float:
        """Dollars spent and reserved, interrupted runs included; a call with an unknown outcome counts at its maximum cost."""
        return self._ledger.committed_usd

    @property
    def reserved_usd(self) -> float:
        """The maximum cost, in dollars, of all calls so far in the requests that are in progress.

        Money reserved in advance for requests that have not begun is not included.
        """
        return self._needed_usd

    @property
    def replaceable_usd(self) -> float:
        """Dollars charged for requests of interrupted runs, which count until these requests are served again."""
        return sum(self._ledger.replaceable.values())

    @property
    def used(self) -> float:
        """The fraction of the budget that is spent or reserved, in [0, 1]; 0 without a limit."""
        budget_usd = self._ledger.limits.budget_usd
        return 0.0 if budget_usd is None else min(self.committed_usd / max(budget_usd, 1e-300), 1.0)

    @contextmanager
    def ahead(self, left: Callable[[], int]) -> Iterator[None]:
        """Inside the block, whenever a request's answer is stored, reserve money for a later request in the same transaction.

        The reservation is a ledger entry, which the next request to begin uses for its calls. The entry gets that request's
        name when the request ends. The reserved amount is the largest recent maximum cost of a request, and is raised for a
        more expensive call. A process that dies leaves at most as many open entries as it had requests in progress.

        Args:
            left: Returns the number of requests that have not begun.
        """
        self._left = left
        try:
            yield
        finally:
            self._left = lambda: 0
            with suppress(StoreError):  # what stays open counts at its bound in the next run
                self._release()

    def paying(self, name: str, **batched: Any) -> Paying:
        """Return a new account for the request ``name``, whose calls are made in batches. The account is passed to
        :meth:`serve`.

        Such a request is served again whenever a batch has answered its calls. ``batched`` has further arguments of
        :class:`Paying`.
        """
        return Paying(self, name, is_batched=True, **batched)

    def serve(
        self,
        name: str,
        answer: Callable[[UnitBudget], Result],
        keep: Callable[[int, Result], None],
        paying: Paying | None = None,
    ) -> Result | None:
        """Serve a request, store its result and return it; None if the budget refused a call (earlier calls are still
        charged).

        Args:
            name: The request's name in the store's ledger.
            answer: Serves the request and returns its result. Before every call, it asks the given budget, which stores the
                call's maximum cost.
            keep: Writes the result, given the request's entry in the ledger, in the transaction that records the request's
                cost.
            paying: The account of a request that may be served in several attempts. If ``answer`` raises something other
                than an ``Exception``, the reservation stays for the next attempt. None makes a new account.

        Raises:
            StoreError: The store failed.
        """
        paying = paying or Paying(self, name)
        # Calls have cost more than their bounds: nothing more is bought, but paid answers are still fetched.
        if self._ledger.refusal(0.0) is not None and not paying.has_bought():
            paying.on_full()
            return None
        with self._changed:
            self._under_way += 1
        try:
            return self._served(paying, answer, keep)
        finally:
            with self._changed:
                self._needed_usd -= paying.needed_usd
                paying.needed_usd = 0.0
                self._under_way -= 1
                self._ended += 1
                self._changed.notify_all()

    def _served(
        self, paying: Paying, answer: Callable[[UnitBudget], Result], keep: Callable[[int, Result], None]
    ) -> Result | None:
        # Nothing is reserved at first: the first call asks for its bound.
        budget = UnitBudget(0.0, paying.top_up, before=partial(self._require_held, paying))
        try:
            request = answer(budget)
        except BaseException:
            budget.close()  # threads that were left behind make no more calls
            raise
        if paying.error is not None:
            raise paying.error
        is_refused = budget.was_refused
        budget.close()  # a thread that the request left behind makes no more calls
        budget.note_recorded(request.cost_usd)

        # Settled are the cost of calls, the bounds of calls still open (a thread left behind may be billed), and what was
        # bought in a batch and never asked for. Answer and price are one transaction, so that no answer is paid twice after a
        # kill.
        def settle() -> Reservation | None:
            reservation = paying.reservation or self._ledger.reserve(
                paying.name, (), 0.0, is_paid=True, is_batched=paying.is_batched
            )
            paid_usd = budget.spent_usd + budget.reserved_usd + paying.unused_usd()
            with self._ledger.settling(reservation, paid_usd, name=paying.name if paying.was_ahead else None):
                if not is_refused:
                    keep(reservation.entry, request)
                elif self._batches is not None:
                    self._batches.leave(reservation.entry)
            return self._reserved_ahead(paying)

        spare = self._commits.run(settle)
        if spare is not None:
            with self._changed:
                self._spare.append(spare)
        return None if is_refused else request

    def _require_held(self, paying: Paying) -> None:
        """Raise :class:`StoreError` if this run has lost its lock on the store, since another run may then write to the
        store.

        This is checked before a call, because a call within its reservation writes nothing to the store and would not
        notice the loss.
        """
        try:
            self._store.database.require_held()
        except StoreError as error:
            paying.error = paying.error or error
            raise

    def _reserved_ahead(self, paying: Paying) -> Reservation | None:
        """Reserve money for a later request when the request of ``paying`` ends, and return the reservation.

        Return None if no later request needs one, if the ended request made no call or used batches, or if the budget is
        nearly used up.
        """
        self._usual_usd = usual_usd = max(paying.needed_usd, _FADING * self._usual_usd)
        if paying.is_batched or not paying.needed_usd or self._left() <= len(self._spare):
            return None
        # Only with ample room: near the end of a budget, money held for a future request would keep a waiting one from ending.
        if self._ledger.refusal(AHEAD_ROOM * self._under_way * usual_usd) is not None:
            return None
        return self._ledger.reserve(AHEAD, (), usual_usd)

    def _release(self) -> bool:
        """Release all reservations for requests that have not begun; return whether there were any."""
        with self._changed:
            spare, self._spare = self._spare, []

        def settle() -> None:
            for one in spare:
                self._ledger.settle_without_row(one, 0.0)

        if spare:
            self._commits.run(settle)
        return bool(spare)

    def raised(self, paying: Paying, upper_usd: float) -> bool:
        """Reserve ``upper_usd`` dollars for a request, durably; return False if the budget has no room, even after waiting."""
        while True:
            ended = self._ended
            if self._commits.run(partial(self._raise, paying, upper_usd), is_one_statement=True):
                return True
            # Money reserved in advance belongs to no request yet, so it is given up before any request waits or is refused.
            if self._release():
                continue
            paying.on_full()
            # Bounds are several times the prices. A request that does not fit now mostly fits when another has ended, so it
            # waits; only if all wait for each other must one be refused, or they would wait for ever.
            with paying.waiting():
                if not self._waits(ended):
                    return False

    def _raise(self, paying: Paying, upper_usd: float) -> bool:
        if paying.reservation is not None:
            return self._ledger.top_up(paying.reservation, upper_usd)
        try:
            paying.reservation = self._ledger.reserve(paying.name, (), upper_usd, is_batched=paying.is_batched)
        except BudgetExhausted:
            return False
        return True

    def give_back(self, paying: Paying, owed_usd: float) -> None:
        """Lower the stored reservation of a postponed request to ``owed_usd``, to make room in the budget for other
        requests.

        ``owed_usd`` is what its calls so far have cost or may still cost, in dollars; nothing changes if less is reserved.
        """
        if paying.reservation is not None and owed_usd < paying.reservation.upper_usd:
            self._commits.run(partial(self._ledger.lower, paying.reservation, owed_usd), is_one_statement=True)
            with self._changed:
                self._ended += 1
                self._changed.notify_all()

    def taken(self) -> Reservation | None:
        """Remove and return a reservation that was made in advance for the next request; None if there is none."""
        with self._changed:
            return self._spare.pop() if self._spare else None

    def note_needed(self, paying: Paying, upper_usd: float) -> None:
        """Record the maximum cost of a request's calls, ``upper_usd`` dollars; the request may have reserved more than this."""
        with self._changed:
            self._needed_usd += max(upper_usd - paying.needed_usd, 0.0)
            paying.needed_usd = max(upper_usd, paying.needed_usd)

    def keep(self, paying: Paying) -> None:
        """Record in the store that not all calls of a request were made in batches.

        The request's cost then stays charged, because a later run cannot fetch the answers of calls that were made directly.
        """
        if paying.is_batched and paying.reservation is None:  # replaces the entry left open by an interrupted run
            self._commits.run(partial(self._raise, paying, 0.0), is_one_statement=True)
        paying.is_batched = False
        if paying.reservation is not None and self._batches is not None:
            self._commits.run(partial(self._batches.keep, paying.reservation.entry))

    def _waits(self, ended: int) -> bool:
        """Wait until more than ``ended`` requests have ended, and return True.

        If all other requests in progress are waiting, too, none of them can end: return False at once.
        """
        with self._changed:
            self._waiting += 1
            try:
                if self._waiting >= self._under_way and self._ended == ended:
                    return False
                self._changed.wait_for(lambda: self._ended != ended)
                return True
            finally:
                self._waiting -= 1


def _nothing() -> None:
    return None


class Paying:
    """The account of a request in progress: its reservation in the ledger, and any failure of the store.

    Args:
        ledger: The ledger in which the request's calls are charged.
        name: The request's name in the store's ledger.
        is_batched: Whether all calls of the request so far were made in batches (cheaper jobs of a provider), so that a later
            run can fetch them.
        on_full: Called if the budget has no room for a call, before the call waits for other requests to end. If it raises, the
            request ends.
        unused_usd: Returns the maximum cost, in dollars, of the calls that were bought for the request but not used.
        has_bought: Returns whether calls were already bought for the request. Such a request runs even if the budget is
            exceeded, to fetch their answers.
        waiting: A context that is entered while the request waits for room in the budget.
    """

    def __init__(
        self,
        ledger: RequestLedger,
        name: str,
        *,
        is_batched: bool = False,
        on_full: Callable[[], None] = _nothing,
        unused_usd: Callable[[], float] = lambda: 0.0,
        has_bought: Callable[[], bool] = lambda: False,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._ledger, self.name, self.is_batched = ledger, name, is_batched
        self.on_full, self.unused_usd, self.has_bought, self.waiting = on_full, unused_usd, has_bought, waiting
        self.reservation: Reservation | None = None
        self.was_ahead = False
        self.needed_usd = 0.0
        self.error: StoreError | None = None

    def top_up(self, upper_usd: float) -> bool:
        """Raise the request's reservation to ``upper_usd`` dollars; return whether the budget allows it.

        A failure of the store is raised at once, by every later call of this method, and again when the request ends.
        """
        if self.error is not None:  # the state in memory may not be in the store
            raise self.error
        if self.reservation is None and not self.is_batched:
            self.reservation = self._ledger.taken()
            self.was_ahead = self.reservation is not None
        upper_usd += self.unused_usd()  # calls that were bought but not (yet) asked for are paid as well
        # The earlier reservation, or the one made in advance.
        if self.reservation is None or upper_usd > self.reservation.upper_usd:
            try:
                if not self._ledger.raised(self, upper_usd):
                    return False
            except StoreError as error:
                self.error = error
                raise
        self._ledger.note_needed(self, upper_usd)
        return True
