"""The state of each step of an autopilot: plain JSON types in the store, written by one process and read by all."""

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
        title: Its name.
        today: The entry that answers without an autopilot.
        since: Units with larger numbers belong to the attempt.
        chosen: Number of the first unit of the last conversation that has chosen plans; 0 before they are chosen.
        race_since: Conversations whose first unit has a larger number prove.
        attempt: Number of the attempt, of all steps together; 0 before plans are chosen.
        labels: Questions that people may be asked in it.
        dropped: By model: why it is no longer asked.
        candidates: Plans that race: name, share saved, share that differs.
        ended: Why nothing races; "" while something does, or may.
        plan: What is proven and on its way: ``kind`` and ``models``.
        below: What was proven before it, and serves the other requests meanwhile.
        served_since: Rows of what was served with larger numbers are of this plan.
        served_attempt: The attempt that has proven it.
        share: Share of new requests that it serves (:data:`~vinelm.autopilot.raising.LEVELS`).
        saved: Share of the step's dollars that it saves, by its proof.
        today_usd, today_s: Dollars and seconds of a call of today's model, the mean; 0 seconds where they are not known.
        proven: The smallest loss that its proof excludes, a fraction.
        entries: By model of the catalog: a digest of its entry, with its address and prices, as it was last seen.
        escalated, differing: What its proof has seen of it: how many of how many.
        wants_units: Whether calls of today's model should be recorded.
        alarms: Why plans went back to today's model: the day and the reason.
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
        """Return which requests run what."""
        below = max(1.0 - HOLDOUT - self.share, 0.0) if self.below is not None else 0.0
        return Assignment(((self.share, "plan"), (below, "below"), (1.0 - self.share - below, "today")), SALT)

    def plan_of(self, part: Part) -> AnswerPlan | None:
        """Return the plan of a part; None for today's model."""
        found = {"plan": self.plan, "below": self.below, "today": None}[part]
        return None if found is None else AnswerPlan(found["kind"], tuple(found["models"]))


def plain(plan: AnswerPlan) -> dict[str, Any]:
    """Return a plan as plain JSON types."""
    return {"kind": plan.kind, "models": list(plan.models)}
