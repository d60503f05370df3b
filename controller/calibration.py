"""How an endpoint slows down under load, measured: one request of ours behind N others, for each N (§5.4). Spends money."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vinelm.controller.slowdown import SlowdownCurve, fit_slowdown
from vinelm.errors import ConfigError, EvidenceError
from vinelm.protocols import Clock, WallClock

LEVELS = (0, 1, 2, 4, 8, 16, 32)
"""Numbers of other requests that the paper measured."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Latency of each measured request and the number of others it met; the curve fitted to them; calls that failed."""

    requests: tuple[int, ...]
    latency_s: tuple[float, ...]
    curve: SlowdownCurve
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """``call(is_target)`` makes one call and returns when its answer is complete; the others' calls (``is_target`` False)
    should have the higher priority where the engine knows priorities. ``flush`` empties the engine's prompt cache before each
    run. ``delay_s`` is the head start of the others, so that they are in the engine when ours arrives.
    """

    call: Callable[[bool], object]
    flush: Callable[[], object] | None = None
    levels: Sequence[int] = LEVELS
    repeats: int = 50
    delay_s: float = 2.0


def calibrate_endpoint(experiment: Experiment, *, clock: Clock | None = None) -> Calibration:
    """Run the experiment, one run after the other, and fit a monotone curve. Makes ``repeats`` x sum(1 + N) calls.

    A run in which the measured call fails is left out. :class:`~vinelm.errors.EvidenceError` where all fail,
    :class:`ConfigError` for levels or repeats that measure nothing.
    """
    levels = sorted(set(experiment.levels))
    if not levels or levels[0] != 0 or experiment.repeats < 1:
        raise ConfigError("calibration needs the level 0 (an idle engine) among its levels, and at least one repeat")
    watch = clock or WallClock()
    requests: list[int] = []
    latency: list[float] = []
    failed = 0
    for _ in range(experiment.repeats):
        for level in levels:  # levels take turns, so that a drift of the engine does not look like load
            took, failures = _run(experiment, level, watch)
            failed += failures
            if took is not None:
                requests.append(level)
                latency.append(took)
    if 0 not in requests:
        raise EvidenceError(f"no call to the idle endpoint succeeded ({failed} failed): check its address and key")
    return Calibration(tuple(requests), tuple(latency), fit_slowdown(requests, latency), failed)


def _run(experiment: Experiment, others: int, clock: Clock) -> tuple[float | None, int]:
    """Seconds of the measured call (None if it failed), and how many calls of the run failed."""
    if experiment.flush is not None:
        experiment.flush()
    failures: list[str] = []

    def other() -> None:
        try:
            experiment.call(False)
        except Exception as error:
            failures.append(type(error).__name__)

    threads = [threading.Thread(target=other, daemon=True) for _ in range(others)]
    for thread in threads:
        thread.start()
    if others:
        clock.sleep(experiment.delay_s)
    started = clock.now()
    took: float | None = None
    try:
        experiment.call(True)
        took = clock.now() - started
    except Exception as error:
        failures.append(type(error).__name__)
    for thread in threads:
        thread.join()
    return took, len(failures)
