"""What the benchmark of peers says of one policy: accuracy and dollars on held-out questions, paired 95 % intervals."""

from __future__ import annotations

import difflib
import random
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

DRAWS = 2000


def served(right: Sequence[bool], usd: Sequence[float]) -> dict[str, Any]:
    """Accuracy and dollars per request, with bootstrap intervals over requests."""
    return {
        "accuracy": fmean(right),
        "accuracy_interval": interval([float(one) for one in right]),
        "usd": fmean(usd),
        "usd_interval": interval(usd),
    }


def paired(
    right: Sequence[bool], usd: Sequence[float], than_right: Sequence[bool], than_usd: Sequence[float]
) -> dict[str, Any]:
    """Accuracy and dollars less those of another policy on the same requests, and which is ahead.

    ``ahead``: "it" or "other" where the whole interval of accuracy is on one side, else "neither".
    """
    gains = [float(a) - float(b) for a, b in zip(right, than_right, strict=True)]
    low, high = interval(gains)
    return {
        "accuracy": fmean(gains),
        "accuracy_interval": [low, high],
        "usd": fmean(a - b for a, b in zip(usd, than_usd, strict=True)),
        "ahead": "it" if low > 0 else "other" if high < 0 else "neither",
    }


def interval(values: Sequence[float]) -> list[float]:
    """95 % interval of the mean, by a bootstrap over requests whose draws are always the same."""
    rng, number = random.Random(0), len(values)
    means = sorted(fmean(rng.choices(values, k=number)) for _ in range(DRAWS))
    return [means[int(0.025 * DRAWS)], means[int(0.975 * DRAWS) - 1]]


def lines_changed(before: str, after: str) -> int:
    """Lines of the application that are new or different; blank lines do not count."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return sum(line.startswith("+ ") and bool(line[2:].strip()) for line in lines)


def by_question(used: Mapping[str, Any], asked: Sequence[str]) -> list[float]:
    """Dollars of each question, in their order, of what the server has metered under a name."""
    return [float(used["usd"].get(one, 0.0)) for one in asked]
