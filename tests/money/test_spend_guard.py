"""The guard of a request's money: permits, their settlement, and what holds whatever threads do."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vinelm.errors import CallRefused
from vinelm.money.spend_guard import SpendGuard
from vinelm.rows.observation import Usage


def usage(cost_usd):
    return Usage(model="m0", cost_usd=cost_usd, latency_s=1.0)


def test_calls_under_way_count_with_what_they_may_cost():
    guard = SpendGuard(1.0)
    first = guard.authorize(0.6)
    with pytest.raises(CallRefused, match=r"up to \$0\.500000, and \$0\.400000 is left of the request's \$1"):
        guard.authorize(0.5)
    second = guard.authorize(0.4)
    first.settle(usage(0.1))  # this one, and no other: half a dollar is left
    with pytest.raises(CallRefused):
        guard.authorize(0.51)
    third = guard.authorize(0.5)
    second.settle(usage(0.1))
    third.settle(usage(0.1))
    guard.authorize(0.7)
    assert len(guard.take_refusals()) == 2
    assert guard.take_refusals() == []


def test_a_permit_is_settled_once_and_one_that_is_dropped_at_its_bound():
    guard = SpendGuard(1.0)
    permit = guard.authorize(0.5)
    permit.settle(usage(0.1))
    permit.settle(usage(0.3))
    permit.close()
    assert (guard.spent_usd, guard.reserved_usd, guard.calls) == (0.1, 0.0, 1)
    with pytest.raises(OSError, match="lost"), guard.authorize(0.25):
        raise OSError("lost")
    assert (guard.spent_usd, guard.reserved_usd, guard.calls) == (0.35, 0.0, 2)


def test_what_others_spent_counts_on_top_of_what_is_spent_here():
    """A cap of $1.0, $0.6 spent elsewhere: after one call of $0.3 there is no room for another."""
    guard = SpendGuard(1.0)
    guard.add_inherited(0.6)
    guard.authorize(0.3).settle(usage(0.3))
    for _ in range(2):
        with pytest.raises(CallRefused, match=r"\$0\.100000 is left"):
            guard.authorize(0.3)
    guard.note_recorded(0.3)  # the same dollars, once their invocation is over
    assert guard.spent_usd == pytest.approx(0.9)


def test_a_call_that_asked_nobody_counts_once_it_is_recorded():
    guard = SpendGuard(1.0)
    guard.note_recorded(0.8)
    with pytest.raises(CallRefused):
        guard.authorize(0.3)
    guard.charge(usage(0.9))
    assert guard.spent_usd == 0.9


CALLS = st.lists(
    st.tuples(st.floats(0.0, 0.5), st.floats(0.0, 0.6), st.sampled_from(["settle", "close", "twice", "leave"])), max_size=30
)


@given(st.floats(0.0, 2.0), st.floats(0.0, 1.0), CALLS)
def test_never_more_than_the_cap_and_the_overruns_whatever_the_order(cap, inherited, calls):
    guard, overruns, left_open = SpendGuard(cap), 0.0, []
    guard.add_inherited(inherited)
    for upper, real, how in calls:
        try:
            permit = guard.authorize(upper)
        except CallRefused:
            assert guard.spent_usd + guard.reserved_usd + upper > cap - 1e-9
            continue
        if how == "leave":
            left_open.append((permit, upper, real))
        if how in ("settle", "twice"):
            permit.settle(usage(real))
            overruns += max(real - upper, 0.0)
        if how in ("close", "twice"):
            permit.close()
        assert guard.spent_usd + guard.reserved_usd <= max(cap, inherited) + overruns + 1e-9
    for permit, upper, real in left_open:
        permit.settle(usage(real))
        overruns += max(real - upper, 0.0)
    assert guard.reserved_usd == 0.0
    assert guard.spent_usd <= max(cap, inherited) + overruns + 1e-9


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 0.3), st.floats(0.0, 0.4)), min_size=8, max_size=40))
def test_never_more_than_the_cap_and_the_overruns_whatever_threads_do(calls):
    guard, lock, over, paid = SpendGuard(1.0), threading.Lock(), [], []

    def call(bounds):
        upper, real = bounds
        try:
            permit = guard.authorize(upper)
        except CallRefused:
            return
        permit.settle(usage(real))
        permit.close()
        with lock:
            over.append(max(real - upper, 0.0))
            paid.append(real)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, calls))
    assert guard.spent_usd == pytest.approx(sum(paid))
    assert guard.spent_usd <= 1.0 + sum(over) + 1e-9
    assert (guard.reserved_usd, guard.calls) == (0.0, len(paid))
