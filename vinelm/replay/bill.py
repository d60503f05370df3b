"""Computes where the money goes: sums recorded calls by step, in one pass and bounded memory. Calls no model."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from vinelm.catalog.litellm_routes import split_model
from vinelm.catalog.model import Price
from vinelm.catalog.prices import find_price
from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.reading import Redact, TraceReading, read_calls, weighted
from vinelm.replay.steps import step_of

HALVED = ("batch", "flex")
"""Service tiers of providers at half their list prices."""
SHORT_TOKENS = 20
"""An answer of at most this many tokens is short: a label, a number, a yes."""
MOST_STEPS = 200
"""The most steps that are distinguished; calls of later ones are summed up in one."""
OTHERS = "(further steps)"
MOST_MODELS = 20
"""The most models that are distinguished within a step."""
MONTH_DAYS = 30.0
LEAST_DAYS = 1.0
"""A trace that spans fewer days says nothing about a month."""
_DAY_S = 86_400.0
_RATIO = 1.02
"""Ratio of the edges of the buckets of seconds: a quantile is right to 1 %."""
_PROVIDERS = {
    "aws.bedrock": "bedrock",
    "amazon_bedrock": "bedrock",
    "az.ai.inference": "azure",
    "az.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "mistral_ai": "mistral",
    "x_ai": "x-ai",
}
"""Names of providers in OpenTelemetry and LangChain, with those in the price lists."""
_GATEWAYS = ("", "litellm", "litellm_proxy", "langchain", "_other", "custom")


class Distinct:
    """Counts distinct texts. Up to ``most`` texts the count is exact, then it is estimated from the smallest hashes, with
    an error of about 1/sqrt(``most``).

    Bar-Yossef et al., Counting distinct elements in a data stream (2002). Holds at most 2 * ``most`` numbers.
    """

    def __init__(self, most: int) -> None:
        self._most, self._limit = most, 2**64
        self._seen: set[int] = set()

    def add(self, text: str) -> None:
        """Count a text."""
        found = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())
        if found < self._limit:
            self._seen.add(found)
            if len(self._seen) >= 2 * self._most:
                kept = sorted(self._seen)[: self._most]
                self._seen, self._limit = set(kept), kept[-1] + 1

    @property
    def is_exact(self) -> bool:
        """Whether the count is exact, not estimated."""
        return self._limit == 2**64

    def count(self) -> int:
        """Return the number of distinct texts, exact or estimated (:attr:`is_exact`)."""
        if self.is_exact:
            return len(self._seen)
        nth = sorted(self._seen)[self._most - 1]
        return round((self._most - 1) / nth * 2**64)


class Seconds:
    """Estimates quantiles of durations with an error of 1 %, from counts in at most 1,300 buckets whose edges grow by 2 %."""

    def __init__(self) -> None:
        self._buckets: dict[int, float] = {}

    def add(self, seconds: float, times: float = 1) -> None:
        """Count a duration ``times`` times; ``times`` may be a fraction."""
        bucket = math.ceil(math.log(min(max(seconds, 1e-6), _DAY_S), _RATIO))
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times

    def quantile(self, share: float) -> float | None:
        """Return the ``share`` quantile of the durations in seconds (0.5 for the median); None if no duration was counted."""
        left = share * math.fsum(self._buckets.values())
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 1e-9:
                return float(2.0 * _RATIO**bucket / (_RATIO + 1.0))
        return None


@dataclass
class StepBill:
    """The total costs, calls, tokens and durations of one step.

    Attributes:
        key: The step's identifier, see :class:`~vinelm.replay.steps.CallStep`.
        title: The step's name, or the first words of its system prompt.
        is_named: Whether the step's name is in the trace.
        calls: Number of model calls, including failed calls.
        stand_for: Number of calls that the recorded calls represent; higher than ``calls`` if only a part was recorded.
            Cost, tokens and seconds count all represented calls.
        failed: Number of failed calls.
        cost_usd: The cost in dollars: the recorded cost if there is one, otherwise tokens times list price.
        priced_usd: The part of ``cost_usd`` that was computed from list prices.
        unpriced: Number of calls of unknown cost; no sum of costs includes them.
        tokens_in: Tokens of prompts.
        tokens_out: Tokens of answers.
        cached_tokens: Tokens of prompts that were read from a cache.
        comparable_usd: Cost of calls with a short or structured answer, in dollars.
        comparable: Number of calls with a short or structured answer, which can be compared by a program.
        models: Number of calls of each model.
        seconds: The durations of calls that did not fail.
        seen: A count of the distinct requests that call the step.
    """

    key: str
    title: str
    is_named: bool
    calls: int = 0
    stand_for: float = 0
    failed: int = 0
    cost_usd: float = 0.0
    priced_usd: float = 0.0
    unpriced: int = 0
    tokens_in: float = 0
    tokens_out: float = 0
    cached_tokens: float = 0
    comparable_usd: float = 0.0
    comparable: int = 0
    models: Counter[str] = field(default_factory=Counter)
    seconds: Seconds = field(default_factory=Seconds)
    seen: Distinct = field(default_factory=lambda: Distinct(2048))

    def add(self, call: LoggedCall) -> tuple[float | None, bool]:
        """Add a recorded call to the totals. Return its cost, and whether its answer is short or structured.

        The cost counts once for each call that the recorded call represents; None if it is unknown.
        """
        times = call.stands_for
        self.calls += 1
        self.stand_for += times
        self.seen.add(call.request)
        model = call.model[:100] or "(no model named)"
        self.models[model if model in self.models or len(self.models) < MOST_MODELS else "(further models)"] += 1
        self.tokens_in += times * (call.tokens_in or 0)
        self.tokens_out += times * (call.tokens_out or 0)
        self.cached_tokens += times * (call.cached_tokens or 0)
        if call.error is not None:
            self.failed += 1
        elif call.seconds is not None:
            self.seconds.add(call.seconds, times)
        cost = dollars_of(call)
        is_comparable = is_short(call) or is_structured(call)
        self.comparable += is_comparable
        if cost is None:
            self.unpriced += 1
            return None, is_comparable
        cost *= times
        self.cost_usd += cost
        self.priced_usd += cost if call.cost_usd is None else 0.0
        self.comparable_usd += cost if is_comparable else 0.0
        return cost, is_comparable


@dataclass
class Bill:
    """The costs of recorded calls, by step.

    Attributes:
        steps: The totals of each step, the most expensive step first.
        reading: What was read, and what could not be read.
        started_at: Seconds since 1970 of the first call; None if no call has a time.
        ended_at: Seconds since 1970 of the last call; None if no call has a time.
        days: Number of days (UTC) with calls; no more than 10,000 are counted.
        unpriced: Number of calls of unknown cost, keyed by reason: the model whose price is unknown, or missing token
            counts.
        requests: Number of requests with at least one call.
        requests_are_exact: Whether ``requests`` is exact; above 32,000 requests the number has an error of about 1 %.
    """

    steps: list[StepBill]
    reading: TraceReading
    started_at: float | None
    ended_at: float | None
    days: int
    unpriced: Counter[str]
    requests: int
    requests_are_exact: bool

    @property
    def cost_usd(self) -> float:
        """Cost of all calls of known cost, in dollars."""
        return math.fsum(step.cost_usd for step in self.steps)

    @property
    def stand_for(self) -> float:
        """Number of calls that the recorded calls represent; more than were recorded if only a part was recorded."""
        return sum(step.stand_for for step in self.steps)

    @property
    def comparable_share(self) -> float | None:
        """The share of the cost that comes from calls with a short or structured answer; None without a known cost."""
        return math.fsum(step.comparable_usd for step in self.steps) / self.cost_usd if self.cost_usd else None

    @property
    def span_days(self) -> float | None:
        """Days from the first call to the last; None if fewer than two calls have a time."""
        if self.started_at is None or self.ended_at is None or self.ended_at <= self.started_at:
            return None
        return (self.ended_at - self.started_at) / _DAY_S

    def a_month(self, dollars: float) -> float | None:
        """Convert a cost within the recorded period to dollars per 30 days; None if the trace spans less than a day."""
        span = self.span_days
        return dollars * MONTH_DAYS / span if span is not None and span >= LEAST_DAYS else None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as a dict of JSON types, in which None stands for unknown figures."""
        read = self.reading
        return {
            "calls": read.calls,
            "stand_for": self.stand_for,
            "requests": self.requests,
            "requests_are_exact": self.requests_are_exact,
            "cost_usd": self.cost_usd,
            "month_usd": self.a_month(self.cost_usd),
            "priced_usd": math.fsum(step.priced_usd for step in self.steps),
            "started_at": _iso(self.started_at),
            "ended_at": _iso(self.ended_at),
            "days_with_calls": self.days,
            "comparable_share": self.comparable_share,
            "unpriced": dict(self.unpriced),
            "formats": dict(read.formats),
            "files": read.files,
            "other_records": read.others,
            "broken": read.broken,
            "broken_named": list(read.named),
            "steps": [self._step(step) for step in self.steps],
        }

    def _step(self, step: StepBill) -> dict[str, Any]:
        total = self.cost_usd
        return {
            "step": step.title,
            "is_named": step.is_named,
            "key": step.key,
            "models": dict(step.models.most_common()),
            "calls": step.calls,
            "stand_for": step.stand_for,
            "requests": step.seen.count(),
            "failed": step.failed,
            "cost_usd": step.cost_usd,
            "month_usd": self.a_month(step.cost_usd),
            "share": step.cost_usd / total if total else None,
            "unpriced": step.unpriced,
            "comparable_share": step.comparable_usd / step.cost_usd if step.cost_usd else None,
            "comparable_calls": step.comparable,
            "seconds_p50": step.seconds.quantile(0.5),
            "seconds_p95": step.seconds.quantile(0.95),
            "tokens_in": step.tokens_in,
            "tokens_out": step.tokens_out,
            "cached_tokens": step.cached_tokens,
        }


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def bill_of(
    paths: Sequence[str | Path] | str | Path,
    *,
    format: str | None = None,
    redact: Redact | None = None,
    weight: Callable[[LoggedCall], float] | None = None,
    on_progress: Callable[[TraceReading], None] = lambda reading: None,
) -> Bill:
    """Return the total cost, calls, seconds and tokens of recorded calls, for each step of the application.

    The trace is read once, in bounded memory, and no model is called. A call's cost is taken from the trace if it is
    recorded there, otherwise computed from tokens and list prices. A call without either counts as unpriced.

    Args:
        paths: Files and folders, see :func:`~vinelm.replay.formats.reading.read_calls`.
        format: The form of the files; None detects it.
        redact: Is called with each call before anything else, and returns the part of the call that may be used.
        weight: Returns how many calls each recorded call represents; None uses the trace's sampling rate.
        on_progress: Called every 1,000 records.

    Raises:
        ConfigError: The paths contain no call, or a path, the format or ``redact`` is wrong.
    """
    reading = TraceReading()
    calls = read_calls(paths, format=format, redact=redact, reading=reading, on_progress=on_progress)
    return summed(calls if weight is None else weighted(calls, weight), reading)


def summed(calls: Iterable[LoggedCall], reading: TraceReading) -> Bill:
    """Add up the costs, tokens and durations of recorded calls for each step, and return them as a :class:`Bill`.

    ``reading`` has the counts of what was read, and becomes :attr:`Bill.reading`.
    """
    steps: dict[str, StepBill] = {}
    requests, days, unpriced = Distinct(16_384), set[int](), Counter[str]()
    times: tuple[float, float] | None = None
    for call in calls:
        found = step_of(call)
        if found.key not in steps and len(steps) >= MOST_STEPS:
            found = found._replace(key=OTHERS, title=OTHERS, is_named=False)
        step = steps.setdefault(found.key, StepBill(found.key, found.title, found.is_named))
        requests.add(call.request)
        if step.add(call)[0] is None:
            why = "no tokens recorded" if call.tokens_in is None or call.tokens_out is None else call.model or "no model named"
            unpriced[why if why in unpriced or len(unpriced) < MOST_STEPS else "further models"] += 1
        if (at := call.started_at) is not None:
            times = (at, at) if times is None else (min(times[0], at), max(times[1], at))
            if len(days) < 10_000:
                days.add(int(at // _DAY_S))
    listed = sorted(steps.values(), key=lambda one: (-one.cost_usd, -one.calls, one.title))
    began, ended = times or (None, None)
    return Bill(listed, reading, began, ended, len(days), unpriced, requests.count(), requests.is_exact)


def dollars_of(call: LoggedCall) -> float | None:
    """Return a call's cost in dollars: the recorded cost if there is one, otherwise tokens times list price; None if
    both are unknown. A failed call without tokens is free.
    """
    if call.cost_usd is not None:
        return call.cost_usd
    if call.error is not None and not call.tokens_in and not call.tokens_out:
        return 0.0
    if call.tokens_in is None or call.tokens_out is None:
        return None
    price = price_of(call.provider, call.model)
    if price is None:
        return None
    if call.settings.get("service_tier") in HALVED:
        price = price.in_batches(halves_cache=False)
    return price.cost_usd(call.tokens_in, call.tokens_out, min(call.cached_tokens or 0, call.tokens_in))


@lru_cache(maxsize=4096)
def price_of(provider: str, model: str) -> Price | None:
    """Return the list price of a model that a trace names ``provider`` and ``model``; None if unknown.

    If ``provider`` is missing or a gateway, the price is looked up by the model's name alone.
    """
    named = _PROVIDERS.get(provider.lower(), provider.lower())
    model = model.removeprefix("models/")
    seller, name = split_model(model, {})
    tries = [(named, model), (named, name)] if named not in _GATEWAYS else [(seller, name), split_model(name, {})]
    return next((found.price for of, one in tries if of and one and (found := find_price(of, one)) is not None), None)


def is_short(call: LoggedCall) -> bool:
    """Return whether a call's answer is a text of at most 20 tokens or, if its tokens were not counted, of at most 80
    characters.
    """
    content = (call.answer or {}).get("content")
    if not content or (call.answer or {}).get("tool_calls"):
        return False
    return call.tokens_out <= SHORT_TOKENS if call.tokens_out is not None else len(str(content)) <= 4 * SHORT_TOKENS


def is_structured(call: LoggedCall) -> bool:
    """Return whether a call's answer is a tool call or JSON, or the call requested a format."""
    answer: Mapping[str, Any] = call.answer or {}
    if answer.get("tool_calls") or (call.response_format is not None and answer):
        return True
    content = answer.get("content")
    if not isinstance(content, str) or content[:1] not in ("{", "[") or len(content) > 1_000_000:
        return False
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True
