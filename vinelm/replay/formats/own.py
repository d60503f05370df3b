"""Reads lines of :class:`~vinelm.replay.recorder.VineRecorder`. Each line is one
:class:`~vinelm.replay.formats.call.LoggedCall`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from vinelm.replay.formats.call import LoggedCall
from vinelm.replay.formats.values import count, mapping, number, text

MARK = "vinelm_call"
"""The key that marks a line of the recorder; its value is the version of the form."""
REQUEST_MARK = "vinelm_request"
"""The same for a line with the inputs of a request."""
_TEXTS = ("request", "call", "conversation", "step", "model", "provider")
_LISTS = ("messages", "tools")


def is_record(record: Mapping[str, Any]) -> bool:
    """Return whether a :class:`~vinelm.replay.recorder.VineRecorder` wrote the record."""
    return MARK in record or REQUEST_MARK in record


def inputs_of(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (name of a request, inputs of the application) if the line records the inputs; otherwise yield nothing."""
    if REQUEST_MARK in record:
        yield text(record.get("request")), record.get("inputs")


def calls_of(record: Mapping[str, Any], where: str) -> Iterator[LoggedCall]:
    """Yield the call of a line, found at ``where`` (file and line).

    Unknown fields are dropped; a field of the wrong type counts as missing.
    """
    if MARK not in record:
        return
    found: dict[str, Any] = {"where": where}
    for name in (field.name for field in fields(LoggedCall) if field.name != "where"):
        value = record.get(name)
        if name in _TEXTS:
            found[name] = text(value)
        elif name in _LISTS:
            found[name] = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else ()
        elif name in ("answer", "response_format", "settings"):
            found[name] = dict(mapping(value)) or ({} if name == "settings" else None)
        elif name == "stands_for":
            found[name] = 1 if (said := number(value)) is None else said
        elif name == "error":
            found[name] = text(value) or None
        else:
            found[name] = count(value) if "tokens" in name else number(value)
    yield LoggedCall(**found)
