"""Threads beside the caller: what a function comes to, and a function that is called until it is stopped."""

import threading

import pytest

from vinelm.threads import Repeated, beside


def test_what_a_function_returns_or_raises_is_the_futures():
    here = threading.current_thread()
    assert beside(threading.current_thread, name="other").result(10) is not here

    def ends():
        raise SystemExit("gone")

    with pytest.raises(SystemExit, match="gone"):
        beside(ends, name="ends").result(10)


@pytest.mark.parametrize("is_at_once", [False, True])
def test_a_function_is_called_again_and_again_and_never_after_the_end(is_at_once):
    called, twice = [], threading.Event()

    def run():
        called.append(threading.current_thread().daemon)
        if len(called) == 2:
            twice.set()

    repeated = Repeated(run, 0.001, name="again", is_at_once=is_at_once)
    assert twice.wait(10)
    repeated.stop()
    repeated.stop()
    assert all(called)
    assert "again" not in [thread.name for thread in threading.enumerate()]


def test_the_first_call_waits_unless_it_is_at_once():
    called = []
    late = Repeated(lambda: called.append("late"), 3600.0, name="late")
    once = threading.Event()
    at_once = Repeated(once.set, 3600.0, name="at once", is_at_once=True)
    assert once.wait(10)
    late.stop()
    at_once.stop()
    assert called == []


def test_a_call_under_way_may_be_left_alone():
    begun, gate = threading.Event(), threading.Event()

    def run():
        begun.set()
        gate.wait(30)

    repeated = Repeated(run, 0.001, name="long", is_at_once=True)
    assert begun.wait(10)
    repeated.stop(waits=False)
    gate.set()
