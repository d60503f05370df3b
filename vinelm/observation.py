"""What one executed (request, prefix) pair showed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vinelm.errors import FailureKind, VineLMError
from vinelm.template import StopRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One model call, as the backend saw it. What is not known is None, never 0.

    ``latency_s`` is the wall (or virtual) time of the attempt that counted, ``ttft_s`` its time to first token;
    ``retries`` counts the attempts before it, and ``waited_s`` is the time from the call to that attempt: rate limits, failed
    attempts, backoff. ``cost_usd`` is that of all attempts. ``tokens_cached`` is the part of ``tokens_in`` that was read from a
    prompt cache.
    ``tokens_estimated`` says that the counts come from the text's length and not from the provider.
    """

    model: str
    cost_usd: float
    latency_s: float
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    tokens_reasoning: int | None = None
    tokens_estimated: bool = False
    ttft_s: float | None = None
    provider_latency_s: float | None = None
    retries: int = 0
    waited_s: float = 0.0
    finish_reason: str | None = None
    provider_request_id: str | None = None
    price_id: str | None = None
    failure: FailureKind | None = None

    def __post_init__(self) -> None:
        _check_amount("cost_usd", self.cost_usd)
        _check_amount("latency_s", self.latency_s)
        _check_amount("waited_s", self.waited_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One stage invocation of one request, the tools after it included: one row in the store.

    ``prefix`` holds the models of all invocations so far, the last one being this row's own. ``success`` says that the answer
    as it stands after this invocation is right by the ground truth (None: not known), ``stopped`` that the workflow's own check
    ended here (None: not known); which of the two ends a request is the template's stop rule. ``cost_usd`` and ``latency_s``
    belong to the stage, the ``tool_`` figures to the tools between it and the next stage. A failed invocation has its
    ``failure`` kind and what it cost until then; its ``success`` and ``stopped`` are None and it has no extensions.
    ``in_flight`` is the number of calls on the same engine when this one started.
    """

    request_id: str
    prefix: tuple[str, ...]
    stage: str
    success: bool | None
    stopped: bool | None
    cost_usd: float
    latency_s: float
    tool_cost_usd: float = 0.0
    tool_latency_s: float = 0.0
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    tokens_estimated: bool = False
    ttft_s: float | None = None
    calls: int = 1
    retries: int = 0
    in_flight: int = 0
    failure: FailureKind | None = None
    detail: str | None = None

    def __post_init__(self) -> None:
        if not self.request_id:
            raise VineLMError("an observation needs a request id")
        if not self.prefix:
            raise VineLMError(f"request {self.request_id!r}: an observation needs at least one model in its prefix")
        for name in ("cost_usd", "latency_s", "tool_cost_usd", "tool_latency_s"):
            _check_amount(name, getattr(self, name), self.request_id)

    @property
    def model(self) -> str:
        """The model of this invocation."""
        return self.prefix[-1]

    @property
    def depth(self) -> int:
        """Which invocation of the request this is, counted from 1."""
        return len(self.prefix)

    def ended(self, rule: StopRule) -> bool:
        """The request goes no further from here under that stop rule. A failed invocation always ends."""
        return self.failure is not None or bool(self.success if rule == "oracle" else self.stopped)


def _check_amount(name: str, value: float, request_id: str | None = None) -> None:
    if not (value >= 0.0 and math.isfinite(value)):
        where = f"request {request_id!r}: " if request_id else ""
        raise VineLMError(f"{where}{name} is {value}: it must be a finite number >= 0")
