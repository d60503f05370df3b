"""Threads that run jobs: every job once, none after an end, and what is under way is waited for."""

import signal
import threading

import pytest

from vinelm.running.crew import Crew


def crew_of(jobs, run, size=4):
    left, lock = iter(jobs), threading.Lock()

    def take():
        with lock:
            return next(left, None)

    return Crew(take, run, size=size, name="test")


def test_every_job_runs_once():
    done = []
    crew_of(range(1, 201), done.append).work()
    assert sorted(done) == list(range(1, 201))


def test_the_end_is_told_even_of_jobs_that_end_before_anybody_looks():
    ended, told = threading.Event(), []
    crew = crew_of([1], lambda job: ended.set(), size=1)
    wait = crew._wait
    crew._wait = lambda tick: (ended.wait(10), [one.result(10) for one in crew._under_way], wait(tick))
    crew.work(lambda: told.append(True))
    assert told


def test_what_a_job_fails_with_ends_the_others_and_is_raised():
    begun, gate = [], threading.Event()

    def run(job):
        begun.append(job)
        if job == 3:
            gate.set()
            raise ValueError("third")
        gate.wait(10)

    crew = crew_of(range(1, 1000), run)
    with pytest.raises(ValueError, match="third"):
        crew.work()
    assert len(begun) < 900
    assert isinstance(crew.error, ValueError)


def test_ctrl_c_lets_none_begin_and_waits_for_those_under_way(monkeypatch):
    monkeypatch.setattr("vinelm.running.crew.TICK_S", 0.001)
    begun, ended, both = [], [], threading.Barrier(3)

    def run(job):
        begun.append(job)
        both.wait(10)
        ended.append(job)

    crew = crew_of(range(1, 1000), run, size=2)

    def interrupted():
        if len(begun) == 2:
            crew.stop()  # before the two may go on and take another
            both.wait(10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crew.work(interrupted)
    assert sorted(begun) == sorted(ended) == [1, 2]


class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_in_a_finalizer_is_not_lost(monkeypatch):
    monkeypatch.setattr("vinelm.running.crew.TICK_S", 0.001)
    gate, before = threading.Event(), signal.getsignal(signal.SIGINT)
    crew = crew_of(range(1, 1000), lambda job: gate.wait(10), size=2)
    crew._on_cut = gate.set
    dropped = [Dropped()]
    with pytest.raises(KeyboardInterrupt):
        crew.work(dropped.clear)
    assert gate.is_set()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_ctrl_c_that_is_ignored_or_handled_by_the_application_is_left_to_it(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        crew_of([1], lambda job: signal.raise_signal(signal.SIGINT), size=1).work()
        assert signal.getsignal(signal.SIGINT) == handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_those_that_are_left_are_not_waited_for(monkeypatch):
    monkeypatch.setattr("vinelm.running.crew.TICK_S", 0.001)
    gate = threading.Event()
    crew = crew_of([1], lambda job: gate.wait(30), size=1)
    crew.work(lambda: crew.stop(leave=True))
    assert crew.is_left
    gate.set()
