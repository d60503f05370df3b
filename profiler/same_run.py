"""Is this call the run that the store knows, gone on with, or another one? Told by what decides the order of walks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

from vinelm.protocols import Sampler
from vinelm.workflow import Request

_ELSEWHERE = ("template", "catalog", "request_ids")  # the store's identity has the first two, the digest the third


def settings_of(sampler: Sampler, requests: Sequence[Request]) -> dict[str, Any]:
    """Plain JSON: the sampler's class and every public setting of it that is a plain value or a dataclass (as its text), and
    a digest of the requests.
    """
    own = {name: value for name, value in getattr(sampler, "__dict__", {}).items() if name not in _ELSEWHERE}
    plain = {name: _plain(value) for name, value in own.items() if name[0] != "_" and _is_plain(value)}
    ids = hashlib.sha256("\n".join(request.id for request in requests).encode()).hexdigest()
    return {"seed": None, **plain, "sampler": type(sampler).__name__, "requests": ids}


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """What is set otherwise, in a few words; None if nothing is. ``before`` came from JSON."""
    names = [name for name in dict.fromkeys((*now, *before)) if before.get(name) != now.get(name)]
    words = [
        "other requests" if name == "requests" else f"{name} {_word(now.get(name))} instead of {_word(before.get(name))}"
        for name in sorted(names, key=lambda name: (name == "requests", name))
    ]
    return ", ".join(words) or None


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, int)) or (is_dataclass(value) and not isinstance(value, type))


def _plain(value: Any) -> Any:
    return str(value) if is_dataclass(value) else value


def _word(value: Any) -> str:
    return "none" if value is None else str(value).removesuffix("Sampler").lower()
