"""The plans that a profile compares with what runs today: those that its rows so far recommend to other requests."""

from __future__ import annotations

from collections.abc import Sequence

from vinelm.catalog import Catalog
from vinelm.errors import EvidenceError
from vinelm.profiler.sampling.priced_sampler import Candidates, PlansOf
from vinelm.rows.observation import Observation, at_ordinary_prices
from vinelm.template import Template

LEAST_ROWS = 40
"""With fewer rows nothing is recommended yet."""
SPLIT_SEED = 0
"""Of the parts, which have to be those that an estimate's comparison with today is made of."""


def recommended_plans(template: Template, catalog: Catalog) -> Candidates | None:
    """Return a function from rows to the plans that are worth proving against what runs today, as whole runs.

    None where it is not known what runs today. As in :func:`~vinelm.evaluation.judging.today.against_today` the requests have
    parts, and each of them runs what the rows of the others recommend: so the rows are those of the plans that are judged.

    Args:
        template: Bound.
        catalog: The models.
    """
    if template.today is None or template.stop == "oracle":
        return None

    def plans(rows: Sequence[Observation]) -> PlansOf | None:
        from vinelm.evaluation.judging.judgeable import worth_proving
        from vinelm.evaluation.judging.planning_half import PlanningHalf, part_of
        from vinelm.evaluation.judging.today import PARTS
        from vinelm.profiler.sampling.baseline import as_run, distinct

        if len(rows) < LEAST_ROWS:
            return None
        rows = at_ordinary_prices(rows)
        at = {row.request_id: part_of(row.request_id, SPLIT_SEED, PARTS) for row in rows}
        try:
            others = [
                PlanningHalf([row for row in rows if at[row.request_id] != part], template, catalog, "latent")
                for part in range(PARTS)
            ]
        except EvidenceError:
            return None
        today = [found for half in others if (found := half.plans.today()) is not None]
        if len(today) < len(others):
            return None
        objectives = worth_proving(today)
        # Both plans of a mixture: one of them is often what runs today, and what the other one differs by counts for its share.
        of_part = [
            distinct(
                as_run(plan.reached, half.annotated.trie, template)
                for one in objectives
                for _, plan in half.plans.decision(one).parts
            )
            for half in others
        ]

        return lambda request: of_part[part_of(request, SPLIT_SEED, PARTS)]

    return plans
