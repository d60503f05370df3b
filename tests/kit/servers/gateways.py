"""A gateway in a thread of the test, before the test's own wire server."""

import socket
import threading
from contextlib import contextmanager

import openai
import uvicorn

from vinelm import VineLM
from vinelm.catalog import Catalog
from vinelm.gateway import Gateway
from vinelm.gateway.app import LIMITS
from vinelm.gateway.server import server_config

KEY_ENV, KEY = "TEST_UPSTREAM_KEY", "sk-upstream-9a8b7c6d5e4f"
PRICE = {"input": 1.0, "output": 10.0, "cached": 0.1, "source": "a test", "as_of": "2026-01-01"}
COST = (12 * 1.0 + 8 * 0.1 + 7 * 10.0) / 1e6
"""Of the usage that the wire server's answers state: 20 tokens, 8 of them cached, and 7."""
ASKED = [{"role": "user", "content": "2 + 2?"}]


def entries(url, *names, **more):
    return [
        {
            "name": name,
            "provider": "openai",
            "model": f"{name}-1",
            "api_base": url,
            "api_key_env": KEY_ENV,
            "price": PRICE,
            **more,
        }
        for name in names
    ]


def catalog_of(url, *names, **more):
    return Catalog.from_dict({"model": entries(url, *(names or ("big", "small")), **more)})


class RunningGateway:
    """``url`` of the API; ``client()`` of the SDK."""

    def __init__(self, gateway, limits=LIMITS):
        self.gateway = gateway
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.address = self._socket.getsockname()
        self.url = f"http://127.0.0.1:{self.address[1]}/v1"
        self._server = uvicorn.Server(server_config(gateway, limits))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()

    def client(self, key="any", **more):
        return openai.OpenAI(base_url=self.url, api_key=key, max_retries=0, **more)

    def aclient(self, key="any", **more):
        return openai.AsyncOpenAI(base_url=self.url, api_key=key, max_retries=0, **more)

    def ask(self, key="any", headers=None, **more):
        """One call; returns the completion."""
        with self.client(key) as client:
            return client.chat.completions.create(**{"model": "big", "messages": ASKED, **more}, extra_headers=headers)

    def stop(self):
        self._server.should_exit = True
        self._thread.join(30)
        self._socket.close()


@contextmanager
def running(models, *, limits=LIMITS, trie=None, more=None, **how):
    """A gateway over these models."""
    found = RunningGateway(Gateway(VineLM(models, trie=trie, **(more or {})), limits=limits, **how), limits)
    try:
        yield found
    finally:
        found.stop()
