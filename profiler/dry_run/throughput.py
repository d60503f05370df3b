"""Computes the shortest time that a run can take, given its workers and the endpoints' rate limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vinelm.backends.limits.rate_limits import WINDOW_S, RateLimits
from vinelm.backends.registry import rate_limiters_of
from vinelm.catalog import Catalog
from vinelm.requests.protocols import Backend


@dataclass(frozen=True, slots=True)
class EngineRate:
    """The rate limits of an endpoint.

    Attributes:
        engine: the endpoint's name.
        limits: the rate limits.
        models: the models that it serves.
    """

    engine: str
    limits: RateLimits
    models: frozenset[str]


def rates_of(catalog: Catalog, backends: Mapping[str, Backend]) -> tuple[EngineRate, ...]:
    """Return the rate limits of each endpoint that has rate limits."""
    rate_limiters = rate_limiters_of(catalog, backends)
    shared: dict[int, list[str]] = {}
    for name, rate_limiter in rate_limiters.items():
        shared.setdefault(id(rate_limiter), []).append(name)
    return tuple(
        EngineRate(catalog[names[0]].engine, rate_limiters[names[0]].limits, frozenset(names)) for names in shared.values()
    )


@dataclass
class Workload:
    """The work of a run.

    Attributes:
        seconds: the seconds of all jobs.
        requests: the number of HTTP requests, including retries, by model.
        tokens: the number of tokens, by model.
        busy_s: the seconds of calls, by model.
    """

    seconds: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    busy_s: dict[str, float] = field(default_factory=dict)

    def add(self, model: str, *, requests: float, tokens: float, call_s: float, tool_s: float) -> None:
        """Add the work of a job, or of several equal jobs: its requests, its tokens, and the seconds of its calls and tools."""
        self.seconds += call_s + tool_s
        self.requests[model] += requests  # type: ignore[assignment]
        self.tokens[model] += tokens  # type: ignore[assignment]
        self.busy_s[model] = self.busy_s.get(model, 0.0) + call_s

    def least_s(self, workers: int, rates: Iterable[EngineRate], scale: float = 1.0) -> tuple[float, str]:
        """Return the shortest time in seconds for ``scale`` times this work, and a text for the limit that determines it.

        It is the longest of these times:

        - the time of all jobs divided by the number of workers,
        - for each endpoint, the time of its calls divided by its concurrency,
        - for each endpoint, the whole minutes until its limit per minute admits the last requests (or tokens), plus the mean
          time of a call.
        """
        bounds = [(scale * self.seconds / workers, f"{workers} worker{'s' if workers > 1 else ''}")]
        for rate in rates:
            limits, models = rate.limits, rate.models
            busy_s = scale * sum(self.busy_s.get(name, 0.0) for name in models)
            requests = scale * sum(self.requests[name] for name in models)
            tokens = scale * sum(self.tokens[name] for name in models)
            if limits.concurrency is not None:
                bounds.append((busy_s / limits.concurrency, f"{rate.engine}: {limits.concurrency:,} calls at a time"))
            mean_s = busy_s / requests if requests else 0.0  # of the last one
            if limits.requests_per_min is not None:
                full = _full_windows(requests, limits.requests_per_min)
                bounds.append((WINDOW_S * full + mean_s, f"{rate.engine}: {limits.requests_per_min:,} requests per minute"))
            if limits.tokens_per_min is not None:
                full = _full_windows(tokens, limits.tokens_per_min)
                bounds.append((WINDOW_S * full + mean_s, f"{rate.engine}: {limits.tokens_per_min:,} tokens per minute"))
        return max(bounds, key=lambda bound: bound[0])


def _full_windows(wanted: float, allowed: int) -> int:
    """Return the number of whole minutes that pass before the last of ``wanted`` requests (or tokens) can be admitted.

    ``allowed`` is the maximum number per minute. The minute in which the last ones are admitted is not counted.
    """
    return max(math.ceil(round(wanted / allowed, 9)) - 1, 0)
