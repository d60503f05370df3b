"""Evaluate a store: is VineLM worth it for this workflow, by the rows that are there or by serving held-out requests?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vinelm.api.estimation import require_same_workflow
from vinelm.api.judged_rows import JudgedRows
from vinelm.catalog import Catalog
from vinelm.errors import ConfigError, EvidenceError
from vinelm.estimator.call_rate import CallRate
from vinelm.evaluation.judging.against_in_use import LEVEL, against_in_use
from vinelm.evaluation.judging.cross_fit import BothWays, CrossFit, Done, gain_between, judged_policies
from vinelm.evaluation.judging.judgeable import require_judgeable, swept
from vinelm.evaluation.judging.judged_policy import JudgedPolicy
from vinelm.evaluation.judging.plan_in_use import PlanInUse
from vinelm.evaluation.judging.planning_half import PlanningHalf
from vinelm.evaluation.judging.result import Evaluation, EvaluationVerdict
from vinelm.evaluation.off_policy.buying import samplers_of
from vinelm.evaluation.off_policy.intervals import OffPolicyEstimate
from vinelm.objective import Objective
from vinelm.requests.workflow import Workflow
from vinelm.rows.observation import Observation, at_ordinary_prices, with_seconds
from vinelm.template import Template
from vinelm.template.kinds import untold_words, without_kinds
from vinelm.traces import ObservationStore
from vinelm.traces.store.kinds import learnt_of_requests, told_apart, why_not_told
from vinelm.traces.store.prompts import StoredPrompts
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.vinefile import load_trie

if TYPE_CHECKING:
    from vinelm.traces import StoreIdentity


def evaluate(
    store: str | Path,
    trie: AnnotatedTrie | str | Path | None = None,
    objective: Objective | None = None,
    *,
    in_use: str | Path | None = None,
    serve: int | None = None,
    budget_usd: float | None = None,
    workflow: Workflow | str | None = None,
    models: Catalog | str | Path | None = None,
    log: str | Path | None = None,
    seed: int = 0,
    on_done: Done = lambda done, total, what: None,
) -> Evaluation:
    """Say whether VineLM is worth using for a workflow. Calls no model and spends nothing, unless ``serve`` is given.

    The requests of the store are split in two halves by a hash of their ids. Each half plans: VineLM over paths and over what
    requests show, the best static plan, the best single model, a vote, and asking until two agree. The other half judges, from
    the rows that it has, with a doubly robust estimate. With ``serve`` the plans of the whole store are served instead, to
    requests that have no row.

    Args:
        store: The path of the store.
        trie: A trie of this store, or its path: its estimator and stop rule are used, and ``serve`` serves its plans. None
            takes the default estimator and the workflow's own stop rule.
        objective: What to plan for. None sweeps cost budgets and judges the mean over them.
        in_use: What the application runs today: a model, or the path of a JSON file as ``vinelm plan --json`` writes it, whose
            first plan is meant. VineLM's plans are compared with that: as accurate for less, and more accurate for as much.
            None, without an objective: the default models of the stages, where all of them are declared.
        serve: Number of held-out requests to serve under each plan. It needs an objective.
        budget_usd: The most that serving may cost in dollars. Required for models that cost money.
        workflow: What to serve; see :func:`~vinelm.verify`.
        models: A catalog for serving; None takes the trie's simulated models.
        log: File that keeps each served request, so that the same call continues an interrupted one.
        seed: Decides the split, the served requests, and the answers of simulated models.
        on_done: Called as ``on_done(done, total, what)``.

    Returns:
        The verdict with the figures behind it.

    Raises:
        ConfigError: The store has too few requests, one model only or no row that succeeded; no policy meets the bounds; or
            serving is asked for without what it needs.
        StoreError: The store cannot be read.

    Examples:
        >>> import vinelm
        >>> found = vinelm.evaluate("my-app.db")
        >>> found.verdict, found.headline.name
        ('open', 'paths')
    """
    subject = _Subject.of(store, trie, seed)
    if serve is None:
        for name, value in (("budget_usd", budget_usd), ("log", log), ("workflow", workflow), ("models", models)):
            if value is not None:
                raise ConfigError(f"{name} has no effect unless requests are served: leave it out", code="serve-unused")
        if in_use is None:
            known = None if objective is not None else subject.today(trie)
            return subject.judged(objective, on_done) if known is None else subject.against(known, on_done)
        if objective is not None:
            raise ConfigError("a plan in use says what to plan for: leave the objective out, or in_use")
        return subject.against(PlanInUse.of(in_use, subject.whole(trie)), on_done)
    if in_use is not None:
        raise ConfigError("in_use has no effect where requests are served: leave it out")
    from vinelm.verdicts.served_plans import ServedPlans

    if objective is None:
        raise ConfigError("serving needs one objective: a target and its bounds", code="serve-objective")
    served = ServedPlans.of(store, subject.whole(trie), objective, workflow=workflow, models=models, requests=serve, seed=seed)
    return served.evaluation(budget_usd, None if log is None else Path(log), on_done)


@dataclass(frozen=True)
class _Subject:
    """The store, trie and objective that are evaluated."""

    identity: StoreIdentity
    requests: list[str]
    rows: list[Observation]
    template: Template
    catalog: Catalog
    estimator: str
    seed: int
    spent_usd: float
    is_judged: bool = False
    kinds: Mapping[str, str] | None = None
    untold: tuple[str, ...] = ()

    @classmethod
    def of(cls, store: str | Path, trie: AnnotatedTrie | str | Path | None, seed: int) -> _Subject:
        with ObservationStore.open(store) as opened:
            identity, requests, judged = opened.identity, opened.request_ids(), JudgedRows.of_store(opened)
            rows = opened.observations() if judged is None else judged.rows
            template, catalog, estimator, annotated = identity.bound_template(), identity.models(), "latent", None
            if trie is not None:
                annotated = trie if isinstance(trie, AnnotatedTrie) else load_trie(trie)
                where = str(trie) if isinstance(trie, str | Path) else "the trie"
                require_same_workflow(annotated, identity.workflow, identity.dataset_digest, where)
                template, estimator = annotated.template, str(annotated.meta.get("estimator", estimator))
            untold = () if annotated is None else untold_words(annotated.meta)
            rows, template = told_apart(opened, rows, template, learn=not untold)
            kinds, untold = learnt_of_requests(opened, template), untold or why_not_told(opened, template)
            prompts = StoredPrompts(opened).of_cached(rows)
        spent_usd = sum(row.cost_usd + row.tool_cost_usd for row in rows)
        rows = with_seconds(at_ordinary_prices(rows))
        known = set(requests)
        requests = [*requests, *dict.fromkeys(row.request_id for row in rows if row.request_id not in known)]
        require_judgeable(requests, rows, template)
        rate = None if annotated is None else annotated.calls_per_hour
        rows = CallRate(rows, catalog, rate or 0.0, prompts).rows(annotated)
        return cls(identity, requests, rows, template, catalog, estimator, seed, spent_usd, judged is not None, kinds, untold)

    def whole(self, trie: AnnotatedTrie | str | Path | None) -> AnnotatedTrie:
        """The trie that is served: the given one, or that of all rows."""
        if trie is not None:
            return trie if isinstance(trie, AnnotatedTrie) else load_trie(trie)
        half = PlanningHalf(self.rows, self.template, self.catalog, self.estimator, (self.kinds or {}).values())
        signals = None if half.signals is None else half.signals.annotated
        meta = {"workflow": self.identity.workflow, "dataset_digest": self.identity.dataset_digest}
        return replace(half.annotated, signals=signals, meta={**half.annotated.meta, **meta})

    def _fit(self, on_done: Done) -> CrossFit:
        try:
            return CrossFit(
                self.requests, self.rows, self.template, self.catalog,
                estimator=self.estimator, seed=self.seed, kinds=self.kinds, on_done=on_done,
            )  # fmt: skip
        except EvidenceError as error:
            raise ConfigError(f"half of the requests is too little to plan from: {error}", code="too-few-rows") from error

    def today(self, trie: AnnotatedTrie | str | Path | None) -> PlanInUse | None:
        """What the application ran before VineLM, where its stages say it and requests are not stopped by the oracle."""
        if without_kinds(self.template).today is None or self.template.stop == "oracle":
            return None
        return PlanInUse.today(self.whole(trie))

    def against(self, plan: PlanInUse, on_done: Done) -> Evaluation:
        """The evaluation against what the application runs today."""
        fit = self._fit(on_done)
        aims = tuple(
            replace(
                self._evaluation(fit, (one.objective,), one.policies), notes=(*self._notes(fit, one.objective), one.note),
                keeps=one.keeps, level=LEVEL, kinds=self._kinds(fit, one.objective),
            )
            for one in against_in_use(fit, plan)
        )  # fmt: skip
        if not aims:
            raise ConfigError(f"no plan of VineLM promises the accuracy or the cost of {plan.name}", code="no-plan")
        said: tuple[EvaluationVerdict, ...] = ("gain", "open", "not identified", "no gain", "no advice")
        return replace(min(aims, key=lambda one: said.index(one.verdict)), aims=aims)

    @staticmethod
    def _kinds(fit: CrossFit, objective: Objective) -> OffPolicyEstimate | None:
        """What kinds are worth for an aim whose plans are judged already."""
        runs = fit.runs((objective,), hindsight=False, votes=False, required=("paths",))
        return gain_between(runs, "paths", "no_kinds", objective.target)

    def judged(self, objective: Objective | None, on_done: Done) -> Evaluation:
        """The evaluation from the rows."""
        fit = self._fit(on_done)
        objectives = (objective,) if objective is not None else swept(fit.planning)
        runs = fit.runs(objectives, on_done)
        if not runs:
            raise ConfigError(
                f"not every policy meets {objectives[0]} by the estimate of each half: loosen the bounds", code="no-plan"
            )
        kept = tuple(one for one in objectives if any(one is both.objective for both in runs))
        found = self._evaluation(fit, kept, judged_policies(runs, kept[0].target))
        found = replace(found, notes=self._notes(fit, objective), kinds=gain_between(runs, "paths", "no_kinds", found.target))
        return found if len(runs) < 2 else replace(found, by_budget=_by_budget(found, runs))

    def _evaluation(self, fit: CrossFit, objectives: tuple[Objective, ...], policies: Sequence[JudgedPolicy]) -> Evaluation:
        return Evaluation(
            objectives=objectives,
            policies=tuple(policies),
            requests=len(self.requests),
            rows=len(self.rows),
            spent_usd=self.spent_usd,
            everything_usd=_everything(fit.planning, len(self.requests)),
            is_simulated=self.identity.is_simulated,
            stop=self.template.stop,
            fit=fit,
        )

    def _notes(self, fit: CrossFit, objective: Objective | None) -> tuple[str, ...]:
        return (*((_JUDGED,) if self.is_judged else ()), *self.untold, *_notes(self.rows, fit, objective))


def _by_budget(found: Evaluation, runs: Sequence[BothWays]) -> tuple[Evaluation, ...]:
    """Each budget of a sweep judged alone."""
    # Bonferroni: a reader picks the budget that pleases, so that all intervals have to hold together.
    level = 1.0 - (1.0 - found.level) / len(runs)

    def alone(both: BothWays) -> Evaluation:
        policies = tuple(judged_policies([both], found.target, level=level))
        return replace(found, objectives=(both.objective,), policies=policies, level=level)

    return tuple(alone(both) for both in runs)


def _everything(planning: Sequence[PlanningHalf], requests: int) -> float | None:
    """Estimated dollars of every request on every path once."""
    each = [usd for half in planning if (usd := half.annotated.everything_usd) is not None]
    return float(np.mean(each)) * requests if each else None


_JUDGED = (
    "A judge scored the answers: accuracies and gains are those of its verdicts, whose errors are not corrected here; `vinelm"
    " estimate` does."
)


def _notes(rows: Iterable[Observation], fit: CrossFit, objective: Objective | None) -> Iterable[str]:
    samplers = samplers_of(rows)
    if None in samplers:
        yield (
            "Some rows do not say how they were bought: the estimate takes it that, among requests that had shown the same so"
            " far, chance decided which models ran."
        )
    caps = [objective] if objective is not None else swept(fit.planning)
    if all(one.max_cost_usd is None for one in caps) and not any(row.cost_usd for row in rows):
        yield "Every row was free: there are no dollars to weigh, and accuracy alone is compared."
