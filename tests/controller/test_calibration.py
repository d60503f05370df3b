import threading

import pytest

from vinelm.controller.calibration import Experiment, calibrate_endpoint
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
    upcoming = iter(list(levels) * repeats)

    def flush():
        engine.flush()
        engine.expect(next(upcoming))

    experiment = Experiment(call=engine.call, flush=flush, levels=levels, repeats=repeats, delay_s=1.0)
    return calibrate_endpoint(experiment, clock=clock), engine


def test_the_curve_is_the_engines():
    found, engine = run((0, 1, 2, 4, 8), 3)
    assert found.requests == (0, 1, 2, 4, 8) * 3
    assert [found.curve.at(n) for n in (0, 1, 3, 8)] == pytest.approx([0, 0.25, 0.75, 2.0])
    assert (engine.flushes, found.failed) == (15, 0)


def test_runs_that_fail_are_left_out():
    found, _ = run((0, 1, 2), 2, failing=(2,))
    assert found.requests == (0, 1, 0, 1)
    assert found.failed == 2
    with pytest.raises(EvidenceError, match="idle endpoint"):
        run((0, 1), 1, failing=(0,))


def test_an_experiment_that_measures_nothing_is_refused():
    for settings in ({"levels": (1, 2)}, {"levels": ()}, {"repeats": 0}):
        with pytest.raises(ConfigError, match="level 0"):
            Experiment(call=print, **settings)


def test_an_interrupt_keeps_what_was_measured():
    done = []

    def call(is_target):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(is_target)

    found = calibrate_endpoint(Experiment(call=call, levels=(0,), repeats=5))
    assert (len(found.requests), found.is_complete) == (2, False)
    with pytest.raises(KeyboardInterrupt):
        calibrate_endpoint(Experiment(call=call, levels=(0,), repeats=5))


def test_the_first_idle_call_that_fails_is_the_last():
    calls = []

    def call(is_target):
        calls.append(is_target)
        raise OSError("a secret")

    with pytest.raises(EvidenceError, match=r"idle endpoint succeeded \(OSError\)"):
        calibrate_endpoint(Experiment(call=call, levels=(0, 1), repeats=5))
    assert calls == [True]


def test_the_number_of_calls_is_known_before():
    assert Experiment(call=print).calls == 3500
    assert Experiment(call=print, levels=(0, 2, 2), repeats=3).calls == 12
