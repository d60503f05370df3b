"""How long a run takes at least: the same as gates that are asked for every call, and said by what holds it back."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.toys.profiling import ToyBackend, catalog_for, toy
from kit.toys.wired import wired

from vinelm.backends.limits.rate_limits import EngineRateLimiter, RateLimits
from vinelm.backends.registry import rate_limiters_of
from vinelm.clock import VirtualClock
from vinelm.profiler import ProfileLimits, forecast_profile, make_sampler
from vinelm.profiler.dry_run.throughput import EngineRate, Workload, rates_of


def load_of(requests, tokens=0.0, call_s=0.0, tool_s=0.0):
    load = Workload()
    for _ in range(requests):
        load.add("m", requests=1, tokens=tokens, call_s=call_s, tool_s=tool_s)
    return load


def rate(**limits):
    return EngineRate("east", RateLimits(**limits), frozenset({"m"}))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 60), allowed=st.integers(1, 25))
def test_requests_per_minute_as_a_gate_would_let_them_start(n, allowed):
    clock = VirtualClock()
    rate_limiter = EngineRateLimiter(RateLimits(requests_per_min=allowed), clock)
    starts = [rate_limiter.reserve(1)[1] for _ in range(n)]
    assert load_of(n).least_s(1000, [rate(requests_per_min=allowed)])[0] == pytest.approx(max(starts))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 40), tokens=st.integers(1, 50), allowed=st.integers(50, 300))
def test_tokens_per_minute_never_more_than_a_gate_and_not_much_less(n, tokens, allowed):
    """A window may not be filled to the last token, so the bound is below."""
    rate_limiter = EngineRateLimiter(RateLimits(tokens_per_min=allowed), VirtualClock())
    last = max(rate_limiter.reserve(tokens)[1] for _ in range(n))
    found = load_of(n, tokens).least_s(1000, [rate(tokens_per_min=allowed)])[0]
    assert found <= last
    per_window = allowed // tokens
    assert last == 60 * (math.ceil(n / per_window) - 1)
    assert found >= last * (per_window * tokens / allowed) - 60


def test_the_longest_bound_counts_and_is_named():
    load = load_of(100, tokens=50, call_s=6.0, tool_s=2.0)
    assert load.least_s(4, []) == (200.0, "4 workers")
    assert load.least_s(1, []) == (800.0, "1 worker")
    assert load.least_s(4, [rate(concurrency=2)]) == (300.0, "east: 2 calls at a time")
    assert load.least_s(4, [rate(requests_per_min=10)]) == (9 * 60 + 6.0, "east: 10 requests per minute")
    assert load.least_s(4, [rate(tokens_per_min=1000)]) == (4 * 60 + 6.0, "east: 1,000 tokens per minute")
    assert load.least_s(4, [rate(tokens_per_min=1000, requests_per_min=10)])[1] == "east: 10 requests per minute"
    assert load.least_s(4, [EngineRate("west", RateLimits(concurrency=1), frozenset({"other"}))])[1] == "4 workers"
    assert load.least_s(4, [rate(requests_per_min=10)], scale=2.0)[0] == 19 * 60 + 6.0


def test_models_on_one_engine_share_its_limits():
    loaded = wired()
    backend = loaded.backends["test"]
    assert (rate_limiters_of(loaded.catalog, loaded.backends), rates_of(loaded.catalog, loaded.backends)) == (
        {},
        (),
    )  # none are set
    backend._rate_limiters = {"east": EngineRateLimiter(RateLimits(concurrency=3))}
    assert set(rate_limiters_of(loaded.catalog, loaded.backends)) == {"m0", "m1"}
    (shared,) = rates_of(loaded.catalog, loaded.backends)
    assert shared == EngineRate("east", RateLimits(concurrency=3), frozenset({"m0", "m1"}))
    workflow = toy()
    assert rates_of(catalog_for(workflow), {"test": ToyBackend()}) == ()


@pytest.mark.long
def test_a_forecast_takes_the_hours_that_the_rates_allow():
    workflow = toy(n_requests=8)
    catalog = catalog_for(workflow)
    template = workflow.template.bind(tuple(catalog))
    ids = [request.id for request in workflow.requests]

    def forecast_of(**limits):
        rates = [EngineRate("east", RateLimits(**limits), frozenset(catalog))] if limits else []
        sampler = make_sampler("exhaustive", template, ids, 0)
        return forecast_profile(template, catalog, ids, sampler, ProfileLimits(), workers=8, rates=rates)

    free, slow = forecast_of(), forecast_of(requests_per_min=1)
    assert free.held_back_by == "8 workers"
    assert slow.held_back_by == "east: 1 requests per minute"
    assert slow.cost_usd == free.cost_usd
    assert slow.hours.middle == pytest.approx((slow.all_calls.middle - 1) / 60, rel=0.1)
    assert forecast_of(concurrency=1).hours.middle == pytest.approx(8 * free.hours.middle)
    assert forecast_of(requests_per_min=10**9).hours == free.hours
