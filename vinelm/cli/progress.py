"""Progress of a profile on stderr: a line that is updated on a terminal, a line every 10 s in a log, or JSON events."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

from vinelm.cli.console import echo, json_text, show_table
from vinelm.cli.waiting import now_at
from vinelm.reports import percent, usd

if TYPE_CHECKING:
    from vinelm.profiler import Progress, SingleModels

EventKind = Literal["quiet", "text", "json"]
_TERMINAL_S, _LOG_S, _EVENT_S = 0.1, 10.0, 1.0


@contextmanager
def live(kind: EventKind, *, clock: Callable[[], float] = time.monotonic) -> Iterator[ThrottledReporter | None]:
    """Yield the callback that the profiler calls after each result; None if ``kind`` is "quiet". ``clock`` returns the time in
    seconds.
    """
    if kind == "quiet":
        yield None
        return
    reporter = ThrottledReporter(clock)
    if kind == "json":
        reporter.report, reporter.every_s = _event, _EVENT_S
        yield reporter
    elif sys.stderr.isatty():  # the command's waiting line, whose seconds count between two rows
        reporter.report, reporter.every_s = lambda now, rate: now_at(line(now, rate)), _TERMINAL_S
        yield reporter
    else:
        reporter.report, reporter.every_s = lambda now, rate: echo(line(now, rate), err=True), _LOG_S
        yield reporter
    reporter.last()


def at_step(text: str, *, after: ThrottledReporter | None = None) -> None:
    """Print ``text``, the title of the step that a long command begins now, and show it as the current work.

    ``after`` is the reporter of the previous step. If stderr is not a terminal, the reporter first prints the last progress
    if it has not printed it yet.
    """
    if after is not None:
        after.last()
    echo(text, err=True)
    now_at(text)


def noted(kind: EventKind) -> Callable[[str], None] | None:
    """Return the callback that prints the profiler's notices; None if ``kind`` is "quiet", so that nothing is shown."""
    if kind == "quiet":
        return None
    return lambda text: echo(json_text({"event": "note", "text": text}) if kind == "json" else text, err=True)


def raced(kind: EventKind) -> Callable[[SingleModels], None] | None:
    """Return the callback that prints the table of single models after they have been compared; None if ``kind`` is "quiet"."""
    if kind == "quiet":
        return None
    if kind == "json":
        return lambda found: echo(json_text({"event": "single_models", **asdict(found)}), err=True)
    return lambda found: show_single_models(found, err=True)


def show_single_models(found: SingleModels, *, err: bool = False) -> None:
    """Print the accuracy and the cost of using each model for every call, and the sentences that explain the table."""
    columns = ("model on every call", "requests", f"% {found.counted} (90 %)", "$ per 1,000")
    show_table("Single models", columns, found.table(), err=err)
    for sentence in found.lines():
        echo(sentence, err=err)


class RateEstimate:
    """Estimates a run's speed in calls per second, and its remaining time ``eta_s`` in seconds. ``eta_s`` is None until there
    is progress.

    Args:
        started_s: When this run started, in seconds of the clock.
        share: The fraction of the work that was already done when this run started, in [0, 1]; see :func:`share`.
    """

    def __init__(self, started_s: float, share: float) -> None:
        self._started_s, self._began_at = started_s, share
        self.calls_per_s = 0.0
        self.eta_s: float | None = None

    def update(self, now: Progress, at_s: float) -> None:
        """Update the estimate with the progress at the time ``at_s``."""
        elapsed_s = max(at_s - self._started_s, 1e-9)
        self.calls_per_s = now.calls / elapsed_s
        done = share(now) - self._began_at
        self.eta_s = elapsed_s * max(1.0 - share(now), 0.0) / done if done > 0 else None


def share(now: Progress) -> float:
    """Return how much of the run is done, as a fraction in [0, 1].

    It is the largest of three fractions: the coverage reached, divided by the target; the dollars committed, divided by the
    budget; and the dollars spent, divided by the spending at which the next interim check is due.
    """
    shares = [now.coverage / (now.target or 1.0)]
    if now.budget_usd:
        shares.append(now.committed_usd / now.budget_usd)
    if now.look_usd:
        shares.append(now.spent_usd / now.look_usd)
    return min(max(shares), 1.0)


def line(now: Progress, rate: RateEstimate) -> str:
    """Return the progress of a profile as one line of text; ``rate`` has the speed and the remaining time."""
    low, high = now.interval
    target = f" of {percent(now.target)}" if now.target and now.coverage < now.target else ""
    budget = f" of {usd(now.budget_usd)}" if now.budget_usd is not None else ""
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in sorted(now.failures.items()))
    parts = [
        *([f"asking {now.asking}"] if now.asking else []),
        f"{now.executed:,} rows",
        f"{_money(now)}{budget}",
        f"failed: {kinds}" if kinds else "none failed",
        f"coverage {percent(now.coverage)}{target} (90 %: {100 * low:.1f} to {100 * high:.1f})",
        *([f"next look at {usd(now.look_usd)}"] if now.look_usd else []),
        f"{rate.calls_per_s:,.1f} calls/s",
    ]
    if now.is_draining:
        return f"stopping: waiting for {now.in_flight} running units; Ctrl-C again to abandon them  |  {'  |  '.join(parts)}"
    if rate.eta_s is not None and share(now) < 1.0:
        parts.append(f"{int(rate.eta_s // 3600)}:{int(rate.eta_s // 60 % 60):02d}:{int(rate.eta_s % 60):02d} left")
    return "  |  ".join(parts)


def _money(now: Progress) -> str:
    """Return the dollars spent, and the dollars that requests in flight may still cost, as text."""
    spent = f"{usd(now.committed_usd - now.reserved_usd)} spent"
    is_reserved = now.reserved_usd > 1e-9  # less than this is a rounding error
    return f"{spent} + {usd(now.reserved_usd)} reserved" if is_reserved else spent


def _event(now: Progress, rate: RateEstimate) -> None:
    event = {"event": "progress", **asdict(now), "calls_per_s": rate.calls_per_s, "eta_s": rate.eta_s}
    echo(json_text(event), err=True)


class ThrottledReporter:
    """Reports progress at most once every ``every_s`` seconds; the last progress that was held back is reported by
    :meth:`last`.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.report: Callable[[Progress, RateEstimate], None] = lambda now, rate: None
        self.every_s = 0.0
        self._clock = clock
        self._rate: RateEstimate | None = None
        self._reported_s = clock()
        self._pending: Progress | None = None
        self._was_draining = False

    def __call__(self, now: Progress) -> None:
        """Take note of the progress after a result, and report it if it is due.

        It is due ``every_s`` seconds after the last report, or if the run has just stopped starting new jobs.
        """
        at_s = self._clock()
        if self._rate is None:
            self._rate = RateEstimate(self._reported_s, share(now))
        self._rate.update(now, at_s)
        self._pending = now
        is_news = now.is_draining and not self._was_draining
        self._was_draining = now.is_draining
        if is_news or at_s - self._reported_s >= self.every_s:
            self._reported_s, self._pending = at_s, None
            self.report(now, self._rate)

    def last(self) -> None:
        """Report the latest progress if it was held back. On a terminal nothing is reported."""
        if self._pending is not None and self._rate is not None and self.every_s >= _EVENT_S:
            self.report(self._pending, self._rate)
            self._pending = None
