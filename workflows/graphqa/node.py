"""One node of a graph, and the conversion of values to its features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_CHARS = 200


@dataclass(frozen=True, slots=True)
class Node:
    """One node: ``id`` is unique, ``name`` need not be; ``features`` are plain values by name."""

    id: str
    kind: str
    name: str
    features: Mapping[str, Any] = field(default_factory=dict)


def plain(value: Any) -> Any:
    """Return a value as a feature of a node: in JSON types, long text cut to 200 characters, bytes replaced by their number."""
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, str):
        return value if len(value) <= MOST_CHARS else value[:MOST_CHARS] + "…"
    return value if value is None or isinstance(value, bool | int | float) else str(value)
