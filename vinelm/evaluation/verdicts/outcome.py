"""The outcome of a comparison of two policies."""

from __future__ import annotations

from typing import Literal

Outcome = Literal["gain", "no gain shown", "loss"]
"""``gain``: the interval of the difference lies above zero; ``loss``: below; else nothing is shown."""
