"""Chooses the plans that a profile runs on all requests: the plans that its rows so far recommend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vinelm.catalog import Catalog
from vinelm.errors import EvidenceError
from vinelm.profiler.sampling.deciding_sampler import Candidates
from vinelm.profiler.sampling.runs import Run, as_run, distinct, is_run_of, whole_path
from vinelm.rows.observation import Observation, at_ordinary_prices
from vinelm.template import Template

LEAST_ROWS = 40
"""With fewer rows nothing is recommended yet."""
BUDGETS = 9
"""Number of budgets for which plans are recommended if the current setup is unknown."""


def recommended_plans(
    template: Template, catalog: Catalog, wanted: Sequence[tuple[int, Sequence[Run]]] = ()
) -> Candidates | None:
    """Return a function that takes a profile's rows and returns the plans that the profile should run on all requests next.

    If the current setup is known, these are the plans that may be proven better than it. A plan that requests have already run
    is preferred to a plan that is predicted to be only a little better. Its runs then add up to a proof. A plan that relies on
    a model with few rows is postponed. If the current setup is unknown, the function returns the most accurate plan under each
    of nine budgets. They range from the cost of the cheapest plan to that of the most accurate one.

    Returns None if requests end when their answer is right (the stop rule "oracle"), since such plans cannot be served.

    Args:
        template: The template, bound to the catalog.
        catalog: The models.
        wanted: The runs that verdicts on the rows lacked, each with the number of rows at that verdict, oldest first. The
            latest of them come before all other plans.
    """
    if template.rule.why_not_served:
        return None

    def plans(rows: Sequence[Observation]) -> Sequence[Run]:
        if len(rows) < LEAST_ROWS:
            return ()
        # Counted in rows, so that a run that is resumed recommends the same plans in each of its rounds.
        lacking = next((runs for since, runs in reversed(wanted) if since <= len(rows)), ())
        first = [run for run in lacking if is_run_of(template, run)]
        find = _proving if template.today is not None else _under_budgets
        try:
            return distinct((*first, *find(at_ordinary_prices(rows), template, catalog)))
        except EvidenceError:
            return first

    return plans


def _proving(rows: Sequence[Observation], template: Template, catalog: Catalog) -> Sequence[Run]:
    """Return the plans that may be proven better than the current setup; empty if the current setup is unknown."""
    from vinelm.evaluation.comparison.comparable import worth_proving
    from vinelm.evaluation.comparison.fit import Fit
    from vinelm.evaluation.comparison.tried import by_request
    from vinelm.plans.recommendation import thin_models

    half = Fit(rows, template, catalog, "latent").plain
    today = half.plans.today()
    if today is None:
        return ()
    seen = by_request(rows)
    found = worth_proving(today, half.plans, half.within_tried(seen, len(seen)).plans)
    trie, of_application = half.annotated.trie, half.annotated.template
    runs = (as_run(plan.reached, trie, of_application) for plan in found if not thin_models(half.annotated, plan.reached))
    own = whole_path(of_application, template.today or {})  # is run for every plan anyway, and needs no proof
    return tuple(run for run in distinct(runs) if run != own)


def _under_budgets(rows: Sequence[Observation], template: Template, catalog: Catalog) -> Sequence[Run]:
    """Return the most accurate plan under each of :data:`BUDGETS` budgets, cheapest first; equal plans are returned once."""
    from vinelm.controller import Planner
    from vinelm.estimator import make_estimator
    from vinelm.objective import Objective

    annotated = make_estimator("latent").fit(rows, template, catalog).annotated_
    planner = Planner(annotated)
    low = planner.plan(Objective(minimize="cost")).path_cost_usd
    high = planner.plan(Objective(maximize="accuracy")).path_cost_usd
    budgets = np.geomspace(low, high, BUDGETS) if 0.0 < low < high else (high,)
    runs = []
    for usd in budgets:
        plan = planner.plan(Objective(maximize="accuracy", max_cost_usd=float(usd) * (1.0 + 1e-9), mix=False))
        runs.append(as_run(plan.reached, annotated.trie, annotated.template))
    return tuple(run for run in distinct(runs) if run)
