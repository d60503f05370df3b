"""The SDK's clients, shared by all calls to one server with one key: made on first use, one asynchronous per event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from vinelm.catalog import Model
from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

NO_KEY = "none"
"""What a server without keys is sent. Never what the SDK would find in the environment by itself."""


def api_key(model: Model) -> str:
    """The key from the variable that the entry names; :class:`ConfigError` names the variable if it is not set."""
    if model.api_key_env is None:
        if model.api_base is None:
            raise ConfigError(f'model {model.name!r}: no api_key_env: name the variable of the key, such as "OPENAI_API_KEY"')
        return NO_KEY
    key = os.environ.get(model.api_key_env, "").strip()
    if not key:
        raise ConfigError(f"model {model.name!r}: environment variable {model.api_key_env} is not set: put the API key there")
    return key


class Clients:
    """Clients of one server and one key. Thread-safe; they close with the process, asynchronous ones with their event loop."""

    def __init__(self, api_base: str | None, key: str) -> None:
        self._api_base = api_base
        self._key = key
        self._lock = threading.Lock()
        self._sync: OpenAI | None = None
        self._async: dict[asyncio.AbstractEventLoop, tuple[AsyncOpenAI, Any]] = {}

    def sync(self) -> OpenAI:
        """The synchronous client."""
        from openai import OpenAI

        with self._lock:
            if self._sync is None:
                self._sync = OpenAI(**self._settings())
            return self._sync

    async def asynchronous(self) -> AsyncOpenAI:
        """The client of the running event loop."""
        from openai import AsyncOpenAI

        loop = asyncio.get_running_loop()
        with self._lock:
            held = self._async.get(loop)
            if held is None:
                for other in [other for other in self._async if other.is_closed()]:
                    del self._async[other]
                client = AsyncOpenAI(**self._settings())
                closer = self._closed_with(loop, client)
                self._async[loop] = (client, closer)
        if held is not None:
            return held[0]
        await anext(closer)
        return client

    def close(self) -> None:
        """Close the synchronous client's connections."""
        with self._lock:
            if self._sync is not None:
                self._sync.close()
                self._sync = None

    async def _closed_with(self, loop: asyncio.AbstractEventLoop, client: AsyncOpenAI) -> AsyncGenerator[None]:
        """Suspended until the loop shuts its asynchronous generators down, as ``asyncio.run`` does at its end."""
        try:
            yield
        finally:
            with self._lock:
                self._async.pop(loop, None)
            await client.close()

    def _settings(self) -> dict[str, Any]:
        from openai import Omit

        settings: dict[str, Any] = {"api_key": self._key, "max_retries": 0}
        settings["base_url"] = self._api_base or "https://api.openai.com/v1"
        if self._api_base is not None:  # the account at OpenAI is no other server's business
            settings["default_headers"] = {"OpenAI-Organization": Omit(), "OpenAI-Project": Omit()}
        return settings
