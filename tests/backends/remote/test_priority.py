"""Who goes first among the calls that wait for rate limits."""

import asyncio
import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.wire.client import Client
from kit.wire.openai_format import answering
from kit.wire.server import WireServer

from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.backends.limits.rate_share import STEP_S, RateAmounts
from vinelm.backends.limits.replica_gate import ReplicaGate
from vinelm.clock import VirtualClock
from vinelm.errors import ConfigError
from vinelm.requests.protocols import CallContext


class MovedClock(VirtualClock):
    """Calls arrive at chosen times."""

    def wait(self, seconds):
        self.sleep(seconds)


def order(make, arrivals):
    """The order in which calls (pause, priority) leave a gate with one slot that is taken at first."""
    clock = MovedClock()
    gate, left = make(clock), []

    async def call(number, priority):
        async with gate.aadmit(1, asyncio.sleep, priority):
            left.append(number)

    async def run():
        async with gate.aadmit(1, asyncio.sleep):
            tasks = []
            for number, (pause_s, priority) in enumerate(arrivals):
                clock.wait(pause_s)
                tasks.append(asyncio.create_task(call(number, priority)))
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    asyncio.run(run())
    return left


def slots(clock):
    return EngineRateLimiter(RateLimits(concurrency=1), clock)


def group(clock):
    return ReplicaGate({"e": EngineRateLimiter(RateLimits(concurrency=1), clock)}, clock)


GATES = pytest.mark.parametrize("make", [slots, group])


@GATES
def test_equals_are_served_in_turn(make):
    assert order(make, [(0.0, 0.0)] * 6) == list(range(6))


@GATES
def test_a_higher_priority_goes_first(make):
    assert order(make, [(0.0, 0.0), (0.0, -1.0), (0.0, 2.0), (0.0, 2.0)]) == [2, 3, 0, 1]


@GATES
def test_one_step_is_worth_its_seconds_of_waiting(make):
    assert order(make, [(0.0, 0.0), (STEP_S - 1.0, 1.0), (2.0, 1.0)]) == [1, 0, 2]


@settings(max_examples=25, deadline=None)
@given(arrivals=st.lists(st.tuples(st.floats(0, 30), st.floats(-5, 5)), min_size=1, max_size=12))
def test_nobody_is_passed_by_a_call_that_came_too_late(arrivals):
    """A call of priority p waits for no call of priority q that comes more than (q - p) steps after it."""
    left = order(slots, arrivals)
    came, now_s = [], 0.0
    for pause_s, _ in arrivals:
        now_s += pause_s
        came.append(now_s)
    for place, number in enumerate(left):
        for before in left[:place]:
            late_s = came[before] - came[number]
            assert late_s <= STEP_S * (arrivals[before][1] - arrivals[number][1]) + 1e-6


class Held:
    """A priority that waits while it is held, and notes when it was granted."""

    def __init__(self, name, granted, *, held=False, then=None):
        self.name, self.held, self._granted, self._then = name, held, granted, then

    def __float__(self):
        return -math.inf if self.held else 0.0

    def granted(self):
        self._granted.append(self.name)
        if self._then is not None:
            self._then.held = True


def test_a_call_that_is_held_leaves_its_slot_free_until_it_is_asked_again():
    gate, told = EngineRateLimiter(RateLimits(concurrency=2)), []
    third = Held("third", told)
    first, second = Held("first", told, then=third), Held("second", told, held=True)
    slots = [gate._take(one) for one in (first, second)]
    assert told == ["first"]
    slots.append(gate._take(third))
    assert [slot.done() for slot in slots] == [True, False, False], "the second place is free for another"
    assert gate._take(Held("fourth", told)).done()
    gate._give(slots[0])
    assert told == ["first", "fourth"]
    second.held = False
    gate.reorder()
    assert slots[1].done()
    assert told == ["first", "fourth", "second"]
    third.held = False
    gate.reorder()
    assert not slots[2].done(), "there is no place"


def test_nobody_is_granted_a_place_between_a_grant_and_what_it_changes():
    gate, told = EngineRateLimiter(RateLimits(concurrency=1)), []
    last = Held("last", told)
    slots = [gate._take(one) for one in (Held("first", told), Held("second", told, then=last), last)]
    gate._give(slots[0])
    gate._give(slots[1])
    assert told == ["first", "second"]
    last.held = False
    gate.reorder()
    assert told == ["first", "second", "last"]


@pytest.mark.parametrize("shared", [False, True])
def test_windows_let_the_urgent_first(shared):
    clock = VirtualClock()
    limiter = EngineRateLimiter(RateLimits(requests_per_min=1), clock)
    if shared:
        share = limiter.share(lambda: None)
        share.grow(RateAmounts(1, 0))
    with limiter.admit(1, clock.sleep, 1.0):
        pass
    late, urgent = limiter._start(1, 0.0), limiter._start(1, 3.0)
    clock.sleep(60.1)
    assert late.pause_s() > 0
    assert urgent.pause_s() == 0


def test_without_priorities_nothing_waits_in_a_line():
    limiter = EngineRateLimiter(RateLimits(requests_per_min=5))
    with limiter.admit(1, time.sleep):
        assert limiter._share is None


@pytest.fixture
def server():
    made = WireServer().answers(answering("four"))
    yield made
    made.stop()


class Urgent(Client):
    def chat(self):
        call = CallContext(stage="s", prefix=("m",), clock=VirtualClock(), on_usage=self.usages.append, priority=2.4)
        return self.backend.chat_model(self.model, call)


@pytest.mark.parametrize(("way", "sent"), [("lowest-first", -2), ("highest-first", 2), (None, None)])
def test_the_server_is_told_where_it_is_asked_for(server, way, sent):
    client = Urgent(server.url, settings={} if way is None else {"send_priority": way})
    client.ask("invoke")
    assert server.asked[0].json.get("priority") == sent
    client.close()


class Slotted(Client):
    slot = 3

    def chat(self):
        call = CallContext(
            stage="s", prefix=("m",), clock=VirtualClock(), on_usage=self.usages.append, slot=lambda: self.slot
        )  # fmt: skip
        return self.backend.chat_model(self.model, call)


def test_the_server_is_told_the_slot_beside_what_the_entry_says(server):
    client = Slotted(server.url, options={"extra_body": {"grammar": "x"}})
    for client.slot in (3, 0, None):
        client.ask("invoke")
    assert [(one.json.get("id_slot"), one.json["grammar"]) for one in server.asked] == [(3, "x"), (0, "x"), (None, "x")]
    client.close()


def test_an_order_that_no_server_has_is_one_line():
    with pytest.raises(ConfigError, match="send_priority is 'first': use 'highest-first' or 'lowest-first'"):
        Client("http://localhost:1/v1", settings={"send_priority": "first"})
