"""Measures how load slows an endpoint down: sends N requests, then a measured one, for several N (VineLM paper §5.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass

from vinelm.clock import Clock, WallClock
from vinelm.controller.load.slowdown import SlowdownCurve, fit_slowdown
from vinelm.errors import ConfigError, EvidenceError, InputError, VineLMError
from vinelm.threads import beside

LEVELS = (0, 1, 2, 4, 8, 16, 32)
"""Numbers of other requests measured in the paper."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of a calibration.

    Attributes:
        requests: The number of other requests at each measurement.
        latency_s: The latency of each measured request, in seconds.
        curve: The slowdown curve fitted to these measurements.
        failed: The number of failed calls.
        is_complete: False if an interrupt ended the experiment early.
    """

    requests: tuple[int, ...]
    latency_s: tuple[float, ...]
    curve: SlowdownCurve
    failed: int
    is_complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """The settings of a calibration.

    Args:
        call: ``call(is_target)`` makes one call and returns when its answer is complete. The measured call has ``is_target``
            True. If the engine supports priorities, the other calls should have the higher priority.
        flush: Empties the engine's prompt cache; called before each run.
        levels: The numbers of other requests to measure with; must include 0.
        repeats: The number of runs at each level.
        delay_s: Seconds between the other calls and the measured one, so that the engine holds the others by then.

    Raises:
        ConfigError: The levels lack 0 or a positive number, or ``repeats`` or ``delay_s`` is out of range.
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
        """The number of calls in the experiment, including the first call, which is not measured."""
        return 1 + self.repeats * sum(1 + others for others in set(self.levels))


def calibrate_endpoint(
    experiment: Experiment, *, clock: Clock | None = None, on_run: Callable[[int, int], object] | None = None
) -> Calibration:
    """Run the experiment, fit a monotone slowdown curve to its measurements, and return both.

    This makes and pays for :attr:`Experiment.calls` calls. The first call is not measured, because it opens the connection and
    some engines compile meanwhile. If this call fails, no other call is sent. Runs whose measured call fails are left out. An
    interrupt ends the experiment; the measurements are kept if they suffice for a curve.

    Args:
        experiment: The settings.
        clock: Measures latencies; the wall clock by default.
        on_run: Called with the number of finished runs and the total number of runs.

    Raises:
        EvidenceError: No measured call succeeded on the idle engine, or no measured call succeeded on a busy engine.
        InputError: The measured call is invalid, so that it would fail under any load.
    """
    clock = clock or WallClock()
    levels = sorted(set(experiment.levels))
    runs = [
        level for _ in range(experiment.repeats) for level in levels
    ]  # levels alternate, so that a drift does not look like load
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
    """Make one run with ``others`` other calls, and return the latency of the measured call in seconds; None if it failed.

    Descriptions of failed calls are appended to ``failures``.
    """
    if experiment.flush is not None:
        experiment.flush()

    def other() -> None:
        with _noted(failures):
            experiment.call(False)

    under_way = [beside(other, name="vinelm other call") for _ in range(others)]
    if others:
        clock.sleep(experiment.delay_s)
    started = clock.now()
    took: float | None = None
    with _noted(failures, is_raised=InputError):
        experiment.call(True)
        took = clock.now() - started
    wait(under_way)
    return took


@contextmanager
def _noted(failures: list[str], is_raised: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Append an error in the block to ``failures`` instead of raising it, unless its type is in ``is_raised``.

    For an error of another library, only the type is appended, because the message may contain a prompt or a key.
    """
    try:
        yield
    except is_raised:
        raise
    except Exception as error:  # the server and the client package may raise anything
        failures.append(str(error) if isinstance(error, VineLMError) else type(error).__name__)
