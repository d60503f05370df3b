"""Tokens of the user's words, and their shapes."""

from __future__ import annotations

import re
from typing import NamedTuple

_QUOTED = re.compile(r"(?<!\w)['\"\u2018\u201c]([^'\"\u2018\u2019\u201c\u201d\n]{1,80})['\"\u2019\u201d](?!\w)")
_WORD = re.compile(r"\S+")
_EDGES = ".,;:!?()[]{}<>'\"\u2018\u2019\u201c\u201d*`"
_LOWER = re.compile(r"[^\W\d_A-Z]+")
_STEM = 5
_EMPTY_WORDS = frozenset(("get", "the", "and", "for", "all", "with", "from", "list", "info", "based"))
MOST_CHARS = 20_000
"""How many characters of one message are read; the rest is ignored."""


class Token(NamedTuple):
    """One token of a message.

    Attributes:
        text: the text.
        shape: the shape of the text (:func:`shape_of`).
        place: the number of words before it in the message, from 0. A pair of words has the number of its second word.
    """

    text: str
    shape: str
    place: int


def shape_of(text: str) -> str:
    """Return the shape of a token: a run of lower-case letters becomes ``a``, each capital ``A``, each digit ``9``.

    Other characters stay. Runs that mix capitals and digits are codes: each of their characters becomes ``X``, so that UM3OG5
    and 4WQ150 have the same shape.
    """
    plain = _LOWER.sub("a", text)
    coded = re.sub(r"[A-Z0-9]{4,}", lambda run: "X" * len(run[0]) if _is_mixed(run[0]) else run[0], plain)
    return re.sub(r"[0-9]", "9", re.sub(r"[A-Z]", "A", coded.replace("X", "\0"))).replace("\0", "X")


def _is_mixed(run: str) -> bool:
    return run.isalnum() and not run.isalpha() and not run.isdigit()


def tokens_of(text: str) -> list[Token]:
    """Return the words of a message, pairs of neighbouring capitalized words, and quoted passages, in their order."""
    text = text[:MOST_CHARS]
    words = [(word.group().strip(_EDGES), word.start()) for word in _WORD.finditer(text)]
    found = []
    for place, (word, _) in enumerate(words):
        plain = word.removesuffix("'s").removesuffix("\u2019s")
        if plain:
            found.append(Token(plain, shape_of(plain), place))
        if place and plain[:1].isupper() and words[place - 1][0][:1].isupper():
            pair = f"{words[place - 1][0]} {plain}"
            found.append(Token(pair, shape_of(pair), place))
    starts = [start for _, start in words]
    for quoted in _QUOTED.finditer(text):
        place = sum(start < quoted.start() for start in starts)
        found.append(Token(quoted[1], "'" + shape_of(quoted[1]), place))
    return sorted(found, key=lambda token: token.place)


def stems_of(text: str) -> frozenset[str]:
    """Return the stem (the first few letters, in lower case) of each word; tool names are split at underscores and capitals.

    Short words and frequent words such as "the" or "get" are left out.
    """
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text[:MOST_CHARS])
    return frozenset(part.lower()[:_STEM] for part in parts if len(part) > 2 and part.lower() not in _EMPTY_WORDS)
