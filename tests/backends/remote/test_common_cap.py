"""One cap on dollars over 700 calls at once, in threads or on an event loop: the provider's bill never passes it.

The server keeps the bill: all but what it refuses to begin is charged in full, answered or not, as a provider may.
"""

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit.optional import needs
from kit.wire import openai_format
from kit.wire.client import PRICE, PROMPT, Client

from vinelm.clock import WallClock
from vinelm.errors import CallError, CallRefused
from vinelm.money.spend_guard import SpendGuard
from vinelm.requests.protocols import CallContext

needs("langchain_openai")
CAP_USD = 0.10
CALLS = 700
MOST_OUT = 64
USAGE = {"prompt_tokens": 1000, "completion_tokens": MOST_OUT, "total_tokens": 1000 + MOST_OUT}
ONE_USD = PRICE.cost_usd(1000, MOST_OUT)


class Till:
    """Answers most calls, hangs on some, fails or breaks off others, and refuses some: it charges all but these."""

    def __init__(self):
        self.calls = self.charged = 0

    @property
    def bill_usd(self):
        return self.charged * ONE_USD

    async def __call__(self, asked, out):
        self.calls += 1
        if self.calls % 7 == 5:
            return await out.whole(openai_format.problem("rate_limit_exceeded"), 429)
        self.charged += 1
        if self.calls % 11 == 7:
            return await out.whole({"error": {"message": "no"}}, 500)
        if self.calls % 5 == 3:
            await asyncio.sleep(3600)
        if self.calls % 5 == 4:
            return out.close()
        await asyncio.sleep(0.01)
        if not openai_format.is_stream(asked):
            return await out.whole(openai_format.completion("four", usage=USAGE))
        await out.chunked()
        for event in openai_format.chunks("fo", "ur", usage=USAGE):
            await out.event(event)
            await asyncio.sleep(0.005)
        await out.event("[DONE]")
        await out.finish()


@pytest.fixture
def till(transport):
    till = Till()
    transport.answers(till)
    return till


@pytest.fixture
def made(transport, kept, monkeypatch):
    monkeypatch.setenv("MY_KEY", "k")
    return kept(Client(transport.url, timeout_s=3.0, max_tokens=MOST_OUT, api_key_env="MY_KEY", settings={"stream": False}))


class Callers:
    """Seven hundred calls of one guard: whole ones, streamed ones, and those that are left in their midst."""

    def __init__(self, made, till):
        self.made, self.till = made, till
        self.guard = SpendGuard(CAP_USD)
        self.ends = Counter()
        self.most_usd = 0.0
        self.lock = threading.Lock()

    def chat(self):
        call = CallContext(stage="s", prefix=("m",), clock=WallClock(), on_usage=self.made.usages.append, guard=self.guard)
        return self.made.backend.chat_model(self.made.model, call)

    def end(self, how):
        with self.lock:
            self.ends[how] += 1
            self.most_usd = max(self.most_usd, self.till.bill_usd, self.guard.spent_usd)

    def call(self, number):
        try:
            if number % 2:
                self.chat().invoke(PROMPT)
            else:
                pieces = self.chat().stream(PROMPT)
                for piece in pieces:
                    if piece.text and number % 4:
                        pieces.close()  # left at its first word
        except CallRefused:
            return self.end("refused")
        except CallError:
            return self.end("failed")
        self.end("made")

    async def acall(self, number):
        try:
            if number % 2:
                await self.chat().ainvoke(PROMPT)
            else:
                async for _ in self.chat().astream(PROMPT):
                    pass
        except CallRefused:
            return self.end("refused")
        except CallError:
            return self.end("failed")
        except asyncio.CancelledError:
            self.end("cancelled")
            raise
        self.end("made")

    def all_in_threads(self, calls=CALLS):
        with ThreadPoolExecutor(calls) as pool:
            list(pool.map(self.call, range(calls)))

    async def all_at_once(self, calls=CALLS):
        tasks = [asyncio.ensure_future(self.acall(number)) for number in range(calls)]
        while self.till.calls < 10 and not all(task.done() for task in tasks):
            await asyncio.sleep(0.001)
        for task in [task for task in tasks if not task.done()][::3]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def check(self):
        assert sum(self.ends.values()) == CALLS
        assert min(self.ends["made"], self.ends["failed"], self.ends["refused"]) > 0
        assert ONE_USD * 10 < self.till.bill_usd <= CAP_USD
        assert self.most_usd <= CAP_USD + 1e-9
        # Nothing that was charged was booked as less, and nothing is held any more.
        booked_usd = sum(usage.cost_usd for usage in self.made.usages)
        assert self.till.bill_usd <= booked_usd + 1e-9
        assert self.guard.spent_usd == pytest.approx(booked_usd)
        assert self.guard.reserved_usd == 0.0


def test_a_cap_over_700_threads_is_never_passed(made, till):
    callers = Callers(made, till)
    callers.all_in_threads()
    callers.check()


def test_a_cap_over_700_tasks_is_never_passed_though_some_are_cancelled(made, till):
    callers = Callers(made, till)
    asyncio.run(callers.all_at_once())
    assert callers.ends["cancelled"] > 0
    callers.check()


def test_a_cap_that_threads_and_tasks_share_is_never_passed(made, till):
    callers = Callers(made, till)
    threads = threading.Thread(target=callers.all_in_threads, args=(CALLS // 2,))
    threads.start()
    asyncio.run(callers.all_at_once(CALLS // 2))
    threads.join()
    assert callers.ends["cancelled"] > 0
    callers.check()
