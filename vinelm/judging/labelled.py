"""Restricts a judged workflow to labelled requests and scores it by labels, without calling the judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vinelm.errors import ConfigError
from vinelm.judging.judge import LLMJudge
from vinelm.judging.reference import AsToday

if TYPE_CHECKING:
    from vinelm.requests.workflow import Request, Workflow


def scored_by_labels(workflow: Workflow) -> Workflow:
    """Return the workflow with only its labelled requests, scored by labels. If all requests have labels, return the workflow
    itself.

    Raises:
        ConfigError: no request has a label.
    """
    judge = workflow.score
    if not isinstance(judge, LLMJudge | AsToday):
        return workflow
    labelled = tuple(request for request in workflow.requests if judge.is_labelled(request))
    if isinstance(judge, AsToday):
        if not labelled:
            raise ConfigError(
                f"no request of workflow {workflow.name!r} has a label, and only a profile compares with what runs today: give "
                "some requests a label, and as_today(score=..., labels=...)",
                code="today-without-labels",
            )
        return replace(workflow, requests=labelled)
    if not labelled:
        raise ConfigError(
            f"workflow {workflow.name!r} is scored by a judge, which is asked while profiling only: give requests a label "
            "and name its key, llm_judge(label=...)",
            code="judge-without-labels",
        )

    def score(request: Request, state: Mapping[str, Any]) -> bool:
        return judge.truth_of(request, state) is True

    return replace(workflow, requests=labelled, score=score)
