"""The help articles of the technical desk, and the search over them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Article:
    """A help article: the words that it is found by, the reply that follows from it, and how customers word the problem."""

    keywords: tuple[str, ...]
    reply: str
    wordings: tuple[str, ...]


def _article(keywords: str, reply: str, *wordings: str) -> Article:
    return Article(tuple(keywords.split()), reply, wordings)


ARTICLES: Mapping[str, Article] = MappingProxyType(
    {
        "KB-101": _article(
            "camera offline wifi band", "send_steps",
            "The camera shows as gone since we have the new box from the phone company.",
            "My cam drops out, although the lamp next to it stays connected.",
            "Camera says offline, the network is fine.",
        ),
        "KB-102": _article(
            "camera night blur infrared", "send_steps",
            "At night the picture from the front door is one white fog.",
            "After dark I only see glare in the recordings.",
            "By day the camera is sharp, in the dark everything is washed out.",
        ),
        "KB-110": _article(
            "thermostat display blank battery", "send_steps",
            "The dial on the wall stays black whatever I press.",
            "Nothing on the thermostat's screen since this morning.",
            "No numbers any more on the heating control.",
        ),
        "KB-111": _article(
            "thermostat heating valve stuck", "replace_device",
            "It is set to 21 and the room goes up to 26, day after day.",
            "The radiator never gets cold, although the app says off.",
            "Heating does not react to the thermostat at all, I changed the batteries.",
        ),
        "KB-120": _article(
            "hub update loop restart", "engineer",
            "Since the update last night the hub starts again every two minutes.",
            "The white box blinks, goes dark, blinks, and never gets ready.",
            "Hub reboots for ever after the new version.",
        ),
        "KB-121": _article(
            "hub pairing sensor missing", "send_steps",
            "The hub does not see the window contact that I bought.",
            "I press the button on the new sensor, and the list stays empty.",
            "Cannot add a second sensor.",
        ),
        "KB-130": _article(
            "doorbell chime silent volume", "send_steps",
            "Visitors press, and in the kitchen nothing rings.",
            "The doorbell works on the phone but makes no sound in the house.",
            "No chime any more since we moved the furniture.",
        ),
        "KB-131": _article(
            "doorbell water damage corrosion", "replace_device",
            "After the storm there are drops behind the glass of the bell.",
            "The bell is green inside where the wires go in.",
            "Rain got in, and the button sticks.",
        ),
        "KB-140": _article(
            "lamp flicker dimmer load", "send_steps",
            "When I turn it down to a third, the light trembles.",
            "The bulb hums and shakes on the old wall switch.",
            "Flickering as soon as it is not at full brightness.",
        ),
        "KB-141": _article(
            "lamp burnt smell overheating", "engineer",
            "It smells of hot plastic over the desk, I have pulled the plug.",
            "The socket of the lamp has brown marks.",
            "The shade has melted a little on one side.",
        ),
        "KB-150": _article(
            "speaker voice recognition language", "send_steps",
            "She does not understand my mother, who has an accent.",
            "I say lights, it plays music.",
            "The speaker stopped listening to anyone but me.",
        ),
        "KB-151": _article(
            "speaker distortion cone crackle", "replace_device",
            "Loud music sounds torn since it fell off the shelf.",
            "It crackles at every volume.",
            "The left one rattles on low notes.",
        ),
        "KB-160": _article(
            "router ports firewall remote", "engineer",
            "From the office I cannot reach anything at home, although I opened the ports.",
            "Remote access is blocked, says the app, error 0x51.",
            "Nothing works from outside the house.",
        ),
        "KB-161": _article(
            "router range mesh repeater", "send_steps",
            "In the attic there is no signal left.",
            "The garden is out of reach of the network.",
            "Two rooms away everything crawls.",
        ),
    }
)  # fmt: skip
_WORD = re.compile(r"[a-z0-9]+")


def find_article(words: str) -> str | None:
    """Return the article that has the most of these words among its keywords, the first of several; None if none has any."""
    asked = set(_WORD.findall(words.lower()))
    hits = {name: len(asked.intersection(article.keywords)) for name, article in ARTICLES.items()}
    best = max(hits, key=lambda name: hits[name])
    return best if hits[best] else None
