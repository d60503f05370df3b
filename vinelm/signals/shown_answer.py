"""The result of one invocation for an evaluation: its answer with the ground truth, its dollars and its seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAnswer:
    """One invocation of a stage.

    Attributes:
        success: The answer is right by the ground truth; False for a failed call.
        passed: The workflow's own check passes it; False for a failed call.
        signal: Its label by :meth:`~vinelm.signals.Signals.label`.
        answer: The answer by :meth:`~vinelm.signals.Signals.answer_of`; None without one.
        cost_usd: Dollars of the invocation, >= 0.
        latency_s: Seconds of the invocation, >= 0.
        has_failed: The call failed, and the request with it.
    """

    success: bool
    passed: bool
    signal: str | None
    answer: Any
    cost_usd: float
    latency_s: float
    has_failed: bool = False
