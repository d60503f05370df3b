"""A limiter whose limits several processes keep together: calls start within its share, in the order of the line."""

import asyncio
import threading

import pytest

from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.backends.limits.rate_share import RateAmounts
from vinelm.clock import VirtualClock, WallClock


def shared(clock=None, asked=None, **limits):
    limiter = EngineRateLimiter(RateLimits(**limits), clock or VirtualClock())
    return limiter, limiter.share(lambda: None if asked is None else asked.append(1))


def test_nothing_starts_before_something_is_held_and_it_asks():
    asked = []
    limiter, share = shared(requests_per_min=5, asked=asked)

    slept = []

    def sleep(seconds):
        assert 0 < seconds <= 0.5
        slept.append(seconds)
        if len(slept) == 3:
            share.grow(RateAmounts(1, 0))

    with limiter.admit(10, sleep) as permit:
        assert permit.tokens == 10
    assert (len(slept), len(asked)) == (3, 1)  # once for a call, however often it looks
    assert share.demand()[:3] == (RateAmounts(1, 0), RateAmounts(1, 10), RateAmounts(0, 0))


def test_what_is_not_limited_is_not_shared():
    limiter, share = shared(concurrency=2)
    assert share is None
    with limiter.admit(10**9, pytest.fail):
        pass


def test_calls_before_the_fleet_count():
    limiter = EngineRateLimiter(RateLimits(requests_per_min=5), VirtualClock())
    for _ in range(3):
        limiter.reserve(1)
    assert limiter.share(lambda: None).demand().used.requests == 3
    assert limiter.share(lambda: None) is limiter.share(lambda: None)


def test_tokens_that_were_not_used_are_free_again_and_a_giant_takes_an_empty_window():
    clock = VirtualClock()
    limiter, share = shared(clock, tokens_per_min=100)
    share.grow(RateAmounts(0, 100))
    with limiter.admit(100, pytest.fail) as permit:
        permit.settle(10)
    with limiter.admit(90, pytest.fail):
        pass
    with limiter.admit(10**6, clock.sleep):
        assert clock.now() >= 60
    assert share.demand().used.tokens == 10**6


def test_what_is_given_back_was_not_used_for_a_minute():
    clock = VirtualClock()
    limiter, share = shared(clock, requests_per_min=10)
    share.grow(RateAmounts(10, 0))
    for _ in range(4):
        with limiter.admit(1, pytest.fail):
            pass
    assert share.give_back(RateAmounts(2, 0)) == (4, 0)  # four calls are in the window
    clock.sleep(60)
    assert share.give_back(RateAmounts(2, 0)) == (2, 0)
    turns = [share.line_up(1) for _ in range(3)]
    assert [turn.pause_s() for turn in turns] == [0.0, 0.0, 0.02]


def test_those_behind_wait_for_the_first_and_one_that_gives_up_holds_nobody_up():
    _, share = shared(requests_per_min=10)
    first, second, third = (share.line_up(1) for _ in range(3))
    assert (first.pause_s(), second.pause_s(), third.pause_s()) == (0.02, 0.02, 0.04)
    share.grow(RateAmounts(1, 0))
    assert second.pause_s() > 0  # not before the first
    with first:
        pass  # gives up
    assert second.pause_s() == 0.0
    assert second.permit is not None


def test_a_coroutine_that_is_cancelled_leaves_the_line():
    limiter, share = shared(WallClock(), requests_per_min=10)

    async def call():
        async with limiter.aadmit(1, asyncio.sleep):
            return True

    async def both():
        first = asyncio.create_task(call())
        await asyncio.sleep(0)
        second = asyncio.create_task(call())
        await asyncio.sleep(0)
        first.cancel()
        share.grow(RateAmounts(1, 0))
        assert await second
        assert first.cancelled()

    asyncio.run(both())


def test_threads_start_what_is_held_and_not_one_more():
    limiter, share = shared(WallClock(), requests_per_min=100)
    share.grow(RateAmounts(7, 0))
    stop, started = threading.Event(), []

    def call():
        try:
            with limiter.admit(1, lambda seconds: stop.wait(0.001) and 1 / 0):
                started.append(1)
        except ZeroDivisionError:
            pass

    threads = [threading.Thread(target=call) for _ in range(12)]
    for thread in threads:
        thread.start()
    while len(started) < 7:
        pass
    stop.set()
    for thread in threads:
        thread.join()
    assert len(started) == 7
