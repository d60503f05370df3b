"""Where the requests, the dollars and the seconds of a plan go: by invocation, stage and model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vinelm.controller import Decision


class SpentOn(NamedTuple):
    """A plan's dollars and seconds for one model in one stage.

    Args:
        stage: The workflow's stage.
        invocations: Expected invocations per request, >= 0.
        cost_usd: Expected dollars per request, tools after the stage included.
        latency_s: Expected seconds per request, tools after the stage included; NaN where they are not known. Stages that
            run side by side each have their own.
    """

    stage: str
    model: str
    invocations: float
    cost_usd: float
    latency_s: float


class PlanFlow(NamedTuple):
    """Requests that go from one invocation to the next.

    Args:
        depth: Number of invocations before, from 0.
        source: Stage and model of the invocation before; None at the start.
        target: Stage and model of the next one; None where the request ends.
        share: Of all requests, in [0, 1].
    """

    depth: int
    source: tuple[str, str] | None
    target: tuple[str, str] | None
    share: float


def plan_spending(decision: Decision) -> list[SpentOn]:
    """Return what a plan made at the start spends, by stage and model in the order of the trie."""
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


def plan_flows(decision: Decision) -> list[PlanFlow]:
    """Return how requests move through a plan made at the start: by depth, those that end last."""
    shares: dict[tuple[int, Any, Any], float] = defaultdict(float)
    _add_steps(shares, decision.steps, 0, None, 1.0)
    found = [PlanFlow(*key, share) for key, share in shares.items() if share > 1e-9]
    return sorted(found, key=lambda flow: (flow.depth, flow.target is None, -flow.share))


def _add_steps(
    shares: dict[tuple[int, Any, Any], float], steps: Sequence[Mapping[str, Any]], depth: int, source: Any, reach: float
) -> None:
    left = reach
    for step in steps:
        if step["model"] is None:
            continue
        share, target = reach * step["probability"], (_plain(step["stage"]), step["model"])
        left -= share
        shares[depth, source, target] += share
        _add_steps(shares, step["steps"], depth + 1, target, share)
    shares[depth, source, None] += max(left, 0.0)


def _plain(stage: str) -> str:
    """The workflow's stage: a trie of outcomes names what was seen as well, as in ``repair [failed, answer 1]``."""
    return stage.split(" [", 1)[0]
