"""The rule for prefetching: start a read if the time that it may save is worth more than its expected waste."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vinelm.controller.speculation.worth import SecondWorth
from vinelm.tools.speculation import Speculation, ToolCandidate

ROUNDING_USD = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """The cost and the durations of a tool's calls.

    Args:
        cost_usd: the declared cost of a call in dollars, >= 0.
        seconds: recorded durations of the tool's calls, or a sample of these durations. If empty, calls are assumed to take
            longer than the model call.
    """

    cost_usd: float = 0.0
    seconds: tuple[float, ...] = ()

    def hidden_s(self, think_s: float) -> float:
        """Return the expected seconds of a tool call that pass while a model call of ``think_s`` seconds is running.

        This is E[min(tau, L)], where tau is the tool call's duration and L is ``think_s``.
        """
        if not self.seconds:
            return think_s
        return math.fsum(min(one, think_s) for one in self.seconds) / len(self.seconds)

    @property
    def mean_s(self) -> float:
        """The mean duration of a call in seconds; 1 if unknown."""
        return math.fsum(self.seconds) / len(self.seconds) if self.seconds else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The time and money that a request has left for prefetches.

    Args:
        left_usd: the dollars left of the request's cap after spending, reservations and the best plan's cost; None without a
            cap.
        wasted_usd: the expected waste of all reads started so far in this request, in dollars. A read is wasted if the model
            does not request it; its expected waste is its cost times the probability of that.
        running: number of prefetches in flight that the model has not requested yet.
        think_s: expected seconds of the chosen model's call under load, after which the model may request the reads.
    """

    left_usd: float | None = None
    wasted_usd: float = 0.0
    running: int = 0
    think_s: float = math.inf


class Starts(NamedTuple):
    """The reads to prefetch, best first, and ``why``: a short reason why the other reads are not prefetched."""

    candidates: tuple[ToolCandidate, ...]
    why: str


def decide(
    candidates: Sequence[ToolCandidate], tools: Mapping[str, ToolFigures], worth: SecondWorth, room: Room, settings: Speculation
) -> Starts:
    """Return the reads to prefetch: those whose expected saving of time is worth more than their expected waste.

    These are the reads with p E[min(tau, L)] v > (1 - p) c that fit into every cap. Here, p is the probability that the model
    requests the read, tau the read's duration, c its cost, L the duration of the model call and v the worth of a second. If v
    is infinite, only ``waste_usd`` limits the expected waste; if v is 0, no read is started. Reads that save the most seconds
    per second of their duration come first.

    Args:
        candidates: reads that the model may request, with probabilities.
        tools: the tools' figures by name; a tool without figures counts as free and of unknown duration.
        worth: the worth of a second (:func:`vinelm.controller.speculation.worth.worth_of_second`).
        room: the time and money that the request has left for prefetches.
        settings: the request's settings.
    """
    if not candidates or not worth.usd_per_s > 0.0:
        return Starts((), worth.why if candidates else "")
    unknown = ToolFigures()
    ranked = []
    for one in candidates:
        figures = tools.get(one.tool, unknown)
        hidden_s = one.probability * figures.hidden_s(room.think_s)
        if one.probability >= settings.least_probability and hidden_s > 0.0:
            density = hidden_s / figures.mean_s if math.isfinite(hidden_s) else one.probability
            ranked.append((density, hidden_s, figures.cost_usd, one))
    ranked.sort(key=lambda entry: -entry[0])
    chosen: list[ToolCandidate] = []
    refused = "" if ranked else f"none is as likely as {settings.least_probability:g}"
    wasted_usd, left_usd = room.wasted_usd, math.inf if room.left_usd is None else room.left_usd
    for _, hidden_s, cost_usd, one in ranked:
        waste_usd = (1.0 - one.probability) * cost_usd
        if room.running + len(chosen) >= settings.at_once:
            return Starts(tuple(chosen), f"{settings.at_once} run at once")
        if not hidden_s * worth.usd_per_s > waste_usd:
            refused = "the seconds are worth less than the dollars"
        elif wasted_usd + waste_usd > settings.waste_usd + ROUNDING_USD:
            refused = "waste_usd is used up"
        elif cost_usd > max(0.0, left_usd):
            refused = "the dollar cap leaves too little"
        else:
            chosen.append(one)
            wasted_usd += waste_usd
            left_usd -= cost_usd
    return Starts(tuple(chosen), refused)
