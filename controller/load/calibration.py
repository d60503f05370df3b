"""How an endpoint slows down under load, measured: one request of ours behind N others, for each N (§5.4). Spends money."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from vinelm.clock import Clock, WallClock
from vinelm.controller.load.slowdown import SlowdownCurve, fit_slowdown
from vinelm.errors import ConfigError, EvidenceError, InputError, VineLMError

LEVELS = (0, 1, 2, 4, 8, 16, 32)
"""Numbers of other requests that the paper measured."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Latency of each measured request and the number of others it met; the curve fitted to them; calls that failed.

    ``is_complete`` is False where an interrupt ended the experiment early.
    """

    requests: tuple[int, ...]
    latency_s: tuple[float, ...]
    curve: SlowdownCurve
    failed: int
    is_complete: bool = True


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

    def __post_init__(self) -> None:
        if 0 not in self.levels or min(self.levels) < 0 or max(self.levels) == 0 or self.repeats < 1:
            raise ConfigError(
                "calibration needs level 0 (an idle engine) and a higher one among its levels, and at least one repeat"
            )
        if not 0.0 <= self.delay_s < float("inf"):
            raise ConfigError(f"delay_s is {self.delay_s}: it must be a finite number >= 0")

    @property
    def calls(self) -> int:
        """How many calls it makes, all told: the first one is not measured."""
        return 1 + self.repeats * sum(1 + others for others in set(self.levels))


def calibrate_endpoint(
    experiment: Experiment, *, clock: Clock | None = None, on_run: Callable[[int, int], object] | None = None
) -> Calibration:
    """Run the experiment, one run after the other, and fit a monotone curve. Makes :attr:`Experiment.calls` calls.

    A first call is not measured: it opens the connection, and many an engine compiles on it; where it fails, nothing more is
    sent. ``on_run`` is told the runs that are done, and of how many. A run in which the measured call fails is left out. An
    interrupt ends the experiment; what was measured is kept if it makes a curve.
    :class:`~vinelm.errors.EvidenceError` where no call to the idle engine succeeded, or none to a busy one,
    :class:`~vinelm.errors.InputError` for a call that cannot even be made.
    """
    clock = clock or WallClock()
    levels = sorted(set(experiment.levels))
    runs = [level for _ in range(experiment.repeats) for level in levels]  # by turns: a drift must not look like load
    requests: list[int] = []
    latency: list[float] = []
    failures: list[str] = []
    is_complete = True
    try:
        is_there = _run(experiment, 0, clock, failures) is not None
        for done, level in enumerate(runs if is_there else [], 1):
            took = _run(experiment, level, clock, failures)
            if took is not None:
                requests.append(level)
                latency.append(took)
            if on_run is not None:
                on_run(done, len(runs))
    except KeyboardInterrupt:
        if 0 not in requests or not any(requests):
            raise
        is_complete = False
    if 0 not in requests:
        raise EvidenceError(f"no call to the idle endpoint succeeded ({failures[-1]}): check its address, model and key")
    if not any(requests):
        raise EvidenceError(f"no measured call to the busy endpoint succeeded ({failures[-1]}): measure lower levels")
    return Calibration(tuple(requests), tuple(latency), fit_slowdown(requests, latency), len(failures), is_complete)


def _run(experiment: Experiment, others: int, clock: Clock, failures: list[str]) -> float | None:
    """Seconds of the measured call, None if it failed; adds how each call of the run failed that did."""
    if experiment.flush is not None:
        experiment.flush()

    def other() -> None:
        with _kept(failures):
            experiment.call(False)

    threads = [threading.Thread(target=other, daemon=True) for _ in range(others)]
    for thread in threads:
        thread.start()
    if others:
        clock.sleep(experiment.delay_s)
    started = clock.now()
    took: float | None = None
    with _kept(failures, is_raised=InputError):
        experiment.call(True)
        took = clock.now() - started
    for thread in threads:
        thread.join()
    return took


@contextmanager
def _kept(failures: list[str], is_raised: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Note how a call failed; the text of foreign exceptions may hold a prompt or a key, so only their type is kept."""
    try:
        yield
    except is_raised:
        raise
    except Exception as error:
        failures.append(str(error) if isinstance(error, VineLMError) else type(error).__name__)
