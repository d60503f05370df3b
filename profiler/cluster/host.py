"""Runs on a cluster node: executes jobs in forked processes, or serves requests on threads.

It asks the run's process to reserve money and to admit calls under the rate limits.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, SupportsFloat

from vinelm.errors import ConfigError
from vinelm.io.operating_system import can_fork
from vinelm.profiler.cluster.messages import (
    Admitted,
    Asked,
    FromHost,
    Granted,
    HostSetup,
    Left,
    NodeProblem,
    RequestJob,
    RunUnit,
    ToHost,
    UnitEnded,
    Waiting,
)
from vinelm.profiler.execution.job import Job, UnitSetup
from vinelm.profiler.isolation.process_worker import ProcessWorker
from vinelm.threads import started
from vinelm.version import __version__

_LOOK_S = 0.25  # how often a waiting attempt checks whether its unit still exists
_GLANCE_S = 0.001

WorkerMaker = Callable[[HostSetup, Mapping[str, "AskingRateLimiter"]], Any]
"""Makes a :class:`~vinelm.profiler.execution.job.Worker`, or one whose jobs are whole requests."""


class UnitHost:
    """Executes the jobs that a run, on another machine, sends to this cluster node.

    :meth:`send` takes the messages of the run's process, and :meth:`poll` returns the messages for it.

    Args:
        make_worker: makes the worker that executes jobs; default: :func:`worker_of`.

    Raises:
        ConfigError: this node has a different version of VineLM than the run, lacks the run's folder, or cannot fork processes.
        WorkflowError: the workflow does not load here, or differs from the run's workflow.
    """

    def __init__(self, setup: HostSetup, make_worker: WorkerMaker | None = None) -> None:
        require_version(setup.version)
        self._out: queue.SimpleQueue[FromHost] = queue.SimpleQueue()
        self._answers: dict[int, queue.SimpleQueue[bool]] = {}
        self._attempts: dict[int, AskedPermit] = {}
        self._numbers = count()
        limiters = {model: AskingRateLimiter(self, model) for model in setup.limited}
        self._worker = _lasting(lambda: (make_worker or worker_of)(setup, limiters))

    def send(self, message: ToHost) -> None:
        """Handle a message from the run's process."""
        match message:
            case RunUnit(unit, job):
                self._answers[unit] = queue.SimpleQueue()
                started(partial(self._run, unit, job), f"vinelm unit {unit}")
            case Granted(unit, is_granted):
                answers = self._answers.get(unit)
                if answers is not None:  # otherwise its time ran out while it waited
                    answers.put(is_granted)
            case Admitted(attempt, replica):
                permit = self._attempts.get(attempt)
                if permit is not None:
                    permit.replica = replica
                    permit.admitted.set()

    def poll(self, wait_s: float) -> tuple[FromHost, ...]:
        """Return the messages that wait to be sent to the run, in order; empty if none comes within ``wait_s`` seconds."""
        messages: list[FromHost] = []
        with suppress(queue.Empty):
            messages.append(self._out.get(timeout=wait_s))
            while True:
                messages.append(self._out.get_nowait())
        return tuple(messages)

    def close(self) -> None:
        """Kill the jobs that run on this node."""
        self._worker.close()

    def _run(self, unit: int, job: Job | RequestJob) -> None:
        answers = self._answers[unit]

        def top_up(upper_usd: float) -> bool:
            self._out.put(Asked(unit, upper_usd))
            return answers.get()

        try:
            ended = UnitEnded(unit, self._worker.run(job, top_up))
        except BaseException as error:
            ended = UnitEnded(unit, None, NodeProblem.of(error))
        del self._answers[unit]
        self._out.put(ended)

    def ask(self, model: str, tokens: int) -> AskedPermit:
        """Ask the run's process to admit an attempt at a call of ``model``, without waiting; return the attempt's permit.

        The permit is not valid until the run's process has set its ``admitted``. ``tokens`` is the number of tokens that the
        attempt may use.
        """
        permit = AskedPermit(next(self._numbers))
        # Before the run hears of it, since the answer may come at once.
        self._attempts[permit.attempt] = permit
        self._out.put(Waiting(permit.attempt, model, tokens))
        return permit

    def leave(self, permit: AskedPermit) -> None:
        """Report to the run that the attempt of ``permit`` is over, and how many tokens the attempt used."""
        del self._attempts[permit.attempt]
        self._out.put(Left(permit.attempt, permit.used))


@dataclass(slots=True, eq=False)
class AskedPermit:
    """An attempt at a call that waits until the run's process admits it; see :class:`~vinelm.requests.protocols.RatePermit`.

    Attributes:
        attempt: the attempt's number on this host.
        replica: the index of the replica that serves the attempt; 0 without replicas.
        used: the tokens that the attempt used; None if unknown.
        admitted: set once the run has admitted the attempt.
    """

    attempt: int
    replica: int = 0
    used: int | None = None
    admitted: threading.Event = field(default_factory=threading.Event)

    def settle(self, tokens: int) -> None:
        """Record the tokens that the attempt used."""
        self.used = tokens


@dataclass(frozen=True, slots=True)
class AskingRateLimiter:
    """The rate limits of one model, on a host: asks the run's process, which enforces them."""

    host: UnitHost
    model: str

    @contextmanager
    def admit(self, tokens: int, sleep: Callable[[float], None], priority: SupportsFloat = 0.0) -> Iterator[AskedPermit]:
        """Wait until the run admits an attempt at a call that may use ``tokens`` tokens, and yield the attempt.

        When the caller's ``with`` block ends, this is reported to the run. ``sleep`` raises an error if the job has been ended.
        ``priority`` is ignored.
        """
        permit = self.host.ask(self.model, tokens)
        try:
            while not permit.admitted.wait(_LOOK_S):
                sleep(_GLANCE_S)
            yield permit
        finally:
            self.host.leave(permit)

    @asynccontextmanager
    async def aadmit(
        self, tokens: int, sleep: Callable[[float], Awaitable[None]], priority: SupportsFloat = 0.0
    ) -> AsyncIterator[AskedPermit]:
        """Wait until the run admits an attempt and yield the attempt, as :meth:`admit` does, but in a coroutine."""
        permit = self.host.ask(self.model, tokens)
        try:
            while not await asyncio.to_thread(permit.admitted.wait, _LOOK_S):
                await sleep(_GLANCE_S)
            yield permit
        finally:
            self.host.leave(permit)


def require_version(version: str) -> None:
    """Raise unless ``version``, the VineLM version of the run's process, is the version installed on this node.

    Raises:
        ConfigError: the versions differ (code ``node-version``).
    """
    if version != __version__:
        raise ConfigError(
            f"VineLM {__version__} is installed there, and {version} here: install the same version", code="node-version"
        )


def worker_of(setup: HostSetup, rate_limiters: Mapping[str, AskingRateLimiter]) -> Any:
    """Change to the run's folder, add the run's module path, and return the object that executes this host's work.

    The object is a worker that executes each job in a forked process. If ``setup.units`` is a function, the object is what this
    function returns: a server of whole requests.

    Raises:
        ConfigError: the folder is missing (``node-folder``), or this system cannot fork processes for jobs.
        WorkflowError: the workflow does not load, or differs from the run's workflow.
    """
    if isinstance(setup.units, UnitSetup) and not can_fork():
        raise ConfigError("that system cannot fork processes, which units on a cluster need: use nodes with Linux")
    if setup.folder is not None:
        if not os.path.isdir(setup.folder):
            raise ConfigError(f"there is no folder {setup.folder}, from which the run was started", code="node-folder")
        os.chdir(setup.folder)
        sys.path.extend(place for place in setup.path if place not in sys.path and os.path.exists(place))
    if isinstance(setup.units, UnitSetup):
        return ProcessWorker(setup.units, rate_limiters)
    return setup.units(rate_limiters)


def _lasting(make: Callable[[], Any]) -> Any:
    """Call ``make`` on a thread that never ends, and return the result; if ``make`` raises an error, raise this error.

    The thread is permanent because the kernel kills a child process when the thread that started it ends.
    """
    made: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        try:
            made.put(make())
        except BaseException as error:
            made.put(error)
        else:
            threading.Event().wait()

    started(run, "vinelm host")
    found = made.get()
    if isinstance(found, BaseException):
        raise found
    return found
