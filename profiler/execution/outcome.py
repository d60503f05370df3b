"""Computes the contents of a job's result: failure and its source line, score, signal, and next stage."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from vinelm.adapters.langgraph.nodes.signature import user_line
from vinelm.adapters.langgraph.path.path_channel import PATH_KEY
from vinelm.errors import CallError, FailureKind, TemplateError, VineLMError, WorkflowError, is_of_code
from vinelm.judging import AsToday, LLMJudge
from vinelm.profiler.execution.checkpoints import StateError
from vinelm.profiler.execution.judging import UNIT_JUDGE
from vinelm.profiler.execution.unit_policy import UnitPolicy
from vinelm.requests.workflow import Request, Workflow
from vinelm.rows.observation import Observation
from vinelm.signals import Signals
from vinelm.signals.declaration import STATUS, digest_of_text
from vinelm.template import Stage, Template
from vinelm.template.bounds import exceeded_words
from vinelm.template.stop_rules import WorkflowStop


def with_place(detail: str, error: BaseException) -> str:
    """Return ``detail``, the failure's text, with the file and line in the application where ``error`` was raised, if known."""
    place = user_line(error)
    return detail if place is None else f"{detail} at {PurePath(place[0]).name}:{place[1]}"  # without the folder


def checked_score(verdict: object, rule: WorkflowStop) -> tuple[bool | float, str | None]:
    """Return (success, None), or (False, what is wrong with ``verdict``); success is a bool or a number in [0, 1].

    Args:
        verdict: what ``score(request, state)`` returned.
        rule: the template's stop rule; the oracle rule needs a bool.
    """
    if isinstance(verdict, (bool, np.bool_)):
        return bool(verdict), None
    if not isinstance(verdict, (int, float, np.integer, np.floating)):
        return False, f"score returned {type(verdict).__name__}, not a bool or a number in [0, 1]"
    if rule.needs_bool:
        return False, f"score returned {type(verdict).__name__}: {rule.needs_bool}"
    score = float(verdict)
    if not 0.0 <= score <= 1.0:  # nor NaN
        return False, f"score returned {score:g}, which is outside of [0, 1]"
    return score, None


def failed_row(policy: UnitPolicy, error: BaseException) -> Observation:
    """Return the result of a job that ended with the exception ``error``; ``policy`` has its calls and cost so far."""
    last = policy.invocations[-1] if policy.invocations else None
    if isinstance(error, StateError):
        return policy.observation("state", str(error))
    if isinstance(error, MemoryError):
        return policy.observation("crash", "MemoryError: the unit needs more memory than its limit")
    if isinstance(error, VineLMError) and not isinstance(error, CallError):
        return policy.observation("tool", str(error))  # our own text, e.g. a call reported a cost that is not finite
    if last is not None and last.failure is not None:
        is_own = last.detail == type(error).__name__  # raised by the application, not by a call
        return policy.observation(last.failure, with_place(last.detail or "", error) if is_own else last.detail)
    kind: FailureKind = error.kind if isinstance(error, CallError) else "tool"
    return policy.observation(kind, with_place(type(error).__name__, error))  # its text may hold a prompt


class Scored(NamedTuple):
    """The score of an answer.

    Attributes:
        success: Whether the answer is right, or its score in [0, 1]; False if the stage gives no answer. None if it is not
            scored yet: the state after the stage is not available, the judge gave no verdict, or ``answer`` is compared later.
        problem: What is wrong with the scorer, if it raised or returned no score; otherwise None.
        answer: The value to compare with the current setup's answer, as canonical JSON; None if nothing is compared.
    """

    success: bool | float | None
    problem: str | None = None
    answer: str | None = None


def scored(workflow: Workflow, request: Request, values: dict[str, Any] | None, stage: Stage) -> Scored:
    """Return the score of the answer in a state.

    Args:
        workflow: its ``score`` is called, or its judge, which may spend money.
        request: the request.
        values: the workflow state, without the key that VineLM adds to it. None if the state after the stage is not available,
            because other stages of its superstep have not run yet.
        stage: the last stage that ran. If it cannot answer, the score is False.
    """
    if not stage.answerable:
        return Scored(False)
    if values is None:
        return Scored(None)
    if isinstance(workflow.score, LLMJudge):
        unit = UNIT_JUDGE.get()
        return Scored(None if unit is None else unit.verdict(workflow, request, values))
    called = "score"
    try:
        if isinstance(workflow.score, AsToday) and not workflow.score.is_labelled(request):
            called = "answer"
            return Scored(None, answer=workflow.score.text(values))
        verdict: object = workflow.score(request, values)
    except BaseException as error:
        if not is_of_code(error):
            raise
        return Scored(False, with_place(f"{called} raised {type(error).__name__}", error))
    return Scored(*checked_score(verdict, workflow.template.rule))


def with_shown(
    row: Observation,
    signals: Signals,
    values: Mapping[str, Any] | None,
    stage: Stage,
    answer: str | None = None,
) -> Observation:
    """Return the result, extended by its signal (a label of the state after the invocation) and its answer.

    Args:
        row: the result of an invocation that succeeded.
        signals: the workflow's declared signals.
        values: the workflow state, without the key that VineLM adds to it. None if other stages of the superstep have not run
            yet; the result then gets a signal only if ``"status"`` is declared, and no answer.
        stage: the invocation's stage. If it cannot answer, the keys of the answer may be missing from the state.
        answer: the answer to compare with the current setup's, instead of the answer that the signals extract.

    Raises:
        WorkflowError: the signal function raised or returned no label, or the answer's keys are wrong. The message names the
            request and the invocation.
    """
    if answer is not None:
        row = replace(row, answer=answer, answer_digest=digest_of_text(answer))
    passed = row.stopped if stage.answerable else None
    try:
        if values is None and (stage.verdict is not None or not isinstance(signals.signal, str)):
            return row
        label = signals.label(values or {}, passed=passed, verdict=stage.verdict, model=row.model)
        text = None if values is None else signals.answer_text(values, is_partial=not stage.answerable)
    except WorkflowError as error:
        where = f"request {row.request_id!r}, invocation {row.depth} ({row.stage!r})"
        raise WorkflowError(f"{where}: {error}", code=error.code) from error
    if answer is not None:
        return replace(row, signal=label)
    return replace(row, signal=label, answer=text, answer_digest=None if text is None else digest_of_text(text))


def with_error(row: Observation, signals: Signals) -> Observation:
    """Return a failed result with the signal that ``signal="status"`` gives to failures; return other results unchanged.

    A failed result is also unchanged if the workflow declares another signal.
    """
    if row.failure is None or signals.signal != "status":
        return row
    return replace(row, signal=STATUS[0])


_BEYOND_TURNS = re.compile(r"'([^']+)' is a turn more than its loop's times=")
"""In the error text of :func:`arm_after`, the stage with which a loop continues beyond the template's last turn."""


def beyond_turns(row: Observation) -> str | None:
    """Return the stage with which a request continued beyond the last turn of a loop in the template; None if it did not."""
    found = _BEYOND_TURNS.search(row.detail or "")
    return found[1] if found else None


def stages_in(values: Any) -> tuple[str, ...]:
    """Return the stages that have run so far, in order, which VineLM records in the graph's state ``values``."""
    path = (values or {}).get(PATH_KEY) if isinstance(values, Mapping) else getattr(values, PATH_KEY, None)
    return () if not path else tuple(entry["stage"] for entry in path["path"])


def arm_after(template: Template, stages: Sequence[str], reached: Iterable[str]) -> tuple[str | None, str | None]:
    """Return the next stage to record in the result, or an error text if the template does not allow that stage there.

    Args:
        template: the workflow's template.
        stages: the stages that have run; the last is the stage of the job.
        reached: the stages that the graph is about to run; none if it has ended.

    Returns:
        (next stage, None) if the template has branches. (None, None) if it has none, so that the stage need not be recorded, or
        if the graph or the template ends. (None, error text) if graph and template disagree.
    """
    names = list(dict.fromkeys(reached))
    try:
        arms = [stage.name for stage in template.arms_after(stages)]
    except TemplateError as error:
        return None, f"{error}: make graph and template agree"
    if not names or not arms:
        return None, None
    if len(names) == 1 and names[0] in arms:
        return template.noted(names[0]), None
    after = f"after {' > '.join(stages)} the graph goes to {' and '.join(map(repr, names))}"
    if len(names) > 1:
        return None, f"{after} in one superstep: declare them as Parallel, or put an edge between them"
    exceeded = exceeded_words(template, stages, names[0])
    if exceeded is not None:
        return None, f"after {' > '.join(stages)} {exceeded}"
    remedy = "add an arm for it, with Branch"
    if names[0] == stages[-1]:  # several calls in one node
        remedy = f'how often does it? Say Loop((Stage("{names[0]}"),), times=MOST, early_exit=True)'
    return None, f"{after}, where the template has {' or '.join(map(repr, arms))}: {remedy}"


def cut_off(template: Template, stages: Sequence[str], reached: Iterable[str]) -> str | None:
    """Return a line that reports that the graph continues although the template has ended; None if it does not.

    Args:
        template: the workflow's template.
        stages: the stages that have run; the last is the stage of the job.
        reached: the stages that the graph is about to run; none if it has ended.
    """
    names = template.rule.by_itself(list(dict.fromkeys(reached)))
    if not names or template.arms_after(stages):
        return None
    more = exceeded_words(template, stages, names[0]) or f"the graph goes to {names[0]!r}, and the template ends"
    return f"after {' > '.join(stages)} {more}"


def refuse_other(workflow: Workflow, template: Template, depth: int, reached: Collection[str], what: str = "graph") -> None:
    """Raise ``WorkflowError`` if the template allows only one next stage, and the graph is about to run a different one.

    Args:
        workflow: the workflow.
        template: the workflow's template.
        depth: the number of invocations so far.
        reached: the stages that the graph is about to run.
        what: the word for the graph in the message.
    """
    follower = template.stage_after(depth)
    if follower is not None and not set(reached) <= {follower.name}:
        before = template.stages_along(depth, ())
        exceeded = next(filter(None, (exceeded_words(template, before, name) for name in reached)), None)
        if exceeded is not None:
            raise WorkflowError(f"workflow {workflow.name!r}: after {depth} invocations {exceeded}")
        raise WorkflowError(
            f"workflow {workflow.name!r}: after {depth} invocations the {what} goes to {', '.join(reached)}, "
            f"its template to {follower.name!r}: make them agree"
        )
