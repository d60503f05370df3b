"""Delays calls to models with a prompt cache while another call writes the same beginning of the prompt to the cache.

When a call is sent, it is also decided which beginnings of its prompt get cache marks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol, SupportsFloat, runtime_checkable

from vinelm.prompts.cache_points import CachePoints, PromptCall
from vinelm.requests.protocols import Backend, RateLimiter, RatePermit


class PromptAdmission:
    """Decides when a call to a model with a prompt cache (``cache_points``) may start. Thread-safe.

    A call waits while another call writes the same beginning of the prompt to the cache, and then for the engine's rate limits.

    Args:
        limiter: the rate limits of the model's engine.
        points: tracks which prefixes the model's prompt cache probably holds.
    """

    def __init__(self, limiter: RateLimiter, points: CachePoints) -> None:
        self._limiter, self._points = limiter, points
        self.admit, self.aadmit = limiter.admit, limiter.aadmit  # an attempt without a prompt only needs the limits

    def of(self, prompt: PromptCall) -> RateLimiter:
        """Return the rate limiter for an attempt with this prompt. Once the attempt may start, the limiter also
        decides which beginnings of the prompt are marked for the cache.
        """
        return _OnePrompt(self._limiter, self._points, prompt)


class _OnePrompt:
    """The :class:`~vinelm.requests.protocols.RateLimiter` for one attempt with a cached prompt.

    The attempt first waits while another call writes the same beginning of the prompt to the cache, then for the rate limits.
    """

    def __init__(self, limiter: RateLimiter, points: CachePoints, prompt: PromptCall) -> None:
        self._limiter, self._points, self._prompt = limiter, points, prompt

    @contextmanager
    def admit(self, tokens: int, sleep: Callable[[float], None], priority: SupportsFloat = 0.0) -> Iterator[RatePermit]:
        """Wait until the attempt may start; see :meth:`RateLimiter.admit <vinelm.requests.protocols.RateLimiter.admit>`."""
        until_s = time.monotonic() + self._points.longest_wait_s
        while (leader := self._points.leader(self._prompt)) is not None and (rest_s := until_s - time.monotonic()) > 0:
            try:
                leader.result(rest_s)
            except TimeoutError:
                break
        with self._limiter.admit(tokens, sleep, priority) as permit:
            self._points.place(self._prompt)
            try:
                yield permit
            finally:
                self._points.end(self._prompt)

    @asynccontextmanager
    async def aadmit(
        self, tokens: int, sleep: Callable[[float], Awaitable[None]], priority: SupportsFloat = 0.0
    ) -> AsyncIterator[RatePermit]:
        """Wait until the attempt may start, like :meth:`admit`, without blocking the event loop."""
        until_s = time.monotonic() + self._points.longest_wait_s
        while (leader := self._points.leader(self._prompt)) is not None and (rest_s := until_s - time.monotonic()) > 0:
            await asyncio.wait([asyncio.wrap_future(leader)], timeout=rest_s)
        async with self._limiter.aadmit(tokens, sleep, priority) as permit:
            self._points.place(self._prompt)
            try:
                yield permit
            finally:
                self._points.end(self._prompt)


class AdmitsPrompts(Protocol):
    """The interface for admitting calls to a model with a prompt cache (``cache_points``).

    Implementations keep the rate limits in this process or in another process.
    """

    def of(self, prompt: PromptCall) -> RateLimiter:
        """Return the rate limiter for an attempt with this prompt; see :meth:`PromptAdmission.of`."""


@runtime_checkable
class KeepsPrompts(Backend, Protocol):
    """A backend that marks which beginnings of a prompt the provider should cache."""

    @property
    def prompt_admissions(self) -> Mapping[str, PromptAdmission]:
        """The :class:`PromptAdmission` of each model whose prompts are cached (``cache_points``), by the model's name."""
