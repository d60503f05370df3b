"""A gate that counts other processes' calls, and calls whose priority and replica change while they wait."""

import asyncio
import time
from contextlib import ExitStack

import pytest

from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.backends.limits.rate_share import RateAmounts
from vinelm.backends.limits.replica_gate import ReplicaGate
from vinelm.clock import VirtualClock


class Standing:
    """A priority that the test changes."""

    def __init__(self, priority=0.0, engine=None):
        self.priority, self.engine = priority, engine

    def __float__(self):
        return self.priority


def gate(*limits, clock=None):
    return ReplicaGate({f"e{n}": EngineRateLimiter(limit, clock) for n, limit in enumerate(limits)}, clock)


def entered(made, stack, calls, priority=0.0):
    return [stack.enter_context(made.admit(1, time.sleep, priority)).engine for _ in range(calls)]


def test_calls_of_other_processes_count():
    made = gate(RateLimits(), RateLimits())
    made.others = lambda: {"e0": 3}
    with ExitStack() as stack:
        assert entered(made, stack, 5) == ["e1", "e1", "e1", "e0", "e1"]


def test_eight_processes_do_not_all_take_the_same_replica():
    gates = [gate(*[RateLimits()] * 4) for _ in range(8)]
    with ExitStack() as stack:
        for number, made in enumerate(gates):  # each sees what the others had in flight before it came
            seen = {f"e{n}": sum(g.in_flight()[f"e{n}"] for g in gates) for n in range(4)}
            made.others = lambda seen=seen: seen
            made.first = number
            entered(made, stack, 1)
        assert [sum(g.in_flight()[f"e{n}"] for g in gates) for n in range(4)] == [2, 2, 2, 2]


def most_on_a_replica(processes, rounds, with_rank):
    """The most calls on one of four replicas, if each process sends two calls in each round, which end with it, and hears only
    that one replica is emptier than the others.
    """
    gates, most = [gate(*[RateLimits()] * 4) for _ in range(processes)], 0
    for number, made in enumerate(gates):
        made.first = number
        made.rank = lambda number=number: number if with_rank else 0
    for round_ in range(rounds):
        heard = {"e0": 6, "e1": 0, "e2": 6, "e3": 6}
        for made in gates:
            made.others = lambda heard=dict(heard): heard
        with ExitStack() as stack:
            for made in gates:
                entered(made, stack, 2)
            loads = [calls + sum(made.in_flight()[engine] for made in gates) for engine, calls in heard.items()]
        if round_ >= rounds // 2:  # the first ones show how many calls a round has
            most = max(most, *loads)
    return most


def test_processes_do_not_all_run_to_the_replica_that_was_the_emptiest():
    assert most_on_a_replica(8, 12, with_rank=False) == 16  # all of them
    assert most_on_a_replica(8, 12, with_rank=True) <= 11  # 34 calls on four replicas


def test_processes_differ_in_which_of_equals_they_take():
    made = gate(RateLimits(), RateLimits(), RateLimits())
    made.first = 7  # of three
    with ExitStack() as stack:
        assert entered(made, stack, 3) == ["e1", "e2", "e0"]


def test_a_pin_is_kept_while_its_replica_has_room():
    made = gate(RateLimits(concurrency=2), RateLimits(concurrency=2))
    pinned = Standing(engine="e1")
    with ExitStack() as stack:
        assert entered(made, stack, 3, pinned) == ["e1", "e1", "e0"]


@pytest.mark.parametrize("pin", ["e0", "of another catalog"])
def test_a_pin_to_what_is_not_used_is_ignored(pin):
    made = gate(RateLimits(), RateLimits())
    made.weights = lambda: {"e0": 0.0, "of another catalog": 5.0}
    with ExitStack() as stack:
        assert entered(made, stack, 1, Standing(engine=pin)) == ["e1"]


def served(made, calls, reorder, change):
    """The order in which calls leave what has one slot, taken at first, if priorities change while they wait."""
    left = []

    async def call(number, priority):
        async with made.aadmit(1, asyncio.sleep, priority):
            left.append(number)

    async def run():
        async with made.aadmit(1, asyncio.sleep):
            tasks = [asyncio.create_task(call(number, priority)) for number, priority in enumerate(calls)]
            await asyncio.sleep(0)
            change()
            if reorder:
                made.reorder()
        await asyncio.gather(*tasks)

    asyncio.run(run())
    return left


def slots():
    return EngineRateLimiter(RateLimits(concurrency=1), VirtualClock())


def group():
    return gate(RateLimits(concurrency=1), clock=VirtualClock())


@pytest.mark.parametrize(("reorder", "order"), [(True, [2, 1, 0]), (False, [1, 0, 2])])
@pytest.mark.parametrize("make", [slots, group])
def test_calls_that_wait_change_places(make, reorder, order):
    calls = [Standing(0.0), Standing(1.0), Standing(-1.0)]

    def change():
        calls[2].priority = 5.0

    assert served(make(), calls, reorder, change) == order


def test_a_line_of_a_share_changes_places():
    clock = VirtualClock()
    limiter = EngineRateLimiter(RateLimits(requests_per_min=1), clock)
    share = limiter.share(lambda: None)
    one, two = Standing(), Standing()
    first, second = share.line_up(1, one), share.line_up(1, two)
    two.priority = 2.0
    limiter.reorder()
    share.grow(RateAmounts(1, 0))
    assert first.pause_s() > 0
    assert second.pause_s() == 0


def test_reordering_an_empty_line_changes_nothing():
    made = gate(RateLimits(requests_per_min=5))
    made.reorder()
    EngineRateLimiter(RateLimits(concurrency=1)).reorder()
    with ExitStack() as stack:
        assert entered(made, stack, 1) == ["e0"]
