"""Chat models for a batch: calls that wait for an engine's limits are served in the order of the batch."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from vinelm.backends.prompt_text import prompt_parts
from vinelm.backends.registry import rate_limiters_of
from vinelm.backends.resolver import ModelResolver
from vinelm.batches.call_order import CallOrder, WaitingCall
from vinelm.batches.slot_order import SlotOrder
from vinelm.catalog import Catalog
from vinelm.prompts.shape import shape_of
from vinelm.requests.protocols import Backend, CallContext
from vinelm.rows.observation import Usage

MOST_SLOTS = 16
"""An engine that serves more calls at a time than this has a common cache."""
FAR = 1e6
"""Distance between two neighbours' priorities, so large that arrival times never change the order."""
_KEY = b"texts that are at hand and are not kept"


class OrderedModels(ModelResolver):
    """Makes the chat models of a batch. While their calls wait for an engine's limits, :class:`CallOrder` decides their order.
    Thread-safe.

    Calls to models without limits are not changed.

    Args:
        models: The catalog.
        backends: By provider.
        requests: Ids of the unanswered requests, in the order in which they begin.
        workers: The number of requests in progress at a time.
    """

    def __init__(self, models: Catalog, backends: Mapping[str, Backend], requests: Sequence[str], workers: int = 1) -> None:
        super().__init__(models, backends)
        self._limiters = rate_limiters_of(models, backends)
        self._slots = _slots_of(models, self._limiters, min(workers, len(requests)))
        self._positions = {name: position for position, name in enumerate(requests)}
        self._calls, self._version = CallOrder(len(requests)), 0
        self._has_moved = False  # whether the order changed since limiters were asked to sort again
        self._line: list[tuple[tuple[int, ...], int, WaitingCall]] = []  # sorted
        self._lock = threading.Lock()  # a limiter asks for priorities under its own lock: never nest the two the other way

    def chat_model(self, name: str, call: CallContext, limits: Mapping[str, Any] | None = None) -> BaseChatModel:
        """Return the chat model for one execution of a step, as :class:`ModelResolver` does. Its calls get priorities while
        they wait.
        """
        position = None if call.request is None else self._positions.get(call.request.id)
        if position is not None and name in self._limiters:
            names_slots = getattr(self._limiters[name].limits, "names_slots", False)
            call = _Place(self, position, call, self._slots.get(name), names_slots=names_slots).followed
        return super().chat_model(name, call, limits)

    def ended(self, request: str) -> None:
        """Record that the request with this id has ended, and remove any of its calls that still wait."""
        position = self._positions.get(request)
        if position is not None:
            with self._lock:
                for _, _, refused in [one for one in self._line if one[-1].position == position]:
                    self._remove(refused)
                    self._calls.given_up(refused)
                self._calls.ended(position, set(self._slots.values()))
            self._rank_again()

    def wait(self, position: int, depth: int, parts: Sequence[str], slots: SlotOrder | None = None) -> WaitingCall:
        """Put a call into the queue and return it.

        Args:
            position: The position of the call's request in the starting order.
            depth: The number of invocations (executions of steps) before this one on the request's path.
            parts: The parts of the prompt, in the order in which a server reads them.
            slots: Orders the calls of an engine with separate slots; None for other engines.
        """
        shape = shape_of(parts, _KEY)
        with self._lock:
            waiting = self._calls.waits(position, depth, shape, slots)
            insort(self._line, self._place(waiting))
        self._rank_again(always=True)  # the calls behind it have moved
        return waiting

    def granted(self, waiting: WaitingCall) -> None:
        """Remove a call from the queue, because its engine accepted it. Then sort the rest if their order has changed."""
        with self._lock:
            self._remove(waiting)
            self._calls.sent(waiting)
            self._has_moved |= self._sort()

    def settled(self) -> None:
        """If the order of waiting calls has changed, make the rate limiters of all engines sort their waiting calls again."""
        if len(set(self._limiters.values())) > 1:
            self._rank_again()

    def leave(self, waiting: WaitingCall, *, is_sent: bool) -> None:
        """Remove a call from the queue. ``is_sent`` is True if the call was sent, False if it was given up."""
        with self._lock:
            self._remove(waiting)
            if is_sent:
                self._calls.sent(waiting)
            else:
                self._calls.given_up(waiting)
        self._rank_again()

    def slot(self, waiting: WaitingCall) -> int | None:
        """Return the number of the engine's slot (place for one call) in which a sent call runs; None if calls get no
        slots.
        """
        with self._lock:
            return None if waiting.slots is None else waiting.slots.slot_of(waiting)

    def over(self, waiting: WaitingCall, cached: float | None) -> None:
        """Record that a call has ended, before its slot is reused; ``cached`` is the share of its prompt that was cached."""
        with self._lock:
            self._calls.over(waiting, cached)
        self._rank_again()

    def answered(self, waiting: WaitingCall, cached: int | None) -> None:
        """Record that a call was answered; ``cached`` is the number of its prompt's tokens that were cached."""
        with self._lock:
            self._calls.answered(waiting, cached)

    def priority(self, waiting: WaitingCall) -> float:
        """Return the priority of a waiting call: 0 for the first call in the queue, a lower number for each later call.

        Return -inf for a call that should wait for a busy slot of its engine.
        """
        with self._lock:
            if self._calls.is_held(waiting):
                return -math.inf
            return -FAR * bisect_left(self._line, self._place(waiting))

    def _remove(self, waiting: WaitingCall) -> None:
        place = self._place(waiting)
        if place in self._line:
            self._line.remove(place)

    def _place(self, waiting: WaitingCall) -> tuple[tuple[int, ...], int, WaitingCall]:
        """Return the sort key of a call in the queue: its rank, and then its id, so that no two keys are equal."""
        return waiting.rank, id(waiting), waiting

    def _sort(self) -> bool:
        """Rank the calls in the queue again if the order has changed; return whether it has. The caller must hold the lock."""
        has_changed = self._version != self._calls.version
        if has_changed:
            self._version = self._calls.version
            for _, _, waiting in self._line:
                waiting.rank = self._calls.rank(waiting)
            self._line = sorted(map(self._place, (waiting for _, _, waiting in self._line)))
        return has_changed

    def _rank_again(self, *, always: bool = False) -> None:
        with self._lock:
            has_changed = self._sort() or self._has_moved
            self._has_moved = False
        if has_changed or always:
            for limiter in set(self._limiters.values()):
                limiter.reorder()


def _slots_of(models: Catalog, limiters: Mapping[str, Any], under_way: int) -> dict[str, SlotOrder]:
    """Return the :class:`SlotOrder` of each model whose engine may have separate slots, by the model's name.

    These are models with an ``api_base`` and at most :data:`MOST_SLOTS` concurrent calls; models on one engine share the
    object. Any other engine is assumed to have one cache for all its calls. ``limiters`` has the rate limiter of each model,
    ``under_way`` is the number of requests in progress at a time.
    """
    found: dict[int, SlotOrder] = {}
    slots: dict[str, SlotOrder] = {}
    for name, limiter in limiters.items():
        concurrency = getattr(limiter.limits, "concurrency", None)
        if concurrency and concurrency <= MOST_SLOTS and getattr(models[name], "api_base", None):
            slots[name] = found.setdefault(id(limiter), SlotOrder(concurrency, under_way))
    return slots


class _Place:
    """The place of one invocation (one execution of a step) in the queue of waiting calls. An invocation makes its model calls
    one at a time.

    This object gives the waiting call its priority, and reports when the call is sent and answered.

    Args:
        models: The models of the batch.
        position: The position of the invocation's request in the starting order.
        call: The context of the invocation. The attribute :attr:`followed` is a copy that reports the calls to this object.
        slots: Orders the calls of the engine, if it has separate slots.
        names_slots: Whether a call can name the slot that it takes.
    """

    def __init__(
        self, models: OrderedModels, position: int, call: CallContext, slots: SlotOrder | None, *, names_slots: bool
    ) -> None:
        self._models, self._position, self._call, self._slots = models, position, call, slots
        self._waiting: WaitingCall | None = None
        self._sent: WaitingCall | None = None
        self.followed = replace(
            call,
            on_prompt=self._on_prompt,
            on_gate=self._on_gate,
            on_over=self._on_over,
            on_usage=self._on_usage,
            priority=self,
            slot=self._slot if names_slots else None,
        )

    def __float__(self) -> float:
        waiting = self._waiting
        return float(self._call.priority) if waiting is None else self._models.priority(waiting)

    def granted(self) -> None:
        """Record that the engine accepted the call; this changes the ranks of the waiting calls."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._models.granted(waiting)
            self._sent = waiting

    def _on_prompt(self, messages: Sequence[BaseMessage], tools: Sequence[Any]) -> None:
        if self._call.on_prompt is not None:
            self._call.on_prompt(messages, tools)
        self._leave(is_sent=False)
        self._waiting = self._models.wait(
            self._position, len(self._call.prefix) - 1, prompt_parts(messages, tools), self._slots
        )

    def _slot(self) -> int | None:
        return None if self._sent is None else self._models.slot(self._sent)

    def _on_over(self, cached: float | None) -> None:
        if self._sent is not None:
            self._models.over(self._sent, cached)

    def _on_gate(self, waits: bool, *what: Any) -> None:
        if self._call.on_gate is not None:
            self._call.on_gate(waits, *what)
        if not waits:
            self._leave(is_sent=True)
            self._models.settled()

    def _on_usage(self, usage: Usage) -> None:
        self._leave(is_sent=False)  # it failed before it was sent
        sent, self._sent = self._sent, None
        if sent is not None:
            self._models.over(sent, None)  # for a call that was never begun; otherwise this is known already
            if usage.failure is None:
                self._models.answered(sent, usage.tokens_cached)
        self._call.on_usage(usage)

    def _leave(self, *, is_sent: bool) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._models.leave(waiting, is_sent=is_sent)
            self._sent = waiting if is_sent else None
