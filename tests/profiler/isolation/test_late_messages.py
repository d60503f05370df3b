"""A run that is stopped (SIGSTOP) for longer than a unit's timeout reads what the unit has sent meanwhile."""

import socket

import pytest
from kit.toys.profiling import toy

from vinelm.profiler.execution.job import Job
from vinelm.profiler.isolation.child_process import Child
from vinelm.profiler.isolation.framing import plain_row, receive, send
from vinelm.traces.testing import a_row

JOB = Job(toy().requests[0], ("m0",), None, 1.0)


@pytest.fixture
def late():
    """A child whose time is over, and the other end of its channel."""
    mine, theirs = socket.socketpair()
    with mine, theirs:
        yield Child(0, mine, timeout_s=-1.0), theirs


def test_a_result_that_has_arrived_is_no_timeout(late):
    child, theirs = late
    send(theirs, {"cost_usd": 0.25, "call": 1})
    send(theirs, {"row": plain_row(a_row()), "has_checkpoint": True, "judgement": None, "shapes": 6}, b"shapesstate")
    outcome = child.execute(JOB, lambda _: True)
    assert outcome is not None
    assert (outcome.observation, outcome.checkpoint) == (a_row(), b"state")
    assert receive(theirs)[0]["request_id"] == "q0"


@pytest.mark.parametrize("messages", [0, 100])
def test_a_unit_that_goes_on_after_its_time_is_ended(late, messages):
    child, theirs = late
    for _ in range(messages):
        send(theirs, {"cost_usd": 0.25, "call": 1})
    with pytest.raises(TimeoutError):
        child.execute(JOB, lambda _: True)
    assert child.calls < 10
