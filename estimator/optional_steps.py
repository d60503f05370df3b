"""Estimates cost and effect of an optional stage from requests that were run with and without it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from vinelm.rows.observation import Observation
from vinelm.template import SKIP, Template

_Z = 1.96


def optional_steps(observations: Iterable[Observation], template: Template) -> dict[str, dict[str, Any]]:
    """Return what each optional stage that writes an answer costs and changes, keyed by the name of the stage.

    Each value has the keys ``cost_usd``, ``low``, ``high`` and ``pairs``. ``pairs`` counts requests that have, after the same
    path, a result with the stage and a result without it; each request counts once per model. The figures are for the model
    that most probably helps. ``low`` and ``high`` bound the change of accuracy with 95 % confidence (paired proportions:
    Agresti and Min 2005); ``cost_usd`` is the stage's mean cost on this model. Stages without a pair are left out. So are
    judges, because a judge's verdict alone changes no answer.

    Args:
        observations: the results of a profile.
        template: the workflow's template, bound to its models.
    """
    stages = {stage.name for stage in template.stages if stage.optional and stage.verdict is None}
    if not stages:
        return {}
    rows = {(row.request_id, row.prefix): row for row in observations if row.stage in stages}
    found: dict[str, dict[str, dict[str, tuple[float, float]]]] = defaultdict(lambda: defaultdict(dict))
    for (request, prefix), row in rows.items():
        skipped = rows.get((request, (*prefix[:-1], SKIP)))
        if row.model != SKIP and skipped is not None and row.success is not None and skipped.success is not None:
            difference = float(row.success) - float(skipped.success)
            found[row.stage][row.model].setdefault(request, (difference, row.cost_usd + row.tool_cost_usd))
    worth = {}
    for stage, models in found.items():
        each = [_worth(list(pairs.values())) for pairs in models.values()]
        worth[stage] = max(each, key=lambda one: (one["high"], -one["cost_usd"]))
    return worth


def _worth(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    change, dollars = np.array(pairs).T
    n, better, worse = len(pairs), float(np.sum(np.maximum(change, 0.0))), float(np.sum(np.maximum(-change, 0.0)))
    mean = (better - worse) / (n + 2)
    error = _Z * math.sqrt(max(better + worse + 1.0 - (better - worse) ** 2 / (n + 2), 0.0)) / (n + 2)
    return {"cost_usd": float(dollars.mean()), "low": max(mean - error, -1.0), "high": min(mean + error, 1.0), "pairs": n}
