"""Checks what a workflow's scorer returned."""

from __future__ import annotations

import numpy as np


def checked_score(verdict: object, *, is_oracle: bool) -> tuple[bool | float, str | None]:
    """Return the success of a row: a bool, or a number in [0, 1]. The second value says what is wrong with it, if anything.

    Args:
        verdict: what ``score(request, state)`` returned.
        is_oracle: the template stops by oracle, which needs a bool: it stops where the answer is right.
    """
    if isinstance(verdict, (bool, np.bool_)):
        return bool(verdict), None
    if not isinstance(verdict, (int, float, np.integer, np.floating)):
        return False, f"score returned {type(verdict).__name__}, not a bool or a number in [0, 1]"
    if is_oracle:
        return False, f"score returned {type(verdict).__name__}: the oracle stop needs a bool"
    score = float(verdict)
    if not 0.0 <= score <= 1.0:  # nor NaN
        return False, f"score returned {score:g}, which is outside of [0, 1]"
    return score, None
