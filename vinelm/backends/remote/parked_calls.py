"""Runs of requests that do not block while they wait for batches.

A run ends at a call without an answer, and the request runs again from its start once the answer is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from vinelm.backends.remote.batches import BatchedUnit, BatchGate


class CallParked(BaseException):
    """Ends a run because one of its calls waits for a batch. Not an ``Exception``, so that the application does not
    catch it.
    """


def _nothing(usd: float) -> None:
    return None


@dataclass(eq=False)
class ParkedUnit(BatchedUnit):
    """A request that runs again from its start whenever a batch has answered one of its calls. Calls answered before get their
    stored answers.

    A call is made directly, at the ordinary price, if its batch failed to answer it, or if there is no time for another batch.
    From then on the request uses no new batch: after a batch the request runs again, and would pay for the direct call again.

    Attributes:
        may_wait: returns whether a new call may go in a batch.
        on_at_once: called before the request's first direct call. It may wait for the lock of the ledger (the record of spent
            money) without a deadlock.
        on_lost: called with a call's maximum cost in dollars, if a batch has lost the call's answer.
        is_at_once: whether calls are made directly from now on.
        halted: the exception that ended the current run, kept here because the application or LangChain's ``ainvoke`` may raise
            another exception in its place; None if nothing has ended the run.
        bought: digests of calls that earlier processes have paid for.
        side_by_side: number of stages that may run in parallel; their calls come in any order.
    """

    may_wait: Callable[[], bool] = lambda: True
    on_at_once: Callable[[], None] = lambda: None
    on_lost: Callable[[float], None] = _nothing
    is_at_once: bool = False
    bought: frozenset[str] = frozenset()
    side_by_side: int = 1
    halted: BaseException | None = None
    _decision: Lock = field(default_factory=Lock)

    def begin(self, on_lost: Callable[[float], None]) -> None:
        """Prepare the next run of the request. ``on_lost`` is called for each answer that a batch has lost."""
        self.on_lost, self.halted = on_lost, None
        self._times.clear()
        self.asked.clear()

    def halt(self, why: BaseException) -> BaseException:
        """Record ``why`` as the exception that ends the current run, and return it, so that the caller can raise it."""
        self.halted = why
        return why

    @property
    def pending(self) -> list[Future[Mapping[str, Any]]]:
        """The futures of the request's calls that have no answer yet."""
        return [future for future in list(self.futures.values()) if not future.done()]

    def answer(self, future: Future[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the provider's answer. Raises :class:`CallParked` if a batch has not answered yet."""
        self._park(future)
        return super().answer(future)

    async def aanswer(self, future: Future[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the provider's answer, like :meth:`answer`, without blocking the event loop."""
        self._park(future)
        return await super().aanswer(future)

    def _park(self, future: Future[Mapping[str, Any]]) -> None:
        with self._decision:
            if not (future.done() or self.is_at_once):
                raise self.halt(CallParked())

    def leave_batches(self) -> None:
        """Make every new call of the request directly from now on.

        Raises :class:`CallParked`, and changes nothing, while an earlier call waits for its batch.
        """
        with self._decision:
            self._leave()

    def _leave(self) -> None:
        if self.is_at_once:
            return
        if self.pending:
            raise self.halt(CallParked())
        self.on_at_once()
        self.is_at_once = True

    def goes_at_once(self, gate: BatchGate, digest: str, upper_usd: Callable[[], float]) -> bool:
        """Return True if the call is to be made directly, False if its answer is stored or it should wait for a batch.

        A call is made directly if its batch failed to answer it, or if it has no batch yet and may not wait for one.

        Args:
            gate: the queue in which the call would otherwise wait.
            digest: the call's digest.
            upper_usd: returns the call's maximum cost in a batch, in dollars.
        """
        future = self.futures.get(digest)
        if future is not None:
            is_known, answer = True, future.result() if future.done() else None
        else:
            is_known, answer = gate.find(digest)
        with self._decision:
            if answer is None and (is_known or not (self.is_at_once or self._has_drifted() or not self.may_wait())):
                return False
            if answer is not None and "failure" not in answer:
                return False
            self._leave()
            if answer is not None and answer["may_be_billed"]:
                self.on_lost(upper_usd())
            return True

    def _has_drifted(self) -> bool:
        """Return whether this run makes other calls than earlier runs of the request. If so, each further run would make new
        calls and pay for them.
        """
        return len((self.bought | self.futures.keys()) - self.asked) >= self.side_by_side
