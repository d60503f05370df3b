"""The parent's side of one child process: its channel, timeout, spending so far, and last output."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from vinelm import errors
from vinelm.catalog.secrets import redacted
from vinelm.errors import InputError
from vinelm.judging import Judgement
from vinelm.profiler.execution.job import Job, TopUp, UnitOutcome
from vinelm.profiler.isolation.framing import receive, row_of, send

_LINES, _CHARS = 3, 300
_LATE = 8  # messages of a unit that are still read after its time is up
_POLL_S = 1.0  # how often the clock of a unit that waits for the parent is checked


class Child:
    """A job in a separate process.

    Time that the process waits for the parent (for a reservation or a rate limit) does not count towards the job's timeout.

    Attributes:
        cost_usd: cost of the calls that the process has reported, in dollars.
        calls: the number of calls reported.
        under_way_usd: maximum cost of the calls in flight, in dollars; None until the job reports a call.
        upper_usd: dollars reserved for the job.
        code: the process's exit code; if a signal killed the process, the negative number of the signal; None while it runs.
    """

    def __init__(self, number: int, channel: socket.socket, timeout_s: float) -> None:
        self.number = number
        self.channel = channel
        self.has_exited = threading.Event()
        self.code: int | None = None
        self.cost_usd = 0.0
        self.calls = 0
        self.under_way_usd: float | None = None
        self.upper_usd = 0.0
        self._lock = threading.Lock()
        self._timeout_s = timeout_s
        self._started = time.monotonic()
        self._waits = self._late = 0
        self._waits_since = self._waited_s = 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Pause the job's timeout inside the block. Several threads may enter it at once."""
        with self._lock:
            if not self._waits:
                self._waits_since = time.monotonic()
            self._waits += 1
        try:
            yield
        finally:
            with self._lock:
                self._waits -= 1
                if not self._waits:
                    self._waited_s += time.monotonic() - self._waits_since

    @property
    def ran_s(self) -> float:
        """Seconds since the job's start, without the time that it waited for the parent."""
        with self._lock:
            return (self._waits_since if self._waits else time.monotonic()) - self._started - self._waited_s

    def exited(self, code: int) -> None:
        """Record the exit code and wake the thread that reads from the process, even if a grandchild keeps the channel open."""
        self.code = code
        self.has_exited.set()
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_RD)

    def execute(self, job: Job, top_up: TopUp) -> UnitOutcome | None:
        """Send the job to the child process, answer the child's requests for money, and return the job's outcome.

        Returns None if the process exited without a result.

        Raises:
            TimeoutError: the job has used up its time.
        """
        self.upper_usd = job.upper_usd
        first = {
            "unit": self.number,
            "request_id": job.request.id,
            "prefix": job.prefix,
            "upper_usd": job.upper_usd,
            "has_parent": job.parent is not None,
            "n_again": job.n_again,
            "is_scoring": job.is_scoring,
            "stages": job.stages,
            "passed": job.passed,
            "judged": job.judged,
            "digest": job.digest,
            "prompt_key": job.prompt_key.hex(),
        }
        with suppress(ConnectionError):
            send(self.channel, first, job.parent or b"")
        while True:
            frame = self._next()
            if frame is None:
                return None
            message, content = frame
            if "ask" in message:
                self._top_up(message["ask"], top_up)
            elif "call" in message:
                self.cost_usd += message["cost_usd"]
                self.calls += message["call"]
            elif "under_way_usd" in message:
                self.under_way_usd = message["under_way_usd"]
            elif "error" in message:
                raise error_of(message)
            elif message["row"] is None:
                return UnitOutcome(None, paid_usd=self.cost_usd)
            else:
                shapes, rest = content[: message["shapes"]], content[message["shapes"] :]
                checkpoint = rest if message["has_checkpoint"] else None
                judgement = None if message["judgement"] is None else Judgement(**message["judgement"])
                paid_usd = self.cost_usd if job.n_again or judgement is not None else None
                return UnitOutcome(row_of(message["row"]), checkpoint, paid_usd, judgement, shapes, message.get("shown", ""))

    def _top_up(self, upper_usd: float, top_up: TopUp) -> None:
        with self.waiting():
            is_granted = top_up(upper_usd)
        self.upper_usd = max(self.upper_usd, upper_usd) if is_granted else self.upper_usd
        with suppress(ConnectionError):
            send(self.channel, {"granted": is_granted})

    def _next(self) -> tuple[dict[str, Any], bytes] | None:
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        while True:
            left_s = self._left_s()
            if left_s <= 0:
                self._late += 1  # a result may have arrived while this process was suspended
                if self._late > _LATE or not poll.poll(0):
                    raise TimeoutError
            if poll.poll(1000 * max(left_s, 0.0)):
                self.channel.settimeout(max(self._left_s(), _POLL_S))  # within a frame the child cannot be waiting
                return receive(self.channel)

    def _left_s(self) -> float:
        left_s = self._timeout_s - self.ran_s
        return max(left_s, _POLL_S) if self._waits else left_s


def error_of(message: Mapping[str, Any]) -> Exception:
    """Return the exception that another process reported by class name (``error``), ``text`` and ``code``."""
    kind = getattr(errors, message["error"], None)
    if isinstance(kind, type) and issubclass(kind, InputError):
        return kind(message["text"], code=message["code"])
    return RuntimeError(f"a unit failed unexpectedly: {message['error']}: {message['text']}")


def describe_exit(code: int | None) -> str:
    """Return a text for a person that describes a process's exit code, such as the signal that killed the process."""
    if code is None:
        return "the process ended in an unknown way"
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def last_lines(log: IO[bytes], job: Job) -> str:
    """Return the end of the child's output as one line, with secrets and the request's values replaced."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(size - 8192, 0))
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    # faulthandler says first what happened; the traceback after it may be long.
    first = next((i for i, line in enumerate(lines) if line.startswith("Fatal Python error")), len(lines) - _LINES)
    text = " | ".join(lines[max(first, 0) :][:_LINES])
    text = redacted(text)
    for key, value in job.request.data.items():
        # Shorter values would also be replaced inside unrelated words.
        if isinstance(value, str) and len(value) >= 4:
            text = text.replace(value, f"[{key}]")
    return text[:_CHARS]
