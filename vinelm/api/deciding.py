"""The plans that a profile runs on purpose, beside what runs today: those that its rows so far recommend."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.catalog import Catalog
from vinelm.errors import EvidenceError
from vinelm.profiler.sampling.priced_sampler import Candidates, Run
from vinelm.rows.observation import Observation, at_ordinary_prices
from vinelm.template import Template

LEAST_ROWS = 40
"""With fewer rows nothing is recommended yet."""


def recommended_plans(template: Template, catalog: Catalog) -> Candidates | None:
    """Return a function from rows to the plans that are worth proving against what runs today, as whole runs.

    A plan that requests have run already is preferred to one that promises hardly more: whole runs then add up, where those of
    plans that change from round to round prove nothing of any of them. A plan that leans on a model with few rows waits.

    None where it is not known what runs today.

    Args:
        template: Bound.
        catalog: The models.
    """
    today_models = template.today
    if today_models is None or template.stop == "oracle":
        return None

    def plans(rows: Sequence[Observation]) -> Sequence[Run]:
        from vinelm.evaluation.judging.fit import Fit
        from vinelm.evaluation.judging.judgeable import worth_proving
        from vinelm.evaluation.judging.tried import by_request
        from vinelm.plans.recommendation import thin_models
        from vinelm.profiler.sampling.baseline import as_run, distinct, whole_path

        if len(rows) < LEAST_ROWS:
            return ()
        rows = at_ordinary_prices(rows)
        try:
            half = Fit(rows, template, catalog, "latent").plain
        except EvidenceError:
            return ()
        today = half.plans.today()
        if today is None:
            return ()
        seen = by_request(rows)
        found = worth_proving(today, half.plans, half.within_tried(seen, len(seen)).plans)
        trie, of_application = half.annotated.trie, half.annotated.template
        runs = (as_run(plan.reached, trie, of_application) for plan in found if not thin_models(half.annotated, plan.reached))
        own = whole_path(of_application, today_models)  # has its runs beside every other plan, and is no plan to be proven
        return tuple(run for run in distinct(runs) if run != own)

    return plans
