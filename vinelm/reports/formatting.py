"""Figures as a person reads them: dollars, seconds, per cent. Unknown is a dash."""

from __future__ import annotations

from math import floor, isfinite, log10

from vinelm.evaluation import Interval
from vinelm.objective import Objective


def usd(value: float | None) -> str:
    """Dollars to three significant figures: per-request costs span five orders of magnitude."""
    if value is None or not isfinite(value):
        return "-"
    if value == 0:
        return "$0"
    digits = max(2, 2 - floor(log10(abs(value))))
    return f"${value:,.{min(digits, 9)}f}"


def seconds(value: float | None) -> str:
    """Seconds with their unit."""
    return "-" if value is None or not isfinite(value) else f"{value:,.1f} s"


def percent(value: float | None) -> str:
    """A fraction as per cent, to one place."""
    return "-" if value is None or not isfinite(value) else f"{100 * value:.1f} %"


def percent_interval(interval: Interval | None) -> str:
    """An interval of fractions in per cent: ``58.2 to 67.9``."""
    if interval is None or not isfinite(interval.low) or not isfinite(interval.high):
        return "-"
    return f"{100 * interval.low:.1f} to {100 * interval.high:.1f}"


def objective_words(objective: Objective) -> str:
    """An objective as a sentence: ``Maximize accuracy, cost <= $0.00213``."""
    words = ["Maximize accuracy" if objective.maximize else f"Minimize {objective.minimize}"]
    if objective.min_accuracy is not None:
        words.append(f"accuracy >= {percent(objective.min_accuracy)}")
    if objective.max_cost_usd is not None:
        each = " for each request" if objective.cost_budget == "per_request" else ""
        words.append(f"cost <= {usd(objective.max_cost_usd)}{each}")
    if objective.max_latency_s is not None:
        words.append(f"latency <= {seconds(objective.max_latency_s)}")
    return ", ".join(words)
