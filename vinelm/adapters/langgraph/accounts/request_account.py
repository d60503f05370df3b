"""The payments of one request, stored with its checkpoints: a call's maximum cost before the call, the real cost after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock

from vinelm.adapters.langgraph.accounts.at_once import at_once
from vinelm.adapters.langgraph.accounts.thread_accounts import Beginning, FoundAccount, ThreadAccounts
from vinelm.errors import CallRefused
from vinelm.money.guard_pair import NOT_MADE, aauthorized
from vinelm.requests.protocols import CallGuard, CallPermit
from vinelm.rows.observation import Usage


class AccountPermit:
    """The permit for one call that a :class:`RequestAccount` has authorized, settled with the call's real cost."""

    __slots__ = ("_account", "_is_open", "_permit", "_upper_usd")

    def __init__(self, account: RequestAccount, permit: CallPermit, upper_usd: float) -> None:
        self._account, self._permit, self._upper_usd = account, permit, upper_usd
        self._is_open = True

    def settle(self, usage: Usage) -> None:
        """Replace the call's reserved maximum cost by its real cost; if that cannot be recorded, the maximum stays."""
        self._permit.settle(usage)
        if self._is_open:
            self._is_open = False
            try:
                self._account.ended(self._upper_usd, usage.cost_usd)
            except Exception as error:  # the application's checkpointer
                self._account.on_failure("the request's account", error)

    def close(self) -> None:
        """Charge the call's maximum cost unless the call was settled."""
        self._permit.close()
        self._is_open = False


class RequestAccount:
    """Authorizes the calls of one request, and stores each call's maximum cost before the call. Thread-safe.

    It is a :class:`~vinelm.requests.protocols.CallGuard`: it authorizes a call if ``guard`` does and the maximum cost could be
    stored.

    A stage that does not finish writes nothing to the graph's channels. So each call's maximum cost is stored with the thread's
    checkpoints before the call. The difference to the real cost is stored when the invocation that made the call ends. Another
    run of the same request, in this or another process, starts from the stored sum. If the process dies before the invocation
    ends, the maximum cost stays recorded.

    Calls are refused if the account cannot be read or written, because their cost could not be counted.

    Attributes:
        is_open: whether the payments of the request's earlier runs have been read.

    Args:
        guard: enforces the cap.
        accounts: the thread's accounts.
        tell: called with the dollars that the request's earlier runs have paid, if any.
        on_failure: called as ``on_failure(what, error)`` if something could not be written.
        begins: returns the position in the thread where the run begins. It is used if a tool is called before the first
            invocation has opened the account.
    """

    __slots__ = (
        "_accounts",
        "_authorized_usd",
        "_begins",
        "_begun",
        "_due_usd",
        "_found",
        "_guard",
        "_lock",
        "_recorded_usd",
        "_tell",
        "_unguarded_usd",
        "_writes",
        "is_open",
        "on_failure",
    )

    def __init__(
        self,
        guard: CallGuard,
        accounts: ThreadAccounts,
        tell: Callable[[float], None],
        on_failure: Callable[[str, BaseException], None],
        begins: Callable[[], Beginning] | None = None,
    ) -> None:
        self._begins = begins
        self._guard, self._accounts, self._tell, self.on_failure = guard, accounts, tell, on_failure
        self.is_open = False
        self._begun: Beginning | None = None
        self._found = FoundAccount("", 0.0)
        self._due_usd = 0.0  # to be written when the invocation ends
        self._authorized_usd = self._recorded_usd = self._unguarded_usd = 0.0
        self._writes: set[asyncio.Task[None]] = set()
        self._lock = Lock()

    @property
    def key(self) -> str:
        """The account's name, which is also stored in the request's path; an empty string until the account is opened."""
        return self._found.key

    async def open(self, begun: Beginning, *, is_async: bool) -> None:
        """Find the request's account, and report what the request's earlier runs have paid.

        ``begun`` is the position in the thread where this run begins. Does nothing if the account is already open. ``is_async``
        states whether the checkpointer's asynchronous methods are used.
        """
        found = await self._accounts.find(begun, is_async=is_async)
        with self._lock:
            if not self.is_open:
                if found.paid_usd > 0.0:
                    self._tell(found.paid_usd)
                self._found, self._begun, self.is_open = found, begun, True

    def authorize(self, upper_usd: float) -> AccountPermit:
        """Reserve money for a call that costs at most ``upper_usd`` dollars, and store the reservation.

        Raises:
            CallRefused: the guard does not allow the call, or the reservation cannot be stored.
        """
        if not self.is_open:
            at_once(self._open_late(is_async=False))
        # The guard first: nothing is written for a call that it refuses.
        permit = self._guard.authorize(upper_usd)
        with self._undoing(permit):
            at_once(self._reserve(upper_usd, is_async=False))
        return AccountPermit(self, permit, upper_usd)

    async def aauthorize(self, upper_usd: float) -> AccountPermit:
        """Reserve money for a call, like :meth:`authorize`, without blocking the event loop."""
        if not self.is_open:
            await self._open_late(is_async=True)
        permit = await aauthorized(self._guard, upper_usd)
        with self._undoing(permit):
            await self._reserve(upper_usd, is_async=True)
        return AccountPermit(self, permit, upper_usd)

    async def _open_late(self, *, is_async: bool) -> None:
        """Open the account for a call that is made outside any stage, before the guard authorizes the call."""
        if self._begins is not None:
            with suppress(Exception):  # it stays closed, and the call is refused
                await self.open(self._begins(), is_async=is_async)

    @contextmanager
    def _undoing(self, permit: CallPermit) -> Iterator[None]:
        """Return the reserved money to the guard if the block raises, since the call is then not made."""
        try:
            yield
        except BaseException as error:
            permit.settle(NOT_MADE)
            if isinstance(error, CallRefused) or not isinstance(error, Exception):
                raise
            self.on_failure("the request's account", error)
            raise CallRefused(
                f"the request's account could not be written to the graph's checkpointer ({type(error).__name__}): "
                "the call was not made"
            ) from error

    async def _reserve(self, upper_usd: float, *, is_async: bool) -> None:
        if not self.is_open:
            raise CallRefused(
                "what the request has paid could not be read from the graph's checkpointer: the call was not made (in an "
                "async node call the model with `await model.ainvoke(...)`)"
            )
        with self._lock:
            due_usd, self._due_usd = self._due_usd, 0.0
            self._authorized_usd += upper_usd
        try:
            # One write also stores what earlier calls really cost, so that needs no extra write while calls continue.
            await self._write(due_usd + upper_usd, due_usd, is_async=is_async)
        except BaseException:  # the call is not made: its upper bound must not be booked for a call without a permit
            with self._lock:
                self._authorized_usd -= upper_usd
            raise

    # -- what calls really cost ----------------------------------------------------------------------------------

    def ended(self, upper_usd: float, usd: float) -> None:
        """Record that an authorized call has cost ``usd`` dollars instead of its maximum ``upper_usd``.

        The checkpointer still has ``upper_usd`` until :meth:`settle` writes the difference.
        """
        with self._lock:
            self._authorized_usd += usd - upper_usd
            self._due_usd += usd - upper_usd

    def recorded(self, usd: float) -> None:
        """Record the cost of an ended invocation in dollars.

        If the recorded costs exceed the costs of the authorized calls, the difference is added to the account. It was spent by
        calls without a permit.
        """
        with self._lock:
            self._recorded_usd += usd
            unguarded_usd = self._recorded_usd - self._authorized_usd - self._unguarded_usd
            if unguarded_usd > 0.0:
                self._unguarded_usd += unguarded_usd
                self._due_usd += unguarded_usd

    @property
    def is_settled(self) -> bool:
        """Whether all costs are written to the checkpointer."""
        return not self._due_usd and not self._writes

    async def settle(self, *, is_async: bool) -> None:
        """Write the real cost of an invocation's calls to the account, after the invocation has returned or failed.

        ``is_async`` states whether the checkpointer's asynchronous methods are used.
        """
        if is_async and self._writes:
            # These first: a write that fails puts its dollars back into what is due, which is written below.
            await asyncio.gather(*self._writes, return_exceptions=True)
        with self._lock:
            due_usd, self._due_usd = self._due_usd, 0.0
        if due_usd and self.is_open:
            await self._write(due_usd, due_usd, is_async=is_async)

    async def _write(self, usd: float, due_usd: float, *, is_async: bool) -> None:
        """Add ``usd`` dollars to the stored account.

        If that fails, the next write adds ``due_usd`` dollars in addition, if they are positive.
        """
        begun = self._begun
        try:
            try:
                await self._accounts.pay(self._found, usd, begun, is_async=is_async)
            except (asyncio.InvalidStateError, NotImplementedError):
                if is_async or not self._write_later(usd, begun):
                    raise
        except BaseException:  # it may have been written: a correction that lowers the sum must not be written twice
            self._not_written(due_usd)
            raise
        self._begun = None

    def _not_written(self, usd: float) -> None:
        with self._lock:
            self._due_usd += max(usd, 0.0)

    def _write_later(self, usd: float, begun: Beginning | None) -> bool:
        """Write ``usd`` dollars in a new task on the running event loop, and return True; return False if no event loop runs.

        This is needed if synchronous code blocks the event loop, because the loop's checkpointer cannot be called from that
        code. ``begun`` is the position where the run begins; None after the run's first payment.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        task = loop.create_task(self._accounts.pay(self._found, usd, begun, is_async=True))
        # Held here, because an event loop keeps its tasks by weak references only.
        self._writes.add(task)
        task.add_done_callback(lambda task: self._wrote(task, usd))
        return True

    def _wrote(self, task: asyncio.Task[None], usd: float) -> None:
        self._writes.discard(task)
        if task.cancelled() or task.exception() is not None:
            self._not_written(usd)
