"""The record on disk, and its comparison with what is found now."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freeze_parts.plans import REFUSED

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "house" / "frozen"
DIGITS = 11
TOLERANCE = 1e-9
"""Relative, of plans over given tries."""
FITTED = 1e-6
"""Of what is estimated first: another processor adds in another order, and a fit ends elsewhere."""
ERRORS = 1e-3
"""Of the errors of what is estimated first, :data:`OF_ERRORS`: between processors they have differed by 2e-4."""
OF_ERRORS = ("standard_error", "interval")
LUCK = 0.05
"""Of how much the best of several plans gains by luck, :data:`OF_LUCK`: where two plans of half the requests look alike,
processors choose different ones. They have differed by 4 %."""
OF_LUCK = ("advantage",)
NEARLY_ZERO = 1e-12
_SHORT = 72


def read(name: str) -> dict[str, Any]:
    """A part of the record."""
    return dict(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))


def write(name: str, found: dict[str, Any]) -> None:
    """Write a part of the record, one line for each item."""
    FOLDER.mkdir(exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(short(value), separators=(',', ':'))}" for key, value in found.items()]
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def short(value: Any) -> Any:
    """The same with rounded numbers, and with the first words of a refusal."""
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if is_refusal(value):
            return [REFUSED, str(value[1])[:_SHORT]]
        return [short(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    return value


def is_refusal(value: Any) -> bool:
    """Whether nothing was answered."""
    return isinstance(value, list | tuple) and len(value) == 2 and value[0] == REFUSED


@dataclass
class Comparison:
    """What differs from the record, and what was refused when it was made and is answered now."""

    differences: list[tuple[str, Any, Any]] = field(default_factory=list)
    answered: list[tuple[str, Any]] = field(default_factory=list)

    def compare(self, where: str, old: Any, new: Any, tolerance: float) -> None:
        """Compare one item with its record."""
        for place, was, now in _unlike(where, short(old), short(new), tolerance):
            if is_refusal(was):
                self.answered.append((place, now))
            else:
                self.differences.append((place, was, now))


class _Absent:
    def __repr__(self) -> str:
        return "(nothing)"


ABSENT = _Absent()


def _unlike(where: str, old: Any, new: Any, tolerance: float) -> Iterator[tuple[str, Any, Any]]:
    if is_refusal(old) and is_refusal(new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in (*old, *(key for key in new if key not in old)):
            place = f"{where} / {key}"
            if key not in old:
                yield place, [REFUSED, "(nothing)"], new[key]
            elif key not in new:
                yield place, old[key], ABSENT
            else:
                allowed = tolerance
                if tolerance == FITTED:
                    allowed = ERRORS if key in OF_ERRORS else LUCK if key in OF_LUCK else tolerance
                yield from _unlike(place, old[key], new[key], allowed)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new) or any(next(_unlike("", a, b, tolerance), None) for a, b in zip(old, new, strict=True)):
            yield where, old, new
    elif isinstance(old, float | int) and isinstance(new, float | int):
        if not math.isclose(old, new, rel_tol=tolerance, abs_tol=NEARLY_ZERO):
            yield where, old, new
    elif old != new:
        yield where, old, new
