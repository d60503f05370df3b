"""Interprets nearly correct input: misspelt names, and quantities with units and signs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from difflib import get_close_matches

_NUMBER = r"[+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:inf|nan)"
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")
_PERCENT = re.compile(rf"({_NUMBER})\s*(?:%|percent)", re.IGNORECASE)
_DOLLARS = re.compile(rf"(-?)(?:\$|usd)?\s*({_NUMBER})\s*(?:\$|usd|dollars?)?", re.IGNORECASE)
_POINTS = re.compile(r"\s*(?:%|percent|points?|pts?)\s*$", re.IGNORECASE)
_CENTS = re.compile(rf"({_NUMBER})\s*(?:ct|cents?|¢)", re.IGNORECASE)
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(d|days?|h|hours?|min|minutes?|ms|m|sec|seconds?|s)(?![a-z])")
_UNITS_S = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "ms": 0.001, "s": 1.0}


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """Return `` (did you mean 'x'?)`` for the known name closest to ``given``; an empty text if none is near."""
    by_lower = {str(name).lower(): str(name) for name in known}
    near = get_close_matches(str(given).lower(), by_lower, n=1)
    return f" (did you mean {by_lower[near[0]]!r}?)" if near else ""


def fraction_of(text: str) -> float:
    """Parse a fraction such as ``0.8`` or ``80%``, without checking its range; raises :class:`ValueError`."""
    if found := _PERCENT.fullmatch(text.strip()):
        return float(found[1]) / 100.0
    return number_of(text)


def points_of(text: str) -> float:
    """Parse points of accuracy such as ``3``, ``3 points`` or ``3%``; raises :class:`ValueError`."""
    return number_of(_POINTS.sub("", text))


def dollars_of(text: str) -> float:
    """Parse dollars such as ``0.002``, ``$5``, ``5 USD``, ``$1,000`` or ``20 cents``; raises :class:`ValueError`."""
    plain = _THOUSANDS.sub("", text.strip())
    if found := _CENTS.fullmatch(plain):
        return float(found[1]) / 100.0
    if found := _DOLLARS.fullmatch(plain):
        return float(f"{found[1]}{found[2]}")
    return number_of(text)


def seconds_of(text: str, *, is_bare_allowed: bool = True) -> float:
    """Parse seconds such as ``5``, ``5s``, ``250ms``, ``1h30m`` or ``7 d``; raises :class:`ValueError`.

    Args:
        text: The duration.
        is_bare_allowed: Whether a number without a unit is accepted as seconds.
    """
    plain = text.strip().lower()
    parts = _PART.findall(plain)
    if parts and not _PART.sub("", plain).strip():
        return sum(float(number) * _UNITS_S["ms" if unit == "ms" else unit[0]] for number, unit in parts)
    if not is_bare_allowed:
        raise ValueError(text)
    return number_of(text)


def count_of(text: str) -> int:
    """Parse a whole number such as ``1000``, ``1,000`` or ``1_000``; raises :class:`ValueError`."""
    return int(_THOUSANDS.sub("", text.strip()))


def number_meant(value: object) -> str:
    """Return `` (did you mean 5.0?)`` for a text given instead of a number; an empty text otherwise."""
    if not isinstance(value, str):
        return ""
    for read in (fraction_of, dollars_of, seconds_of):
        try:
            number = read(value)
        except ValueError:
            continue
        return f" (did you mean {number:g}?)"
    return ""


def fraction_meant(value: object) -> str:
    """Return `` (did you mean 0.8?)`` for a number above 1 and at most 100, such as a percentage; an empty text otherwise."""
    is_percent = isinstance(value, int | float) and math.isfinite(value) and 1.0 < value <= 100.0
    return f" (did you mean {value / 100:.6g}?)" if is_percent else ""  # type: ignore[operator]


def number_of(text: str) -> float:
    """Parse a number such as ``0.5`` or ``1,000``; raises :class:`ValueError`."""
    return float(_THOUSANDS.sub("", text.strip()))
