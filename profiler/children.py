"""Units in fresh processes: whatever the workflow's code does there, it becomes a row and nothing else suffers.

One zygote (:mod:`vinelm.profiler.zygote`) imports everything and builds the graph once; each unit is a fork of it, with a
process group, a memory limit and an output file of its own. A unit that takes too long is asked to end, then killed.
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
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import IO, Any

from vinelm import errors
from vinelm.backends.limits import Gate
from vinelm.errors import FailureKind, InputError, WorkflowError
from vinelm.observation import Observation
from vinelm.profiler.source import Source
from vinelm.profiler.wire import receive, row_of, send
from vinelm.profiler.work import Done, Job, Refused
from vinelm.template import Template

_ASSUMED_TOKENS = 2048  # of a unit, against a limit of tokens per minute, until its row says what it was
_GRACE_S = 2.0
_LINES, _CHARS = 3, 300
_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one unit may take: seconds on the wall, and MiB on top of what the imports take (0: no limit)."""

    timeout_s: float = 600.0
    memory_mb: int = 2048


class ChildWorker:
    """See :class:`vinelm.profiler.work.Worker`. Starts a process at once; :meth:`close` ends it and all of its children.

    ``gates`` are the rate limits by model. A child knows of no other child's calls, so a unit waits here, as one request with
    its tokens; further calls of the same unit are not held back.
    """

    def __init__(
        self,
        source: Source,
        template: Template,
        *,
        bounds: Bounds,
        fingerprint: Mapping[str, str],
        is_virtual_time: bool,
        gates: Mapping[str, Gate] | None = None,
    ) -> None:
        self._template = template
        self._gates = gates or {}
        self._bounds = bounds
        self._is_virtual_time = is_virtual_time
        self._lock = threading.Lock()
        self._numbers = count()
        self._units: dict[int, _Unit] = {}
        self._is_closed = False
        self._control, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "vinelm.profiler.zygote", str(theirs.fileno())]
            nothing = subprocess.DEVNULL
            one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=nothing, stdout=nothing, start_new_session=True, env=one_thread
            )
        try:
            self._greet(source, fingerprint)
        except BaseException:
            self.close()
            raise
        self._reader = threading.Thread(target=self._read_exits, daemon=True, name="vinelm children")
        self._reader.start()

    def _greet(self, source: Source, fingerprint: Mapping[str, str]) -> None:
        path = [entry or os.getcwd() for entry in sys.path]
        send(self._control, {"path": path, "function": source.function, "arguments": dict(source.arguments)})
        frame = receive(self._control)
        if frame is None:
            raise WorkflowError("the process that runs the units died while it loaded the workflow: try --isolation inline")
        if "error" in frame[0]:
            raise WorkflowError(f"the workflow does not load in a fresh process: {frame[0]['error']}")
        theirs = frame[0]["ready"]
        changed = sorted(part for part in {*theirs, *fingerprint} if theirs.get(part) != fingerprint.get(part))
        if changed:
            raise WorkflowError(
                f"the workflow is another one in a fresh process ({', '.join(changed)}): it changed on disk since this run "
                "began, or depends on what this process did before; run again, or use --isolation inline"
            )

    # -- one unit ----------------------------------------------------------------------------------------------

    def run(self, job: Job, top_up: Callable[[float], bool]) -> Done | Refused:
        """See :class:`vinelm.profiler.work.Worker`."""
        gate = self._gates.get(job.prefix[-1])
        if gate is None:
            return self._run(job, top_up)
        with gate.admit(_ASSUMED_TOKENS, time.sleep) as ticket:
            ended = self._run(job, top_up)
            if isinstance(ended, Done) and ended.observation.tokens_in is not None:
                ticket.settle(ended.observation.tokens_in + (ended.observation.tokens_out or 0))
            return ended

    def _run(self, job: Job, top_up: Callable[[float], bool]) -> Done | Refused:
        started = time.monotonic()
        with tempfile.TemporaryFile() as log:
            unit = self._start(log)
            try:
                ended = unit.talk(job, top_up, started + self._bounds.timeout_s)
                if ended is None:  # not a word: how did it end, and what did it say?
                    unit.has_exited.wait(_GRACE_S)
            except TimeoutError:
                self._end(unit)
                return self._dead(job, unit, "timeout", f"no end after {self._bounds.timeout_s:g} s: killed", started)
            finally:
                unit.channel.close()
                with self._lock:
                    self._units.pop(unit.number, None)
            if ended is not None:
                return ended
            said = _last_lines(log, job)
            return self._dead(job, unit, "crash", f"{_how(unit.code)}{': ' if said else ''}{said}", started)

    def _start(self, log: IO[bytes]) -> _Unit:
        mine, theirs = socket.socketpair()
        unit = _Unit(next(self._numbers), mine)
        with theirs:
            order = {"unit": unit.number, "memory": self._bounds.memory_mb}
            with self._lock:
                self._units[unit.number] = unit
                try:
                    self._send(order, [theirs.fileno(), log.fileno()])
                except OSError as error:
                    raise WorkflowError("the process that runs the units died: run the same line again") from error
        return unit

    def _send(self, order: Mapping[str, Any], descriptors: list[int]) -> None:
        data = json.dumps(order).encode() + b"\n"
        sent = socket.send_fds(self._control, [data], descriptors)
        self._control.sendall(data[sent:])

    def _end(self, unit: _Unit) -> None:
        """Ask it to end, then make it."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self._lock, suppress(OSError):
                self._send({"kill": unit.number, "signal": int(number)}, [])
            if unit.has_exited.wait(_GRACE_S):
                return

    def _dead(self, job: Job, unit: _Unit, kind: FailureKind, detail: str, started: float) -> Done:
        """The row of a unit that left none: what it cost until then, and on the ledger the call that it died in."""
        latency_s = 0.0 if self._is_virtual_time else time.monotonic() - started
        stage = self._template.invocations[len(job.prefix) - 1].name
        row = Observation(
            request_id=job.request.id, prefix=job.prefix, stage=stage, success=None, stopped=None, cost_usd=unit.cost_usd,
            latency_s=latency_s, calls=unit.calls, failure=kind, detail=detail,
        )  # fmt: skip
        open_usd = unit.under_way_usd
        if open_usd is None and not unit.calls:  # its backend does not tell: it may have been in its first call
            open_usd = max(unit.upper_usd - unit.cost_usd, 0.0)
        return Done(row, None, unit.cost_usd + (open_usd or 0.0))

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
                told = json.loads(line)
                with self._lock:
                    unit = self._units.get(told["unit"])
                if unit is not None:
                    unit.exited(told["code"])
        with self._lock:
            orphans = list(self._units.values())
        for unit in orphans:  # the zygote is gone, and they with it
            unit.exited(-signal.SIGKILL)

    def close(self) -> None:
        """End the zygote and every unit, at once."""
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
        if hasattr(self, "_reader"):
            self._reader.join(_GRACE_S)
        self._control.close()


class _Unit:
    """The parent's side of one child."""

    def __init__(self, number: int, channel: socket.socket) -> None:
        self.number = number
        self.channel = channel
        self.has_exited = threading.Event()
        self.code: int | None = None
        self.cost_usd = 0.0
        self.calls = 0
        self.under_way_usd: float | None = None
        self.upper_usd = 0.0

    def exited(self, code: int) -> None:
        """The child is gone: wake whoever reads from it, also if something that it started still holds the line."""
        self.code = code
        self.has_exited.set()
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_RD)

    def talk(self, job: Job, top_up: Callable[[float], bool], deadline: float) -> Done | Refused | None:
        """Hand the job over and listen; None if the child ended without a word. ``TimeoutError`` past the deadline."""
        self.upper_usd = job.upper_usd
        first = {
            "request_id": job.request.id,
            "prefix": job.prefix,
            "upper_usd": job.upper_usd,
            "has_parent": job.parent is not None,
        }
        with suppress(ConnectionError):
            send(self.channel, first, job.parent or b"")
        while True:
            self.channel.settimeout(max(deadline - time.monotonic(), 0.001))
            frame = receive(self.channel)
            if frame is None:
                return None
            told, content = frame
            if "ask" in told:
                asked = time.monotonic()
                is_granted = top_up(told["ask"])
                deadline += time.monotonic() - asked
                self.upper_usd = max(self.upper_usd, told["ask"]) if is_granted else self.upper_usd
                with suppress(ConnectionError):
                    send(self.channel, {"granted": is_granted})
            elif "call" in told:
                self.cost_usd += told["cost_usd"]
                self.calls += told["call"]
            elif "under_way_usd" in told:
                self.under_way_usd = told["under_way_usd"]
            elif "error" in told:
                return self._failed(told)
            else:
                return Done(row_of(told["row"]), content if told["has_checkpoint"] else None)

    def _failed(self, told: Mapping[str, Any]) -> Refused:
        kind = getattr(errors, told["error"], None)
        if kind is errors.BudgetExhausted:
            return Refused(self.cost_usd, self.calls)
        if isinstance(kind, type) and issubclass(kind, InputError):
            raise kind(told["text"])
        raise RuntimeError(f"a unit failed unexpectedly: {told['error']}: {told['text']}")


def _how(code: int | None) -> str:
    if code is None:
        return "the process ended in an unknown way"
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def _last_lines(log: IO[bytes], job: Job) -> str:
    """The end of what the child wrote, in one line, without what may be secret or the request's own."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(size - 8192, 0))
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if line.startswith("Fatal Python error")), len(lines) - _LINES)
    text = " | ".join(lines[max(first, 0) :][:_LINES])
    for name, value in os.environ.items():
        if len(value) >= 8 and name.upper().endswith(_SECRET_NAMES):
            text = text.replace(value, f"${name}")
    for key, value in job.request.data.items():
        if isinstance(value, str) and len(value) >= 4:
            text = text.replace(value, f"[{key}]")
    return text[:_CHARS]
