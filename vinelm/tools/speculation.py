"""The settings for tool prefetching in a request, and the interface for predicting calls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from vinelm.errors import ConfigError
from vinelm.tools.call import History


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Settings with which a request starts read-only tools before the model asks for them (prefetching).

    Args:
        waste_usd: The maximum expected cost, in dollars, of a request's unused prefetches, >= 0.
        at_once: The maximum number of a request's prefetches in flight at the same time, >= 1.
        least_probability: The minimum probability, in (0, 1], that a call's result will be used. Less likely calls are
            not started, because even free calls cause load.
        join_s: Seconds, > 0, that the application's call waits for an equal prefetch in flight. Then the call is made
            anyway, because the prefetch may be waiting for a lock that the request holds.

    Raises:
        ConfigError: a number is out of range.
    """

    waste_usd: float = 0.0
    at_once: int = 4
    least_probability: float = 0.42
    join_s: float = 5.0

    def __post_init__(self) -> None:
        if not (self.waste_usd >= 0.0 and math.isfinite(self.waste_usd)):
            raise ConfigError(f"speculate: waste_usd is {self.waste_usd}: give dollars >= 0")
        if not (isinstance(self.at_once, int) and self.at_once >= 1):
            raise ConfigError(f"speculate: at_once is {self.at_once!r}: give a whole number of calls, at least 1")
        if not 0.0 < self.least_probability <= 1.0:
            raise ConfigError(f"speculate: least_probability is {self.least_probability}: give a number in (0, 1]")
        if not (self.join_s > 0.0 and math.isfinite(self.join_s)):
            raise ConfigError(f"speculate: join_s is {self.join_s}: give seconds > 0")


class ToolCandidate(NamedTuple):
    """A predicted call of a tool.

    ``arguments`` are JSON values by name, and ``probability`` is the probability that the call is made. ``seconds`` are
    the durations of earlier calls of the tool; empty if none are known.
    """

    tool: str
    arguments: Mapping[str, Any]
    probability: float
    cost_usd: float = 0.0
    seconds: tuple[float, ...] = ()


class Candidates(Protocol):
    """Predicts the next tool calls of a request. Must be fast and without side effects: it runs before each model call.

    An optional method ``for_run()`` may return a separate predictor for each run, which may cache what it has read. The
    history passed to :meth:`candidates` then begins with the same objects as in the previous call, followed by the new
    events.
    """

    def candidates(self, history: History) -> Sequence[ToolCandidate | tuple[str, Mapping[str, Any], float]]:
        """Return the tool calls that may follow ``history`` before the next call of a tool that writes, each as (tool,
        arguments, probability).

        ``history`` has the user's messages and the tool calls of the run so far, in order.
        """
