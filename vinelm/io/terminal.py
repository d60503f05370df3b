"""Makes texts safe for a terminal: they cannot move the cursor, reorder the line or hide characters."""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Characters that move the cursor, colour or reorder their surroundings, are invisible, or cannot be encoded; except tab and
line feed."""


def visible(text: str) -> str:
    """Return ``text`` with control, bidirectional and invisible characters written as escapes.

    Names, errors and answers come from files and providers. They must not be able to change what a terminal displays.
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
