"""The run's side of one child: its channel, its time, what it has paid so far, and what it said before it died."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

from vinelm import errors
from vinelm.catalog import redacted
from vinelm.errors import InputError
from vinelm.profiler.execution.job import Done, Job, Refused
from vinelm.profiler.isolation.framing import receive, row_of, send

_LINES, _CHARS = 3, 300
_LOOK_S = 1.0  # how often a unit that waits for the run is looked at


class Child:
    """One unit in a process of its own. Time in which it waits for the run (money, a rate limit) does not count as its own."""

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
        self._waits = 0
        self._waits_since = self._waited_s = 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Something in it waits for the run: its clock stands still. Any thread, several at once."""
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
        """Seconds since it was started, without those in which it waited."""
        with self._lock:
            return (self._waits_since if self._waits else time.monotonic()) - self._started - self._waited_s

    def exited(self, code: int) -> None:
        """The child is gone: wake whoever reads from it, also if something that it started still holds the line."""
        self.code = code
        self.has_exited.set()
        with suppress(OSError):
            self.channel.shutdown(socket.SHUT_RD)

    def talk(self, job: Job, top_up: Callable[[float], bool]) -> Done | Refused | None:
        """Hand the job over and listen; None if the child ended without a word. ``TimeoutError`` when its time is up."""
        self.upper_usd = job.upper_usd
        first = {
            "unit": self.number,
            "request_id": job.request.id,
            "prefix": job.prefix,
            "upper_usd": job.upper_usd,
            "has_parent": job.parent is not None,
        }
        with suppress(ConnectionError):
            send(self.channel, first, job.parent or b"")
        while True:
            frame = self._next()
            if frame is None:
                return None
            told, content = frame
            if "ask" in told:
                with self.waiting():
                    is_granted = top_up(told["ask"])
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

    def _next(self) -> tuple[dict[str, Any], bytes] | None:
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        while True:
            left_s = self._left_s()
            if left_s <= 0:
                raise TimeoutError
            if poll.poll(1000 * left_s):
                self.channel.settimeout(max(self._left_s(), _LOOK_S))  # in the middle of a frame it cannot be waiting
                return receive(self.channel)

    def _left_s(self) -> float:
        left_s = self._timeout_s - self.ran_s
        return max(left_s, _LOOK_S) if self._waits else left_s

    def _failed(self, told: Mapping[str, Any]) -> Refused:
        kind = getattr(errors, told["error"], None)
        if kind is errors.BudgetExhausted:
            return Refused(self.cost_usd, self.calls)
        if isinstance(kind, type) and issubclass(kind, InputError):
            raise kind(told["text"])
        raise RuntimeError(f"a unit failed unexpectedly: {told['error']}: {told['text']}")


def how_it_ended(code: int | None) -> str:
    """In words, by its exit code."""
    if code is None:
        return "the process ended in an unknown way"
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def last_lines(log: IO[bytes], job: Job) -> str:
    """The end of what the child wrote, in one line, without what may be secret or the request's own."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(size - 8192, 0))
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if line.startswith("Fatal Python error")), len(lines) - _LINES)
    text = " | ".join(lines[max(first, 0) :][:_LINES])
    text = redacted(text)
    for key, value in job.request.data.items():
        if isinstance(value, str) and len(value) >= 4:
            text = text.replace(value, f"[{key}]")
    return text[:_CHARS]
