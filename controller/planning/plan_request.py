"""One question to the planner, checked and in the planner's own terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.trie import BoolArray, FloatArray


class PlanRequest(NamedTuple):
    """Where a request stands and what it wants. ``load_s``: extra seconds per invocation of each engine, None for none."""

    objective: Objective
    node: int
    elapsed_s: float
    spent_usd: float
    load_s: FloatArray | None
    candidates: BoolArray | None
    may_stop: bool


def load_array(load: Mapping[str, float] | FloatArray | None, engines: Sequence[str]) -> FloatArray | None:
    """Extra seconds per engine, in the order of ``engines``; None where nothing is loaded.

    An engine that a mapping lacks has no extra delay; one that the trie does not use is left out. :class:`ConfigError` for a
    delay that is negative or not finite, or an array of another shape.
    """
    if load is None:
        return None
    if isinstance(load, np.ndarray):
        if load.shape != (len(engines),):
            raise ConfigError(f"load has shape {load.shape}: it needs one number for each of {', '.join(engines)}")
        values = load.tolist()
    else:
        values = [load.get(engine, 0.0) for engine in engines]
    if not any(values):
        return None
    if not (sum(values) < float("inf") and min(values) >= 0.0):  # a NaN makes the sum NaN
        raise ConfigError("load must be finite seconds >= 0 for every engine: drop the engines that are not known")
    return np.array(values, np.float64)
