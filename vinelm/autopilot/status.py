"""The status of an autopilot, read from its store: the plans of each step (LLM call site), their proofs, and open questions."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vinelm.autopilot.autopilot import WORKFLOW
from vinelm.autopilot.pilot import today_utc
from vinelm.autopilot.raising import LEVELS
from vinelm.autopilot.state import StepState
from vinelm.errors import StoreError
from vinelm.replay.plans import AnswerPlan
from vinelm.traces import ObservationStore
from vinelm.traces.databases.address import address_of
from vinelm.traces.served.piloted import ServedRows
from vinelm.traces.served.replayed import ReplayRows

MONTH = 30
"""Days of a month."""


@dataclass(frozen=True, kw_only=True)
class StepStatus:
    """The status of a step.

    Attributes:
        step: The step's name.
        today: The catalog entry of the current model, which answers without an autopilot.
        recorded: The number of recorded calls of the current model.
        says: The step's status, in a few words.
        plan: The proven plan as a text; None if there is none.
        share: The share of new requests that the plan serves.
        saves: The share of the step's cost that the plan saves, according to its proof.
        proven: The plan is proven to lose less accuracy than this, a fraction; None without a plan.
        usd, saved_usd: The cost in dollars of calls served by plans in the last 30 days, and how much more the current model
            would have cost.
        waiting: The number of open questions for people.
        alarms: The rollbacks to the current model, each as [day, reason].
    """

    step: str
    today: str
    recorded: int
    says: str
    plan: str | None
    share: float
    saves: float
    proven: float | None
    usd: float
    saved_usd: float
    waiting: int
    alarms: list[list[str]]


@dataclass(frozen=True, kw_only=True)
class PilotStatus:
    """The status of an autopilot.

    Attributes:
        steps: The steps that have been called.
        learning_usd: Dollars spent on sending recorded prompts to models; calls of unknown outcome count at their maximum cost.
        today_usd: The part of ``learning_usd`` spent on the last UTC day with calls.
        saved_usd: Dollars saved in the last 30 days, without subtracting ``learning_usd``.
        waiting: The number of open questions for people.
        answered: The number of questions that people have answered.
        attempts: The number of proofs that were begun.
        is_simulated: Whether a model is simulated.
    """

    steps: list[StepStatus]
    learning_usd: float
    today_usd: float
    saved_usd: float
    waiting: int
    answered: int
    attempts: int
    is_simulated: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the status as a dict of JSON types."""
        return asdict(self)


def status_of(path: str | Path) -> PilotStatus:
    """Read the status of an autopilot, whether or not its service runs.

    Raises:
        StoreError: The file is missing, or is not an autopilot's store.
    """
    address = address_of(path)
    if isinstance(address, Path) and not address.exists():
        raise StoreError(f"{path}: no such store: VineLM(models, autopilot=Autopilot({str(path)!r})) makes one")
    with ObservationStore.open(address) as store:
        if store.identity.workflow != WORKFLOW:
            raise StoreError(f"{path}: was not made by an autopilot", code="other-file")
        rows = ReplayRows(store)
        notes = {} if rows.is_new else rows.notes()
        units = [] if rows.is_new else rows.units()
        questions = [] if rows.is_new else rows.questions()
        labels = [] if rows.is_new else rows.labels()
        saved = {} if rows.is_new else ServedRows(store).saved(today_utc() - MONTH + 1)
        spent = store.committed_usd()
        identity = store.identity
    step_of, recorded = {unit["unit_id"]: unit["step"] for unit in units}, Counter(unit["step"] for unit in units)
    waiting = Counter(step_of[one["unit_id"]] for one in questions if one["is_open"])
    steps = [
        _step(StepState.of(found), recorded[key], saved.get(key, (0.0, 0.0)), waiting[key])
        for key, found in notes.get("steps", {}).items()
    ]
    return PilotStatus(
        steps=steps,
        learning_usd=spent,
        today_usd=max(spent - notes.get("before_usd", 0.0), 0.0),
        saved_usd=sum(one.saved_usd for one in steps),
        waiting=waiting.total(),
        answered=len({label["question_id"] for label in labels}),
        attempts=notes.get("attempt", 0),
        is_simulated=identity.is_simulated,
    )


def _step(state: StepState, recorded: int, money: tuple[float, float], waiting: int) -> StepStatus:
    plan = state.plan_of("plan")
    return StepStatus(
        step=state.title,
        today=state.today,
        recorded=recorded,
        says=_says(state, plan, waiting),
        plan=None if plan is None else plan.name,
        share=state.share,
        saves=state.saved,
        proven=state.proven,
        usd=money[0],
        saved_usd=money[1],
        waiting=waiting,
        alarms=state.alarms,
    )


def _says(state: StepState, plan: AnswerPlan | None, waiting: int) -> str:
    if plan is not None:
        level = "all but the 5 % that are compared" if state.share == LEVELS[-1] else f"{100 * state.share:g} %"
        return f"serves {level}"
    if waiting:
        return "waits for answers to questions"
    if state.ended:
        return f"today's model: {state.ended}"
    if state.candidates:
        return f"proves {len(state.candidates)} {'plans' if len(state.candidates) > 1 else 'plan'}"
    return "records, and asks cheaper models"
