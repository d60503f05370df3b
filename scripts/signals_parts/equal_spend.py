"""Methods compared at equal spend: plans chosen for many budgets, and mixed to spend what is asked on held-out requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from science.complete_tables import as_recorded_table
from science.mixtures import concave_frontier, mixture_at
from science.path_rivals import BestSingle, Method, PathOnly, StaticPlan
from science.replay import follow
from signals_parts.buying import bought, catalog_of, template_of
from signals_parts.exams import FILE
from signals_parts.protocol import Settings, estimated, split
from signals_parts.record import number, read_rows
from signals_parts.vinelm_signals import VineLMSignals

from vinelm.errors import DatasetError
from vinelm.evaluation import OutcomeTable
from vinelm.evaluation.rivals import Evidence, PolicyResult, UntilTwoAgree, VoteOfK
from vinelm.trie.arrays import FloatArray

AMOUNTS = ("dollars", "seconds")
HINDSIGHT = "hindsight"
SAMPLER = "priced"
"""Who buys the rows: the default of `vinelm profile`, which also goes on below passed answers."""
RIVALS: tuple[Method, ...] = (PathOnly(), StaticPlan(), BestSingle(), VoteOfK(), UntilTwoAgree())
METHODS = ("vinelm", *(method.name for method in RIVALS), HINDSIGHT)
N_BUDGETS, N_CAPS = 12, 5


@dataclass(frozen=True)
class EqualSpend:
    """One split.

    Args:
        held_out: rows of the table.
        caps: dollars (or seconds) per request, (caps,).
        served: method to the expected success and spend of each held-out request, (2, caps, held-out requests).
    """

    held_out: tuple[int, ...]
    caps: FloatArray
    served: dict[str, FloatArray]


def compare_split(table: OutcomeTable, paid: FloatArray, depth: int, seed: int, settings: Settings) -> EqualSpend:
    """Buy rows of a training half with dollars, choose plans for budgets on ``paid``, and replay them on the other half.

    Args:
        table: with its dollars.
        paid: what a cap is on, of every call: dollars or seconds, (requests, systems).
        depth: most calls per request.
        seed: of the split and of the sampler.
        settings: coverage, held-out share, estimator.
    """
    training, kept = split(table.groups, settings.held_out, seed)
    spent = replace(table, cost_usd=paid)
    train, held_out = table.rows(training), spent.rows(kept)
    catalog = catalog_of(table)
    template = template_of(depth).bind(tuple(catalog))
    budget_usd = settings.coverage * as_recorded_table(train, template, catalog).exhaustive_cost_usd
    rows = bought(
        train, template, catalog, sampler=SAMPLER, budget_usd=budget_usd, seed=seed, continued_share=settings.continued_share
    )
    place = {request_id: row for row, request_id in enumerate(table.request_ids)}
    rows = [replace(row, cost_usd=float(paid[place[row.request_id], table.column[row.model]])) for row in rows]
    evidence = Evidence(rows, estimated(rows, template, catalog, settings), depth)
    prices = np.sort(paid.mean(axis=0))
    budgets = np.geomspace(prices[0], 2.0 * prices[-1], N_BUDGETS)
    caps = np.geomspace(1.5 * prices[0], prices[-1], N_CAPS)
    served = {}
    for method in (VineLMSignals(), *RIVALS):
        chooser = method.fit(evidence)
        served[method.name] = at_caps([chooser.choose(float(usd)).policy.run(held_out) for usd in budgets], caps)
    served[HINDSIGHT] = at_caps(best_paths(held_out, depth), caps)
    return EqualSpend(tuple(kept), caps, served)


def at_caps(results: Sequence[PolicyResult], caps: FloatArray) -> FloatArray:
    """Mix a method's plans to spend each cap; (2, caps, requests): success, spend."""
    success, spend = (np.array([one[i] for one in results], np.float64) for i in range(2))
    mixtures = [mixture_at(spend.mean(axis=1).tolist(), float(cap)) for cap in caps]
    return np.array([[mixture.of(values) for mixture in mixtures] for values in (success, spend)])


def best_paths(held_out: OutcomeTable, depth: int) -> list[PolicyResult]:
    """The paths that no mixture of others beats on these requests themselves."""
    catalog = catalog_of(held_out)
    exact = as_recorded_table(held_out, template_of(depth).bind(tuple(catalog)), catalog)
    truth = exact.annotate()
    nodes = np.flatnonzero(truth.trie.answerable)
    best = concave_frontier([(float(truth.path_cost_usd[node]), float(truth.accuracy[node])) for node in nodes])
    runs = [follow(exact, int(nodes[i])) for i in best]
    return [PolicyResult(run.success.astype(np.float64), run.cost_usd) for run in runs]


def seconds_of(data: Path, table: OutcomeTable) -> FloatArray:
    """The recorded seconds of every first answer, (requests, systems); a system's mean where one was not recorded."""
    path = data / FILE
    rows = read_rows(path, ("dataset", "question_id", "model", "round", "latency_s"))
    place = {request_id: row for row, request_id in enumerate(table.request_ids)}
    found = np.full((len(table), len(table.systems)), np.nan)
    for row in rows:
        request = place.get(f"{row['dataset']}/{row['question_id']}")
        if row["round"] == "1" and request is not None and row["model"] in table.column and row["latency_s"]:
            found[request, table.column[row["model"]]] = number(row, "latency_s", path)
    if np.isnan(found).all(axis=0).any():
        raise DatasetError(f"{path}: a system has no seconds")
    return np.where(np.isnan(found), np.nanmean(found, axis=0), found)
