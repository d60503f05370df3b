"""The help articles of the technical desk, and the search over them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Article:
    """A help article: the keywords by which it is found, and the reply to tickets that it answers."""

    keywords: tuple[str, ...]
    reply: str


ARTICLES: Mapping[str, Article] = MappingProxyType(
    {
        "KB-101": Article(("camera", "offline", "wifi", "band"), "send_steps"),
        "KB-102": Article(("camera", "night", "blur", "infrared"), "send_steps"),
        "KB-110": Article(("thermostat", "display", "blank", "battery"), "send_steps"),
        "KB-111": Article(("thermostat", "heating", "valve", "stuck"), "replace_device"),
        "KB-120": Article(("hub", "update", "loop", "restart"), "engineer"),
        "KB-121": Article(("hub", "pairing", "sensor", "missing"), "send_steps"),
        "KB-130": Article(("doorbell", "chime", "silent", "volume"), "send_steps"),
        "KB-131": Article(("doorbell", "water", "damage", "corrosion"), "replace_device"),
        "KB-140": Article(("lamp", "flicker", "dimmer", "load"), "send_steps"),
        "KB-141": Article(("lamp", "burnt", "smell", "overheating"), "engineer"),
        "KB-150": Article(("speaker", "voice", "recognition", "language"), "send_steps"),
        "KB-151": Article(("speaker", "distortion", "cone", "crackle"), "replace_device"),
        "KB-160": Article(("router", "ports", "firewall", "remote"), "engineer"),
        "KB-161": Article(("router", "range", "mesh", "repeater"), "send_steps"),
    }
)
_WORD = re.compile(r"[a-z0-9]+")


def find_article(words: str) -> str | None:
    """Return the name of the article with the most of these words among its keywords; None if no article has any.

    On ties, it is the first article.
    """
    asked = set(_WORD.findall(words.lower()))
    hits = {name: len(asked.intersection(article.keywords)) for name, article in ARTICLES.items()}
    best = max(hits, key=lambda name: hits[name])
    return best if hits[best] else None
