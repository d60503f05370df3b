"""The columns that describe live invocations, as processes publish them and as a view of the fleet holds them."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class LiveState(IntEnum):
    """Where a live invocation is."""

    QUEUED = 0
    """It waits for its engine's rate limits: nothing was sent."""
    RUNNING = 1
    """It was sent, or runs on a backend without rate limits."""


COLUMNS: dict[str, np.dtype[np.generic]] = {
    "session": np.dtype("<u8"),
    "node": np.dtype("<i4"),
    "tenant": np.dtype("<u2"),
    "stage": np.dtype("<u2"),
    "engine": np.dtype("<u2"),
    "state": np.dtype("u1"),
    "waited_s": np.dtype("<f4"),
    "running_s": np.dtype("<f4"),
    "elapsed_s": np.dtype("<f4"),
    "deadline_s": np.dtype("<f4"),
    "rest_s": np.dtype("<f4"),
    "rest_usd": np.dtype("<f4"),
}
"""Name to type on the wire. ``tenant``, ``stage`` and ``engine`` are places in the vocabulary of that name."""

VOCABULARIES = {"tenant": "tenants", "stage": "stages", "engine": "engines"}
"""Column to the name of its vocabulary."""
MOST_NAMES = 65_536
"""Names that a vocabulary of one process may have; see the type of the columns."""
