"""Reads values of foreign records tolerantly: a value of the wrong type counts as missing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from vinelm.io.fields import json_in


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a value as a mapping, parsed if it is JSON text; an empty mapping for anything else."""
    value = json_in(value)
    return value if isinstance(value, Mapping) else {}


def text(value: Any) -> str:
    """Return a text without leading and trailing white space, or a number as text; "" for anything else."""
    return str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def number(value: Any) -> float | None:
    """Return a number, or a text that is a number, as a finite float >= 0; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if 0.0 <= found < math.inf else None


def count(value: Any) -> int | None:
    """Return a number, or a text that is a number, as a whole number >= 0; None for anything else."""
    found = number(value)
    return None if found is None else int(found)


def first(*values: Any) -> Any:
    """Return the first value that is neither None nor an empty text; None without such a value."""
    return next((value for value in values if value is not None and value != ""), None)


_CONVERSATION = ("session_id", "thread_id", "conversation_id", "sessionId", "threadId", "conversationId")


def conversation_of(said: Mapping[str, Any], *named: Any) -> str:
    """Return the name of a call's conversation: the first of ``named`` that is not empty, otherwise the one in ``said``.

    ``said`` has the metadata that the application gave to the call, such as a session or thread. The result is "" without a
    name.
    """
    return text(first(*named, *(said.get(name) for name in _CONVERSATION)))


def stands_for(said: Mapping[str, Any]) -> float:
    """Return the number of calls that a recorded call represents: ``sample_weight`` in ``said``, otherwise 1.

    ``said`` has the metadata that the application gave to a call.
    """
    found = number(said.get("sample_weight"))
    return 1 if found is None else found


def epoch(value: Any) -> float | None:
    """Return seconds since 1970 of an ISO time (UTC if it has no zone), or of a number in s, ms, us or ns; None for anything
    else.
    """
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    found = number(value)
    if found is not None:
        while found > 1e11:  # more seconds than that would be after the year 5000
            found /= 1e3
        return found
    try:
        return epoch(datetime.fromisoformat(str(value).replace(" UTC", "+00:00"))) if value else None
    except (ValueError, OverflowError):
        return None
