"""What the command line adds to an error of the library: the option that fixes it.

The library's messages name parameters, never options. Each hint belongs to an error code (:mod:`vinelm.errors`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from vinelm.errors import VineLMError

HINTS: Mapping[str, str] = MappingProxyType(
    {
        "inline-one-worker": "use --isolation thread, or --workers 1",
        "limit-needs-process": "--unit-timeout-s and --memory-mb need --isolation process",
        "load-crashed": "use --isolation inline",
        "process-needs-source": "name the workflow as MODULE:ATTRIBUTE, or use --isolation thread",
        "profile-store-mismatch": "give another --store, or start over with --force-rerun",
        "uncheckpointed": "use --sampler exhaustive, and no --coverage",
        "workflow-differs": "use --isolation inline",
    }
)
"""Error code to the options that help, as a clause that follows the message."""


def message_with_hint(error: VineLMError) -> str:
    """The error's message, followed by the hint for its code if there is one."""
    hint = HINTS.get(error.code)
    return f"{error} ({hint})" if hint else str(error)
