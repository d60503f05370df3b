"""Computes how a plan changes at other prices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from vinelm.controller import Decision, Planner
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray

FACTORS = (0.5, 2.0)
"""Factors of price changes: each price is halved and doubled."""


class PriceChange(NamedTuple):
    """The plan for an objective after one model's price has changed.

    Args:
        model: The model whose price changed; None means that no price changed.
        factor: The number by which the cost of each of the model's calls is multiplied, including tools after the call.
        plan: The plan, in words.
        accuracy: Estimated accuracy.
        cost_usd: Estimated cost per request at the new price, in dollars.
        kept_usd: Cost per request at the new price, in dollars, if the plan for the current prices is kept.
        is_other: Whether the plan differs from the plan at current prices.
    """

    model: str | None
    factor: float
    plan: str
    accuracy: float
    cost_usd: float
    kept_usd: float
    is_other: bool


def price_changes(annotated: AnnotatedTrie, objective: Objective, models: Iterable[str]) -> list[PriceChange]:
    """Return the plans at other prices: for one model at a time, its price is multiplied by each of :data:`FACTORS`.

    The first item is the plan at current prices. A plan's cost is the sum over its calls, and a call's cost is
    proportional to the model's price. A trie has no separate cost of tools, so their cost is multiplied, too.

    Args:
        annotated: The trie.
        objective: What to plan for.
        models: The models whose prices to change; models that the trie lacks are left out.
    """
    now = Planner(annotated).plan(objective, elapsed_s=float(annotated.latency_s[0]))
    words = now.words
    found = [PriceChange(None, 1.0, words, now.accuracy, now.path_cost_usd, now.path_cost_usd, is_other=False)]
    for model in models:
        if model not in annotated.trie.models:
            continue
        runs = annotated.trie.model == annotated.trie.models.index(model)
        for factor in FACTORS:
            changed = _priced(annotated, runs, factor)
            planned = Planner(changed).plan(objective, elapsed_s=float(annotated.latency_s[0]))
            other = planned.words
            kept = now.path_cost_usd + (factor - 1.0) * _dollars_on(now, runs)
            found.append(PriceChange(model, factor, other, planned.accuracy, planned.path_cost_usd, kept, other != words))
    return found


def _priced(annotated: AnnotatedTrie, runs: BoolArray, factor: float) -> AnnotatedTrie:
    """Return the trie with the costs of some nodes multiplied by ``factor``. The mask ``runs`` marks these nodes, the
    calls of one model.

    The result has neither standard errors of costs nor a trie over signals.
    """
    by, size = np.where(runs, factor, 1.0), annotated.cost_size_var
    return replace(
        annotated,
        cost_usd=annotated.cost_usd * by,
        cost_var=annotated.cost_var * by**2,
        cost_size_var=None if size is None else size * by**2,
        cost_se=None,
        signals=None,
    )


def _dollars_on(decision: Decision, runs: BoolArray) -> float:
    """Return the expected dollars per request that a plan spends on the nodes marked in the mask ``runs``."""
    return float(decision.reached[runs] @ decision.annotated.cost_usd[runs])
