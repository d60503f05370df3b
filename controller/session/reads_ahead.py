"""Decides which read-only tool calls (reads) a request prefetches, by the plan's expected times and costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from vinelm.controller.planning.decision import Decision
from vinelm.controller.session.replanner import Replanner
from vinelm.controller.session.trace import TraceStep
from vinelm.controller.speculation.start_rule import Room, ToolFigures, decide
from vinelm.controller.speculation.worth import BestValue, worth_of_second
from vinelm.errors import InfeasibleError
from vinelm.money.spend_guard import SpendGuard
from vinelm.objective import Objective
from vinelm.tools.speculation import Speculation, ToolCandidate


def reads_of_a_step(
    steps: list[TraceStep],
    replanner: Replanner,
    prefix: tuple[str, ...],
    candidates: Sequence[ToolCandidate],
    settings: Speculation,
    *,
    guard: SpendGuard | None,
    wasted_usd: float = 0.0,
    running: int = 0,
) -> Sequence[ToolCandidate] | None:
    """Return the reads to prefetch during a model call, best first; None without a plan.

    If no read is worth starting, the reason is added to the note of the trace step.

    Args:
        steps: the session's trace steps. The plan is that of the latest step that chose the last model of ``prefix``.
        replanner: the session's replanner.
        prefix: models of the calls so far, including this call.
        candidates: reads that the model may request, with declared costs and recorded durations.
        settings: the request's settings.
        guard: guards the request's cost cap. Reads may use only what the cap leaves after the plan's remaining cost. None
            without a cap.
        wasted_usd: the expected cost, in dollars, of needless reads among those started so far.
        running: number of prefetches in flight that the model has not requested yet.
    """
    at = _step_of(steps, prefix)
    plan = None if at is None else steps[at].decision
    think_s = replanner.expected_s(prefix)
    if at is None or plan is None or think_s is None or not candidates:
        return None
    tools = {one.tool: ToolFigures(cost_usd=one.cost_usd, seconds=one.seconds) for one in candidates}
    left_usd = None if guard is None else guard.left_usd
    beside_usd = None if left_usd is None else left_usd - plan.remaining_cost_usd
    room = Room(left_usd=beside_usd, wasted_usd=wasted_usd, running=running, think_s=think_s)
    found = decide(candidates, tools, worth_of_second(plan.request.objective, _best(replanner, plan)), room, settings)
    if not found.candidates:
        note, why = steps[at].note, f"nothing read ahead: {found.why}"
        if why not in note:  # a stage may call its model several times
            steps[at] = steps[at]._replace(note=f"{note}; {why}" if note else why)
    return found.candidates


def chance_of_next(
    steps: Sequence[TraceStep], replanner: Replanner, prefix: tuple[str, ...], stages: Collection[str]
) -> float | None:
    """Return the probability that one of ``stages`` comes right after ``prefix``; None if it is unknown."""
    at = _step_of(steps, prefix)
    return replanner.comes_next(prefix, stages, steps[at].decision if at is not None and replanner.follows else None)


def _step_of(steps: Sequence[TraceStep], prefix: tuple[str, ...]) -> int | None:
    """Return the index of the latest trace step that chose the last model of ``prefix``; None without such a step."""
    return next((k for k in reversed(range(len(steps))) if steps[k].prefix == prefix[:-1] and not steps[k].is_aside), None)


def _best(replanner: Replanner, plan: Decision) -> BestValue:
    def best(objective: Objective) -> float | None:
        try:
            found = replanner.planned_again(plan.request, replace(objective, on_infeasible="raise"))
        except InfeasibleError:
            return None
        return found.path_cost_usd if objective.target == "cost" else found.accuracy

    return best
