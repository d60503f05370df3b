"""Shares rate limits between child processes: a call in a child waits for the parent's rate limiter.

Each attempt is a request to the parent (:mod:`vinelm.profiler.isolation.child_requests`) with job, model and tokens. When the
attempt is admitted, the parent answers with one byte: the index of the replica that serves it (0 without replicas). At its end,
the child sends the tokens used. If a child dies, the kernel closes the child's socket, which frees the attempt's slot.

For a model with cache points, the request also contains the prompt's hashes, and the answer has a further byte for each cache
point. The child sends :data:`_BEGUN` when the model begins to answer.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, SupportsFloat, cast

from vinelm.backends.limits.prompt_admission import AdmitsPrompts
from vinelm.profiler.isolation.child_requests import ChildRequests, requested
from vinelm.prompts.cache_points import PromptCall
from vinelm.requests.protocols import RatePermit

_LONGEST = 8192  # bytes of a message
_BEGUN = b"+"


class AdmitsAttempts(Protocol):
    """The part of a :class:`vinelm.requests.protocols.RateLimiter` that threads use, without coroutines."""

    def admit(
        self, tokens: int, sleep: Callable[[float], None], priority: SupportsFloat = 0.0
    ) -> AbstractContextManager[RatePermit]:
        """Wait until the limits admit an attempt; see :meth:`vinelm.requests.protocols.RateLimiter.admit`."""


class RateLimitProxy(ChildRequests):
    """The parent's side of the shared rate limits.

    Args:
        rate_limiters: the rate limiters by model name.
        waiting: called with the number of a job; returns a context manager that is entered while an attempt of this job waits.
    """

    def __init__(
        self, rate_limiters: Mapping[str, AdmitsAttempts], waiting: Callable[[int], AbstractContextManager[None]]
    ) -> None:
        self._rate_limiters, self._waiting = rate_limiters, waiting
        super().__init__(self._admit, "attempt")

    def _admit(self, channel: socket.socket, attempt: Mapping[str, Any]) -> None:
        limiter, prompt = self._rate_limiters[attempt["model"]], PromptCall("")
        if "prompt" in attempt:
            prompt = PromptCall.received(attempt["prompt"])
            limiter = cast("AdmitsPrompts", limiter).of(prompt)
        # A child that has died needs no answer; leaving the block frees its place.
        with channel, suppress(OSError), ExitStack() as admission:
            with self._waiting(int(attempt["unit"])):
                permit = admission.enter_context(
                    limiter.admit(int(attempt["tokens"]), lambda seconds: _sleep(channel, seconds))
                )
            channel.sendall(bytes([getattr(permit, "replica", 0), *prompt.marks]))
            used = channel.recv(_LONGEST)
            if used.startswith(_BEGUN):
                prompt.begun()
                used = used.removeprefix(_BEGUN) or channel.recv(_LONGEST)
            if used:
                permit.settle(int(used))


def _sleep(channel: socket.socket, seconds: float) -> None:
    """Sleep; raise ``ConnectionError`` as soon as the process at the other end of ``channel`` has exited."""
    channel.settimeout(seconds)
    try:
        # The child sends nothing while it waits, so if this read ends before the timeout, the child is gone.
        channel.recv(1)
    except TimeoutError:
        channel.settimeout(None)
        return
    raise ConnectionError("the child is gone")


@dataclass(slots=True)
class _ProxiedPermit:
    """The child's side of an admitted attempt; reports the tokens used when closed."""

    channel: socket.socket
    tokens: int | None = field(default=None)
    replica: int = 0  # of a replica group; chosen by the parent
    prompt: PromptCall | None = None

    def settle(self, tokens: int) -> None:
        """Record the tokens that the attempt really used, which :meth:`close` reports."""
        self.tokens = tokens

    def take(self, answer: bytes) -> None:
        """Record from the parent's ``answer`` which replica to call, and where to mark the prompt for caching.

        Raises ``ConnectionError`` if the parent has exited.
        """
        if not answer:
            raise ConnectionError("the process that holds the rate limits is gone")
        self.replica = answer[0]
        if self.prompt is not None:
            self.prompt.marks, self.prompt.on_begun = tuple(answer[1:]), self._begun

    def _begun(self) -> None:
        with suppress(OSError):
            self.channel.sendall(_BEGUN)

    def close(self) -> None:
        """End the attempt: report to the parent how many tokens it used."""
        with self.channel, suppress(OSError):
            if self.tokens is not None:
                self.channel.sendall(str(self.tokens).encode())


class ProxiedRateLimiter:
    """The child's side of a model's :class:`vinelm.requests.protocols.RateLimiter`; all threads and event loops may share it.

    Raises ``ConnectionError`` if the parent has exited.
    """

    def __init__(self, theirs: socket.socket, unit: int, model: str, prompt: PromptCall | None = None) -> None:
        self._theirs, self._prompt = theirs, prompt
        self._attempt: dict[str, Any] = {"unit": unit, "model": model}

    def of(self, prompt: PromptCall) -> ProxiedRateLimiter:
        """Return a rate limiter for one attempt with this prompt.

        The parent process admits the attempt, and decides which beginnings of the prompt are marked for the provider's cache.
        """
        return ProxiedRateLimiter(self._theirs, self._attempt["unit"], self._attempt["model"], prompt)

    @contextmanager
    def admit(self, tokens: int, sleep: Callable[[float], None], priority: SupportsFloat = 0.0) -> Iterator[_ProxiedPermit]:
        """Wait until the parent admits an attempt that may use ``tokens`` tokens, and yield the attempt's permit.

        ``sleep`` and ``priority`` are ignored, since the parent does the waiting.
        """
        permit = self._request(tokens)
        try:
            permit.take(permit.channel.recv(_LONGEST))
            yield permit
        finally:
            permit.close()

    @asynccontextmanager
    async def aadmit(
        self, tokens: int, sleep: Callable[[float], Awaitable[None]], priority: SupportsFloat = 0.0
    ) -> AsyncIterator[_ProxiedPermit]:
        """Wait for the parent's permit and yield it, as :meth:`admit` does, but in a coroutine."""
        permit = self._request(tokens)
        try:
            permit.channel.setblocking(False)
            permit.take(await asyncio.get_running_loop().sock_recv(permit.channel, _LONGEST))
            permit.channel.setblocking(True)
            yield permit
        finally:
            permit.close()

    def _request(self, tokens: int) -> _ProxiedPermit:
        prompt = {} if self._prompt is None else {"prompt": self._prompt.to_send()}
        return _ProxiedPermit(requested(self._theirs, {**self._attempt, "tokens": tokens, **prompt}), prompt=self._prompt)
