import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from vinelm.backends.remote.rate_limits import EngineRateLimiter, RateLimits
from vinelm.backends.remote.rate_share import RateAmounts
from vinelm.backends.replicas.gate import ReplicaGate
from vinelm.errors import CallError


def gate(*limits):
    return ReplicaGate({f"e{n}": EngineRateLimiter(limit) for n, limit in enumerate(limits)})


def one():
    return RateLimits(concurrency=1)


def entered(made, stack, calls):
    return [stack.enter_context(made.admit(1, time.sleep)).replica for _ in range(calls)]


def test_calls_spread_by_what_is_in_flight_and_by_weight():
    made = gate(RateLimits(), RateLimits())
    with ExitStack() as stack:
        assert entered(made, stack, 4) == [0, 1, 0, 1]
    assert made.in_flight() == {"e0": 0, "e1": 0}
    made.weights = lambda: {"e0": 1.0, "e1": 3.0}
    with ExitStack() as stack:
        assert sorted(entered(made, stack, 8)) == [0] * 2 + [1] * 6


def test_a_call_goes_to_the_replica_that_is_free_first_whichever_it_would_have_been():
    made, place = gate(one(), one()), []
    with ExitStack() as first, ExitStack() as second:
        assert (entered(made, first, 1), entered(made, second, 1)) == ([0], [1])

        def wait():
            with made.admit(1, time.sleep) as permit:
                place.append(permit.replica)

        waits = threading.Thread(target=wait)
        waits.start()
        time.sleep(0.05)
        assert not place  # nothing is chosen while it waits
        second.close()
        waits.join(5)
        assert place == [1]


def test_a_waiting_call_leaves_a_replica_whose_weight_becomes_zero():
    made = gate(one(), one())
    weights, place = {"e0": 1.0, "e1": 1.0}, []
    made.weights = lambda: weights
    with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        entered(made, stack, 2)

        def wait():
            with made.admit(1, time.sleep) as permit:
                place.append(permit.replica)

        done = pool.submit(wait)
        weights["e0"] = 0.0
        stack.close()  # both are free at once; the first one is not used any more
        done.result(5)
    assert place == [1]


def test_weights_of_zero_alone_stop_nobody():
    made = gate(RateLimits(), RateLimits())
    made.weights = lambda: {"e0": 0.0, "e1": 0.0}
    with made.admit(1, time.sleep) as permit:
        assert permit.replica in (0, 1)


def test_no_replica_is_ever_over_its_limit_and_none_stays_behind():
    made, lock = gate(RateLimits(concurrency=2), RateLimits(concurrency=3)), threading.Lock()
    held, peak, served = [0, 0], [0, 0], []

    def call(_):
        with made.admit(1, time.sleep) as permit:
            with lock:
                held[permit.replica] += 1
                peak[permit.replica] = max(peak[permit.replica], held[permit.replica])
            time.sleep(0.002)
            with lock:
                held[permit.replica] -= 1
            served.append(permit.replica)

    async def calls():
        async def acall():
            async with made.aadmit(1, asyncio.sleep) as permit:
                with lock:
                    held[permit.replica] += 1
                    peak[permit.replica] = max(peak[permit.replica], held[permit.replica])
                await asyncio.sleep(0.002)
                with lock:
                    held[permit.replica] -= 1
                served.append(permit.replica)

        await asyncio.gather(*(acall() for _ in range(40)))

    with ThreadPoolExecutor(20) as pool:
        done = [pool.submit(call, n) for n in range(60)]
        asyncio.run(calls())
        for one_ in done:
            one_.result(10)
    assert len(served) == 100
    assert peak == [2, 3]
    assert made.in_flight() == {"e0": 0, "e1": 0}


def test_a_full_minute_on_one_replica_sends_calls_to_the_other():
    made = gate(RateLimits(requests_per_min=1), RateLimits(requests_per_min=2))
    places = []
    for _ in range(3):
        with made.admit(1, time.sleep) as permit:
            places.append(permit.replica)
    assert sorted(places) == [0, 1, 1]
    assert made.limits == RateLimits(requests_per_min=3)


def test_a_cancelled_call_leaves_the_line_and_takes_nothing():
    made = gate(one())

    async def run():
        async with made.aadmit(1, asyncio.sleep):
            waits = asyncio.create_task(made.aadmit(1, asyncio.sleep).__aenter__())
            await asyncio.sleep(0.03)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
        async with asyncio.timeout(2), made.aadmit(1, asyncio.sleep) as permit:
            return permit.replica

    assert asyncio.run(run()) == 0


def test_a_replica_that_failed_is_the_last_resort_for_a_while():
    made = gate(RateLimits(), one())
    with made.admit(1, time.sleep) as permit:
        assert permit.replica == 0
        permit.ended(failed=True)
    with ExitStack() as stack:
        assert entered(made, stack, 2) == [1, 0]  # the other first; then where there is room
    with made.admit(1, time.sleep) as permit:
        permit.ended(failed=False)


def test_shared_limits_are_asked_for_at_every_replica():
    limiters = {f"e{n}": EngineRateLimiter(RateLimits(requests_per_min=10)) for n in range(2)}
    made, short = ReplicaGate(limiters), threading.Event()
    shares = [limiter.share(short.set) for limiter in limiters.values()]
    with ThreadPoolExecutor(1) as pool:

        def wait():
            with made.admit(1, time.sleep) as permit:
                return permit.replica

        done = pool.submit(wait)
        assert short.wait(5)
        assert all(share.demand().lacks.requests == 1 for share in shares)
        shares[1].grow(RateAmounts(1, 0))
        assert done.result(5) == 1
    assert shares[0].demand().lacks.requests == 0  # it waits nowhere any more


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_that_no_replica_will_ever_admit_fails_and_one_that_some_replica_admits_does_not(is_async, recwarn):
    limiters = {f"e{n}": EngineRateLimiter(RateLimits(requests_per_min=10)) for n in range(2)}
    made = ReplicaGate(limiters)
    shares = [limiter.share(lambda: None) for limiter in limiters.values()]

    def replica():
        with made.admit(1, time.sleep) as permit:
            return permit.replica

    async def areplica():
        async with made.aadmit(1, asyncio.sleep) as permit:
            return permit.replica

    def call():
        return asyncio.run(areplica()) if is_async else replica()

    shares[0].cut_off("the first is lost")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(call)  # the second may still get a share
        shares[1].cut_off("the second is lost")
        with pytest.raises(CallError, match="is lost") as refused:
            waits.result(5)
    assert refused.value.kind == "rate_limit"
    with pytest.raises(CallError):
        call()
    shares[1].grow(RateAmounts(1, 0))
    assert call() == 1
    assert made.in_flight() == {"e0": 0, "e1": 0}
