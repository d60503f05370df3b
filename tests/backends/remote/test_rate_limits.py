import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinelm.backends.limits.rate_limits import WINDOW_S, EngineRateLimiter, RateLimits
from vinelm.clock import VirtualClock

CALLS = st.lists(st.tuples(st.floats(0, 40), st.integers(1, 60)), min_size=1, max_size=40)


def starts(limits, calls):
    """(start, tokens) of calls that come one after another, each after a pause."""
    clock = VirtualClock()
    rate_limiter = EngineRateLimiter(limits, clock)
    started = []
    for pause_s, tokens in calls:
        clock.sleep(pause_s)
        _, wait_s = rate_limiter.reserve(tokens)
        assert wait_s >= 0
        started.append((clock.now() + wait_s, tokens))
    return started


def window(started, end_s):
    edge = 1e-9  # a start is computed as another plus a minute, which rounds
    return [tokens for start_s, tokens in started if end_s - WINDOW_S + edge < start_s <= end_s]


@settings(max_examples=60, deadline=None)
@given(calls=CALLS, requests=st.integers(1, 8), tokens=st.integers(60, 200))
def test_no_minute_has_more_than_is_allowed(calls, requests, tokens):
    started = starts(RateLimits(requests_per_min=requests, tokens_per_min=tokens), calls)
    for end_s, _ in started:
        inside = window(started, end_s)
        assert len(inside) <= requests
        assert sum(inside) <= tokens


@settings(max_examples=60, deadline=None)
@given(calls=CALLS, requests=st.integers(1, 8), tokens=st.integers(60, 200))
def test_calls_keep_their_order_and_wait_no_longer_than_they_must(calls, requests, tokens):
    """Brute force: each call starts at the first of the possible instants at which the window has room."""
    started = starts(RateLimits(requests_per_min=requests, tokens_per_min=tokens), calls)
    asked = itertools.accumulate(pause_s for pause_s, _ in calls)
    for number, (asked_s, (start_s, wanted)) in enumerate(zip(asked, started, strict=True)):
        before = started[:number]
        earliest = max(asked_s, before[-1][0]) if before else asked_s
        instants = sorted({earliest, *(one + WINDOW_S for one, _ in before if one + WINDOW_S > earliest)})
        fits = [
            at
            for at in instants
            if len(inside := [n for one, n in before if one + WINDOW_S > at]) < requests and sum(inside) + wanted <= tokens
        ]
        assert start_s == pytest.approx(fits[0])


def test_a_call_beyond_the_limit_has_a_minute_for_itself():
    started = starts(RateLimits(tokens_per_min=10), [(0, 5), (0, 50), (0, 5)])
    assert [start_s for start_s, _ in started] == [0.0, 60.0, 120.0]


def test_settling_gives_back_what_was_not_used():
    clock = VirtualClock()
    rate_limiter = EngineRateLimiter(RateLimits(tokens_per_min=100), clock)
    ticket, _ = rate_limiter.reserve(100)
    assert rate_limiter.reserve(10)[1] == 60.0
    ticket.settle(20)
    clock.sleep(60.0)
    ticket, wait_s = rate_limiter.reserve(90)
    ticket.settle(0)
    assert (wait_s, rate_limiter.reserve(90)[1]) == (0.0, 0.0)


def test_without_limits_nothing_waits_and_nothing_is_kept():
    rate_limiter = EngineRateLimiter(RateLimits(), VirtualClock())
    with rate_limiter.admit(10**9, pytest.fail):
        assert rate_limiter.reserve(10**9)[1] == 0.0
    assert not rate_limiter._log


class Peak:
    """How many are inside at once."""

    def __init__(self):
        self.now = self.most = self.total = 0
        self.lock = threading.Lock()

    def enter(self):
        with self.lock:
            self.now += 1
            self.total += 1
            self.most = max(self.most, self.now)

    def leave(self):
        with self.lock:
            self.now -= 1


def test_threads_and_tasks_of_several_loops_share_the_slots():
    rate_limiter, peak = EngineRateLimiter(RateLimits(concurrency=3)), Peak()

    def call(_):
        with rate_limiter.admit(1, pytest.fail):
            peak.enter()
            threading.Event().wait(0.002)
            peak.leave()

    async def acall():
        async with rate_limiter.aadmit(1, pytest.fail):
            peak.enter()
            await asyncio.sleep(0.002)
            peak.leave()

    async def many():
        await asyncio.gather(*(acall() for _ in range(30)))

    with ThreadPoolExecutor(12) as pool:
        threads = pool.map(call, range(60))
        loops = [pool.submit(asyncio.run, many()) for _ in range(2)]
        assert len(list(threads)) == 60
        for loop in loops:
            loop.result()
    assert (peak.total, peak.now, peak.most) == (120, 0, 3)
    assert rate_limiter._free == 3


def test_who_leaves_the_queue_holds_nobody_up():
    rate_limiter = EngineRateLimiter(RateLimits(concurrency=1))

    async def hold(order, name):
        async with rate_limiter.aadmit(1, pytest.fail):
            order.append(name)
            await asyncio.sleep(0.01)

    async def scene():
        order = []
        tasks = [asyncio.create_task(hold(order, name)) for name in "abcd"]
        await asyncio.sleep(0.001)
        tasks[1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        return order, [isinstance(one, asyncio.CancelledError) for one in done]

    assert asyncio.run(scene()) == (["a", "c", "d"], [False, True, False, False])
    assert rate_limiter._free == 1


def test_a_failing_call_gives_its_slot_back():
    rate_limiter = EngineRateLimiter(RateLimits(concurrency=1))
    for _ in range(3):
        with pytest.raises(KeyError), rate_limiter.admit(1, pytest.fail):
            raise KeyError


def test_waits_are_told_to_the_callers_clock():
    clock = VirtualClock()
    rate_limiter = EngineRateLimiter(RateLimits(requests_per_min=1), clock)
    for _ in range(3):
        with rate_limiter.admit(1, clock.sleep):
            pass
    assert clock.now() == 120.0
