"""One request to the planner, with checked and normalized arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.trie.arrays import BoolArray, FloatArray


class PlanRequest(NamedTuple):
    """A request's objective and progress; see :meth:`Planner.plan`.

    ``load_s`` holds the extra seconds per call on each engine of the trie; None without load.
    """

    objective: Objective
    node: int
    elapsed_s: float
    spent_usd: float
    load_s: FloatArray | None
    candidates: BoolArray | None
    may_stop: bool


def load_array(load: Mapping[str, float] | FloatArray | None, engines: Sequence[str]) -> FloatArray | None:
    """Convert extra seconds per engine to an array in the order of ``engines``; None if no engine is loaded.

    An engine missing from the mapping has no delay; an engine that the trie does not use is ignored.

    Raises:
        ConfigError: A delay is negative or not finite, or an array has another shape.
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
        raise ConfigError("load must be finite seconds >= 0 for every engine: leave out engines whose load is unknown")
    return np.array(values, np.float64)
