"""Checks whether recorded results suffice to compare plans, and supplies default objectives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from scipy.special import ndtri

from vinelm.controller import Decision
from vinelm.errors import ConfigError
from vinelm.evaluation.comparison.fit import Fit
from vinelm.evaluation.plans.plans import Plans
from vinelm.objective import Objective
from vinelm.plans.expected import Expected
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie.arrays import FloatArray
from vinelm.trie.verdict import LEAST_ROWS

SAVED = 0.7
"""Share of today's dollars within which the most accurate plan is worth proving, too. A plan that costs hardly less than
today's saves too little, and one with exactly the same estimated accuracy is rarely proven."""
HARDLY = 0.01
"""A difference in accuracy too small to prefer a new plan to one that requests have already run."""
SURE = 0.8
"""Plans are chosen by the lower end of their accuracy at this confidence: of plans that look alike, the one with more rows."""


def aims(accuracy: float, cost_usd: float) -> tuple[Objective, Objective]:
    """Return two objectives whose plans can replace a plan of the given accuracy and mean cost per request.

    The first is the lowest cost at no lower accuracy; it allows no mixture of two plans. The second is the highest accuracy at
    no higher cost.

    Args:
        accuracy: The plan's accuracy, a fraction.
        cost_usd: The plan's mean cost per request in dollars.
    """
    return (
        Objective(minimize="cost", min_accuracy=max(accuracy - 1e-9, 0.0), mix=False),
        within(cost_usd),
    )


class Runnable(Protocol):
    """A plan that a profile can test: the profile runs it on whole requests."""

    @property
    def reached(self) -> FloatArray:
        """An array with an element for each node of the trie, the root first.

        The element is the probability that a request under this plan makes the node's call.
        """


def worth_proving(today: Expected, plans: Plans[Any], tried: Plans[Any]) -> list[Runnable]:
    """Return up to four plans to run in a profile: the most accurate within 70 % of the current cost, the most
    accurate within 100 %, and one or two single models.

    The plans come in this order. The first two are swapped if the predicted accuracy of the first is more than
    :data:`HARDLY` below both the current setup's and the second's. Of the single models that cost at most 70 % of the
    current cost, the cheapest is included whose predicted accuracy is at most :data:`HARDLY` below the current setup's,
    and so is the cheapest for which this may still turn out to be true: by the upper end of the prediction at the
    confidence :data:`SURE`. A person would try such a model first, and it costs little: an earlier comparison of single
    models has already run it on some requests. Without the second rule, a model that is as good would often not be run on
    more requests, because its prediction from a few requests is too low by chance.

    Args:
        today: The current setup.
        plans: All plans.
        tried: The plans restricted to steps that enough recorded requests took. The best of these plans is preferred if
            the best of all plans is at most :data:`HARDLY` more accurate.
    """
    found: list[Decision] = []
    for share in (SAVED, 1.0):
        wanted = replace(within(share * today.path_cost_usd, SURE), mix=False)
        best, known = plans.decision(wanted), tried.decision(wanted)
        if best.is_feasible:
            found.append(known if known.is_feasible and known.accuracy >= best.accuracy - HARDLY else best)
    if len(found) > 1 and found[0].accuracy < min(today.accuracy, found[1].accuracy) - HARDLY:
        found.reverse()
    alone = sorted((plan for _, plan in plans.single_models()), key=lambda plan: plan.path_cost_usd)
    for z in (0.0, float(ndtri(SURE))):
        good = (plan for plan in alone if plan.accuracy + z * (plan.standard_error or 0.0) >= today.accuracy - HARDLY)
        one = next((plan for plan in good if plan.path_cost_usd <= SAVED * today.path_cost_usd), None)
        if one is not None and all(one is not other for other in found):
            found.append(one)
    return [*found]


def within(cost_usd: float, confidence: float | None = None) -> Objective:
    """Return the objective "highest accuracy at a mean cost of at most ``cost_usd`` dollars per request", with a
    tolerance for rounding.

    With ``confidence``, a level such as 0.8, plans are ranked by the lower end of their accuracy's interval at this level; None
    ranks them by the estimate.
    """
    return Objective(maximize="accuracy", max_cost_usd=cost_usd * (1.0 + 1e-9), confidence=confidence)


LEAST_REQUESTS = 20
"""At least this many requests need a scored row that did not fail."""
BUDGETS = 5
"""Number of budgets of the default sweep."""


def require_comparable(requests: Sequence[str], rows: Sequence[Observation], template: Template) -> None:
    """Raise :class:`ConfigError` with the reason if plans cannot be compared by ``rows``, the recorded results of
    ``requests``.
    """
    models = dict.fromkeys(name for stage in template.stages for name in stage.models or ())
    if len(models) < 2:
        raise ConfigError(
            f"the workflow runs on one model, {next(iter(models), 'none')!r}: there is nothing to choose; profile with two or"
            " more",
            code="one-model",
        )
    if rows and all(row.failure is not None for row in rows):
        kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(Counter(row.failure or "" for row in rows).items()))
        raise ConfigError(
            f"every one of the {len(rows):,} rows failed ({kinds}): there is no answer to judge", code="all-failed"
        )
    scored = [row for row in rows if row.failure is None and row.success is not None]
    seen = {row.request_id for row in scored}
    if len(seen) < LEAST_REQUESTS or len(scored) < LEAST_ROWS:
        raise ConfigError(
            f"{len(seen)} requests have a scored answer, and {len(scored):,} rows in all: plans are judged by requests that did"
            f" not choose them, which needs at least {LEAST_REQUESTS} and {LEAST_ROWS}; profile more",
            code="too-few-rows",
        )
    # The probability of buying a first row would depend on the stage, which is unknown for a request without a row.
    first, base = len(template.base.first_stages), template.base_stages
    if first > 1 and len({base.get(row.stage, row.stage) for row in rows if row.depth == 1}) > 1:
        raise ConfigError(
            "requests begin in different stages, and which one is not known of those without a row: use `verify` instead",
            code="several-first-stages",
        )


def swept(planning: Sequence[Fit]) -> tuple[Objective, ...]:
    """Return the objectives of a sweep: the highest accuracy within each of several budgets, from the cost of the cheapest plan
    to that of the most accurate.

    Budgets are spaced geometrically. If all plans are free or cost the same, the sweep is one objective without a budget.

    Args:
        planning: The estimates from which plans are chosen, one for each part of the requests. At every budget, each of
            these estimates has a plan.
    """
    ranges = [half.plans.frontier_range() for half in planning]
    low, high = max(found.cheapest_usd for found in ranges), max(found.dearest_usd for found in ranges)
    if not low > 0.0 or high <= 1.01 * low:
        return (Objective(maximize="accuracy"),)
    return tuple(
        Objective(maximize="accuracy", max_cost_usd=float(f"{cap:.3g}")) for cap in np.geomspace(1.01 * low, high, BUDGETS)
    )
