import gc
import threading

import pytest

from vinelm.clock import VirtualClock
from vinelm.controller import InFlightLoadMonitor, SlowdownCurve
from vinelm.controller.load.background import BackgroundLoadMonitor
from vinelm.controller.testing import LoadMonitorContract
from vinelm.errors import VineLMError
from vinelm.requests.protocols import EngineDelay


def settled(load):
    """The thread has done everything that was asked of it."""
    done = threading.Event()
    load._jobs.put(done.set)
    assert done.wait(10)
    return load


class Hangs:
    """A source that answers once it is let."""

    def __init__(self):
        self.go, self.asked = threading.Event(), threading.Event()

    def __call__(self):
        self.asked.set()
        assert self.go.wait(10)
        return {"east": 2.0}


def test_a_fresh_answer_is_waited_for():
    load = BackgroundLoadMonitor(lambda: {"east": 2.0}, patience_s=10.0)
    assert load.delays() == {"east": EngineDelay(2.0)}


def test_a_source_that_hangs_is_asked_once_and_delays_nobody():
    source = Hangs()
    load = BackgroundLoadMonitor(source, patience_s=0.001)
    for _ in range(100):
        with pytest.raises(VineLMError, match="has not answered"):
            load.delays()
    assert source.asked.wait(10)
    assert load._jobs.qsize() == 0  # one question, and it is being asked
    source.go.set()
    settled(load)
    assert load.delays() == {"east": EngineDelay(2.0)}


def test_an_old_answer_grows_stale_and_goes():
    clock, source = VirtualClock(), Hangs()
    source.go.set()
    load = BackgroundLoadMonitor(source, patience_s=10.0, clock=clock)
    assert load.delays() == {"east": EngineDelay(2.0)}
    source.go.clear()
    load._patience_s = 0.001
    clock.sleep(6.0)
    assert load.delays() == {"east": EngineDelay(2.0, is_stale=True)}
    clock.sleep(60.0)
    with pytest.raises(VineLMError, match="has not answered"):
        load.delays()
    source.go.set()


def test_a_source_that_raises_is_named_without_its_text():
    def fails():
        raise OSError("http://user:secret@host")

    load = BackgroundLoadMonitor(fails, patience_s=10.0)
    with pytest.raises(VineLMError, match=r"the load source failed: OSError$"):
        load.delays()


class Counting:
    def __init__(self, fails=False):
        self.told, self.fails = [], fails

    def delays(self):
        return {"east": EngineDelay(1.0)}

    def dispatched(self, engine):
        self.told.append((engine, "out"))
        if self.fails:
            raise OSError

    def finished(self, engine, excess_s):
        self.told.append((engine, excess_s))


class TestCounting(LoadMonitorContract):
    def make(self):
        return Counting()


class TestBackgroundLoadMonitor(LoadMonitorContract):
    def make(self):
        curve = SlowdownCurve((0.0, 10.0), (0.0, 5.0))
        return BackgroundLoadMonitor(InFlightLoadMonitor({"east": curve}, clock=VirtualClock()), patience_s=10.0)


class TestBackgroundLoadMonitorAroundAFunction(LoadMonitorContract):
    def make(self):
        return BackgroundLoadMonitor(lambda: {"east": 2.0}, patience_s=10.0)


@pytest.mark.parametrize("fails", [False, True])
def test_a_monitor_is_told_in_order_whatever_it_raises(fails):
    monitor = Counting(fails)
    load = BackgroundLoadMonitor(monitor, patience_s=10.0)
    load.dispatched("east")
    load.finished("east", 0.5)
    load.finished("west", None)
    assert load.delays() == {"east": EngineDelay(1.0)}
    assert monitor.told == [("east", "out"), ("east", 0.5), ("west", None)]


def test_the_thread_ends_with_its_object():
    load = BackgroundLoadMonitor(lambda: {}, patience_s=10.0)
    load.delays()
    before = {thread for thread in threading.enumerate() if thread.name == "vinelm-load"}
    jobs = load._jobs
    worker = []
    jobs.put(lambda: worker.append(threading.current_thread()))
    settled(load)
    del load
    gc.collect()
    worker[0].join(10)
    assert worker[0] in before
    assert not worker[0].is_alive()
