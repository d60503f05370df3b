"""The open requests of a gateway. Calls that name the same request belong to one run."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from vinelm.adapters.langgraph import RunContext
from vinelm.errors import ConfigError
from vinelm.objective import Objective

MOST = 2000
"""How many requests are remembered. With the calls in progress they are fewer than the 4,096 runs that the adapter keeps."""
IDLE_S = 600.0
"""Seconds without a call after which a request is over."""


@dataclass(slots=True)
class OpenRequest:
    """One open request.

    Attributes:
        key: (the caller, the name that the caller gave the request); None if the caller gave no name, so that the
            request is a single call.
        name: The name that the caller gave the request, or a generated name.
        context: The settings of the request's run. The run is looked up by the identity of this object, not by its
            value.
        asked: The objective that the first call named; None if it named no objective.
        calls: Number of calls in progress.
        used_s: When the request's last call ended, in seconds of the clock of :class:`OpenRequests`.
    """

    key: tuple[str, str] | None
    name: str
    context: RunContext
    asked: Objective | None
    calls: int = 0
    used_s: float = 0.0


class OpenRequests:
    """Keeps track of the requests that have begun but not ended. Used by a single event loop.

    Args:
        vine: The object that creates the requests' contexts and keeps their runs.
        now: Returns seconds that never decrease.
    """

    def __init__(self, vine: Any, *, now: Callable[[], float] = time.monotonic) -> None:
        self._vine, self._now = vine, now
        self._named: dict[tuple[str, str], OpenRequest] = {}
        self._idle: OrderedDict[tuple[str, str], OpenRequest] = OrderedDict()  # the idle ones among them, longest idle first

    def __len__(self) -> int:
        """Return the number of open requests to which callers gave names."""
        return len(self._named)

    def begin_call(
        self,
        name: str,
        *,
        is_named: bool,
        caller: str,
        configurable: dict[str, str],
        objective: Objective | None,
        asked: Objective | None,
    ) -> OpenRequest:
        """Return the request to which a new call belongs, and count the call as in progress; :meth:`end_call` must
        follow.

        Args:
            name: the request's name.
            is_named: Whether the caller has named the request, so that other calls may belong to it; otherwise the
                request has only this call.
            caller: the caller; equal names of different callers are different requests.
            configurable: facts about the caller, which the run's settings contain.
            objective: the objective of a new request.
            asked: the same objective, if the caller requested it explicitly.

        Raises:
            ConfigError: the request has begun with another objective.
        """
        self._forget_idle()
        key = (caller, name) if is_named else None
        found = None if key is None else self._named.get(key)
        if found is None:
            context = replace(self._vine.context(objective, request_id=name), configurable=configurable)
            found = OpenRequest(key, name, context, asked)
        elif asked is not None and asked != found.asked:
            raise ConfigError("x-vinelm-objective differs from that of the request's first call: say it once")
        if key is not None:
            self._named[key] = found
            self._idle.pop(key, None)
        found.calls += 1
        return found

    def end_call(self, request: OpenRequest) -> None:
        """Record that a call of this request has ended. A request without a name ends with the call."""
        request.calls -= 1
        request.used_s = self._now()
        if request.key is None:
            self._end(request)
        elif not request.calls:
            self._idle[request.key] = request

    def _forget_idle(self) -> None:
        """End requests that have been idle for too long. If too many requests are open, also end the requests that have been
        idle longest.
        """
        until = self._now() - IDLE_S
        while self._idle:
            key, oldest = next(iter(self._idle.items()))
            if oldest.used_s >= until and len(self._named) < MOST:
                return
            del self._idle[key], self._named[key]
            self._end(oldest)

    def _end(self, request: OpenRequest) -> None:
        self._vine.adapter.finder.runs.forget(request.context)
