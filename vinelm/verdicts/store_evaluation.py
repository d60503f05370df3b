"""Evaluates whether VineLM is worth using for a workflow: from the store's results, or by serving held-out requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vinelm.api.estimation import estimate_store, fitted, require_same_workflow
from vinelm.api.profiling import require_budget
from vinelm.catalog import Catalog
from vinelm.datasets import Columns
from vinelm.errors import ConfigError, EvidenceError
from vinelm.evaluation.comparison.comparable import require_comparable, swept
from vinelm.evaluation.comparison.comparison import Comparison
from vinelm.evaluation.comparison.cross_fit import BothWays, CrossFit, Done, estimated_policies, gain_between
from vinelm.evaluation.comparison.evidence import StoreEvidence
from vinelm.evaluation.comparison.result import Evaluation
from vinelm.evaluation.comparison.todays_plan import TodaysPlan
from vinelm.evaluation.off_policy.buying import samplers_of
from vinelm.objective import Objective
from vinelm.profiler import RayCluster
from vinelm.requests.workflow import Workflow
from vinelm.rows.observation import Observation
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.verdict import MAX_LOSS, Verdict, require_max_loss
from vinelm.vinefile import load_trie


def evaluate(
    store: str | Path,
    trie: AnnotatedTrie | str | Path | None = None,
    objective: Objective | None = None,
    *,
    in_use: str | Path | None = None,
    serve: int | None = None,
    budget_usd: float | None = None,
    workflow: Workflow | str | None = None,
    dataset: str | Path | None = None,
    columns: Columns | Iterable[str] | None = None,
    models: Catalog | str | Path | None = None,
    log: str | Path | None = None,
    workers: int = 4,
    engine: str = "this-machine",
    ship: bool = False,
    seed: int = 0,
    max_loss: float | None = None,
    on_done: Done = lambda done, total, what: None,
    on_note: Callable[[str], None] | None = None,
) -> Evaluation:
    """Return an evaluation of whether VineLM is worth using for a workflow. Calls no model and spends nothing, unless
    ``serve`` is given.

    The requests of the store are split into four parts by a hash of their ids. Each part tests plans that were chosen on the
    other three parts, with a doubly robust estimate from its results. VineLM makes two plans: one depends on the stages and
    models so far, the other also on signals (what answers show without labels). The others are the best fixed plan, the best
    single model, a majority vote, and asking models until two agree. The verdict is that of :func:`~vinelm.estimate` on the
    same store. With ``serve``, plans chosen on the whole store are served instead, to requests that have no stored result.

    Args:
        store: The path of the store.
        trie: A trie of this store, or its path. The evaluation uses its estimator and stop rule, and ``serve`` serves its
            plans. None uses the default estimator and the workflow's own stop rule.
        objective: The objective to plan for. None plans for each of several cost budgets, and compares the means over these
            budgets.
        in_use: What the application runs today: a model, or a file that ``vinelm plan --json`` wrote, of which the first
            plan counts. Plans are compared with it. None: the models that the application declares, else the strongest
            single model.
        serve: Really serve N held-out requests under each plan, instead of estimating from the stored results. Spends
            money.
        budget_usd: With ``serve``: the maximum cost in dollars. In Python required for models that cost money.
        workflow: With ``serve``: the workflow, as MODULE:ATTRIBUTE. In Python also a :class:`~vinelm.Workflow`. None: the
            bundled one of the store.
        dataset: With ``serve``: the requests to serve, which must not be in the store. None: the workflow's.
        columns: Column of the dataset to use: input.KEY=COLUMN, label.KEY=COLUMN (the graph never sees labels) or id=COLUMN. A
            path such as outputs.answer leads into a column. Repeatable. In Python several such texts, or
            :class:`vinelm.datasets.Columns`. None: the format decides.
        models: With ``serve``: the catalog of models. In Python also a :class:`~vinelm.Catalog`. None: simulated models of
            the trie.
        log: With ``serve``: the store for served requests, with which the same command continues; by default STORE with
            .evaluate.db. In Python None stores nothing.
        workers: With ``serve``: maximum number of requests in progress.
        engine: With ``serve``: machines that do the work: this-machine, or the nodes of a Ray cluster: ray://HOST:PORT,
            ray://auto (the one that this machine belongs to) or ray://local (starts one for this run). In Python the workflow
            has to be named.
        ship: With ``engine=ray://...``: copy the current folder, without .env, to the nodes.
        seed: Seed of samples, splits and simulated answers.
        max_loss: Accuracy that a plan may lose so that the verdict is still to switch. In Python a fraction in [0, 1).
            None: that of the trie's verdict, else 3 points.
        on_done: Called as ``on_done(done, total, what)`` with the number of finished and of all parts of the work, and its
            name.
        on_note: Called, from any thread, with a line of text if a node of the cluster is lost or cannot be used.

    Returns:
        The verdict with the figures behind it.

    Raises:
        ConfigError: The store has too few requests, only one model, or no successful result; no policy meets the limits; or
            an argument that ``serve`` needs is missing.
        StoreError: The store cannot be read.

    Examples:
        >>> import vinelm
        >>> found = vinelm.evaluate("my-app.db")
        >>> found.verdict.advice
        'undecided'
    """
    require_max_loss(MAX_LOSS if max_loss is None else max_loss)
    if serve is not None and objective is None:
        raise ConfigError("serving needs one objective: a target and its bounds", code="serve-objective")
    subject = _Subject.of(store, trie, seed, on_done)
    if serve is None:
        unused = {
            "budget_usd": budget_usd, "log": log, "workflow": workflow, "models": models, "dataset": dataset,
            "columns": columns or None, "engine": None if engine == "this-machine" else engine, "ship": ship or None,
        }  # fmt: skip
        for name, value in unused.items():
            if value is not None:
                raise ConfigError(f"{name} has no effect unless requests are served: leave it out", code="serve-unused")
        if in_use is not None and objective is not None:
            raise ConfigError("a plan in use says what to plan for: leave the objective out, or in_use")
        return subject.evaluation(objective, in_use, max_loss)
    if in_use is not None:
        raise ConfigError("in_use has no effect where requests are served: leave it out")
    from vinelm.running.serving_record import serving_record
    from vinelm.verdicts.evaluated_plans import EvaluatedPlans
    from vinelm.verdicts.verification import HeldOut

    assert objective is not None
    cluster = RayCluster.of(engine, ship=ship)
    asked = HeldOut.of(
        store, subject.whole, workflow=workflow, dataset=dataset, columns=columns, models=models, requests=serve, seed=seed
    )
    make = partial(EvaluatedPlans.of, objective=objective)
    plans = asked.made(make)
    require_budget(asked.backends, budget_usd)
    with (
        # First, so that no machines of a cluster are started if the record is refused.
        serving_record(None if log is None else Path(log), plans.identity(asked), budget_usd) as record,
        asked.serving(plans, make, "evaluate", cluster, on_note) as server,
    ):
        tasks = plans.tasks(server, asked.requests)
        record.serve_all(tasks, workers=workers, on_done=lambda done: on_done(done, len(tasks), "serving"))
        return plans.evaluation(record, asked, MAX_LOSS if max_loss is None else max_loss)


@dataclass(frozen=True)
class _Subject:
    """The store and the trie that are evaluated.

    Attributes:
        path: The path of the store.
        evidence: The contents of the store.
        trie: The given trie; None if none was given.
        comparison: The object that compares plans according to the store's results.
    """

    path: str | Path
    evidence: StoreEvidence
    trie: AnnotatedTrie | None
    comparison: Comparison

    @classmethod
    def of(cls, store: str | Path, trie: AnnotatedTrie | str | Path | None, seed: int, on_done: Done) -> _Subject:
        annotated = load_trie(trie) if isinstance(trie, str | Path) else trie
        estimator = "latent"
        evidence = StoreEvidence.of(store, annotated)
        if annotated is not None:
            where = str(trie) if isinstance(trie, str | Path) else "the trie"
            require_same_workflow(annotated, evidence.identity.workflow, evidence.identity.dataset_digest, where)
            estimator = str(annotated.meta.get("estimator", estimator))
        require_comparable(evidence.requests, evidence.rows, evidence.template)
        if annotated is None:
            evidence = replace(evidence, annotated=fitted(evidence, estimator)[0])
        return cls(store, evidence, annotated, Comparison.of(evidence, estimator=estimator, seed=seed, on_done=on_done))

    @property
    def whole(self) -> AnnotatedTrie:
        """The trie whose plans are served: the given trie, or the trie estimated from all results."""
        return self.comparison.whole.whole if self.trie is None else self.trie

    def verdict(self, objective: Objective | None, in_use: str | Path | None, max_loss: float | None) -> Verdict:
        """Return the verdict in the trie's file if it was made from the present results; otherwise make a new verdict.

        The arguments are those of :func:`evaluate`.
        """
        if objective is None and in_use is None and not self.comparison.seed:
            held = None if self.trie is None else self.trie.verdict
            if self.trie is None and self.evidence.kinds:  # an estimate finds out whether kinds are distinguished
                held = estimate_store(self.path, estimator=self.comparison.estimator, checked=True).verdict
            if held is not None:
                max_loss = held.max_loss if max_loss is None else max_loss
                # Whether labels could prove a plan at another loss does not depend on the intervals alone.
                if self._is_of_these_rows(held) and (held.by_today is None or held.max_loss == max_loss):
                    return held.at(max_loss)
        today = None if in_use is None else TodaysPlan.of(in_use, self.whole)
        return self.comparison.verdict(today=today, objective=objective, max_loss=MAX_LOSS if max_loss is None else max_loss)

    def _is_of_these_rows(self, held: Verdict) -> bool:
        """Return whether a verdict was made from exactly the results and labels that are in the store now."""
        own, referred = self.evidence, self.evidence.referred
        digests = None if held.by_today is None else held.by_today.digest, None if referred is None else referred.digest
        return digests[0] == digests[1] and (held.requests, held.rows) == (len(own.requests), len(own.rows))

    def evaluation(self, objective: Objective | None, in_use: str | Path | None, max_loss: float | None) -> Evaluation:
        """Return the evaluation of the policies from the store's results; the arguments are those of :func:`evaluate`."""
        try:
            fit = self.comparison.fit
        except EvidenceError as error:
            raise ConfigError(f"a part of the requests is too little to plan from: {error}", code="too-few-rows") from error
        objectives = (objective,) if objective is not None else swept(fit.planning)
        runs = fit.runs(objectives, self.comparison.on_done)
        if not runs:
            raise ConfigError(
                f"not every policy meets {objectives[0]} by the estimate of each part: loosen the bounds", code="no-plan"
            )
        kept = tuple(one for one in objectives if any(one is both.objective for both in runs))
        target = kept[0].target
        found = Evaluation(
            verdict=self.verdict(objective, in_use, max_loss),
            objectives=kept,
            policies=tuple(estimated_policies(runs, target)),
            requests=len(self.evidence.requests),
            rows=len(self.evidence.rows),
            spent_usd=self.evidence.charged_usd,
            is_simulated=self.evidence.identity.is_simulated,
            stop=self.evidence.template.stop,
            notes=self._notes(fit, objective),
            kinds=gain_between(runs, "signals", "no_kinds", target) or gain_between(runs, "paths", "no_kinds", target),
            fit=fit,
        )
        return found if len(runs) < 2 else replace(found, by_budget=_by_budget(found, runs))

    def _notes(self, fit: CrossFit, objective: Objective | None) -> tuple[str, ...]:
        return (*self.evidence.scored.notes, *self.evidence.untold, *_notes(self.evidence.rows, fit, objective))


def _by_budget(found: Evaluation, runs: Sequence[BothWays]) -> tuple[Evaluation, ...]:
    """Return one evaluation for each of the cost budgets at which policies were tested.

    The intervals are wide enough to hold for all budgets together.

    Args:
        found: The evaluation of the whole sweep.
        runs: The tested policies at each budget.
    """
    # Bonferroni: a reader picks the budget that pleases, so that all intervals have to hold together.
    level = 1.0 - (1.0 - found.level) / len(runs)

    def alone(both: BothWays) -> Evaluation:
        policies = tuple(estimated_policies([both], found.target, level=level))
        return replace(found, objectives=(both.objective,), policies=policies, level=level)

    return tuple(alone(both) for both in runs)


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
