"""The report of a store and its trie: the verdict, sweeps of every bound, the chosen plan, and what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vinelm.api.estimation import require_same_workflow
from vinelm.errors import ConfigError, EvidenceError, InfeasibleError
from vinelm.evaluation import Evaluation
from vinelm.evaluation.judging.judged_rows import JudgedRows
from vinelm.evaluation.judging.plan_in_use import PlanInUse
from vinelm.evaluation.plans.plans import Plans
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.evaluation.plans.sweep import showcase
from vinelm.objective import Objective
from vinelm.plans.recommendation import served_objective
from vinelm.prompts.layout import StagePrompts
from vinelm.reports.budgets import BudgetSlider
from vinelm.reports.document import Chart, Mark, Report, Section, Table, readable, says_enough, why_left_out
from vinelm.reports.drawing.html import write_page
from vinelm.reports.evaluation_text import evaluation_lines, evaluation_tables, verdict_table
from vinelm.reports.formatting import oracle_words, percent, template_words, thousand, usd
from vinelm.reports.store.budget_section import BudgetPlans
from vinelm.reports.store.estimated_sections import (
    COST_CAPTION,
    arm_tables,
    cost_chart,
    estimated_frontiers,
    frontier_section,
    plans_section,
    stage_table,
)
from vinelm.reports.store.evidence_sections import (
    TERMS,
    Facts,
    catalog_facts,
    check_section,
    price_table,
    prompt_table,
    signals_section,
    version_facts,
)
from vinelm.reports.store.plan_sections import IN_USE, ShownPlan, flow_section, planned, price_section, spending_section
from vinelm.reports.store.sweep_sections import cost_sweep_chart, sweep_sections
from vinelm.reports.store_text import judge_words
from vinelm.rows.observation import Observation
from vinelm.traces import StoreIdentity
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.verdicts.judged_store import JudgedStore, judge_store

Done = Callable[[int, int, str], None]
_VERDICT = (
    "Each quarter of the requests is judged by plans that the others chose, so that no plan is judged by the requests that it "
    "was chosen from. Plans after a slash are those of the quarters."
)
_SIMULATED = "The observations in this store are those of simulated models, not of real ones."
_ARMS = (
    "Which stage comes next is the application's choice. How often it takes each way depends on the model that ran before: a "
    "router's model decides which desk a request comes to, and whether that was right."
)
_VERDICTS_ONLY = "A judge scored the answers: what the judged requests say is its verdicts, whose errors are not corrected."


def report(
    store: str | Path,
    trie: AnnotatedTrie | str | Path,
    output_dir: str | Path = "report",
    *,
    evaluation: Evaluation | None = None,
    in_use: str | Path | None = None,
    seed: int = 0,
) -> Path:
    """Write one self-contained HTML page about a store and the trie estimated from it. Calls no model.

    The page begins with the verdict of :func:`~vinelm.evaluate`. Then come sweeps of every bound, with all policies judged by
    requests that did not choose them, the models and the dollars of the chosen plan, and what it rests on. Takes some seconds:
    each part of the requests is estimated and planned anew.

    Args:
        store: The path of the observation store.
        trie: The annotated trie, or the path of its file.
        output_dir: The folder that gets ``report.html``; made if it does not exist.
        evaluation: What :func:`~vinelm.evaluate` said of this store and trie by its rows, with the same seed: its judgement
            is shown. None evaluates them: the result is the same, and takes longer.
        in_use: What the application runs today: a model, or the path of a JSON file as ``vinelm plan --json`` writes it, whose
            first plan is meant. The verdict compares with it. None: with what runs today where the application says it, else
            with the strongest single model.
        seed: Decides how the requests are split, and the resamples of the bootstrap.

    Returns:
        The path of the page.

    Raises:
        StoreError: The store cannot be read.
        TrieFileError: The trie file cannot be read.
        ConfigError: Store and trie do not belong together, ``in_use`` is no model or fixed plan of the trie, or the
            page cannot be written.
        EvidenceError: The store holds no observation.

    Examples:
        >>> import vinelm
        >>> vinelm.report("my-app.db", "my-app.vine", "report").name
        'report.html'
    """
    page = store_page(store, trie, evaluation=evaluation, in_use=in_use, seed=seed)
    return write_page(page, Path(output_dir) / "report.html")


def store_page(
    store: str | Path,
    trie: AnnotatedTrie | str | Path,
    *,
    evaluation: Evaluation | None = None,
    in_use: str | Path | None = None,
    seed: int = 0,
    on_done: Done = lambda done, total, what: None,
) -> Report:
    """Build the report of a store and the trie estimated from it. Calls no model.

    Args:
        store: Path of the observation store.
        trie: The annotated trie, or the path of its ``.vine`` file.
        evaluation: The verdict on both, see :func:`~vinelm.report`.
        in_use: What the application runs today: a model, or a file with a plan; see :func:`~vinelm.report`.
        seed: Decides how the requests are split, and the resamples of the bootstrap.
        on_done: Called as ``on_done(done, total, what)``.

    Raises:
        StoreError: The store cannot be read.
        TrieFileError: The trie file cannot be read.
        ConfigError: The trie was estimated for another workflow or dataset, or ``in_use`` is no fixed plan of it,
            or ``evaluation`` is of other rows.
        EvidenceError: The store holds no observation.
    """
    from vinelm.traces import ObservationStore
    from vinelm.traces.store.kinds import told_apart
    from vinelm.traces.store.prompts import StoredPrompts, prompt_stages
    from vinelm.vinefile import load_trie

    annotated = trie if isinstance(trie, AnnotatedTrie) else load_trie(trie)
    where = "the trie" if isinstance(trie, AnnotatedTrie) else str(trie)
    with ObservationStore.open(store) as opened:
        identity, verdicts = opened.identity, JudgedRows.of_store(opened)
        rows = opened.observations() if verdicts is None else verdicts.rows
        rows, _ = told_apart(opened, rows, annotated.template, learn=False)
        prompts = prompt_stages(rows, StoredPrompts(opened).read())
    require_same_workflow(annotated, identity.workflow, identity.dataset_digest, where)
    if not rows:
        raise EvidenceError("the store has no observation: profile some requests first")
    today = PlanInUse.today(annotated) if in_use is None else PlanInUse.of(in_use, annotated)
    _require_evaluation_of(rows, annotated, seed, evaluation)
    judged = judge_store(store, annotated, evaluation=evaluation, in_use=in_use, seed=seed, on_done=on_done)
    facts = _provenance(annotated, Path(store), Path(where), seed)
    return _StorePage(identity, annotated, rows, judged, verdicts is not None, today, prompts).report(facts)


def _require_evaluation_of(
    rows: Sequence[Observation], annotated: AnnotatedTrie, seed: int, evaluation: Evaluation | None
) -> None:
    """Refuse an evaluation that the page would not have made itself."""
    if evaluation is None:
        return
    fit = evaluation.fit
    if fit is None:
        raise ConfigError("the evaluation served its requests: a page needs one that is judged by the rows of a store")
    if fit.template != annotated.template or evaluation.rows != len(rows) or fit.seed != seed:
        raise ConfigError("the evaluation is of other rows, another trie or another seed: evaluate this store and trie")


@dataclass(frozen=True)
class _StorePage:
    """Everything that the page is made of."""

    identity: StoreIdentity
    annotated: AnnotatedTrie
    rows: Sequence[Observation]
    judged: JudgedStore
    has_judge: bool
    in_use: PlanInUse | None = None
    prompts: Sequence[StagePrompts] = ()

    def report(self, provenance: Facts) -> Report:
        found = self.judged.evaluation
        sections = (
            *((_verdict(found),) if found else ()),
            *(sweep_sections(self.judged) if self.judged.sweeps else (frontier_section(self.plans),)),
            *self._of_the_plan(),
            *((check,) if (check := self._check) else ()),
            signals_section(self.judged, self.annotated),
            *self._of_arms(),
            Section(title="What was profiled", parts=self._profiled),
        )
        return Report(
            title=f"VineLM on {self.identity.workflow}",
            subtitle=f"{len(self.rows):,} observations of {self.annotated.meta.get('requests', '?')} requests; "
            f"{len(self.annotated.catalog)} models, {self.annotated.trie.n_nodes:,} "
            f"{self.annotated.reading.noun} of {template_words(self.annotated.template)}",
            headline=self._headline,
            is_gain=found is not None and found.verdict.advice == "switch",
            budgets=self._budgets,
            hero=self._hero,
            findings=tuple(self._findings()),
            sections=tuple(map(readable, sections)),
            terms=TERMS,
            provenance=provenance,
            simulated=_SIMULATED if self.identity.is_simulated else None,
            oracle=oracle_words(self.annotated.template.stop),
        )

    # -- the plans of the whole store ------------------------------------------------------------------------------

    @cached_property
    def plans(self) -> Plans[Any]:
        return plans_over(self.annotated)

    @cached_property
    def rival(self) -> ShownPlan | None:
        """The plan in use today, else the most accurate single model; None if no model can run every stage."""
        found, name = self._rival_plan, "single model" if self.in_use is None else IN_USE
        return None if found is None else ShownPlan(name=name, decision=found)

    @cached_property
    def _rival_plan(self) -> Any:
        """The plan of :attr:`rival`; None if no model can run every stage."""
        if self.in_use is not None:
            return self.in_use.under(self.plans)
        return self.plans.fixed(Objective(maximize="accuracy"), "single")

    @cached_property
    def searched(self) -> AnnotatedTrie:
        """The trie that the shown plan is made from: of what requests show where the verdict is about that."""
        found, signals = self.judged.evaluation, self.annotated.signals
        over_signals = found is not None and found.headline.name == "signals"
        return signals if over_signals and signals is not None else self.annotated

    @cached_property
    def objective(self) -> Objective:
        """The objective of the plan that the verdict is about; else the rival's accuracy for less."""
        found, best = self.judged.evaluation, self._rival_plan
        own = None if found is None else served_objective(found.verdict)
        if own is not None:
            return own
        return (
            Objective(maximize="accuracy")
            if best is None
            else Objective(minimize="cost", min_accuracy=max(best.accuracy - 1e-9, 0.0))
        )

    @cached_property
    def vinelm(self) -> ShownPlan | None:
        """VineLM's plan for :attr:`objective`; None if none meets it."""
        try:
            decision = planned(self.searched, self.objective)
        except InfeasibleError:
            return None
        return ShownPlan(name="VineLM", decision=decision)

    def _of_the_plan(self) -> tuple[Section, ...]:
        if self.vinelm is None:
            return ()
        sweep = self.judged.sweep("max_cost_usd")
        policy = "signals" if self.searched is not self.annotated else "paths"
        swept = () if sweep is None else sweep.points.get(policy, ())  # type: ignore[call-overload]
        shown = [self.vinelm] if self.rival is None else [self.vinelm, self.rival]
        found = (
            flow_section(self.vinelm, self.searched, swept),
            spending_section(shown),
            price_section(self.vinelm, self.objective, self.searched),
        )
        return tuple(one for one in found if one is not None)

    # -- the head --------------------------------------------------------------------------------------------------

    @property
    def _headline(self) -> str:
        """The verdict; where nothing could be judged, that of the trie's file, or why."""
        found = self.judged.evaluation
        if found is not None:
            return found.verdict.sentence
        held = self.annotated.verdict
        return f"NOT ENOUGH DATA: {self.judged.unjudged}." if held is None else held.sentence

    @property
    def _is_oracle(self) -> bool:
        return self.annotated.template.stop == "oracle"

    @property
    def _budgets(self) -> BudgetSlider | None:
        return BudgetPlans(
            searched=self.searched,
            plans=self.plans,
            judged=self.judged,
            today=self.rival,
            is_in_use=self.in_use is not None,
        ).slider()

    @property
    def _hero(self) -> Chart | None:
        return self._cost_chart if says_enough(self._cost_chart) else None

    @cached_property
    def _cost_chart(self) -> Chart:
        chart = cost_sweep_chart(self.judged, self._marks)
        if chart is not None:
            return chart
        frontiers = estimated_frontiers(self.plans, "max_cost_usd")
        return cost_chart("cost", frontiers, f"{COST_CAPTION} Estimated; nothing was judged.")

    @property
    def _marks(self) -> tuple[Mark, ...]:
        """The plan that the verdict is to switch to, and what it is compared with."""
        found = None if self.judged.evaluation is None else self.judged.evaluation.verdict
        if found is None or found.accuracy is None or found.cost_usd is None:
            return ()
        now = _mark(found.cost_usd, found.accuracy, "in use today" if found.is_today else "strongest single model")
        own = found.served
        if found.advice != "switch" or own is None:
            return (now,)
        return (_mark(found.cost_usd - own.saved_usd, found.accuracy + own.gain, "switch to"), now)

    def _findings(self) -> list[str]:
        failed = Counter(row.failure for row in self.rows if row.failure is not None)
        lines = []
        if failed:
            kinds = ", ".join(f"{kind} {number:,}" for kind, number in failed.most_common())
            lines.append(f"{sum(failed.values()):,} of {len(self.rows):,} observations failed: {kinds}.")
        if not any(row.cost_usd or row.tool_cost_usd for row in self.rows):
            lines.append("Every observation was free: there are no dollars to weigh, and accuracy alone is compared.")
        today = "The most accurate single model" if self.in_use is None else "In use today"
        for plan, words in ((self.vinelm, "VineLM's plan"), (self.rival, today)):
            if plan is not None:
                figures = (
                    f"estimated {percent(plan.decision.accuracy)} right at {thousand(plan.decision.path_cost_usd)} per 1,000"
                )
                lines.append(f"{words}: {plan.decision.words}; {figures} requests.")
        if self.has_judge:
            lines.append(_VERDICTS_ONLY)
        if self._hero is None:
            lines.append(why_left_out(self._cost_chart))
        if not self._is_oracle:  # such a plan cannot be served
            lines.append(
                "Nothing was served for this page: serve requests that were not profiled before you switch (vinelm verify)."
            )
        return lines

    # -- the tail --------------------------------------------------------------------------------------------------

    def _of_arms(self) -> tuple[Section, ...]:
        arms = Section(title="What the application does", intro=_ARMS, parts=arm_tables(self.annotated))
        return tuple(section for section in (plans_section(self.plans, showcase(self.plans)), arms) if section.parts)

    @property
    def _check(self) -> Section | None:
        """The section on the workflow's own check; None where first answers are none, as those of a router."""
        first = self.annotated.template.stage_after(0)
        return check_section(self.rows) if first is not None and first.answerable else None

    @property
    def _profiled(self) -> tuple[Table, ...]:
        prompts = (prompt_table(self.prompts),) if self.prompts else ()
        return (stage_table(self.annotated), *prompts, price_table(self.annotated.catalog))


def _verdict(found: Evaluation) -> Section:
    """The verdict with the figures behind it."""
    compared = verdict_table(found.verdict)
    parts = (*(() if compared is None else (compared,)), *evaluation_tables(found))
    return Section(title="The verdict", intro=_VERDICT, findings=tuple(evaluation_lines(found)), parts=parts)


def _mark(cost_usd: float, accuracy: float, label: str) -> Mark:
    return Mark(x=1000 * max(cost_usd, 0.0), y=min(max(accuracy, 0.0), 1.0), label=label)


def _provenance(annotated: AnnotatedTrie, store: Path, trie: Path, seed: int) -> Facts:
    meta, has_common_error = annotated.meta, annotated.reading.holds_common_errors
    return (
        ("Store and trie", f"{store.name}, {trie.name}"),
        ("Dataset", f"sha256 {meta.get('dataset_digest', 'not recorded')}"),
        ("Stop rule", annotated.template.stop),
        ("Estimator", str(meta.get("estimator"))),
        ("Coverage", f"{percent(meta.get('coverage'))} of the cost of executing every reachable cell once (estimated)"),
        ("Spent", usd(meta.get("paid_usd", meta.get("spent_usd")))),
        *((("Scorer", judge_words(meta["judge"], has_common_error=has_common_error)),) if "judge" in meta else ()),
        ("Seed", f"{seed} (split in quarters, bootstrap)"),
        *catalog_facts(annotated.catalog),
        *version_facts(),
    )
