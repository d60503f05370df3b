"""The process that children are forked from: it imports everything and builds the graph once; each unit is a fresh fork.

Started by :mod:`vinelm.profiler.isolation.process_worker` with two sockets: ``python -m ... CONTROL GATES``. It runs no unit
itself, has one thread, and ends with all its children when the run that started it is gone, however it went.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from vinelm.errors import InputError
from vinelm.profiler.isolation.framing import plain_row, receive, send
from vinelm.profiler.isolation.workflow_source import WorkflowSource

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def main(descriptor: int, gates: int) -> None:
    """Load, say that it is ready, fork until the other side is gone."""
    _die_with_parent()
    control = socket.socket(fileno=descriptor)
    frame = receive(control)
    if frame is None:
        return
    hello, _ = frame
    sys.path[:] = hello["path"]
    try:
        source = WorkflowSource(function=hello["function"], arguments=hello["arguments"])
        zygote = _Zygote(control, source, socket.socket(fileno=gates), hello["limited"])
    except Exception as error:
        text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {' '.join(str(error).split())}"
        with contextlib.suppress(OSError):  # whoever asked may be gone
            send(control, {"error": text})
        return
    with contextlib.suppress(OSError):
        send(control, {"ready": zygote.fingerprint})
        zygote.serve()


class _Zygote:
    def __init__(self, control: socket.socket, source: WorkflowSource, gates: socket.socket, limited: Sequence[str]) -> None:
        loaded = source.load()
        from vinelm.profiler.execution.unit import UnitWorker, warm_up
        from vinelm.profiler.fingerprint import fingerprint

        self.fingerprint = fingerprint(loaded.workflow, loaded.catalog, loaded.backends)
        self.worker = UnitWorker(loaded.workflow, loaded.catalog, loaded.backends)
        self.requests = {request.id: request for request in loaded.workflow.requests}
        warm_up()
        self.control, self.gates, self.limited = control, gates, limited
        self.children: dict[int, int] = {}  # pid to unit
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's affair
        gc.collect()
        gc.freeze()  # forks share what is there by now

    def serve(self) -> None:
        """One order per line: ``{"unit", "memory"}`` with two descriptors, or ``{"kill", "signal"}``."""
        text, descriptors = b"", []
        while True:
            readable, _, _ = select.select([self.control, self._woken], [], [])
            if self._woken in readable:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
                self._reap()
            if self.control not in readable:
                continue
            data, got, _, _ = socket.recv_fds(self.control, 65536, 250)
            if not data:
                self._end()
            descriptors += got
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if "unit" in order:
                    self._fork(order, descriptors.pop(0), descriptors.pop(0))
                else:
                    self._kill(order["kill"], order["signal"])

    def _fork(self, order: dict[str, Any], channel: int, log: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._child(order, channel, log)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # in both: whoever comes first
        os.close(channel)
        os.close(log)
        self.children[pid] = order["unit"]

    def _kill(self, unit: int, number: int) -> None:
        for pid, mine in self.children.items():
            if mine == unit:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)

    def _reap(self) -> None:
        for pid in list(self.children):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what it left behind; before its number is free again
            _, status = os.waitpid(pid, 0)
            told = {"unit": self.children.pop(pid), "code": os.waitstatus_to_exitcode(status)}
            with contextlib.suppress(OSError):
                self.control.sendall(json.dumps(told).encode() + b"\n")

    def _end(self) -> NoReturn:
        for pid in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        os._exit(0)

    def _child(self, order: dict[str, Any], channel: int, log: int) -> NoReturn:
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _die_with_parent()
            _contain(log, order["memory"])
            self.control.close()
            self._wake.close()
            self._woken.close()
            self._run(socket.socket(fileno=channel))
            sys.stdout.flush()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}\n".encode())
            os._exit(70)

    def _run(self, channel: socket.socket) -> None:
        from vinelm.profiler.budget.unit_budget import UnitBudget
        from vinelm.profiler.isolation.rate_limit_proxy import ProxiedRateLimiter

        frame = receive(channel)
        if frame is None:
            return
        job, parent = frame
        self.worker.control.models.gates = {model: ProxiedRateLimiter(self.gates, job["unit"], model) for model in self.limited}

        def top_up(upper_usd: float) -> bool:
            send(channel, {"ask": upper_usd})
            answer = receive(channel)
            return answer is not None and bool(answer[0]["granted"])

        purse = UnitBudget(
            job["upper_usd"],
            top_up,
            on_settled=lambda usd: send(channel, {"cost_usd": usd, "call": 1}),
            on_reserved=lambda usd: send(channel, {"under_way_usd": usd}),
        )
        try:
            outcome = self.worker.run(
                self.requests[job["request_id"]], tuple(job["prefix"]), parent if job["has_parent"] else None, purse
            )
        except Exception as error:
            send(channel, {"error": type(error).__name__, "text": str(error)})
            return
        has_checkpoint = outcome.checkpoint is not None
        send(channel, {"row": plain_row(outcome.observation), "has_checkpoint": has_checkpoint}, outcome.checkpoint or b"")


def _contain(log: int, memory_mb: int) -> None:
    """Output to the log, no core file, no more memory than what is mapped now and ``memory_mb`` on top."""
    import faulthandler

    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)
    faulthandler.enable(2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_mb and sys.platform == "linux":  # elsewhere the size of the address space says nothing
        with open("/proc/self/statm", encoding="ascii") as file:
            mapped = int(file.read().split()[0]) * resource.getpagesize()
        limit = mapped + memory_mb * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _die_with_parent() -> None:
    """Linux: be killed when the parent is. Elsewhere the closed socket has to do."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
