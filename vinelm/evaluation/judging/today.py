"""The comparison of plans with what an application runs today, for the file of a trie: every plan cross-fitted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, EvidenceError
from vinelm.evaluation.judging.cross_fit import BothWays, CrossFit, DirectedJudgement, gain_over
from vinelm.evaluation.judging.judgeable import SAVED, SURE, aims, require_judgeable, swept, within
from vinelm.evaluation.judging.planning_half import PolicyName, only_first_stage
from vinelm.evaluation.judging.tried import by_request, only_tried
from vinelm.evaluation.off_policy.intervals import HalfScores, estimate_mean
from vinelm.objective import Objective
from vinelm.plans.recommendation import META, AgainstToday, ComparedPlan
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.template.kinds import without_kinds
from vinelm.trie.annotated_trie import AnnotatedTrie

LEVEL = 0.9
"""Of two-sided intervals: each end of one holds with 95 %."""
PARTS = 4
"""Of the requests: each is judged by plans of the other three. Plans of halves would be worse than the plan of all rows, and of
more parts some would have too few rows that show what a plan does."""
SHARES = (0.5, SAVED, 0.85)
"""Of today's dollars: within them the most accurate plan is compared, too. One that saves a little less proves more."""
FREE = Objective(maximize="accuracy")
USUAL_TOKENS = (1000, 250)
"""Prompt and completion tokens of the call that list prices are compared by."""


def against_today(
    requests: Sequence[str],
    rows: Sequence[Observation],
    template: Template,
    catalog: Catalog,
    *,
    estimator: str = "latent",
    seed: int = 0,
    parts: int = PARTS,
    spent_usd: float | None = None,
    kinds: Mapping[str, str] | None = None,
) -> AgainstToday | None:
    """Compare VineLM's plans with what runs today: over a range of budgets, and for both aims against it. Pure.

    If none is proven, those are compared as well that take only steps which enough of the judged requests took.

    Args:
        requests: All requests that could have been bought.
        rows: The stored rows.
        template: Bound; with the stop rule to plan for.
        catalog: The models.
        estimator: Name of the estimator that plans.
        seed: Decides the split.
        parts: Into how many the requests are split.
        spent_usd: What the rows were charged; None: their dollars, which are others where they were priced for a service.
        kinds: What kind each request counts as; needed where the template has kinds.

    Returns:
        The comparison; None where it is not known what runs today.
    """
    today = without_kinds(template).today
    if today is None or template.stop == "oracle":
        return None
    known = list(dict.fromkeys((*requests, *(row.request_id for row in rows))))
    try:
        require_judgeable(known, rows, template)
        fit = CrossFit(known, rows, template, catalog, estimator=estimator, seed=seed, parts=parts, kinds=kinds)
    except (ConfigError, EvidenceError) as error:
        return AgainstToday(models=today, why_not=str(error).partition(":")[0])
    fixed = [plan for half in fit.planning if (plan := half.plain.plans.today()) is not None]
    if len(fixed) < len(fit.planning):
        return AgainstToday(models=today, why_not="what runs today is no plan of this workflow's models")
    rival = [fit.judge(i, half.following(plan), FREE) for i, (half, plan) in enumerate(zip(fit.planning, fixed, strict=True))]
    own = [HalfScores(way.scores) for way in rival]
    accuracy, cost = estimate_mean(own, "accuracy", bound=1.0), estimate_mean(own, "cost")
    if not accuracy.is_identified:
        return AgainstToday(models=today, why_not="too few requests have run what runs today to its end")
    found = AgainstToday(
        models=today,
        accuracy=accuracy.value,
        cost_usd=-cost.value,
        requests=len(known),
        spent_usd=sum(row.cost_usd + row.tool_cost_usd for row in rows) if spent_usd is None else spent_usd,
        plans=_plans(fit, rival),
        cheaper=_cheaper(template, catalog, today),
    )
    if found.proven() is not None or template.kinds:
        return found
    tried = replace(found, plans=_plans(fit.within_tried(), rival), tried_only=True)
    return tried if tried.proven() is not None or _is_nearer(tried, found) else found


def _cheaper(template: Template, catalog: Catalog, today: Mapping[str, str]) -> tuple[str, ...]:
    """The models that a stage may run for fewer dollars than today's, by the list price of a usual call."""
    usd = {name: catalog[name].price.cost_usd(*USUAL_TOKENS) for name in (*template.models, *today.values()) if name in catalog}
    found = [
        name
        for stage in without_kinds(template).stages
        for name in stage.models or ()
        if name in usd and usd[name] < usd.get(today[stage.name], 0.0)
    ]
    return tuple(dict.fromkeys(found))


def _is_nearer(tried: AgainstToday, found: AgainstToday) -> bool:
    """Whether rows show more of a plan of tried steps than of those of any step: more is proven, or nearer to it."""
    one, other = tried.best(), found.best()
    if one is not None or other is not None:
        return one is not None and (other is None or one.proven_saving() > other.proven_saving())
    one, other = tried.closest(), found.closest()
    if one is None or not one.is_identified:
        return False
    return other is None or not other.is_identified or one.gain_low > other.gain_low


def with_comparison(
    annotated: AnnotatedTrie, compared: AgainstToday, requests: Sequence[str], rows: Sequence[Observation]
) -> AnnotatedTrie:
    """Return a trie that holds the comparison of its plans with what runs today, and has no plans but those compared.

    Args:
        annotated: Fitted to the same rows.
        compared: Of :func:`against_today`, which was given the same requests and rows.
        requests: As there.
        rows: As there.
    """
    found = replace(annotated, meta={**annotated.meta, META: compared.to_dict()})
    return only_tried(found, by_request(rows), len(requests), only_first_stage(rows)) if compared.tried_only else found


def _plans(fit: CrossFit, rival: Sequence[DirectedJudgement]) -> list[ComparedPlan]:
    """The plans of both aims and within all budgets against today's, by rising dollars."""
    mean = [sum(getattr(way.chosen, name) for way in rival) / len(rival) for name in ("promised_accuracy", "promised_cost_usd")]
    cheaper = [within(share * mean[1], SURE) for share in (*SHARES, 1.0) if mean[1] > 0.0]
    runs = fit.runs([*aims(*mean), *cheaper, *swept(fit.planning), FREE], hindsight=False, votes=False, required=("paths",))
    policies: tuple[PolicyName, ...] = ("paths", "signals")
    models = fit.template.models
    plans = [
        _compared(name, both, rival, models) for both in runs for name in policies if all(name in one for one in both.by_half)
    ]
    return sorted(dict.fromkeys(plans), key=lambda plan: (plan.policy, plan.cost_usd))


def _compared(name: PolicyName, both: BothWays, rival: Sequence[DirectedJudgement], models: Sequence[str]) -> ComparedPlan:
    ways = [one[name] for one in both.by_half]
    own, other = [way.scores for way in ways], [way.scores for way in rival]
    gain, saved = (gain_over(own, other, target, level=LEVEL) for target in ("accuracy", "cost"))
    words = " ".join(way.chosen.words for way in ways)
    return ComparedPlan(
        policy=name,
        models=tuple(one for one in models if re.search(rf"(?<![\w.-]){re.escape(one)}(?![\w-]|\.\w)", words)),
        cost_usd=sum(way.chosen.promised_cost_usd for way in ways) / len(ways),
        gain=gain.value,
        gain_low=gain.low,
        gain_high=gain.high,
        saved_usd=saved.value,
        saved_low=saved.low,
        saved_high=saved.high,
        is_same=gain.is_same and saved.is_same,
        is_identified=gain.is_identified and saved.is_identified,
    )
