"""The report of a store and its trie: estimated accuracy over a range of budgets, with bootstrap intervals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.api import JudgedRows, require_same_workflow
from vinelm.errors import EvidenceError
from vinelm.evaluation import (
    NAMES,
    Bound,
    ContingentPlans,
    Interval,
    Plans,
    PolicyFrontier,
    Role,
    SweepPoint,
    cap_grid,
    path_text,
    showcase,
)
from vinelm.objective import Objective
from vinelm.observation import Observation
from vinelm.reports.charts import cost_chart, frontier_table, latency_chart
from vinelm.reports.contingent import arm_tables, frontier_section, interval_of, plans_section, stage_table
from vinelm.reports.formatting import objective_words, percent, percent_interval, seconds, template_words, usd
from vinelm.reports.judge_text import judge_words
from vinelm.reports.page.document import Chart, Report, Row, Section, Table
from vinelm.reports.provenance import Facts, catalog_facts, price_table, version_facts
from vinelm.traces import StoreIdentity
from vinelm.trie import FloatArray

LEAST_INFORMEDNESS = 0.05
"""A resample with few labels may have a judge that is no better than chance, by which nothing can be divided."""
REFITS = 60
"""Number of bootstrap refits of the estimator: the ends of a 95 % interval are then accurate to about a point."""

Done = Callable[[int, int], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class Resampled:
    """A trie and its path accuracies refitted on resampled requests. ``accuracy`` has shape (refits, n + 1)."""

    annotated: AnnotatedTrie
    accuracy: FloatArray

    def interval(self, node: int) -> Interval:
        """Return the 95 % percentile interval of the node's accuracy, widened where needed to contain the estimate."""
        value = float(self.annotated.accuracy[node])
        low, high = np.quantile(self.accuracy[:, node], [0.025, 0.975])
        return Interval(value, min(float(low), value), max(float(high), value))


def store_page(store: str | Path, trie: AnnotatedTrie | str | Path, *, seed: int = 0, on_done: Done | None = None) -> Report:
    """Build the report of a store and the trie estimated from it. Calls no model.

    Args:
        store: Path of the observation store.
        trie: The annotated trie, or the path of its ``.vine`` file.
        seed: Seed of the bootstrap.
        on_done: Called as ``on_done(done, total)`` after each refit.

    Raises:
        StoreError: The store cannot be read.
        TrieFileError: The trie file cannot be read.
        ConfigError: The trie was estimated for another workflow or dataset.
        EvidenceError: The store holds no observation.
    """
    from vinelm.traces import ObservationStore
    from vinelm.vinefile import load_trie

    annotated = trie if isinstance(trie, AnnotatedTrie) else load_trie(trie)
    where = "the trie" if isinstance(trie, AnnotatedTrie) else str(trie)
    with ObservationStore.open(store) as opened:
        identity, judged = opened.identity, JudgedRows.of_store(opened)
        rows = opened.observations() if judged is None else judged.rows
    require_same_workflow(annotated, identity.workflow, identity.dataset_digest, where)
    if annotated.is_contingent:
        return _branching_page(annotated, identity, len(rows), _provenance(annotated, Path(store), Path(where), seed))
    resampled = refitted(annotated, rows, judged=judged, seed=seed, on_done=on_done)
    plans = Plans(annotated)
    cost = estimated_frontiers(plans, resampled, "max_cost_usd")
    best, alone = _best(annotated, plans, resampled)
    return Report(
        title=f"VineLM on {identity.workflow}",
        subtitle=f"{len(rows):,} observations of {annotated.meta.get('requests', '?')} requests; "
        f"{len(annotated.catalog)} models, {annotated.trie.n_nodes:,} paths",
        headline=_headline(plans),
        is_gain=False,
        findings=(best, alone, _CAVEAT),
        sections=(
            Section(
                title="Estimated frontiers",
                intro="The estimated accuracy of each policy's best plan, for each budget. Nothing was served, and the highest "
                "of many estimates is biased upwards: validate a plan on requests that were not profiled.",
                parts=(
                    replace(cost_chart("cost", cost), caption=_COST_CAPTION),
                    frontier_table("Data of the accuracy–cost frontier", cost, "budget", is_cost=True),
                    *(_latency_parts(plans, resampled) if annotated.knows_latency else ()),
                ),
            ),
            Section(title="Estimated plans", parts=tuple(_objective_table(plans, resampled, o) for o in showcase(plans))),
            Section(title="What was profiled", parts=(_depth_table(annotated), price_table(annotated.catalog))),
        ),
        provenance=_provenance(annotated, Path(store), Path(where), seed),
        simulated=_SIMULATED if identity.is_simulated else None,
    )


def _branching_page(annotated: AnnotatedTrie, identity: StoreIdentity, n_rows: int, provenance: Facts) -> Report:
    """The report of a trie that branches. Its intervals come from the estimate's standard errors, not from refits."""
    if not n_rows:
        raise EvidenceError("the store has no observation: profile some requests first")
    plans = ContingentPlans(annotated)
    best = plans.decision(Objective(maximize="accuracy"))
    interval = interval_of(best.accuracy, best.plan.standard_error)
    return Report(
        title=f"VineLM on {identity.workflow}",
        subtitle=f"{n_rows:,} observations of {annotated.meta.get('requests', '?')} requests; "
        f"{len(annotated.catalog)} models, {annotated.trie.n_nodes:,} histories of {template_words(annotated.template)}",
        headline=_headline(plans),
        is_gain=False,
        findings=(
            f"Most accurate plan: {plans.plan_text(best)}, {percent(interval.value)} ({percent_interval(interval)}) at "
            f"{usd(best.path_cost_usd)} per request.",
            "Estimated from a sample; nothing was served.",
        ),
        sections=(
            frontier_section(plans),
            plans_section(plans, showcase(plans)),
            Section(title="What the application does", intro=_ARMS, parts=arm_tables(annotated)),
            Section(title="What was profiled", parts=(stage_table(annotated), price_table(annotated.catalog))),
        ),
        provenance=provenance,
        simulated=_SIMULATED if identity.is_simulated else None,
    )


_SIMULATED = "The observations in this store are those of simulated models, not of real ones."
_ARMS = (
    "Which stage comes next is the application's choice. How often it takes each way depends on the model that ran before: a "
    "router's model decides which desk a request comes to, and whether that was right."
)


def _latency_parts(plans: Plans, resampled: Resampled) -> tuple[Chart, Table]:
    frontiers = estimated_frontiers(plans, resampled, "max_latency_s")
    return (
        replace(latency_chart("latency", frontiers), y_title="accuracy", caption=_LATENCY_CAPTION),
        frontier_table("Data of the accuracy–latency frontier", frontiers, "cap", is_cost=False),
    )


_REFIT_NOTE = f"Bands: 95 % of {REFITS} refits on resampled requests, for given paths."
_COST_CAPTION = (
    "Each point maximises accuracy under one budget per request, on average. Horizontal axis: expected dollars per request. "
    f"{_REFIT_NOTE}"
)
_LATENCY_CAPTION = (
    "Each point maximises accuracy among the paths whose expected latency (all invocations, zero load) is within the cap. "
    f"{_REFIT_NOTE}"
)
_CAVEAT = "Estimated from a sample; nothing was served. Intervals hold for plans fixed in advance, not for the best of many."


def refitted(
    annotated: AnnotatedTrie,
    rows: Sequence[Observation],
    *,
    seed: int,
    judged: JudgedRows | None = None,
    on_done: Done | None = None,
) -> Resampled:
    """Refit the trie's estimator on :data:`REFITS` bootstrap resamples of the requests. Takes seconds.

    Where a judge's errors are corrected in the trie, each resample has its own labels, and so its own correction.

    Raises:
        EvidenceError: ``rows`` is empty.
    """
    from vinelm.estimator import make_estimator

    by_request: dict[str, list[Observation]] = defaultdict(list)
    for row in rows:
        by_request[row.request_id].append(row)
    ids = sorted(by_request)
    if not ids:
        raise EvidenceError("the store has no observation: profile some requests first")
    name = str(annotated.meta.get("estimator", "cascade-svd"))
    correct = _correction(annotated, rows, judged)
    rng, accuracy = np.random.default_rng(seed), []
    for index in range(REFITS):
        drawn = rng.integers(0, len(ids), len(ids))
        again = [replace(row, request_id=f"{copy}") for copy, at in enumerate(drawn) for row in by_request[ids[at]]]
        fitted = make_estimator(name).fit(again, annotated.template, annotated.catalog, trie=annotated.trie)
        accuracy.append(correct(fitted.annotated_, [ids[at] for at in drawn]).accuracy)
        if on_done is not None:
            on_done(index + 1, REFITS)
    return Resampled(annotated=annotated, accuracy=np.stack(accuracy))


def _correction(
    annotated: AnnotatedTrie, rows: Sequence[Observation], judged: JudgedRows | None
) -> Callable[[AnnotatedTrie, Sequence[str]], AnnotatedTrie]:
    """A function that corrects a refit to these requests, by the labels that are among them."""
    from vinelm.estimator import JudgeAgreement, ObservationTable, corrected_trie, failed_share

    if judged is None or judged.agreement is None or "judge" not in annotated.meta:
        return lambda fitted, _: fitted
    whole, failed = judged.agreement, failed_share(ObservationTable.from_observations(rows, annotated.template, annotated.trie))
    labels: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for request_id, verdict, truth in judged.labelled:
        labels[request_id].append((verdict, truth))

    def corrected(fitted: AnnotatedTrie, requests: Sequence[str]) -> AnnotatedTrie:
        found = JudgeAgreement.of((f"{i}", *pair) for i, name in enumerate(requests) for pair in labels.get(name, ()))
        return corrected_trie(fitted, found if found.informedness > LEAST_INFORMEDNESS else whole, failed)

    return corrected


def estimated_frontiers(plans: Plans, resampled: Resampled, bound: Bound) -> tuple[PolicyFrontier, ...]:
    """Estimate the frontiers of VineLM, the best static plan and the best single model over a grid of caps."""
    caps = cap_grid(plans.annotated, bound)
    roles: tuple[Role, ...] = ("vinelm", "static", "single")
    return tuple(
        PolicyFrontier(NAMES[role], role, tuple(p for cap in caps if (p := _point(plans, resampled, bound, cap, role))))
        for role in roles
    )


def _point(plans: Plans, resampled: Resampled, bound: Bound, cap: float, role: Role) -> SweepPoint | None:
    is_cost = bound == "max_cost_usd"
    objective = (
        Objective(maximize="accuracy", max_cost_usd=cap) if is_cost else Objective(maximize="accuracy", max_latency_s=cap)
    )
    node = plans.node(objective, role)
    if node is None:
        return None
    annotated = plans.annotated
    return SweepPoint(
        cap=cap,
        plan=path_text(plans.trie, node),
        utility=resampled.interval(node),
        accuracy=float(annotated.accuracy[node]),
        cost_usd=float(annotated.path_cost_usd[node]),
        latency_s=float(annotated.path_latency_s[node]),
        late=None,
    )


def _objective_table(plans: Plans, resampled: Resampled, objective: Objective) -> Table:
    rows = []
    for item in plans.compare(objective):
        if item.decision is None:
            rows.append(Row(role=item.role, cells=(item.policy, "-", "-", "-", "-"), detail=item.plan))
            continue
        interval = resampled.interval(item.decision.target)
        latency_s = item.decision.path_latency_s if plans.annotated.knows_latency else None
        figures = (usd(item.decision.path_cost_usd), seconds(latency_s))
        cells = (item.policy, percent(interval.value), percent_interval(interval), *figures)
        rows.append(Row(role=item.role, cells=cells, detail=item.plan))
    columns = ("policy", "accuracy", "95 % interval", "cost", "latency")
    return Table(title=objective_words(objective), columns=columns, rows=tuple(rows))


def _headline(plans: Plans | ContingentPlans) -> str:
    compared = [plans.compare(objective) for objective in showcase(plans)]
    static = sum(best.plan != rival.plan for best, rival, _ in compared)
    single = sum(best.plan != rival.plan for best, _, rival in compared)
    if not single:
        return f"No gain estimated: a single model is the best plan under all {len(compared)} objectives."
    return (
        f"Estimate: VineLM's plan differs from the best static plan under {static} of {len(compared)} objectives, and from the "
        f"best single model under {single}. Serve held-out requests to measure the gain."
    )


def _best(annotated: AnnotatedTrie, plans: Plans, resampled: Resampled) -> tuple[str, str]:
    anything = Objective(maximize="accuracy")
    lines = []
    for role, words in (("vinelm", "Most accurate path"), ("single", "Most accurate single model")):
        node = plans.decision(anything, role).target  # type: ignore[arg-type]
        interval = resampled.interval(node)
        lines.append(
            f"{words}: {path_text(annotated.trie, node)}, {percent(interval.value)} ({percent_interval(interval)}) at "
            f"{usd(float(annotated.path_cost_usd[node]))} per request."
        )
    return lines[0], lines[1]


def _depth_table(annotated: AnnotatedTrie) -> Table:
    rows = []
    for depth, level in enumerate(annotated.trie.levels[1:], start=1):
        count = annotated.count[level] if annotated.count is not None else np.zeros(len(level))
        stage = annotated.trie.stages[annotated.trie.stage[level[0]]]
        rows.append(Row(cells=(f"{depth}", stage, f"{len(level):,}", f"{int((count > 0).sum()):,}", f"{int(count.sum()):,}")))
    columns = ("depth", "stage", "paths", "paths observed", "observations")
    return Table(title="Observations by depth", columns=columns, rows=tuple(rows), text_columns=(0, 1))


def _provenance(annotated: AnnotatedTrie, store: Path, trie: Path, seed: int) -> Facts:
    meta = annotated.meta
    return (
        ("Store and trie", f"{store.name}, {trie.name}"),
        ("Dataset", f"sha256 {meta.get('dataset_digest', 'not recorded')}"),
        ("Stop rule", annotated.template.stop),
        ("Estimator", str(meta.get("estimator"))),
        ("Coverage", f"{percent(meta.get('coverage'))} of the cost of executing every reachable cell once (estimated)"),
        ("Spent", usd(meta.get("spent_usd"))),
        *((("Scorer", judge_words(meta["judge"], is_contingent=annotated.is_contingent)),) if "judge" in meta else ()),
        ("Seed", f"{seed} (bootstrap)"),
        *catalog_facts(annotated.catalog),
        *version_facts(),
    )
