"""What the command line adds to an error of the library: the option that fixes it.

The library's messages name parameters, never options. Each hint belongs to an error code (:mod:`vinelm.errors`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from vinelm.errors import VineLMError

HINTS: Mapping[str, str] = MappingProxyType(
    {
        "output-not-writable": "with --output-dir",
        "too-few-requests": "with a larger --limit",
    }
)
"""Error code to the options that help, as a clause that follows the message."""


def message_with_hint(error: VineLMError) -> str:
    """The error's message, followed by the hint for its code if there is one."""
    hint = HINTS.get(error.code)
    return f"{error} ({hint})" if hint else str(error)
