"""Limits that only come down: the figures of the house that show whether a wing was added or the hall made wider.

tests/house/ratchets.json holds one limit a line. `house.py --ratchet` writes today's values where they are better; a limit
goes the other way by hand, with a decision note that says why.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOWER_LIMITS = frozenset(("comments_per_100_lines",))
"""Figures that must not fall."""
STEPS = {"product_lines": 250}
"""Limits that are rounded up, so that a mended line is no change of the limit."""
SLACK = 0.02
"""By how much a value may be better than its limit before the limit has to follow."""
LEAST_SLACK = 2
LOWER = "python scripts/house.py --ratchet"


@dataclass(frozen=True)
class Figure:
    """A value, and where it comes from: one line for each thing counted, or for each group of them."""

    value: float
    where: list[str] = field(default_factory=list)


def limits(path: Path) -> dict[str, float]:
    """The limits by name."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def problems(found: Mapping[str, Figure], known: Mapping[str, float]) -> Iterator[str]:
    """One message for each figure beyond its limit, without a limit, or well within it."""
    for name in sorted(found.keys() | known.keys()):
        if name not in known:
            yield f"{name} has no limit: {LOWER}"
        elif name not in found:
            yield f"{name} is no figure any more: take its line out of ratchets.json"
        elif is_worse(name, found[name].value, known[name]):
            figure = found[name]
            least = "least" if name in LOWER_LIMITS else "most"
            listed = "".join(f"\n    {line}" for line in figure.where)
            yield f"{name} is {figure.value:g}, at {least} {known[name]:g} is allowed{':' if listed else ''}{listed}"
        elif abs(figure_limit(name, found[name].value) - known[name]) > slack(known[name]):
            yield f"{name} is {found[name].value:g}, better than its limit of {known[name]:g}: {LOWER}"


def is_worse(name: str, value: float, limit: float) -> bool:
    """Whether a value is beyond its limit."""
    return value < limit if name in LOWER_LIMITS else value > limit


def slack(limit: float) -> float:
    """By how much a value may be better than its limit."""
    return max(SLACK * limit, min(LEAST_SLACK, 0.1 * limit))


def figure_limit(name: str, value: float) -> float:
    """The limit that a value gives."""
    step = STEPS.get(name)
    return value if step is None else step * math.ceil(value / step)


def tightened(found: Mapping[str, Figure], known: Mapping[str, float]) -> dict[str, float]:
    """The limits, each as tight as its value allows; none is loosened."""
    best = {name: figure_limit(name, figure.value) for name, figure in found.items()}
    return {
        name: limit if name not in known or _is_tighter(name, limit, known[name]) else known[name]
        for name, limit in best.items()
    }


def _is_tighter(name: str, limit: float, than: float | None) -> bool:
    if than is None:
        return True
    return limit > than if name in LOWER_LIMITS else limit < than


def write(path: Path, known: Mapping[str, float]) -> None:
    """Write the limits, one a line, so that changes of different figures merge."""
    lines = [f'  "{name}": {limit:g}' if limit < 1000 else f'  "{name}": {limit:.0f}' for name, limit in sorted(known.items())]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
