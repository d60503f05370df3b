"""From intervals and truths to coverage, false claims, width and power."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import beta

SIZES = ((0.0, 0.02), (0.02, 0.05), (0.05, 0.1), (0.1, 1.0))
"""True gains that power is told for."""


@dataclass(frozen=True)
class Trial:
    """One comparison in one world: the estimate with its interval, and the truth."""

    what: str
    truth: float
    value: float
    low: float
    high: float

    @property
    def covers(self) -> bool:
        """Whether the truth lies in the interval, but for rounding."""
        return self.low - 1e-9 <= self.truth <= self.high + 1e-9


@dataclass(frozen=True)
class Judged:
    """One world: its comparisons, whether a gain is claimed over both fixed plans, for which policy, and its true gain."""

    trials: list[Trial]
    claimed: bool
    about: str
    gain: float


def binomial(k: int, n: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson)."""
    low = 0.0 if k == 0 else float(beta.ppf(0.025, k, n - k + 1))
    return low, 1.0 if k == n else float(beta.ppf(0.975, k + 1, n - k))


def summary(worlds: Sequence[Judged]) -> dict[str, Any]:
    """Coverage by comparison and in all, false claims, power by the size of the true gain."""
    trials: dict[str, list[Trial]] = defaultdict(list)
    for world in worlds:
        for trial in world.trials:
            trials[trial.what].append(trial)
    coverage = {what: covered(found) for what, found in sorted(trials.items())}
    coverage["all gains"] = covered([t for what, found in trials.items() if what.startswith("gain") for t in found])
    without = [world for world in worlds if world.gain <= 0.0]
    power = []
    for low, high in SIZES:
        inside = [world for world in worlds if low < world.gain <= high]
        claimed = sum(world.claimed for world in inside)
        title = f"{100 * low:.0f} to {100 * high:.0f} points"
        power.append({"true_gain": title, "gain_from": low, "gain_to": high, "worlds": len(inside), "claimed": claimed})
    claimed = sum(world.claimed for world in without)
    low, high = binomial(claimed, max(len(without), 1))
    return {
        "judged": len(worlds),
        "about": dict(sorted(Counter(world.about for world in worlds).items())),
        "coverage": coverage,
        "without_gain": {"worlds": len(without), "claimed": claimed, "interval": [low, high]},
        "power": power,
    }


def covered(found: Sequence[Trial]) -> dict[str, Any]:
    """How many intervals cover, the share with its binomial interval, the mean half-width, and the mean error."""
    k, n = sum(trial.covers for trial in found), len(found)
    low, high = binomial(k, n) if n else (0.0, 1.0)
    widths = [(trial.high - trial.low) / 2 for trial in found]
    return {
        "intervals": n,
        "covered": k,
        "share": k / n if n else math.nan,
        "interval": [low, high],
        "includes_95": low <= 0.95 <= high,
        "below": sum(trial.truth < trial.low - 1e-9 for trial in found),
        "mean_half_width_points": 100 * float(np.mean(widths)) if n else math.nan,
        "bias_points": 100 * float(np.mean([trial.value - trial.truth for trial in found])) if n else math.nan,
    }


def as_text(found: dict[str, Any]) -> str:
    """The figures of one kind of worlds as lines."""
    lines = [f"{'':26} intervals  covered   95 % of the share   half-width    bias"]
    for what, one in found["coverage"].items():
        low, high = one["interval"]
        lines.append(
            f"{what:26} {one['intervals']:9} {100 * one['share']:7.1f} %   {100 * low:5.1f} to {100 * high:5.1f} %"
            f"{one['mean_half_width_points']:13.1f} {one['bias_points']:+7.2f}"
        )
    none = found["without_gain"]
    low, high = none["interval"]
    lines.append(
        f"gain claimed in {none['claimed']} of {none['worlds']} worlds without one ({100 * low:.1f} to {100 * high:.1f} %)"
    )
    for one in found["power"]:
        lines.append(f"true gain {one['true_gain']}: claimed in {one['claimed']} of {one['worlds']} worlds")
    lines.append("about: " + ", ".join(f"{name} {n}" for name, n in found["about"].items()))
    return "\n".join(lines)
