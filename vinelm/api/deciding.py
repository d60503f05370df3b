"""The plans that a profile compares with what runs today: those that its rows so far would recommend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vinelm.catalog import Catalog
from vinelm.errors import EvidenceError
from vinelm.requests.protocols import Choice
from vinelm.rows.observation import Observation
from vinelm.template import Template

Path = tuple[Choice, ...]
LEAST_ROWS = 20
"""With fewer rows nothing is recommended yet."""


def recommended_plans(template: Template, catalog: Catalog) -> Callable[[Sequence[Observation]], Sequence[Path]] | None:
    """Return a function from rows to the plans that they recommend in place of what runs today, as whole runs.

    None where it is not known what runs today. These are the cheapest plan as accurate as today's, and the most accurate one
    for its dollars: a fixed plan where the template branches.

    Args:
        template: Bound.
        catalog: The models.
    """
    if template.today is None or template.stop == "oracle":
        return None

    def plans(rows: Sequence[Observation]) -> Sequence[Path]:
        from vinelm.estimator import make_estimator
        from vinelm.evaluation.judging.aims import aims_over
        from vinelm.evaluation.plans.plans_over import plans_over
        from vinelm.profiler.sampling.baseline import distinct, whole_path

        if len(rows) < LEAST_ROWS:
            return ()
        try:
            annotated = make_estimator("latent").fit(rows, template, catalog).annotated_
        except EvidenceError:
            return ()
        found = plans_over(annotated)
        chosen: list[Path] = []
        for objective in aims_over(found):
            best = found.decision(objective)
            if best.path:
                chosen.append(tuple(best.path))
            else:
                static = found.fixed(objective, "static")
                if static is not None:
                    chosen.append(whole_path(template, static.models))
        return distinct(chosen)

    return plans
