import threading

import pytest

from vinelm.controller import calibrate_endpoint
from vinelm.controller.load.calibration import Experiment
from vinelm.errors import ConfigError, EvidenceError


class TickingClock:
    """Time that the fake engine lets pass."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def sleep(self, seconds):
        self.all_in.wait(10)


class Engine:
    """Holds the others until the measured request came, which then takes a second and a quarter for each of them."""

    def __init__(self, clock, failing=()):
        self.clock, self.failing = clock, failing
        self.lock = threading.Lock()
        self.flushes = 0

    def expect(self, others):
        self.waiting, self.others = 0, others
        self.clock.all_in = threading.Event()
        self.release = threading.Event()

    def call(self, is_target):
        if not is_target:
            with self.lock:
                self.waiting += 1
                if self.waiting == self.others:
                    self.clock.all_in.set()
            assert self.release.wait(10)
            return
        self.release.set()
        if self.waiting in self.failing:
            raise OSError
        self.clock.seconds += 1.0 + 0.25 * self.waiting

    def flush(self):
        self.flushes += 1


def run(levels, repeats, failing=()):
    clock = TickingClock()
    engine = Engine(clock, failing)
    upcoming = iter([0, *list(levels) * repeats])  # a first idle call is not measured

    def flush():
        engine.flush()
        engine.expect(next(upcoming))

    experiment = Experiment(call=engine.call, flush=flush, levels=levels, repeats=repeats, delay_s=1.0)
    return calibrate_endpoint(experiment, clock=clock), engine


def test_the_curve_is_the_engines():
    found, engine = run((0, 1, 2, 4, 8), 3)
    assert found.requests == (0, 1, 2, 4, 8) * 3
    assert [found.curve.at(n) for n in (0, 1, 3, 8)] == pytest.approx([0, 0.25, 0.75, 2.0])
    assert (engine.flushes, found.failed) == (16, 0)


def test_runs_that_fail_are_left_out():
    found, _ = run((0, 1, 2), 2, failing=(2,))
    assert found.requests == (0, 1, 0, 1)
    assert found.failed == 2
    with pytest.raises(EvidenceError, match="idle endpoint"):
        run((0, 1), 1, failing=(0,))
    with pytest.raises(EvidenceError, match=r"busy endpoint succeeded \(OSError\): measure lower levels"):
        run((0, 3), 2, failing=(3,))


def test_the_first_call_which_connects_and_compiles_is_not_measured():
    clock = TickingClock()
    took = iter([30.0, 1.0, 1.5, 1.0, 1.5])

    def call(is_target):
        if is_target:
            clock.seconds += next(took)

    clock.all_in = threading.Event()
    clock.all_in.set()
    found = calibrate_endpoint(Experiment(call=call, levels=(0, 1), repeats=2), clock=clock)
    assert (found.requests, found.latency_s) == ((0, 1, 0, 1), (1.0, 1.5, 1.0, 1.5))
    assert found.curve.at(1) == 0.5


def test_an_experiment_that_measures_nothing_is_refused():
    for settings in ({"levels": (1, 2)}, {"levels": (0,)}, {"levels": ()}, {"repeats": 0}):
        with pytest.raises(ConfigError, match="level 0"):
            Experiment(call=print, **settings)


@pytest.mark.parametrize(("calls", "measured"), [(0, None), (2, None), (3, 2), (5, 4)])
def test_an_interrupt_keeps_what_was_measured_if_it_makes_a_curve(calls, measured):
    """After the first call the runs are of 0, 1, 0, 1, ... others."""
    done = []

    def call(is_target):
        if is_target and len(done) == calls:
            raise KeyboardInterrupt
        done.extend([1] if is_target else [])

    experiment = Experiment(call=call, levels=(0, 1), repeats=5, delay_s=0.0)
    if measured is None:
        with pytest.raises(KeyboardInterrupt):
            calibrate_endpoint(experiment)
        return
    found = calibrate_endpoint(experiment)
    assert (len(found.requests), found.is_complete) == (measured, False)


def test_the_first_idle_call_that_fails_is_the_last():
    calls = []

    def call(is_target):
        calls.append(is_target)
        raise OSError("a secret")

    with pytest.raises(EvidenceError, match=r"idle endpoint succeeded \(OSError\)"):
        calibrate_endpoint(Experiment(call=call, levels=(0, 1), repeats=5))
    assert calls == [True]


def test_the_number_of_calls_is_known_before():
    assert Experiment(call=print).calls == 3501
    assert Experiment(call=print, levels=(0, 2, 2), repeats=3).calls == 13
