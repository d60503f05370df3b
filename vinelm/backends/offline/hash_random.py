"""Reproducible random draws: the same on every machine, in any order, thread and process.

Each draw is a function of a seed and the names of its subject, computed with SHA-256 and basic IEEE arithmetic: no shared
generator, no ``hash()``, no ``libm`` (whose last bit differs between platforms).
"""

from __future__ import annotations

import hashlib
import math
import random
from struct import Struct

_WORDS = Struct(">16H")
_SUM_MEAN = 16 * 65535 / 2
_SUM_SD = math.sqrt(16 * (65536**2 - 1) / 12)
_SEPARATOR = "\x1f"


def digest(*names: object) -> bytes:
    """Return a 32-byte hash of the names in their order."""
    return hashlib.sha256(_SEPARATOR.join(map(str, names)).encode("utf-8", "surrogatepass")).digest()


def normal(*names: object) -> float:
    """Draw from an approximately standard normal distribution: the standardised sum of 16 uniform words (at most 6.93)."""
    total: int = sum(_WORDS.unpack(digest(*names)))
    return (total - _SUM_MEAN) / _SUM_SD


def uniform(*names: object) -> float:
    """Draw uniformly from [0, 1)."""
    return (int.from_bytes(digest(*names)[:8], "big") >> 11) / 2**53


def exp(x: float) -> float:
    """Return the exponential within 1e-4 of its value for x in [-4, 4], by multiplications only."""
    h = x / 64.0
    power = 1.0 + h * (1.0 + h * (0.5 + h / 6.0))
    for _ in range(6):
        power *= power
    return power


def generator(*names: object) -> random.Random:
    """Return a new generator seeded with the names."""
    return random.Random(int.from_bytes(digest(*names)[:16], "big"))
