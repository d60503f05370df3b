"""A remote backend on a server of a test's own, four ways to ask it, and what every failure has to look like."""

import asyncio
import datetime
import traceback
from functools import reduce

import pytest

from vinelm.backends import create_backends
from vinelm.catalog import Catalog, Model, Price
from vinelm.clock import WallClock
from vinelm.errors import CallError
from vinelm.requests.protocols import CallContext

MODES = ("invoke", "ainvoke", "stream", "astream")
SHELLS = ("invoke", "astream")
KEY = "sk-canary-5e11"
PROMPT = "my-secret-prompt"
PRICE = Price(input=1.0, output=10.0, cached=0.1, source="test", as_of=datetime.date(2026, 1, 1))
COST = PRICE.cost_usd(20, 7, 8)
"""Of the usage that every wire format's answers state."""
QUICK = {"backoff_s": 0.001}
ONCE = {"max_retries": 0}


def entry(url, **fields):
    fields = {"name": "m", "model_id": "model-1", "engine": "e", "price": PRICE, "price_id": "p", "timeout_s": 60.0, **fields}
    return Model(**{"provider": "openai", "api_base": url, **fields})


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Client:
    """A backend for one catalog entry; ``usages`` keeps what it reported."""

    def __init__(self, url, *, settings=None, **fields):
        self.model = entry(url, **fields)
        self.table = {**QUICK, **(settings or {})}
        self.backend = self.made(Catalog([self.model], {self.model.provider: self.table}))
        self.usages = []

    @staticmethod
    def made(catalog):
        (backend,) = create_backends(catalog).values()
        return backend

    def close(self):
        self.backend.close()

    def chat(self):
        call = CallContext(stage="s", prefix=("m",), clock=WallClock(), on_usage=self.usages.append)
        return self.backend.chat_model(self.model, call)

    def ask(self, mode, prompt="2 + 2?", chat=None, **options):
        """The whole message, however it came."""
        chat = chat or self.chat()
        if mode == "invoke":
            return chat.invoke(prompt, **options)
        if mode == "stream":
            return reduce(lambda a, b: a + b, chat.stream(prompt, **options))
        return asyncio.run(self.aask(mode, prompt, chat, **options))

    async def aask(self, mode, prompt, chat=None, **options):
        chat = chat or self.chat()
        if mode == "ainvoke":
            return await chat.ainvoke(prompt, **options)
        return reduce(lambda a, b: a + b, [piece async for piece in chat.astream(prompt, **options)])


def fails(made, mode, secrets=(KEY, "s3cret")):
    """The error and the one usage of a call that fails: both say the same, and nothing that they must not."""
    with pytest.raises(CallError) as raised:
        made.ask(mode, PROMPT)
    (usage,) = made.usages
    error = raised.value
    assert (error.kind, error.cost_usd) == (usage.failure, usage.cost_usd)
    assert (error.__cause__, error.__context__) == (None, None)  # an SDK's errors hold headers, prompt and answer
    said = "".join(traceback.format_exception(error)) + repr(error) + repr(usage)
    for secret in (PROMPT, *secrets):
        assert secret not in said
    assert "\n" not in str(error)
    return error, usage
