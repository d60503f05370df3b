"""Shares answers of equal calls between child processes: the parent has the stored answers and knows the calls in flight.

A child sends a call's digest and gets the stored answer, or none. If there is none, the child makes the call and sends the
answer on the same socket. If the child dies before that, the next child makes the call.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from typing import Any

from vinelm.backends.remote.equal_calls import EqualCalls, NothingKept
from vinelm.profiler.isolation.child_requests import ChildRequests, requested
from vinelm.profiler.isolation.framing import receive, send
from vinelm.threads import started


class EqualCallsProxy(ChildRequests):
    """The parent's side of the shared cache of equal calls.

    Args:
        equal: the stored answers and the calls in flight.
        waiting: called with the number of a job; returns a context manager that is entered while a call of this job waits for
            an equal call.
    """

    def __init__(self, equal: EqualCalls, waiting: Callable[[int], AbstractContextManager[None]]) -> None:
        self._equal, self._waiting = equal, waiting
        super().__init__(self._asked, "equal call")

    def _asked(self, channel: socket.socket, request: Mapping[str, Any]) -> None:
        digest = request["digest"]
        with channel, suppress(OSError):
            if "leads" not in request:
                send(channel, {"is_recorded": self._equal.is_recorded(digest)})
                return
            with self._waiting(int(request["unit"])):
                said = self._equal.ask(digest, leads=request["leads"]).result()
            if said is not None or not request["leads"]:
                send(channel, {"said": said})
                return
            told = None
            try:
                send(channel, {"said": None})
                told = receive(channel)
            finally:  # also if the child is gone, or has sent part of it
                self._equal.end(digest, None if told is None else told[0]["said"])
            send(channel, {})  # it is durable


class ProxiedEqualCalls(EqualCalls):
    """The child's side of the shared cache of equal calls, for one job.

    Args:
        theirs: the parent's socket for requests.
        unit: the job's number.
        deterministic: see :class:`EqualCalls`.
        has_recorded: see :class:`EqualCalls`.
    """

    def __init__(self, theirs: socket.socket, unit: int, deterministic: Collection[str], *, has_recorded: bool) -> None:
        super().__init__(NothingKept(), deterministic, has_recorded=has_recorded)
        self._theirs, self._unit = theirs, unit
        self._led: dict[str, socket.socket] = {}

    def is_recorded(self, digest: str) -> bool:
        """Ask the parent whether the call with this digest has a recorded answer, and return the reply.

        The parent also counts for how many calls its reply is True.
        """
        with requested(self._theirs, {"digest": digest}) as channel:
            answer = receive(channel)
        return answer is not None and bool(answer[0]["is_recorded"])

    def ask(self, digest: str, *, leads: bool) -> Future[str | None]:
        """Ask the parent for its stored answer to the call with this digest; return a future of the answer.

        The answer is None if the parent has none. If ``leads`` is true, the caller must then make the call on behalf of all
        equal calls, and :meth:`end` it. See :meth:`EqualCalls.ask`.
        """
        future: Future[str | None] = Future()
        channel = requested(self._theirs, {"unit": self._unit, "digest": digest, "leads": leads})

        def wait() -> None:
            answer = receive(channel)
            said = None if answer is None else answer[0]["said"]
            if leads and answer is not None and said is None and future.set_running_or_notify_cancel():
                self._led[digest] = channel
                future.set_result(None)
                return
            channel.close()
            if not future.cancelled():
                future.set_result(said)

        started(wait, "vinelm equal call")
        return future

    def end(self, digest: str, said: str | None) -> None:
        """End a call that this job made on behalf of all equal calls: send its answer ``said`` to the parent.

        If ``said`` is None, the call has failed and nothing is sent.
        """
        channel = self._led.pop(digest, None)
        if channel is None:  # the parent was gone
            return
        with channel, suppress(OSError):
            if said is not None:
                send(channel, {"said": said})
                receive(channel)  # it is durable before the call's price is settled
