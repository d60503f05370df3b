"""Rate limits of an engine, shared by all threads and tasks of this process: sliding-window logs and a fair queue of slots.

Own code, because the kept libraries do not fit: ``limits`` does not wait, ``aiolimiter`` belongs to one event loop, and
``pyrate-limiter`` logs one entry per token, cannot give back what a call did not use, and has no concurrency limit.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vinelm.backends.settings import ProviderSettings
from vinelm.clock import Clock, WallClock
from vinelm.errors import ConfigError

WINDOW_S = 60.0


class RateLimits(BaseModel):
    """What an engine allows; None means no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_min: int | None = Field(default=None, ge=1)
    tokens_per_min: int | None = Field(default=None, ge=1)
    concurrency: int | None = Field(default=None, ge=1)


class Ticket:
    """One admitted call. :meth:`settle` replaces the tokens that were assumed by the real ones."""

    __slots__ = ("start_s", "tokens")

    def __init__(self, start_s: float, tokens: int) -> None:
        self.start_s = start_s
        self.tokens = tokens

    def settle(self, tokens: int) -> None:
        """What the call really used. Only later calls see it; those already told to wait keep their turn."""
        self.tokens = tokens


class EngineRateLimiter:
    """The limits of one engine. In no half-open window of a minute do more requests or tokens start than allowed.

    Calls start in the order in which they ask. One that alone asks for more tokens than a minute allows starts in an otherwise
    empty window. Tokens are what the caller assumes until it settles them. Thread-safe, and safe across event loops.
    """

    def __init__(self, limits: RateLimits, clock: Clock | None = None) -> None:
        self._limits = limits
        self._clock = clock or WallClock()
        self._lock = threading.Lock()
        self._log: deque[Ticket] = deque()
        self._queue: deque[Future[None]] = deque()
        self._free = limits.concurrency or 0

    @property
    def limits(self) -> RateLimits:
        """What it holds the calls to."""
        return self._limits

    def reserve(self, tokens: int) -> tuple[Ticket, float]:
        """A place in the windows, and the seconds to wait for it."""
        with self._lock:
            now_s = self._clock.now()
            while self._log and self._log[0].start_s <= now_s - WINDOW_S:
                self._log.popleft()
            start_s = max(now_s, self._log[-1].start_s) if self._log else now_s
            start_s = max(start_s, self._room(self._limits.requests_per_min, 1, lambda ticket: 1))
            start_s = max(start_s, self._room(self._limits.tokens_per_min, tokens, lambda ticket: ticket.tokens))
            ticket = Ticket(start_s, tokens)
            if self._limits.requests_per_min or self._limits.tokens_per_min:
                self._log.append(ticket)
            return ticket, start_s - now_s

    def _room(self, allowed: int | None, wanted: int, weight: Callable[[Ticket], int]) -> float:
        """When the window first has room for ``wanted`` more; minus infinity where it always has."""
        start_s = float("-inf")
        if allowed is None:
            return start_s
        used = sum(weight(ticket) for ticket in self._log)
        for ticket in self._log:
            if used + wanted <= allowed:
                break
            start_s = ticket.start_s + WINDOW_S
            used -= weight(ticket)
        return start_s

    @contextmanager
    def admit(self, tokens: int, sleep: Callable[[float], None]) -> Iterator[Ticket]:
        """Wait for a slot and a place in the windows, hold the slot meanwhile."""
        slot = self._take()
        try:
            if slot is not None:
                slot.result()
            ticket, wait_s = self.reserve(tokens)
            if wait_s > 0:
                sleep(wait_s)
            yield ticket
        finally:
            self._give(slot)

    @asynccontextmanager
    async def aadmit(self, tokens: int, sleep: Callable[[float], Awaitable[None]]) -> AsyncIterator[Ticket]:
        """The same for a coroutine."""
        slot = self._take()
        try:
            if slot is not None:
                await asyncio.wrap_future(slot)
            ticket, wait_s = self.reserve(tokens)
            if wait_s > 0:
                await sleep(wait_s)
            yield ticket
        finally:
            self._give(slot)

    def _take(self) -> Future[None] | None:
        """A future that is done when the slot is ours; None where concurrency has no limit."""
        if self._limits.concurrency is None:
            return None
        slot: Future[None] = Future()
        with self._lock:
            if self._free:
                self._free -= 1
                slot.set_result(None)
            else:
                self._queue.append(slot)
        return slot

    def _give(self, slot: Future[None] | None) -> None:
        """Pass the slot on to who has waited longest; a waiter who has left had none."""
        if slot is None or slot.cancel() or slot.cancelled():
            return
        while True:
            with self._lock:
                if not self._queue:
                    self._free += 1
                    return
                heir = self._queue.popleft()
            if heir.set_running_or_notify_cancel():
                heir.set_result(None)
                return


def gates(setup: ProviderSettings) -> Mapping[str, EngineRateLimiter]:
    """A gate for each engine of the provider's models, from ``limits = { ENGINE = { ... } }`` in its table.

    :class:`ConfigError` names an engine that no model has, an unknown key, a value out of range.
    """
    engines = tuple(dict.fromkeys(model.engine for model in setup.models))
    given: Mapping[str, Any] = setup.setting("limits", dict, {})
    for engine in given:
        if engine not in engines:
            raise ConfigError(
                f"[backend.{setup.provider}]: limits of engine {engine!r}, which no model has: engines are {', '.join(engines)}"
            )
    return {engine: EngineRateLimiter(_limits(setup.provider, engine, given.get(engine, {}))) for engine in engines}


def _limits(provider: str, engine: str, fields: Any) -> RateLimits:
    try:
        return RateLimits.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        wrong = f"unknown key {key!r}" if first["type"] == "extra_forbidden" else f"{key}: {first['msg']}"
        known = ", ".join(RateLimits.model_fields)
        raise ConfigError(f"[backend.{provider}]: limits of engine {engine!r}: {wrong}: known keys are {known}") from error
