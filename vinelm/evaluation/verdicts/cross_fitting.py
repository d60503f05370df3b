"""Cross-fitting: each half of the requests judges the plans that were made from the other half.

So every request is used twice, to plan and to judge, and none is judged by a plan that has seen it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from vinelm.evaluation.policy_run import PolicyRun
from vinelm.evaluation.sweep import SweepPolicy
from vinelm.evaluation.verdicts.verdict import PolicyComparison
from vinelm.objective import Objective

REMEMBERED = 256
"""Objectives whose runs a crossed policy remembers."""


def joined_runs(parts: Sequence[PolicyRun]) -> PolicyRun:
    """Join the runs of one policy on disjoint requests: one run over all of them, in this order.

    The expected accuracy is the mean over the requests; None if one part has none. Where the plans differ, the text has all.

    Args:
        parts: At least one run, each of the plan that was made without its requests.
    """
    expected = [part.expected_accuracy for part in parts]
    sizes = [len(part) for part in parts]
    known = [value for value in expected if value is not None]
    return PolicyRun(
        policy=parts[0].policy,
        plan=plans_text([part.plan for part in parts]),
        success=np.concatenate([part.success for part in parts]),
        cost_usd=np.concatenate([part.cost_usd for part in parts]),
        latency_s=np.concatenate([part.latency_s for part in parts]),
        expected_accuracy=float(np.average(known, weights=sizes)) if len(known) == len(parts) else None,
    )


def joined_comparisons(parts: Sequence[PolicyComparison]) -> PolicyComparison:
    """Join the comparisons of one objective on disjoint requests. All parts have the same further runs in the same order."""
    models = list(dict.fromkeys(part.model for part in parts))
    paths = [part.paths for part in parts if part.paths is not None]
    return PolicyComparison(
        objective=parts[0].objective,
        vinelm=joined_runs([part.vinelm for part in parts]),
        static=joined_runs([part.static for part in parts]),
        single=joined_runs([part.single for part in parts]),
        model=" or ".join(models),
        others=tuple(joined_runs(runs) for runs in zip(*(part.others for part in parts), strict=True)),
        paths=joined_runs(paths) if len(paths) == len(parts) else None,
    )


def crossed_policy(parts: Sequence[SweepPolicy]) -> SweepPolicy:
    """Return the policy whose run is the joined one of the parts; None where one part has no plan that meets the bounds."""

    @lru_cache(REMEMBERED)
    def run(objective: Objective) -> PolicyRun | None:
        found = [part.run(objective) for part in parts]
        kept = [one for one in found if one is not None]
        return joined_runs(kept) if len(kept) == len(parts) else None

    return SweepPolicy(parts[0].name, parts[0].role, run)


def plans_text(texts: Sequence[str]) -> str:
    """Return the plans of the halves in words: one text where they are equal, else all of them."""
    distinct = list(dict.fromkeys(texts))
    return distinct[0] if len(distinct) == 1 else "; or ".join(distinct)


def common_objectives(parts: Sequence[Sequence[Objective]]) -> tuple[Objective, ...]:
    """Return one objective for each position, with the loosest bounds of the parts, so that each part can meet it.

    Args:
        parts: The objectives of each part, with the same targets in the same order; of unequal lists the first ones are used.
    """
    return tuple(_loosest(same) for same in zip(*parts, strict=False))


def _loosest(objectives: Sequence[Objective]) -> Objective:
    first = objectives[0]
    costs = [one.max_cost_usd for one in objectives if one.max_cost_usd is not None]
    latencies = [one.max_latency_s for one in objectives if one.max_latency_s is not None]
    floors = [one.min_accuracy for one in objectives if one.min_accuracy is not None]
    return replace(
        first,
        max_cost_usd=max(costs) if costs else None,
        max_latency_s=max(latencies) if latencies else None,
        min_accuracy=min(floors) if floors else None,
    )
