"""A call that is cancelled at each of its awaits: one record, nothing left reserved, no less booked than was begun."""

import asyncio

import pytest
from kit.wire.client import PRICE
from kit.wire.providers import _Ready
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from vinelm.clock import WallClock
from vinelm.money.guard_pair import GuardPair
from vinelm.money.spend_guard import SpendGuard
from vinelm.requests.protocols import CallContext

USAGE = {"input_tokens": 20, "output_tokens": 7, "total_tokens": 27}
END = {"finish_reason": "stop"}
BILL = PRICE.cost_usd(20, 7)


class Sold(BaseChatModel):
    """Bills a call as soon as it has begun; waits between any two steps."""

    bills: list
    max_tokens: int = 100

    @property
    def _llm_type(self):
        return "sold"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        raise NotImplementedError

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        self.bills.append(BILL)
        for _ in range(3):
            await asyncio.sleep(0)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("four", usage_metadata=USAGE, response_metadata=END))])

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        self.bills.append(BILL)
        for word in ("fo", "ur"):
            await asyncio.sleep(0)
            yield ChatGenerationChunk(message=AIMessageChunk(word))
        await asyncio.sleep(0)
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=USAGE, response_metadata=END))


class Waiting:
    """A guard that waits before it reserves, as one of a fleet does, and after it."""

    def __init__(self, guard):
        self._guard = guard

    def authorize(self, upper_usd):
        return self._guard.authorize(upper_usd)

    async def aauthorize(self, upper_usd):
        await asyncio.sleep(0)
        return self._guard.authorize(upper_usd)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_that_is_cancelled_at_any_of_its_awaits_is_booked_once_and_leaves_nothing_reserved(is_streamed):
    ends = set()
    for steps in range(25):
        made = _Ready(lambda url, timeout_s: Sold(bills=[]), "http://127.0.0.1:9/v1")
        tenant, own = SpendGuard(1.0), SpendGuard(1.0)
        guard = GuardPair(Waiting(tenant), Waiting(own))
        call = CallContext(stage="s", prefix=("m",), clock=WallClock(), guard=guard, on_usage=made.usages.append)
        chat = made.backend.chat_model(made.model, call)

        async def ask(chat=chat):
            if not is_streamed:
                return await chat.ainvoke("2 + 2?")
            return [piece async for piece in chat.astream("2 + 2?")]

        async def run(steps=steps, ask=ask):
            task = asyncio.ensure_future(ask())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            return isinstance(ended, asyncio.CancelledError)

        is_cancelled = asyncio.run(run())
        billed_usd, booked_usd = sum(made.ready.bills), sum(usage.cost_usd for usage in made.usages)
        bound_usd = made.backend.upper_bound_usd(made.model, [HumanMessage("2 + 2?")]) / 2
        assert len(made.usages) <= 1
        assert tenant.reserved_usd == own.reserved_usd == 0.0
        assert tenant.spent_usd == own.spent_usd == pytest.approx(booked_usd)
        assert billed_usd <= booked_usd <= bound_usd * 1.001
        ends.add((is_cancelled, bool(billed_usd)))
        made.close()
    assert ends == {(True, False), (True, True), (False, True)}


@pytest.mark.parametrize("what", ["the record", "the observer", "the guard"])
def test_whatever_fails_at_the_end_of_a_call_nothing_stays_reserved(monkeypatch, what):
    """The call is reported as well, where there is something to report."""
    made, guard = _Ready(lambda url, timeout_s: Sold(bills=[]), "http://127.0.0.1:9/v1"), SpendGuard(1.0)
    authorize, told, reported = guard.authorize, made.usages.append, []

    def authorized(upper_usd):
        permit = authorize(upper_usd)
        monkeypatch.setattr(type(permit), "settle", broken)
        return permit

    def broken(*_):
        raise OSError("broken")

    def on_usage(usage):
        told(usage)
        reported.append(usage)
        if what == "the observer":
            broken()

    if what == "the record":
        monkeypatch.setattr("vinelm.backends.remote.meter.MeteredCall.usage", broken)
    if what == "the guard":
        monkeypatch.setattr(guard, "authorize", authorized)
    call = CallContext(stage="s", prefix=("m",), clock=WallClock(), guard=guard, on_usage=on_usage)
    with pytest.raises(OSError, match="broken"):
        asyncio.run(made.backend.chat_model(made.model, call).ainvoke("2 + 2?"))
    assert guard.reserved_usd == 0.0
    assert len(reported) == (what != "the record")
    made.close()
