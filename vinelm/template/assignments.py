"""Assignments of one model to each stage: what a fixed plan runs, whatever arm a request takes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Model = TypeVar("Model", int, str)


def every_assignment(models: Sequence[Sequence[Model]], *, most: int) -> list[tuple[Model, ...]] | None:
    """Return every assignment of models to stages, the last stage varying fastest.

    Args:
        models: The models that each stage allows, as names or numbers.
        most: The most assignments that are wanted; None is returned if there are more.
    """
    return list(product(*models)) if prod(map(len, models)) <= most else None


def runs_one_model(assignments: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
    """Return whether each assignment has one model at every stage, shape (n,), for assignments of shape (n, stages)."""
    return np.asarray((assignments == assignments[:, :1]).all(axis=1))
