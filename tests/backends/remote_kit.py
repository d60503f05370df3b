"""A remote backend on a server of a test's own, and four ways to ask it."""

import asyncio
import datetime
from functools import reduce

from vinelm.backends import create_backends
from vinelm.catalog import Catalog, Model, Price
from vinelm.protocols import CallContext, WallClock

MODES = ("invoke", "ainvoke", "stream", "astream")
KEY = "sk-canary-5e11"
PRICE = Price(input=1.0, output=10.0, cached=0.1, source="test", as_of=datetime.date(2026, 1, 1))
QUICK = {"backoff_s": 0.001}


def entry(url, **fields):
    fields = {"name": "m", "model_id": "model-1", "engine": "e", "price": PRICE, "price_id": "p", "timeout_s": 5.0, **fields}
    return Model(**{"provider": "openai", "api_base": url, **fields})


class Client:
    """A backend for one catalog entry; ``usages`` keeps what it reported."""

    def __init__(self, url, *, settings=None, **fields):
        self.model = entry(url, **fields)
        provider = self.model.provider
        self.backend = create_backends(Catalog([self.model], {provider: {**QUICK, **(settings or {})}}))[provider]
        self.usages = []

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
