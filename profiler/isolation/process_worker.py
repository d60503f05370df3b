"""Runs each job in a new process: even a crash of the workflow's code becomes a result and does not affect other jobs.

One fork server (:mod:`vinelm.profiler.isolation.fork_server`) imports everything and builds the graph once. Each job is a fork
of this server, with a separate process group, memory limit and output file. A job that takes too long is sent SIGTERM, then
SIGKILL.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import IO, Any

from vinelm.backends.remote.equal_calls import EqualCalls
from vinelm.errors import FailureKind, WorkerDied, WorkflowError
from vinelm.io.operating_system import ENDING
from vinelm.profiler.execution.job import Job, TopUp, UnitOutcome, UnitSetup, WorkflowSource
from vinelm.profiler.isolation.child_process import Child, describe_exit, last_lines
from vinelm.profiler.isolation.child_requests import ChildRequests
from vinelm.profiler.isolation.equal_calls_proxy import EqualCallsProxy
from vinelm.profiler.isolation.framing import receive, send
from vinelm.profiler.isolation.rate_limit_proxy import AdmitsAttempts, RateLimitProxy
from vinelm.rows.observation import Observation
from vinelm.threads import started

_GRACE_S = 2.0
_ATTEMPTS = 2
_FOREIGN = frozenset(-number for number in (signal.SIGKILL, *ENDING))
"""Exit codes of a process that something else killed; a crash ends with other signals."""


@dataclass(frozen=True, slots=True)
class _Killed:
    """The outcome (``row``) of a job whose process was killed from outside, so that the job may be run once more."""

    row: UnitOutcome


class ProcessWorker:
    """A :class:`~vinelm.profiler.execution.job.Worker`. Starts the fork server at once; :meth:`close` ends it and its children.

    Args:
        setup: how the fork server builds the workflow, and the limits of each job.
        rate_limiters: the rate limits by model. Children do not see each other's calls, so calls wait for the limits in this
            process (:mod:`vinelm.profiler.isolation.rate_limit_proxy`).
        equal: the cache for equal calls of all children (:mod:`vinelm.profiler.isolation.equal_calls_proxy`); None calls the
            model every time.

    Raises:
        WorkflowError: the workflow does not load in a new process, or differs there.
    """

    def __init__(self, setup: UnitSetup, rate_limiters: Mapping[str, AdmitsAttempts], equal: EqualCalls | None = None) -> None:
        self._setup = setup
        self._limited = sorted(rate_limiters)
        self._lock = threading.Lock()
        self._numbers = count()
        self._units: dict[int, Child] = {}
        self._is_closed = self._is_server_gone = False
        self._equal = equal
        self._proxies: list[ChildRequests] = [RateLimitProxy(rate_limiters, self._waiting)]
        if equal is not None:
            self._proxies.append(EqualCallsProxy(equal, self._waiting))
        self._control, theirs = socket.socketpair()
        with theirs:
            descriptors = [theirs.fileno(), *(proxy.theirs.fileno() for proxy in self._proxies)]
            command = [sys.executable, "-m", "vinelm.profiler.isolation.fork_server", *map(str, descriptors)]
            nothing = subprocess.DEVNULL
            # Threads do not survive a fork, and the units share the cores anyway.
            one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            # In a separate session, so that Ctrl-C reaches only this process, which decides what happens to the units.
            self._process = subprocess.Popen(
                command, pass_fds=descriptors, stdin=nothing, stdout=nothing, start_new_session=True, env=one_thread
            )
        try:
            self._load(setup.source, setup.fingerprint)
        except BaseException:
            self.close()
            raise
        self._reader = started(self._read_exits, "vinelm children")

    def _load(self, source: WorkflowSource, fingerprint: Mapping[str, str]) -> None:
        path = [entry or os.getcwd() for entry in sys.path]
        hello: dict[str, Any] = {
            "function": source.function,
            "arguments": dict(source.arguments),
            "limited": self._limited,
            "has_recorded": self._equal is not None and self._equal.has_recorded,
        }
        send(self._control, {"path": path, **hello})
        frame = receive(self._control)
        if frame is None:
            raise WorkflowError(
                'the process that runs the units died while it loaded the workflow: try isolation="inline"', code="load-crashed"
            )
        if "error" in frame[0]:
            raise WorkflowError(f"the workflow does not load in a fresh process: {frame[0]['error']}", code="load-failed")
        theirs = frame[0]["ready"]
        changed = sorted(part for part in {*theirs, *fingerprint} if theirs.get(part) != fingerprint.get(part))
        if changed:
            raise WorkflowError(
                f"the workflow is another one in a fresh process ({', '.join(changed)}): it changed on disk since this run "
                'began, or depends on what this process did before; run again, or use isolation="inline"',
                code="workflow-differs",
            )

    # -- one unit ----------------------------------------------------------------------------------------------

    def run(self, job: Job, top_up: TopUp) -> UnitOutcome:
        """Run one job in a new process to its end and return its outcome.

        If the process was killed from outside (by a person, or by the kernel for lack of memory), the job runs once more,
        because the cause may lie outside of the workflow. The returned cost includes what the calls of the killed process may
        have cost.
        """
        lost_usd, attempt = 0.0, 0
        while True:
            attempt += 1
            outcome = self._attempt(job, _beyond(lost_usd, top_up))
            if not isinstance(outcome, _Killed):
                break
            lost_usd += outcome.row.settled_usd
            if attempt == _ATTEMPTS:
                return replace(outcome.row, paid_usd=lost_usd)
            # The first execution may have been billed: the second is reserved on top of it.
            if not top_up(lost_usd + job.upper_usd):
                return UnitOutcome(None, paid_usd=lost_usd)
        return replace(outcome, paid_usd=lost_usd + outcome.settled_usd) if lost_usd else outcome

    def _attempt(self, job: Job, top_up: TopUp) -> UnitOutcome | _Killed:
        with tempfile.TemporaryFile() as log:
            unit = self._start(log)
            try:
                outcome = unit.execute(job, top_up)
                if outcome is None:  # it died: wait for its exit code and output
                    unit.has_exited.wait(_GRACE_S)
            except TimeoutError:
                self._end(unit)
                return self._dead(job, unit, "timeout", f"no end after {self._setup.timeout_s:g} s: killed")
            finally:
                unit.channel.close()
                with self._lock:
                    self._units.pop(unit.number, None)
            if outcome is not None:
                return outcome
            if self._is_server_gone and not self._is_closed:
                raise _server_died()
            output = last_lines(log, job)
            dead = self._dead(job, unit, "crash", f"{describe_exit(unit.code)}{': ' if output else ''}{output}")
            return _Killed(dead) if unit.code in _FOREIGN and not self._is_closed else dead

    def _start(self, log: IO[bytes]) -> Child:
        mine, theirs = socket.socketpair()
        unit = Child(next(self._numbers), mine, self._setup.timeout_s)
        with theirs:
            command = {"unit": unit.number, "memory": self._setup.memory_mb}
            with self._lock:
                # Registered before the command is sent: the exit may be reported at once, and has to find its unit.
                self._units[unit.number] = unit
                try:
                    self._send(command, [theirs.fileno(), log.fileno()])
                except OSError as error:
                    raise _server_died() from error
        return unit

    @contextmanager
    def _waiting(self, number: int) -> Iterator[None]:
        """Pause the job's timeout inside the block, while a call of the job waits."""
        with self._lock:
            unit = self._units.get(number)
        with unit.waiting() if unit is not None else nullcontext():
            yield

    def _send(self, command: Mapping[str, Any], descriptors: list[int]) -> None:
        data = json.dumps(command).encode() + b"\n"
        # The descriptors are sent with the first bytes; the rest of the text needs none.
        sent = socket.send_fds(self._control, [data], descriptors)
        self._control.sendall(data[sent:])

    def _end(self, unit: Child) -> None:
        """End a job's processes: send SIGTERM, then SIGKILL."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self._lock, suppress(OSError):
                self._send({"kill": unit.number, "signal": int(number)}, [])
            if unit.has_exited.wait(_GRACE_S):
                return

    def _dead(self, job: Job, unit: Child, kind: FailureKind, detail: str) -> UnitOutcome:
        """Return the result of a job that died, with its cost so far, and the failure's ``kind`` and ``detail``.

        The cost to book also includes the maximum cost of calls that were interrupted.
        """
        latency_s = 0.0 if self._setup.is_virtual_time else unit.ran_s
        stage = job.stage(self._setup.template)
        row = Observation(
            request_id=job.request.id, prefix=job.prefix, stage=stage, success=None, stopped=None, cost_usd=unit.cost_usd,
            latency_s=latency_s, calls=unit.calls, failure=kind, detail=detail,
        )  # fmt: skip
        open_usd = unit.under_way_usd
        if open_usd is None and not unit.calls:  # its backend reports no bounds: it may have died during its first call
            open_usd = max(unit.upper_usd - unit.cost_usd, 0.0)
        return UnitOutcome(row, None, unit.cost_usd + (open_usd or 0.0))

    # -- all of them -------------------------------------------------------------------------------------------

    def _read_exits(self) -> None:
        text = b""
        while True:
            try:
                data = self._control.recv(65536)
            except OSError:
                data = b""
            if not data:
                break
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                message = json.loads(line)
                with self._lock:
                    unit = self._units.get(message["unit"])
                if unit is not None:
                    unit.exited(message["code"])
        # Before the units are woken: each checks whether it died with the fork server.
        self._is_server_gone = True
        with self._lock:
            orphans = list(self._units.values())
        for unit in orphans:  # the fork server has ended, and they with it
            unit.exited(-signal.SIGKILL)

    def close(self) -> None:
        """Kill the fork server and every job."""
        if self._is_closed:
            return
        self._is_closed = True
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for proxy in self._proxies:
            proxy.close()
        # If the workflow does not load, the worker is closed before there is a reader.
        if hasattr(self, "_reader"):
            self._reader.join(_GRACE_S)
        self._control.close()


def _beyond(lost_usd: float, top_up: TopUp) -> TopUp:
    """Return a function with which the second execution of a killed job requests higher reservations (top-ups).

    The function adds ``lost_usd``, the possible cost of the first execution in dollars, to every requested reservation.
    """
    return top_up if not lost_usd else lambda upper_usd: top_up(lost_usd + upper_usd)


def _server_died() -> WorkerDied:
    return WorkerDied("the process that runs the units died: run the profile again to continue", code="fork-server-died")
