"""Recommends whether to serve an objective's plan instead of the current setup, by the verdict that a trie's file has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vinelm.objective import Objective
from vinelm.template import SKIP
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray
from vinelm.trie.verdict import Verdict

THIN_ROWS = 20
"""A model with fewer rows is reported if a plan relies on it."""
LEAST_ASKED = 0.05


def served_objective(found: Verdict) -> Objective | None:
    """Return the objective that leads to the plan which the verdict tested; None if the verdict names no plan.

    The objective maximizes accuracy within the cost of that plan, and does not divide requests between two plans.
    """
    return None if found.max_cost_usd is None else Objective(maximize="accuracy", max_cost_usd=found.max_cost_usd, mix=False)


def is_of_verdict(found: Verdict, objective: Objective) -> bool:
    """Return whether an objective is the :func:`served_objective` of this verdict, apart from ``on_infeasible``."""
    own = served_objective(found)
    return own is not None and replace(own, on_infeasible=objective.on_infeasible) == objective


def recommended(
    annotated: AnnotatedTrie, objective: Objective, cost_usd: Callable[[], float], *, max_loss: float | None = None
) -> Verdict | None:
    """Return the verdict on serving the plan for an objective instead of the current setup; None if the trie has no
    verdict.

    Args:
        annotated: The trie from which the plan is made: the trie of paths, or the trie over signals.
        objective: The objective to plan for. For the :func:`served_objective`, the result is the verdict in the trie.
            For another objective, the result is the verdict on a plan of similar cost that was compared with the current
            setup. If there is no such plan, the result says that no decision is possible.
        cost_usd: Returns the cost per request, in dollars, of the objective's plan; called only if needed.
        max_loss: Accuracy that a cheaper plan may lose, a fraction; None takes the loss that the verdict allows.
    """
    found = annotated.verdict
    if found is None:
        return None
    found = found if max_loss is None else found.at(max_loss)
    if found.why_not or is_of_verdict(found, objective):
        return found
    beside = found.on(cost_usd(), annotated.policy)
    if beside is not None:
        return beside
    why = (
        "no plan near the dollars of this objective was compared: take those that the verdict names, or evaluate this objective"
    )
    return replace(found, plans=(), why_not=why)


def thin_models(annotated: AnnotatedTrie, reached: FloatArray) -> dict[str, int]:
    """Return the models of a plan that have too few recorded results, fewer than :data:`THIN_ROWS`.

    The result maps each such model to its number of results. Models that run at most 0.05 times per request under the
    plan are left out.

    Args:
        annotated: The plan's trie; if it has no counts of rows, the result is empty.
        reached: For each node of the trie, the root first, the probability that a request under the plan runs its call.
    """
    if annotated.count is None:
        return {}
    trie, width = annotated.trie, len(annotated.trie.models)
    invoked = slice(1, None)
    rows = np.bincount(trie.model[invoked], annotated.count[invoked], width)
    calls = np.bincount(trie.model[invoked], reached[invoked], width)
    return {
        name: int(n) for name, n, asked in zip(trie.models, rows, calls, strict=True) if asked > LEAST_ASKED and n < THIN_ROWS
    }


def left_out(annotated: AnnotatedTrie, reached: FloatArray) -> dict[str, Mapping[str, Any]]:
    """Return the measured figures of each optional stage that a plan never runs, keyed by the stage's name.

    The figures are cost and effect on accuracy, as a dict from :func:`vinelm.estimator.optional_steps.optional_steps`;
    stages without figures are not included.

    Args:
        annotated: The plan's trie.
        reached: See :func:`thin_models`.
    """
    trie, measured = annotated.trie, annotated.meta.get("optional_steps", {})
    is_run = (reached > 0.0) & (trie.model >= 0) & np.array([name != SKIP for name in (*trie.models, SKIP)])[trie.model]
    run = {trie.stages[index] for index in set(trie.stage[is_run].tolist())}
    # Over signals, a stage has a title for each state of knowledge in which it runs.
    return {
        stage: worth for stage, worth in measured.items() if not any(f"{title} [".startswith(f"{stage} [") for title in run)
    }
