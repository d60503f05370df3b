"""Builds the report of a store and its trie: the verdict, sweeps of every limit, the chosen plan, and the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vinelm.api.estimation import require_same_workflow
from vinelm.errors import ConfigError, EvidenceError
from vinelm.evaluation import Evaluation
from vinelm.evaluation.comparison.fit import PolicyName
from vinelm.evaluation.comparison.scored_rows import ScoredRows
from vinelm.evaluation.comparison.side_by_side import FollowedPlan, side_by_side
from vinelm.evaluation.comparison.todays_plan import TodaysPlan
from vinelm.evaluation.plans.plans import Plans
from vinelm.evaluation.plans.plans_over import plan_of_verdict, plans_over, trie_of_verdict
from vinelm.objective import Objective
from vinelm.plans.recommendation import served_objective
from vinelm.prompts.layout import StagePrompts
from vinelm.reports.budgets import BudgetSlider
from vinelm.reports.card import AFTER, before, verdict_card
from vinelm.reports.document import Card, ExampleAnswer, Examples, Report, Section, Table, readable
from vinelm.reports.evaluation_text import evaluation_lines, evaluation_tables, verdict_table
from vinelm.reports.examples import RIGHT, examples
from vinelm.reports.formatting import oracle_words, percent, thousand, usd
from vinelm.reports.pictures.html import write_page
from vinelm.reports.plan_tree import plan_tree
from vinelm.reports.plan_words import plan_line
from vinelm.reports.store.budget_section import BudgetPlans
from vinelm.reports.store.estimated_sections import (
    arm_tables,
    frontier_section,
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
from vinelm.reports.store.plan_sections import (
    TODAY,
    ShownPlan,
    chosen_section,
    price_section,
    spending_section,
)
from vinelm.reports.store.sweep_sections import sweep_sections
from vinelm.reports.store_text import judge_words, today_words
from vinelm.rows.observation import Observation
from vinelm.traces import StoreIdentity
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.verdict import Verdict
from vinelm.verdicts.store_comparison import StoreComparison, compare_store

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
_NO_TEXT = " Answers are not shown: `vinelm report --show-text` adds them."
_VERDICTS_ONLY = "A judge scored the answers: what the judged requests say is its verdicts, whose errors are not corrected."


def report(
    store: str | Path,
    trie: AnnotatedTrie | str | Path,
    output_dir: str | Path = "report",
    *,
    evaluation: Evaluation | None = None,
    in_use: str | Path | None = None,
    show_text: bool = False,
    seed: int = 0,
) -> Path:
    """Write one self-contained HTML page about a store and the trie estimated from it. Calls no model.

    The page begins with the verdict of :func:`~vinelm.evaluate`. It then shows how accuracy, cost and latency change with
    each limit, for all policies, on requests that were not used to choose the plans. It ends with the chosen plan's models,
    cost and evidence. Takes some seconds.

    Args:
        store: The path of the observation store.
        trie: The annotated trie, or the path of its file.
        output_dir: Folder to write report.html to.
        evaluation: The result of :func:`~vinelm.evaluate` for this store and trie, with the same seed. None computes it,
            which takes longer.
        in_use: What the application runs today: a model, or a file that ``vinelm plan --json`` wrote, of which the first
            plan counts. The verdict compares with it. None: the models that the application declares, else the strongest
            single model.
        show_text: Show the answers in the examples; everybody who gets the page can read them.
        seed: Seed that decides how the requests are split and resampled.

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
    page = store_page(store, trie, evaluation=evaluation, in_use=in_use, show_text=show_text, seed=seed)
    return write_page(page, Path(output_dir) / "report.html")


def store_page(
    store: str | Path,
    trie: AnnotatedTrie | str | Path,
    *,
    evaluation: Evaluation | None = None,
    in_use: str | Path | None = None,
    show_text: bool = False,
    seed: int = 0,
    on_done: Done = lambda done, total, what: None,
) -> Report:
    """Build the report of a store and the trie estimated from it. Calls no model.

    Args:
        store: Path of the observation store.
        trie: The annotated trie, or the path of its ``.vine`` file.
        evaluation: The result of :func:`~vinelm.evaluate` for this store, trie and seed; None evaluates them, with the same
            result.
        in_use: What the application runs today: a model, or a file with a plan; see :func:`~vinelm.report`.
        show_text: Show the answers of the examples.
        seed: Decides how the requests are split.
        on_done: Called as ``on_done(done, total, what)`` with the number of finished and of all parts of the work.

    Raises:
        StoreError: The store cannot be read.
        TrieFileError: The trie file cannot be read.
        ConfigError: The trie was estimated for another workflow or dataset, ``in_use`` is not a fixed plan of the trie, or
            ``evaluation`` belongs to other rows.
        EvidenceError: The store holds no observation.
    """
    from vinelm.traces import ObservationStore
    from vinelm.traces.store.kinds import told_apart
    from vinelm.traces.store.prompts import StoredPrompts, prompt_stages
    from vinelm.vinefile import load_trie

    annotated = trie if isinstance(trie, AnnotatedTrie) else load_trie(trie)
    where = "the trie" if isinstance(trie, AnnotatedTrie) else str(trie)
    with ObservationStore.open(store) as opened:
        identity, scored = opened.identity, ScoredRows.of_store(opened)
        rows, referred = scored.rows, scored.referred(opened)
        rows = rows if referred is None else referred.scored(rows)
        rows, _ = told_apart(opened, rows, annotated.template, learn=False)
        prompts = prompt_stages(rows, StoredPrompts(opened).read())
    require_same_workflow(annotated, identity.workflow, identity.dataset_digest, where)
    if not rows:
        raise EvidenceError("the store has no observation: profile some requests first")
    today = TodaysPlan.declared(annotated) if in_use is None else TodaysPlan.of(in_use, annotated)
    _require_evaluation_of(rows, annotated, seed, evaluation)
    comparison = compare_store(store, annotated, evaluation=evaluation, in_use=in_use, seed=seed, on_done=on_done)
    facts = _provenance(annotated, Path(store), Path(where), seed)
    files = (Path(store), Path("TRIE" if isinstance(trie, AnnotatedTrie) else trie))
    own = _StorePage(identity, annotated, rows, comparison, scored.is_judged, today, prompts, files, show_text)
    return own.report(facts)


def _require_evaluation_of(
    rows: Sequence[Observation], annotated: AnnotatedTrie, seed: int, evaluation: Evaluation | None
) -> None:
    """Raise an error unless the evaluation was made from these rows, this trie and this seed; None is accepted.

    Raises:
        ConfigError: The evaluation does not belong to them, or its figures come from requests that it served, not from stored
            results.
    """
    if evaluation is None:
        return
    fit = evaluation.fit
    if fit is None:
        raise ConfigError("the evaluation served its requests: a page needs one that is judged by the rows of a store")
    if fit.template != annotated.template or evaluation.rows != len(rows) or fit.seed != seed:
        raise ConfigError("the evaluation is of other rows, another trie or another seed: evaluate this store and trie")


@dataclass(frozen=True)
class _StorePage:
    """Builds the page, section by section.

    Attributes:
        identity: The store's identity.
        annotated: The trie.
        rows: The rows of the store.
        comparison: The comparison of all policies according to the rows.
        has_judge: Whether a judge scored answers.
        today: The plan of the application's current setup; None if it is unknown.
        prompts: For each stage, the mean prompt tokens of a call, in groups such as static tokens and tokens shared with
            other requests.
        files: The paths of the store and the trie, for command lines.
        show_text: Whether examples show the answers.
    """

    identity: StoreIdentity
    annotated: AnnotatedTrie
    rows: Sequence[Observation]
    comparison: StoreComparison
    has_judge: bool
    today: TodaysPlan | None = None
    prompts: Sequence[StagePrompts] = ()
    files: tuple[Path, Path] = (Path(), Path())
    show_text: bool = False

    def report(self, provenance: Facts) -> Report:
        found = self.comparison.evaluation
        sections = (
            *((_verdict(found),) if found else ()),
            *(sweep_sections(self.comparison) if self.comparison.sweeps else (frontier_section(self.plans),)),
            *self._of_the_plan(),
            *((check,) if (check := self._check) else ()),
            signals_section(self.comparison, self.annotated),
            *self._of_arms(),
            Section(title="What was profiled", parts=self._profiled),
        )
        return Report(
            title=f"VineLM on {self.identity.workflow}",
            subtitle=f"{len(self.rows):,} observations of {self.annotated.meta.get('requests', '?')} requests; "
            f"{len(self.annotated.catalog)} models, {self.annotated.trie.n_nodes:,} "
            f"{self.annotated.reading.noun} of {self.annotated.template.words}",
            headline=self.verdict.sentence,
            is_gain=self.verdict.advice == "switch",
            card=self._card,
            examples=self._examples,
            budgets=self._budgets,
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
    def baseline(self) -> ShownPlan | None:
        """The current setup's plan if known, otherwise the most accurate single model; None if no model can run every
        stage.
        """
        found, name = self._baseline_plan, "single model" if self.today is None else TODAY
        return None if found is None else ShownPlan(name=name, decision=found)

    @cached_property
    def _baseline_plan(self) -> Any:
        """The baseline as a plan object: the current setup's plan if known, otherwise the best single model's; None if no
        model can run every stage.
        """
        if self.today is not None:
            return self.today.under(self.plans)
        return self.plans.fixed(Objective(maximize="accuracy"), "single")

    @cached_property
    def searched(self) -> AnnotatedTrie:
        """The trie from which the shown plans are chosen: ``annotated``, or its trie of signals if the verdict's plan needs it.

        In a trie of signals, plans may depend on what answers show without labels.
        """
        return trie_of_verdict(self.annotated, self.verdict)

    @cached_property
    def objective(self) -> Objective | None:
        """The objective of the verdict's plan; None if the verdict names no plan."""
        return served_objective(self.verdict)

    @cached_property
    def vinelm(self) -> ShownPlan | None:
        """The verdict's plan, estimated from all rows of the store; None if the verdict names no plan."""
        found = plan_of_verdict(self.annotated, self.verdict)
        return None if found is None else ShownPlan(name="VineLM", decision=found)

    def _of_the_plan(self) -> tuple[Section, ...]:
        if self.vinelm is None or self.objective is None:
            return ()
        sweep = self.comparison.sweep("max_cost_usd")
        policy = "signals" if self.searched is not self.annotated else "paths"
        swept = () if sweep is None else sweep.points.get(policy, ())  # type: ignore[call-overload]
        shown = [self.vinelm] if self.baseline is None else [self.vinelm, self.baseline]
        found = (
            chosen_section(self.vinelm, swept),
            spending_section(shown),
            price_section(self.vinelm, self.objective, self.searched),
        )
        return tuple(one for one in found if one is not None)

    # -- the head --------------------------------------------------------------------------------------------------

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict shown on the page: the comparison's or, if nothing was compared, the one stored in the trie's file.

        If there is no stored verdict either, the result is a verdict without plans, whose ``why_not`` gives the reason.
        """
        found = self.comparison.evaluation
        if found is not None:
            return found.verdict
        held = self.annotated.verdict
        requests = int(self.annotated.meta.get("requests") or 0)
        return held or Verdict(opponent="", is_today=False, requests=requests, why_not=f"{self.comparison.why_not}")

    @property
    def _card(self) -> Card:
        return verdict_card(
            self.verdict,
            plan="" if self.vinelm is None else plan_line(plan_tree(self.vinelm.decision)),
            annotated=self.annotated,
            files=self.files,
        )

    @property
    def _budgets(self) -> BudgetSlider | None:
        return BudgetPlans(
            searched=self.searched,
            plans=self.plans,
            comparison=self.comparison,
            verdict=self.verdict,
            own=None if self.verdict.advice == "keep" else self.vinelm,  # nobody should serve that plan
            baseline=self.baseline,
            is_today=self.today is not None,
        ).slider()

    def _findings(self) -> list[str]:
        failed = Counter(row.failure for row in self.rows if row.failure is not None)
        lines = []
        if failed:
            kinds = ", ".join(f"{kind} {number:,}" for kind, number in failed.most_common())
            lines.append(f"{sum(failed.values()):,} of {len(self.rows):,} observations failed: {kinds}.")
        if not any(row.cost_usd or row.tool_cost_usd for row in self.rows):
            lines.append("Every observation was free: there are no dollars to weigh, and accuracy alone is compared.")
        if self.has_judge:
            lines.append(_VERDICTS_ONLY)
        if not self.annotated.template.rule.why_not_served:
            lines.append(
                "Nothing was served for this page: serve requests that were not profiled before you switch (vinelm verify)."
            )
        return lines

    # -- examples --------------------------------------------------------------------------------------------------

    @property
    def _examples(self) -> Examples | None:
        """Requests that the verdict's plan and the verdict's baseline answer differently; None if the rows contain none."""
        evaluation, found = self.comparison.evaluation, self.verdict
        fit = None if evaluation is None else evaluation.fit
        own = found.plan
        if fit is None or own is None or self.objective is None or own.is_same:
            return None
        fit = fit.within_tried() if found.tried_only else fit
        policy: PolicyName = "static" if own.policy == "fixed" else own.policy  # type: ignore[assignment]
        after = [half.choose(self.objective, votes=False).get(policy) for half in fit.planning]
        baselines = [self._baseline_over(half.plain.plans) for half in fit.planning]
        if any(one is None for one in (*after, *baselines)):
            return None
        known = [
            (request, one, two)
            for request, one, two in side_by_side(
                fit,
                [half.following(plan) for half, plan in zip(fit.planning, baselines, strict=True)],
                [plan for plan in after if plan is not None],
            )
        ]
        return examples(
            [(request, _answer(one, self.show_text), _answer(two, self.show_text)) for request, one, two in known],
            before=before(found),
            after=AFTER[found.advice],
            note="Each quarter of the requests is answered by the plan of the others."
            + (_text_note(known) if self.show_text else _NO_TEXT),
        )

    def _baseline_over(self, plans: Plans[Any]) -> Any:
        """Return the verdict's baseline as one of the plans in ``plans``; None if it is none of them.

        The baseline is the current setup, or a single model.
        """
        if self.today is not None:
            return plans.having(self.today.settings)
        return dict(plans.single_models()).get(self.verdict.opponent)

    # -- the tail --------------------------------------------------------------------------------------------------

    def _of_arms(self) -> tuple[Section, ...]:
        arms = Section(title="What the application does", intro=_ARMS, parts=arm_tables(self.annotated))
        return (arms,) if arms.parts else ()

    @property
    def _check(self) -> Section | None:
        """The section on the workflow's own check of answers.

        None if no row has both a check result and a label. Also None if the first stage gives no answer (such as a router),
        or if different stages may come first.
        """
        first = self.annotated.template.stage_after(0)
        return check_section(self.rows) if first is not None and first.answerable else None

    @property
    def _profiled(self) -> tuple[Table, ...]:
        prompts = (prompt_table(self.prompts),) if self.prompts else ()
        return (stage_table(self.annotated), *prompts, price_table(self.annotated.catalog))


def _answer(found: FollowedPlan, show_text: bool) -> ExampleAnswer:
    return ExampleAnswer(
        models=" → ".join(row.model for row in found.rows),
        is_right=found.success >= RIGHT,
        usd=thousand(found.cost_usd),
        text=(found.returned.answer or "") if show_text else "",
    )


def _text_note(known: Sequence[tuple[str, FollowedPlan, FollowedPlan]]) -> str:
    has_text = any(plan.returned.answer for _, *plans in known for plan in plans)
    return "" if has_text else " The store has no answers: the workflow does not say which keys of its state are one (answer=)."


def _verdict(found: Evaluation) -> Section:
    """Return the section with the verdict and the figures behind it."""
    compared = verdict_table(found.verdict)
    parts = (*(() if compared is None else (compared,)), *evaluation_tables(found))
    return Section(title="The verdict", intro=_VERDICT, findings=tuple(evaluation_lines(found)), parts=parts)


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
        *((("Scorer", today_words(meta["as_today"])),) if "as_today" in meta else ()),
        ("Seed", f"{seed} (split in quarters)"),
        *catalog_facts(annotated.catalog),
        *version_facts(),
    )
