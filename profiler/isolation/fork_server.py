"""The process from which children are forked. It imports everything and builds the graph once; each job is a new fork.

Started by :mod:`vinelm.profiler.isolation.process_worker` with sockets: ``python -m ... CONTROL LIMITS [EQUAL]``. It runs no
jobs itself, has one thread, and exits with all children when the process that started it exits.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from vinelm.errors import DatasetError, InputError
from vinelm.io.operating_system import ENDING, die_with_parent, kill_group, limit_process, reaped
from vinelm.profiler.execution.job import UnitBudget, WorkflowSource
from vinelm.profiler.isolation.equal_calls_proxy import ProxiedEqualCalls
from vinelm.profiler.isolation.framing import plain_row, receive, send
from vinelm.profiler.isolation.rate_limit_proxy import ProxiedRateLimiter
from vinelm.requests.protocols import Backend, Preloads
from vinelm.requests.workflow import Request


def main(descriptor: int, limits: int, equal: int | None = None) -> None:
    """Load the workflow, report that it is ready, and fork on request until the parent exits.

    Args:
        descriptor: the file descriptor of the socket for the parent's commands.
        limits: the file descriptor of the socket for requests to the parent's rate limits.
        equal: the file descriptor of the socket for the shared cache of equal calls; None without a cache.
    """
    die_with_parent()
    control = socket.socket(fileno=descriptor)
    frame = receive(control)
    if frame is None:
        return
    hello, _ = frame
    sys.path[:] = hello["path"]
    try:
        source = WorkflowSource(function=hello["function"], arguments=hello["arguments"])
        server = _ForkServer(control, source, socket.socket(fileno=limits), hello["limited"])
        if equal is not None:
            server.share(socket.socket(fileno=equal), has_recorded=hello["has_recorded"])
    except Exception as error:  # the workflow is imported and built here
        text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {' '.join(str(error).split())}"
        with contextlib.suppress(OSError):  # the parent may be gone
            send(control, {"error": text})
        return
    with contextlib.suppress(OSError):
        send(control, {"ready": server.fingerprint})
        server.serve()


def preload(backends: Iterable[Backend]) -> None:
    """Run a trivial graph, and let each backend do the setup of its first call, so that no forked job repeats it.

    Calls no model. Tracing is off meanwhile: a tracer would start threads, which do not survive a fork, and would report this
    run as a request.
    """
    from langsmith import tracing_context

    from vinelm.profiler.execution.unit import warm_up

    with tracing_context(enabled=False):
        warm_up()
        for backend in backends:
            if isinstance(backend, Preloads):
                backend.preload()


class _ForkServer:
    def __init__(self, control: socket.socket, source: WorkflowSource, limits: socket.socket, limited: Sequence[str]) -> None:
        loaded = source.load()
        from vinelm.profiler.execution.fingerprint import fingerprint
        from vinelm.profiler.execution.replayed.runner import make_units

        self.fingerprint = fingerprint(loaded.workflow, loaded.catalog, loaded.backends)
        self.units = make_units(loaded.workflow, loaded.catalog, loaded.backends)
        self.requests = {request.id: request for request in loaded.workflow.requests}
        judges = () if self.units.judging is None else self.units.judging.models.backends.values()
        preload((*loaded.backends.values(), *judges))
        self.control, self.limits, self.limited = control, limits, limited
        self.equal: socket.socket | None = None
        self.has_recorded = False
        self.children: dict[int, int] = {}  # process id to unit number
        self._wake, self._woken = socket.socketpair()
        # The pipe that a signal writes to must not block, and one byte in it is enough to wake the loop below.
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in ENDING:  # the parent handles them: this process lives as long as the parent
            signal.signal(number, signal.SIG_IGN)
        gc.collect()
        gc.freeze()  # forks share the memory allocated so far

    def share(self, equal: socket.socket, *, has_recorded: bool) -> None:
        """Let the children ask the parent process for the answers of equal calls, over the socket ``equal``.

        ``has_recorded`` states whether the parent's answers include recorded answers of a trace.
        """
        self.equal, self.has_recorded = equal, has_recorded

    def serve(self) -> None:
        """Read commands, one JSON object per line, until the parent exits.

        A command with ``unit`` (a job's number) and ``memory`` (in MiB) forks a child, and comes with two descriptors. A
        command with ``kill`` (a job's number) and ``signal`` sends this signal to the child.
        """
        text, descriptors = b"", []
        waiting = select.poll()  # unlike select, it takes the descriptors of a process that has more than a thousand open
        waiting.register(self.control, select.POLLIN)
        waiting.register(self._woken, select.POLLIN)
        while True:
            readable = {number for number, _ in waiting.poll()}
            if self._woken.fileno() in readable:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
                self._reap()
            if self.control.fileno() not in readable:
                continue
            # Linux passes at most 253 descriptors with one message, and each command to fork has two.
            data, got, _, _ = socket.recv_fds(self.control, 65536, 250)
            if not data:
                self._end()
            descriptors += got
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                command = json.loads(line)
                if "unit" in command:
                    self._fork(command, descriptors.pop(0), descriptors.pop(0))
                else:
                    self._kill(command["kill"], command["signal"])

    def _fork(self, command: dict[str, Any], channel: int, log: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._child(command, channel, log)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # in both processes: whichever runs first
        os.close(channel)
        os.close(log)
        self.children[pid] = command["unit"]

    def _kill(self, unit: int, number: int) -> None:
        for pid, mine in self.children.items():
            if mine == unit:
                kill_group(pid, number)

    def _reap(self) -> None:
        for pid in list(self.children):
            code = reaped(pid)
            if code is None:
                continue
            message = {"unit": self.children.pop(pid), "code": code}
            with contextlib.suppress(OSError):
                self.control.sendall(json.dumps(message).encode() + b"\n")

    def _end(self) -> NoReturn:
        for pid in self.children:
            kill_group(pid, signal.SIGKILL)
        os._exit(0)

    def _child(self, command: dict[str, Any], channel: int, log: int) -> NoReturn:
        try:
            os.setpgid(0, 0)
            # The socket belongs to the fork server: a signal to this child must not wake that process.
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, *ENDING):
                if number != signal.SIGINT:
                    signal.signal(number, signal.SIG_DFL)
            die_with_parent()
            _contain(log, command["memory"])
            self.control.close()
            self._wake.close()
            self._woken.close()
            self._run(socket.socket(fileno=channel))
            # os._exit runs no exit handlers, which belong to the fork server, and flushes nothing.
            sys.stdout.flush()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}\n".encode())
            os._exit(70)

    def _request(self, request_id: str, digest: str | None) -> Request:
        """Return a job's request; raise if it does not match the digest given by a run on another machine."""
        request = self.requests.get(request_id)
        if digest is not None and (request is None or request.digest() != digest):
            what = "is missing" if request is None else "is another one"
            raise DatasetError(f"request {request_id} {what} there: use the same dataset everywhere", code="dataset-differs")
        return self.requests[request_id]

    def _run(self, channel: socket.socket) -> None:
        from vinelm.profiler.execution.job import Job
        from vinelm.profiler.execution.unit import run_unit

        frame = receive(channel)
        if frame is None:
            return
        job, parent = frame
        limiters = {model: ProxiedRateLimiter(self.limits, job["unit"], model) for model in self.limited}
        self.units.control.models.rate_limiters = limiters
        if self.units.judging is not None:
            self.units.judging.models.rate_limiters = limiters
        if self.equal is not None:
            control = self.units.control
            control.models.equal = ProxiedEqualCalls(
                self.equal, job["unit"], control.adapter.deterministic, has_recorded=self.has_recorded
            )

        def top_up(upper_usd: float) -> bool:
            send(channel, {"ask": upper_usd})
            answer = receive(channel)
            return answer is not None and bool(answer[0]["granted"])

        budget = UnitBudget(
            job["upper_usd"],
            top_up,
            on_settled=lambda usd: send(channel, {"cost_usd": usd, "call": 1}),
            on_reserved=lambda usd: send(channel, {"under_way_usd": usd}),
        )
        try:
            request, state = self._request(job["request_id"], job["digest"]), parent if job["has_parent"] else None
            again, is_scoring, stages = job["n_again"], job["is_scoring"], tuple(job["stages"])
            prefix, passed, key = tuple(job["prefix"]), tuple(job["passed"]), bytes.fromhex(job["prompt_key"])
            unit = Job(
                request, prefix, state, job["upper_usd"], again, is_scoring, stages, passed, job["judged"], prompt_key=key
            )
            outcome = run_unit(self.units, unit, budget)
        except Exception as error:  # the parent raises it again
            send(channel, {"error": type(error).__name__, "text": str(error), "code": getattr(error, "code", None)})
            return
        row = None if outcome.observation is None else plain_row(outcome.observation)
        judgement = None if outcome.judgement is None else outcome.judgement.to_dict()
        sizes = {"has_checkpoint": outcome.checkpoint is not None, "shapes": len(outcome.shapes), "shown": outcome.shown}
        send(channel, {"row": row, "judgement": judgement, **sizes}, outcome.shapes + (outcome.checkpoint or b""))


def _contain(log: int, memory_mb: int) -> None:
    """Redirect output to the log, disable core files, and limit memory to the current size plus ``memory_mb``."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    faulthandler.enable(2)
    limit_process(memory_mb)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
