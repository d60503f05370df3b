"""The state of each step of an autopilot: plain JSON types in the store, written by the pilot and read by all processes."""

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
    """The state of a step.

    Attributes:
        title: The step's name.
        today: The entry that answers without an autopilot.
        since: Units with larger numbers belong to the current attempt.
        chosen: Number of the first unit of the last conversation that has chosen plans; 0 before they are chosen.
        race_since: Conversations whose first unit has a larger number count for the proof.
        attempt: Number of the attempt, counted over all steps; 0 before plans are chosen.
        labels: How many questions people may be asked in the attempt.
        dropped: By model: why it is no longer called.
        candidates: The racing plans: name, share of dollars saved, share of answers that differ.
        ended: Why no plan races; "" while a plan races or may race.
        plan: The proven plan that is being raised or serves: ``kind`` and ``models``.
        below: The plan proven before it, which serves the other requests meanwhile.
        served_since: Rows of served calls with larger numbers belong to this plan.
        served_attempt: The attempt that has proven the plan.
        share: Share of new requests that the plan serves (:data:`~vinelm.autopilot.raising.LEVELS`).
        saved: Share of the step's dollars that the plan saves, according to its proof.
        today_usd, today_s: Mean dollars and seconds of a call of today's model; 0 seconds if unknown.
        proven: The smallest loss that the plan's proof excludes, a fraction.
        entries: By model of the catalog: the last digest of its entry, with its address and prices.
        escalated, differing: Counts in the plan's proof, each as (how many, of how many).
        wants_units: Whether calls of today's model should be recorded.
        alarms: The days and reasons of rollbacks to today's model.
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
        """Return the state stored by :meth:`to_dict`; missing values are initial ones."""
        return cls(**{one.name: found[one.name] for one in fields(cls) if one.name in found})

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)

    def assignment(self) -> Assignment[Part]:
        """Return which requests run which plan."""
        below = max(1.0 - HOLDOUT - self.share, 0.0) if self.below is not None else 0.0
        return Assignment(((self.share, "plan"), (below, "below"), (1.0 - self.share - below, "today")), SALT)

    def plan_of(self, part: Part) -> AnswerPlan | None:
        """Return the plan of a part; None for today's model."""
        found = {"plan": self.plan, "below": self.below, "today": None}[part]
        return None if found is None else AnswerPlan(found["kind"], tuple(found["models"]))


def plain(plan: AnswerPlan) -> dict[str, Any]:
    """Return a plan as plain JSON types."""
    return {"kind": plan.kind, "models": list(plan.models)}
