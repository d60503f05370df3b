"""Checks whether a server's token counts are possible, and whether a prompt asks to be cached for an hour.

Costs are computed from the counts that the server states. If these are impossible for the prompt, the call's maximum cost is
charged. If the server does not state how long a prompt stays cached, the duration that the prompt asks for counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MOST_CHARS = 8
"""The most characters per token, on average over a text."""
SPARED_CHARS = 64
"""Characters allowed on top: a short text may be one long word, or a line of blanks, of a few tokens."""
_RUN = re.compile(r"(.)\1{3,15}", re.DOTALL)
"""A run of one character: tokenizers have single tokens for lines and for blanks."""
_MARKS = ("cache_control", "cachePoint", "cache_point")


def is_too_few(tokens: int, *texts: str) -> bool:
    """Return whether these texts are too long to have only ``tokens`` tokens, even at :data:`MOST_CHARS` characters each."""
    most = MOST_CHARS * tokens + SPARED_CHARS if tokens else 0
    return sum(map(len, texts)) > most and sum(len(_RUN.sub(r"\1", text)) for text in texts) > most


def texts_of(messages: Iterable[Any]) -> list[str]:
    """Return the text of each message, without the parts whose tokens are counted differently: images, files, tools,
    hidden reasoning.
    """
    return [str(message.text) for message in messages]


def asks_for_an_hour(asked: Any) -> bool:
    """Return whether a request asks to keep a part of its prompt in a cache for an hour.

    ``asked`` is the request in any provider's format, or its messages: mappings, sequences and objects with
    ``content``.
    """
    if isinstance(asked, Mapping):
        marks = (asked.get(key) for key in _MARKS)
        return any(isinstance(mark, Mapping) and mark.get("ttl") not in (None, "5m") for mark in marks) or any(
            asks_for_an_hour(part) for part in asked.values()
        )
    if isinstance(asked, list | tuple):
        return any(asks_for_an_hour(part) for part in asked)
    parts = (getattr(asked, name, None) for name in ("content", "additional_kwargs", "model_kwargs"))
    return any(asks_for_an_hour(part) for part in parts if isinstance(part, Mapping | list | tuple))
