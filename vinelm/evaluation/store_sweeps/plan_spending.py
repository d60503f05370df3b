"""The cost and latency of a plan by stage and model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vinelm.controller import Decision


class SpentOn(NamedTuple):
    """What a plan is expected to spend on one model in one stage.

    Args:
        stage: The name of the workflow's stage.
        invocations: Expected invocations per request, >= 0.
        cost_usd: Expected cost per request in dollars, including tools after the stage.
        latency_s: Expected seconds per request, including tools after the stage; NaN if unknown. Stages that run in
            parallel each count with all their seconds.
    """

    stage: str
    model: str
    invocations: float
    cost_usd: float
    latency_s: float


def plan_spending(decision: Decision) -> list[SpentOn]:
    """Return what a plan from the start of a request is expected to spend on each pair of a stage and a model.

    The pairs come in the order in which the trie has them.
    """
    annotated, reached = decision.annotated, decision.reached
    trie, found = annotated.trie, dict[tuple[str, str], list[float]]()
    for node in np.flatnonzero(reached).tolist():
        reach = float(reached[node])
        key = annotated.stage_names[trie.stage[node]], trie.models[trie.model[node]]
        total = found.setdefault(key, [0.0, 0.0, 0.0])
        total[0] += reach
        total[1] += reach * float(annotated.cost_usd[node])
        total[2] += reach * float(annotated.latency_s[node])
    return [SpentOn(stage, model, *total) for (stage, model), total in found.items()]
