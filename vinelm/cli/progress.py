"""A profile while it runs, on stderr: one line that changes on a terminal, a line now and then in a log, events as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from vinelm.profiler import Progress

EventKind = Literal["quiet", "text", "json"]
_TERMINAL_S, _LOG_S, _EVENT_S = 0.1, 10.0, 1.0


@contextmanager
def live(kind: EventKind, *, clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[Progress], None] | None]:
    """What a profile is to call after each row; None when nothing is to be told."""
    if kind == "quiet":
        yield None
        return
    watch = _Watch(clock)
    if kind == "json":
        watch.tell, watch.every_s = _event, _EVENT_S
        yield watch
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as screen:
            watch.tell = lambda now, pace: screen.update(Text(line(now, pace)), refresh=True)
            watch.every_s = _TERMINAL_S
            yield watch
    else:
        watch.tell, watch.every_s = lambda now, pace: print(line(now, pace), file=sys.stderr, flush=True), _LOG_S
        yield watch
    watch.last()


def noted(kind: EventKind) -> Callable[[str], None] | None:
    """What a profile is to call with a line for the person who started it."""
    if kind == "quiet":
        return None
    return lambda text: print(
        json.dumps({"event": "note", "text": text}) if kind == "json" else text, file=sys.stderr, flush=True
    )


class RateEstimate:
    """How fast it goes, since this run began."""

    def __init__(self, started_s: float, share: float) -> None:
        self._started_s, self._began_at = started_s, share
        self.calls_per_s = 0.0
        self.eta_s: float | None = None

    def see(self, now: Progress, at_s: float) -> None:
        """A new row."""
        elapsed_s = max(at_s - self._started_s, 1e-9)
        self.calls_per_s = now.calls / elapsed_s
        done = share(now) - self._began_at
        self.eta_s = elapsed_s * max(1.0 - share(now), 0.0) / done if done > 0 else None


def share(now: Progress) -> float:
    """How far it is to the nearest cap, in [0, 1]."""
    shares = [now.coverage / (now.target or 1.0)]
    if now.budget_usd:
        shares.append(now.committed_usd / now.budget_usd)
    return min(max(shares), 1.0)


def line(now: Progress, pace: RateEstimate) -> str:
    """One line for a person."""
    from vinelm.reports import percent, usd

    low, high = now.interval
    target = f" of {percent(now.target)}" if now.target else ""
    budget = f" of {usd(now.budget_usd)}" if now.budget_usd is not None else ""
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in sorted(now.failures.items()))
    parts = [
        f"{now.executed:,} rows",
        f"coverage {percent(now.coverage)}{target} (90 %: {100 * low:.1f} to {100 * high:.1f})",
        f"{usd(now.committed_usd)}{budget}",
        f"{pace.calls_per_s:,.1f} calls/s",
        f"failed: {kinds}" if kinds else "none failed",
    ]
    if now.is_draining:
        return f"stopping: {now.in_flight} units in flight are waited for; Ctrl-C again leaves them  |  {'  |  '.join(parts)}"
    if pace.eta_s is not None:
        parts.append(f"{int(pace.eta_s // 3600)}:{int(pace.eta_s // 60 % 60):02d}:{int(pace.eta_s % 60):02d} left")
    return "  |  ".join(parts)


def _event(now: Progress, pace: RateEstimate) -> None:
    from dataclasses import asdict

    event = {"event": "progress", **asdict(now), "calls_per_s": pace.calls_per_s, "eta_s": pace.eta_s}
    print(json.dumps(event), file=sys.stderr, flush=True)


class _Watch:
    """Tells some of what it is called with: not more often than ``every_s``, and the last one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.tell: Callable[[Progress, RateEstimate], None] = lambda now, pace: None
        self.every_s = 0.0
        self._clock = clock
        self._pace: RateEstimate | None = None
        self._told_s = clock()
        self._kept: Progress | None = None
        self._was_draining = False

    def __call__(self, now: Progress) -> None:
        at_s = self._clock()
        if self._pace is None:
            self._pace = RateEstimate(self._told_s, share(now))
        self._pace.see(now, at_s)
        self._kept = now
        is_news = now.is_draining and not self._was_draining
        self._was_draining = now.is_draining
        if is_news or at_s - self._told_s >= self.every_s:
            self._told_s, self._kept = at_s, None
            self.tell(now, self._pace)

    def last(self) -> None:
        """What was held back, for logs and events."""
        if self._kept is not None and self._pace is not None and self.every_s >= _EVENT_S:
            self.tell(self._kept, self._pace)
