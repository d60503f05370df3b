"""Which reads a planned request starts ahead: the start rule with what its plan says of seconds and dollars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vinelm.controller.planner import Planner
from vinelm.controller.planning.decision import Decision
from vinelm.controller.speculation.start_rule import Room, Starts, ToolFigures, decide
from vinelm.controller.speculation.worth import worth_of_second
from vinelm.errors import InfeasibleError
from vinelm.objective import Objective
from vinelm.tools.speculation import Candidate, Speculation


def starts_of_a_plan(
    planner: Planner, plan: Decision, candidates: Sequence[Candidate], settings: Speculation, room: Room
) -> Starts:
    """Return the reads to start while the model of a plan is called, the best first.

    Args:
        planner: of the request.
        plan: for the invocation that begins.
        candidates: reads that may come, with declared dollars and recorded seconds.
        settings: the request's.
        room: what is left for them. Its dollars are those of the request's guard, which the caller asks for each call.
    """
    here = plan.request

    def best(objective: Objective) -> float | None:
        asked = replace(objective, on_infeasible="raise")
        try:
            found = planner.plan(
                asked,
                node=here.node,
                elapsed_s=here.elapsed_s,
                spent_usd=here.spent_usd,
                load=here.load_s,
                may_stop=here.may_stop,
            )
        except InfeasibleError:
            return None
        return found.path_cost_usd if objective.target == "cost" else found.accuracy

    tools = {one.tool: ToolFigures(cost_usd=one.cost_usd, seconds=one.seconds) for one in candidates}
    return decide(candidates, tools, worth_of_second(here.objective, best), room, settings)
