"""The protocol: buy sparse rows of a training half, choose under each budget, replay exactly on the held-out half."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from science.complete_tables import as_recorded_table
from science.path_rivals import BestSingle, PathPolicy
from signals_parts.buying import SCORED, bought, catalog_of, scored, template_of
from signals_parts.calibration import Calibration
from signals_parts.curves import KINDS, MIXED, UNMIXED, Curve, Held
from signals_parts.methods import ORACLE, Oracle, methods
from signals_parts.record import Asked

from vinelm.catalog import Catalog
from vinelm.estimator import ObservationTable, make_estimator
from vinelm.estimator.validation.checks import validate_estimate
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.rivals import Evidence, PolicyResult
from vinelm.rows.observation import Observation
from vinelm.template import Template
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

MEAN_RANGE = (0.5, 25.0)
EXTRA = (0.1, 0.3, 2.0, 20.0)
FLOOR_RUNS = 30
"""Rows for at least so many whole runs of the strongest system."""
NO_BOUND_USD = 1e6


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How everything is measured.

    Args:
        splits: random splits into a training half and a held-out half.
        held_out: share of the groups held out.
        coverage: dollars to buy rows for, as a share of running every training request on every reached path once.
        budgets: dollars per request that the means are over.
        extra_budgets: further ones, each shown by itself.
        estimator: of the annotated trie.
        continued_share: share of the paths that go on below a passed answer, where the sampler has that setting.
        n_curve: budgets of a curve of dollars and accuracy.
        curve: these budgets; plans are chosen for them, too.
        is_checked: measure the optimism of choosing paths, which what they promise allows for (some seven more fits).
    """

    splits: int = 10
    held_out: float = 0.5
    coverage: float = 0.02
    budgets: tuple[float, ...] = tuple(round(float(b) / 1000, 7) for b in np.geomspace(*MEAN_RANGE, 9))
    extra_budgets: tuple[float, ...] = tuple(b / 1000 for b in EXTRA)
    estimator: str = "latent"
    continued_share: float = 0.15
    is_checked: bool = True
    n_curve: int = 40
    curve: tuple[float, ...] = ()

    def for_table(self, table: OutcomeTable, *, own_budgets: bool, depth: int) -> Settings:
        """With budgets between the prices of the table's own systems, if so, and those of the curves."""
        prices = np.sort(table.cost_usd.mean(axis=0))
        n = len(self.budgets)
        own = {"budgets": tuple(np.geomspace(prices[0], prices[-1], n).tolist()), "extra_budgets": ()} if own_budgets else {}
        return replace(self, **own, curve=tuple(np.geomspace(0.8 * prices[0], 1.5 * depth * prices[-1], self.n_curve).tolist()))

    @property
    def every_budget(self) -> tuple[float, ...]:
        """The budgets of the mean, then the others."""
        return (*self.budgets, *self.extra_budgets)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One split of one table, profiled by one sampler."""

    table: OutcomeTable
    depth: int
    sampler: str
    seed: int
    settings: Settings
    asked: Asked


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """One method on one split. Arrays have shape (budgets, ...), in the order of ``Settings.every_budget``.

    Args:
        success: of each held-out request, (budgets, requests).
        cost_usd: dollars spent on it, same shape.
        promised_accuracy: what was expected, (budgets,); NaN for the oracle.
        promised_cost_usd: dollars per request, same shape.
        words: the policies.
        plan_s: seconds from the evidence to the first choice.
        lookup_us: of one decision; None if the method does not say.
        calibration: how often answers are right that are said to be; None if the method does not say.
    """

    success: FloatArray
    cost_usd: FloatArray
    promised_accuracy: FloatArray
    promised_cost_usd: FloatArray
    words: tuple[str, ...] = ()
    plan_s: float = 0.0
    lookup_us: float | None = None
    calibration: Calibration | None = None


@dataclass(frozen=True, kw_only=True)
class SplitResult:
    """What came of a task: held-out rows of the table, the rows bought, and what each method did, its plans included."""

    held_out: tuple[int, ...]
    n_rows: int
    n_continued: int
    spent_usd: float
    served: dict[str, MethodResult] = field(default_factory=dict)
    held: Held | None = None


def split(groups: Sequence[str], held_out: float, seed: int) -> tuple[list[int], list[int]]:
    """(training, held-out) rows. A group is on one side, which depends on its name and the seed only.

    Seeds come in pairs: with an odd one the halves change places. One half is harder than the other by 2 to 6 points, which no
    promise can know, and which ten splits alone do not average out.
    """

    def share(group: str) -> float:
        drawn = int.from_bytes(hashlib.sha256(f"{seed // 2}:{group}".encode()).digest()[:8], "big") / 2**64
        return drawn if seed % 2 == 0 else 1.0 - drawn

    is_out = [share(group) < held_out for group in groups]
    return [r for r, out in enumerate(is_out) if not out], [r for r, out in enumerate(is_out) if out]


def run_task(task: Task) -> SplitResult:
    """Buy, estimate, choose, replay."""
    settings = task.settings
    training, kept = split(task.table.groups, settings.held_out, task.seed)
    held_out = task.table.rows(kept)
    catalog = catalog_of(task.table)
    template = template_of(task.depth).bind(tuple(catalog))
    rows = rows_of(task, task.table.rows(training), template, catalog)
    evidence = Evidence(rows, estimated(rows, template, catalog, settings), task.depth)
    served, curves = {}, {}
    for method in methods(task.depth, task.asked, tuple(task.table.request_ids[r] for r in training)):
        served[method.name], curves[method.name] = serve(method, evidence, held_out, settings)
    ours = curves.pop("vinelm")
    curves |= {UNMIXED: ours, MIXED: ours.by_promise}
    if KINDS in curves:
        curves[KINDS] = curves[KINDS].by_promise
    served[ORACLE] = results([Oracle(budget).run(held_out) for budget in settings.every_budget])
    return SplitResult(
        held_out=tuple(kept),
        n_rows=len(rows),
        n_continued=sum(row.is_continued for row in rows),
        spent_usd=sum(row.cost_usd for row in rows),
        served=served,
        held=Held(tuple(kept), curves, references(task.table, evidence, held_out)),
    )


def rows_of(task: Task, table: OutcomeTable, template: Template, catalog: Catalog) -> list[Observation]:
    """Rows worth a share of the exhaustive dollars, or 30 whole runs of the strongest system if these are dearer."""
    settings = task.settings
    if task.sampler.startswith(SCORED):
        return scored(table, template, int(task.sampler.removeprefix(SCORED)), task.seed)
    everything = as_recorded_table(table, template, catalog).exhaustive_cost_usd
    whole_run = float(PathPolicy((strongest(task.table),) * task.depth).run(table).cost_usd.mean())
    return bought(
        table,
        template,
        catalog,
        sampler=task.sampler,
        budget_usd=max(settings.coverage * everything, FLOOR_RUNS * whole_run),
        seed=task.seed,
        continued_share=settings.continued_share,
    )


def strongest(table: OutcomeTable) -> str:
    """The system that is right most often on the whole table: what its reputation says."""
    return table.systems[int(table.success.mean(axis=0).argmax())]


def references(table: OutcomeTable, evidence: Evidence, held_out: OutcomeTable) -> dict[str, FloatArray]:
    """The system that the rows say is best, and the strongest, each asked once: success and dollars, (2, requests)."""
    best = BestSingle().fit(evidence).choose(NO_BOUND_USD).policy
    policies = {"best_single": best, "strongest": PathPolicy((strongest(table),))}
    return {name: np.array(policy.run(held_out), np.float64) for name, policy in policies.items()}


def estimated(rows: Sequence[Observation], template: Template, catalog: Catalog, settings: Settings) -> AnnotatedTrie:
    """The trie, with the measured optimism of choosing from it."""
    cells = ObservationTable.from_observations(rows, template, Trie.from_template(template))
    found = make_estimator(settings.estimator).fit(rows, template, catalog).annotated_
    if not settings.is_checked:
        return found
    evidence = validate_estimate(cells, template, catalog, found).to_dict()
    return replace(found, meta={**found.meta, "evidence": evidence})


def serve(method: Any, evidence: Evidence, held_out: OutcomeTable, settings: Settings) -> tuple[MethodResult, Curve]:
    """Choose under every budget and replay."""
    _ = evidence.planner, evidence.drawn  # shared: no method's own time
    started = time.perf_counter()
    chooser = method.fit(evidence)
    first = chooser.choose(settings.every_budget[0])
    plan_s = time.perf_counter() - started
    n = len(settings.every_budget)
    curve, chosen = Curve.of(chooser, held_out, (*settings.every_budget, *settings.curve))
    plans = curve.chosen[:n]
    return MethodResult(
        success=curve.success[plans],
        cost_usd=curve.cost_usd[plans],
        promised_accuracy=curve.promised[plans, 0],
        promised_cost_usd=curve.promised[plans, 1],
        words=tuple(choice.words for choice in chosen[:n]),
        plan_s=plan_s,
        lookup_us=first.lookup_us,
        calibration=Calibration.of([choice.policy for choice in chosen[: len(settings.budgets)]], held_out),
    ), curve


def results(found: Sequence[PolicyResult]) -> MethodResult:
    """The arrays of what was replayed, nothing promised."""
    unknown = np.full(len(found), np.nan)
    success, cost_usd = (np.array([one[i] for one in found], dtype=np.float64) for i in range(2))
    return MethodResult(success=success, cost_usd=cost_usd, promised_accuracy=unknown, promised_cost_usd=unknown)
