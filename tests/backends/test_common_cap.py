"""A cap that hundreds of calls share, in threads and on an event loop, some of which fail, are cancelled or abandoned."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from kit.optional import needs
from kit.wire import openai_format
from kit.wire.client import PRICE, Client
from kit.wire.server import end_connections

from vinelm.clock import WallClock
from vinelm.errors import CallError, CallRefused
from vinelm.money.spend_guard import SpendGuard
from vinelm.requests.protocols import CallContext

needs("langchain_openai")
pytestmark = pytest.mark.usefixtures("credentials")
CAP_USD, CALLS, LIMIT = 0.10, 700, 100
TRIES, PAUSE_S = 15, 0.02


class Seller:
    """A server with a bill of its own: it charges for all that it has begun to work on."""

    def __init__(self, seed):
        self.random, self.billed_usd, self.most_usd, self.answered = random.Random(seed), 0.0, 0.0, 0

    async def reply(self, asked, out):
        way = self.random.choice(("answer",) * 8 + ("refuse", "fail", "hang", "cut"))
        tokens = self.random.randint(1, LIMIT) if way == "answer" else LIMIT
        usage = {"prompt_tokens": 200, "completion_tokens": tokens, "total_tokens": 200 + tokens}
        if way == "refuse":
            return await out.whole(openai_format.problem("rate_limit_exceeded"), 429)
        self.billed_usd += PRICE.cost_usd(200, tokens)
        self.answered += way == "answer"
        if way == "fail":
            return await out.whole({"error": {"message": "no"}}, 500)
        if way == "hang":
            await asyncio.sleep(0.2)
            return out.close()
        if way == "cut" or not openai_format.is_stream(asked):
            whole = openai_format.completion("four " * min(tokens, 20), usage=usage)
            if way == "answer":
                return await out.whole(whole)
            await out.head(content_type="application/json", content_length=10_000)
            await out.send(b"{")
            return out.close()
        return await openai_format.stream(out, *["four "] * min(tokens, 20), usage=usage)


def test_a_common_cap_over_seven_hundred_calls_is_never_passed(transport, kept):
    seller = Seller(1)
    transport.answers(seller.reply)
    made = kept(Client(transport.url, api_key_env="MY_KEY", max_tokens=LIMIT, timeout_s=1.0, settings={"backoff_s": 0.001}))
    guard, booked, lock = SpendGuard(CAP_USD), [], threading.Lock()

    def chat(**fields):
        call = CallContext(stage="s", prefix=("m",), clock=WallClock(), guard=guard, on_usage=note, **fields)
        return made.backend.chat_model(made.model, call)

    def note(usage):
        with lock:
            booked.append(usage.cost_usd)

    def in_a_thread(number):
        for _ in range(TRIES):
            with suppress(CallError):
                try:
                    if number % 3:
                        return chat().invoke("2 + 2?")
                    pieces = chat().stream("2 + 2?")
                    next(pieces)
                    return pieces.close()  # abandoned
                except CallRefused:
                    time.sleep(PAUSE_S)
                    continue
            return None
        return None

    async def on_a_loop(number):
        for _ in range(TRIES):
            with suppress(CallError, TimeoutError):
                try:
                    async with asyncio.timeout(0.05 if number % 4 == 0 else None):  # cancelled
                        return await chat().ainvoke("2 + 2?")
                except CallRefused:
                    await asyncio.sleep(PAUSE_S)
                    continue
            return None
        return None

    async def all_of_a_loop():
        await asyncio.gather(*map(on_a_loop, range(CALLS // 2)))

    with ThreadPoolExecutor(33) as pool:
        loop = pool.submit(asyncio.run, all_of_a_loop())
        list(pool.map(in_a_thread, range(CALLS // 2)))
        loop.result()
    end_connections()
    assert guard.reserved_usd == 0.0
    assert guard.spent_usd == pytest.approx(sum(booked))
    assert seller.billed_usd <= guard.spent_usd <= CAP_USD
    assert seller.answered > 20  # the cap was what ended it, not a fault of this test
    assert guard.left_usd < 2 * made.backend.upper_bound_usd(made.model, [])
