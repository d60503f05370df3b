"""Answers the interrupts of a graph that is profiled, in place of a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.types import Command, Interrupt

from vinelm.errors import VineLMError, WorkflowError
from vinelm.profiler.execution.unit_policy import UnitPolicy
from vinelm.workflow import Workflow

MOST_ANSWERS = 100
"""The most interrupts of one unit: a node that asks again until it likes the answer would never end."""


def answered(workflow: Workflow, policy: UnitPolicy, interrupts: Sequence[Interrupt]) -> Command[Any]:
    """Return what the graph is resumed with, and count the answer.

    Raises:
        WorkflowError: nobody answers, or several nodes ask at once.
        VineLMError: the unit asks too often.
    """
    where = f"workflow {workflow.name!r} waits for a person (interrupt) in request {policy.request_id!r}"
    if workflow.answer_interrupt is None:
        raise WorkflowError(f"{where}: answer it in code while profiling, with Workflow(answer_interrupt=)")
    if len(interrupts) > 1:
        raise WorkflowError(f"{where}, in {len(interrupts)} nodes at once: put an edge between them")
    policy.answered += 1
    if policy.answered > MOST_ANSWERS:
        raise VineLMError(f"the nodes after stage {policy.stage!r} asked a person more than {MOST_ANSWERS} times")
    assert policy.request is not None
    return Command(resume=workflow.answer_interrupt(policy.request, interrupts[0].value))
