"""Rate limits over all children: every attempt of every call waits at the run's own gate, and nobody's death blocks it."""

import asyncio
import datetime
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from kit.toys.wired import CALLS, TOKENS, CountingLimiter, wired
from langchain_core.language_models import FakeListChatModel

from vinelm.backends.limits.prompt_admission import PromptAdmission
from vinelm.backends.limits.rate_limits import WINDOW_S, EngineRateLimiter, RateLimits
from vinelm.catalog import Catalog, Model, Price
from vinelm.clock import WallClock
from vinelm.profiler import ExecutionConfig, ProfileSettings, WorkflowSource, profile
from vinelm.profiler.execution.fingerprint import store_identity
from vinelm.profiler.isolation.child_process import Child
from vinelm.profiler.isolation.rate_limit_proxy import ProxiedRateLimiter, RateLimitProxy
from vinelm.prompts.cache_points import CachePoints, PromptCall, Reuse
from vinelm.prompts.shape import shape_of
from vinelm.requests.protocols import CallContext
from vinelm.traces import ObservationStore


@contextmanager
def proxy_of(rate_limiter, waiting=None):
    units = []

    @contextmanager
    def noted(unit):
        units.append(unit)
        yield

    proxy = RateLimitProxy({"m0": rate_limiter}, waiting or noted)
    proxy.units = units
    try:
        yield proxy
    finally:
        proxy.close()


def never(_):
    raise AssertionError("the run's side waits, not the child's")


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize("isolation", ["process", "thread"])
def test_every_call_of_every_unit_goes_through_the_gate(tmp_path, isolation):
    settings = {"n_requests": 5, "seconds": 0.01}
    loaded, rate_limiter = wired(**settings), CountingLimiter(RateLimits(concurrency=2))
    loaded.backends["test"]._rate_limiters = {"east": rate_limiter}
    identity = store_identity(loaded.workflow, loaded.catalog, loaded.backends)
    with ObservationStore.create(tmp_path / "s.db", identity) as store:
        source = WorkflowSource(function="kit.toys.wired:wired", arguments=settings) if isolation == "process" else None
        execution = ExecutionConfig(isolation=isolation, workers=6, source=source)
        result = profile(
            loaded.workflow,
            loaded.catalog,
            loaded.backends,
            store,
            ProfileSettings(execution=execution, sampler="exhaustive", budget_usd=1.0),
        )
        rows = store.observations()
    assert (result.stopped_by, len(rows)) == ("complete", 10)
    assert [row.failure for row in rows] == [None] * 10
    assert sum(row.calls for row in rows) == len(rate_limiter.tickets) == 10 * CALLS
    assert {ticket.tokens for ticket in rate_limiter.tickets} == {sum(TOKENS)}  # settled by what each call used
    assert (rate_limiter.most, rate_limiter.now) == (2, 0)
    assert 0 < max(row.in_flight for row in rows) <= 5


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_an_attempt_that_is_repeated_counts_again(is_async):
    rate_limiter = CountingLimiter(RateLimits(requests_per_min=1000))
    loaded, usages = wired(), []
    with proxy_of(rate_limiter) as proxy:
        call = CallContext(
            stage="generate",
            prefix=("m0",),
            clock=WallClock(),
            on_usage=usages.append,
            rate_limiter=ProxiedRateLimiter(proxy.theirs, 7, "m0"),
        )
        model = loaded.backends["test"].chat_model(loaded.catalog["m0"], call)
        answer = asyncio.run(model.ainvoke("flaky")) if is_async else model.invoke("flaky")
    assert answer.text == "right"
    assert [usage.retries for usage in usages] == [1]
    assert len(rate_limiter.tickets) == 2
    assert proxy.units == [7, 7]


PROVIDERS = {
    "openai": {"api_key_env": "TOY_API_KEY"},
    "bedrock": {"model_id": "amazon.nova-lite-v1:0", "options": {"region": "us-east-1"}},
    "gemini": {"api_key_env": "TOY_API_KEY"},
    "sglang": {"api_base": "http://127.0.0.1:1"},
    "langchain": {"model_id": "live"},
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_remote_provider_holds_its_calls_back_at_the_gate_it_is_given(provider, monkeypatch):
    from vinelm.backends import create_backends

    for name in ("TOY_API_KEY", "OPENAI_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "canary")
    price = Price(input=1.0, output=4.0, source="a test", as_of=datetime.date(2026, 1, 1))
    fields = {"model_id": "some-model", "engine": "east", "max_tokens": 100, "price": price} | PROVIDERS[provider]
    model = Model(name="m", provider=provider, **fields)
    catalog = Catalog([model], {provider: {"limits": {"east": {"concurrency": 1}}}})
    if provider == "langchain":
        catalog.live["m"] = FakeListChatModel(responses=["x"])
    (backend,) = create_backends(catalog).values()
    rate_limiter = EngineRateLimiter(RateLimits())
    call = CallContext(stage="s", prefix=("m",), clock=WallClock(), on_usage=lambda _: None)
    assert backend.rate_limiters["east"].limits == RateLimits(concurrency=1)  # what the run hands on to its proxy
    assert backend.chat_model(model, call).binding.rate_limiter is backend.rate_limiters["east"]
    assert backend.chat_model(model, replace(call, rate_limiter=rate_limiter)).binding.rate_limiter is rate_limiter
    backend.close()


def test_a_place_is_free_again_whatever_becomes_of_who_had_it():
    rate_limiter = EngineRateLimiter(RateLimits(concurrency=1))
    with proxy_of(rate_limiter) as proxy:
        remote = ProxiedRateLimiter(proxy.theirs, 0, "m0")
        with remote.admit(5, never) as ticket:
            dead = remote._request(5)  # waits behind it, and is gone before its turn
            dead.channel.close()
            ticket.settle(1)
        holder = remote._request(5)
        assert holder.channel.recv(1)
        holder.channel.close()  # dies inside

        async def last():
            async with remote.aadmit(5, never) as ticket:
                ticket.settle(2)
            return True

        assert asyncio.run(last())


def test_who_waits_for_a_window_and_dies_does_not_wait_to_its_end():
    rate_limiter = EngineRateLimiter(RateLimits(requests_per_min=1, concurrency=2))
    over = threading.Event()

    @contextmanager
    def waiting(unit):
        try:
            yield
        finally:
            if unit == 1:
                over.set()

    with proxy_of(rate_limiter, waiting) as proxy:
        with ProxiedRateLimiter(proxy.theirs, 0, "m0").admit(1, never):
            pass
        second = ProxiedRateLimiter(proxy.theirs, 1, "m0")._request(1)
        assert not over.wait(0.05)
        second.channel.close()
        assert over.wait(WINDOW_S / 3)


def test_a_run_that_is_gone_is_an_error_and_no_call():
    proxy = RateLimitProxy({"m0": EngineRateLimiter(RateLimits(concurrency=1))}, lambda unit: None)
    theirs = proxy.theirs.dup()
    proxy.close()
    with pytest.raises(ConnectionError), ProxiedRateLimiter(theirs, 0, "m0").admit(1, never):
        pytest.fail("let through")
    theirs.close()


def test_a_childs_clock_stands_still_while_it_waits(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    mine, theirs = socket.socketpair()
    with mine, theirs:
        child = Child(0, mine, timeout_s=10.0)
        now[0] += 4
        with child.waiting():
            now[0] += 50
            with child.waiting():
                now[0] += 50
            now[0] += 50
            assert child.ran_s == 4
        now[0] += 3
        assert child.ran_s == 7
        now[0] += 4
        with pytest.raises(TimeoutError):
            child._next()


def test_units_share_what_a_prompt_cache_holds():
    """A child sends the shape of its prompt and gets the marks; the next one waits until the first has begun to answer."""
    price = Price(input=3, output=15, cached=0.3, cache_write=3.75, source="t", as_of=datetime.date(2026, 1, 1))
    model = Model(name="m0", provider="anthropic", model_id="m0", engine="e", price=price, cache_points="auto")
    points = CachePoints(model, takes_marks=True, reuse=Reuse(), clock=WallClock())
    steps = []

    def call(unit, release):
        prompt = PromptCall.of("s", shape_of(["role " * 2000, f"request {unit}"], b""), takes_marks=True, may_wait=True)
        with ProxiedRateLimiter(proxy.theirs, unit, "m0").of(prompt).admit(10, never) as permit:
            steps.append((unit, prompt.marks))
            release.wait(5)
            prompt.begun()
            permit.settle(7)

    with proxy_of(PromptAdmission(EngineRateLimiter(RateLimits()), points)) as proxy:
        first, at_once = threading.Event(), threading.Event()
        at_once.set()
        threads = [threading.Thread(target=call, args=(0, first))]
        threads[0].start()
        while not steps:
            time.sleep(0.001)
        threads += [threading.Thread(target=call, args=(unit, at_once)) for unit in (1, 2)]
        for thread in threads[1:]:
            thread.start()
        time.sleep(0.05)
        assert steps == [(0, (0,))]
        first.set()
        for thread in threads:
            thread.join(5)
    assert sorted(steps) == [(0, (0,)), (1, (0,)), (2, (0,))]
    assert not points._writing


def test_a_child_that_dies_while_it_writes_holds_nobody_up():
    price = Price(input=3, output=15, cached=0.3, cache_write=3.75, source="t", as_of=datetime.date(2026, 1, 1))
    model = Model(name="m0", provider="anthropic", model_id="m0", engine="e", price=price, cache_points="auto")
    points = CachePoints(model, takes_marks=True, reuse=Reuse(), clock=WallClock())
    shape = shape_of(["role " * 2000], b"")
    with proxy_of(PromptAdmission(EngineRateLimiter(RateLimits()), points)) as proxy:
        first, second = (PromptCall.of("s", shape, takes_marks=True, may_wait=True) for _ in range(2))
        dying = ProxiedRateLimiter(proxy.theirs, 0, "m0").of(first)
        permit = dying._request(10)
        permit.take(permit.channel.recv(100))
        leader = points.leader(second)
        permit.channel.close()  # what the kernel does for a dead child
        leader.result(5)  # else TimeoutError
        assert points.leader(second) is None
