"""The state of each step (an LLM call site) of an autopilot: JSON types in the store, which the pilot writes and all processes
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from vinelm.autopilot.raising import HOLDOUT
from vinelm.plans.assignment import Assignment
from vinelm.replay.plans import AnswerPlan

Part = Literal["plan", "below", "today"]
SALT = "autopilot:"


@dataclass
class StepState:
    """The state of a step. Recorded calls are numbered in their order; the current model is the one that answers without a
    plan.

    Attributes:
        title: The step's name.
        today: The catalog entry of the current model.
        since: The current attempt uses recorded calls with numbers above this.
        chosen: Plans were chosen from the conversations whose first recorded call has at most this number; 0 before plans are
            chosen.
        race_since: A conversation counts for the proof if the number of its first recorded call is above this.
        attempt: The number of the attempt, counted over all steps; 0 before plans are chosen.
        labels: The maximum number of questions that people may be asked in the attempt.
        dropped: For each model that is no longer called, the reason.
        candidates: The plans that are being tested for a proof, each as [name, share of the cost saved, share of answers that
            differ].
        ended: Why no plan is being tested; "" while a plan is or may be tested.
        plan: The proven plan that serves a share of the requests: ``kind`` and ``models``.
        below: The plan proven before ``plan``, which serves the other requests meanwhile.
        served_since: Rows of served calls with numbers above this belong to ``plan``.
        served_attempt: The attempt that has proven ``plan``.
        share: The share of new requests that the plan serves (:data:`~vinelm.autopilot.raising.LEVELS`).
        saved: The share of the step's cost that the plan saves, according to its proof.
        today_usd, today_s: Mean cost in dollars and mean seconds of a call of the current model; 0 seconds if unknown.
        proven: The plan is proven to lose less accuracy than this, a fraction; None without a plan.
        entries: For each model of the catalog, the last known digest of its entry, including address and prices.
        escalated, differing: In the plan's proof, [number of requests that the current model had to answer, total] and [number
            of answers that differ, total].
        wants_units: Whether calls of the current model should be recorded.
        alarms: The rollbacks to the current model, each as [day, reason].
    """

    title: str
    today: str
    since: int = 0
    chosen: int = 0
    race_since: int = 0
    attempt: int = 0
    labels: int = 0
    dropped: dict[str, str] = field(default_factory=dict)
    candidates: list[list[Any]] = field(default_factory=list)
    ended: str = ""
    plan: dict[str, Any] | None = None
    below: dict[str, Any] | None = None
    served_since: int = 0
    served_attempt: int = 0
    share: float = 0.0
    saved: float = 0.0
    today_usd: float = 0.0
    today_s: float = 0.0
    proven: float | None = None
    entries: dict[str, str] = field(default_factory=dict)
    escalated: list[int] = field(default_factory=lambda: [0, 0])
    differing: list[int] = field(default_factory=lambda: [0, 0])
    wants_units: bool = True
    alarms: list[list[str]] = field(default_factory=list)

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> StepState:
        """Return the state with the fields in ``found``, the result of :meth:`to_dict`; missing fields get their initial
        values.
        """
        return cls(**{one.name: found[one.name] for one in fields(cls) if one.name in found})

    def to_dict(self) -> dict[str, Any]:
        """Return the state as a dict of JSON types."""
        return asdict(self)

    def assignment(self) -> Assignment[Part]:
        """Return which shares of requests run "plan", "below" (the plan proven before it) and "today" (the current model)."""
        below = max(1.0 - HOLDOUT - self.share, 0.0) if self.below is not None else 0.0
        return Assignment(((self.share, "plan"), (below, "below"), (1.0 - self.share - below, "today")), SALT)

    def plan_of(self, part: Part) -> AnswerPlan | None:
        """Return the plan that requests assigned to ``part`` run; None if they run the current model."""
        found = {"plan": self.plan, "below": self.below, "today": None}[part]
        return None if found is None else AnswerPlan(found["kind"], tuple(found["models"]))


def plain(plan: AnswerPlan) -> dict[str, Any]:
    """Return a plan as a dict of JSON types."""
    return {"kind": plan.kind, "models": list(plan.models)}
