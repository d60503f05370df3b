"""The roles of policies in series and tables, and a value with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Interval:
    """A value with its interval."""

    value: float
    low: float
    high: float


Role = Literal["vinelm", "paths", "full", "static", "single", "vote", "two_agree", "model", "hindsight", "in_use"]
"""The policy that a series or table row shows: VineLM; VineLM over paths, where the first plans over what requests show, or
without kinds of request, where the first tells them apart (``paths``); VineLM on a fully profiled trie (``full``); the best
static plan; the best single model (``single``); a vote; asking until two agree; any one model (``model``); the oracle that
knows the held-out outcomes (``hindsight``); or what runs today (``in_use``)."""
