"""The demo under the oracle stop, the paper's special case: paths, profiled and replayed on the complete table of outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.api.estimation import with_provenance
from vinelm.demo.ground_truth import StepProgress
from vinelm.demo.halves import ESTIMATOR, crossed, judged, shared_objectives
from vinelm.demo.result import DemoSettings, Half, StopRuleResult
from vinelm.estimator import make_estimator
from vinelm.evaluation import PolicyRun, SweepPolicy
from vinelm.evaluation.policy_plans import Plans
from vinelm.evaluation.policy_run import Role
from vinelm.evaluation.replay import path_policies, replayed_comparison, replayed_run
from vinelm.evaluation.verdicts.cross_fitting import joined_comparisons
from vinelm.objective import Objective
from vinelm.observation import Observation
from vinelm.profiler import make_sampler
from vinelm.protocols import RequestPath
from vinelm.recorded_table import RecordedTable
from vinelm.workflow import Request

COVERAGE = 0.02
"""Share of the dollars of the complete table that the rows of a half may cost, as in the paper."""


def sparse_rows(table: RecordedTable, coverage: float, seed: int) -> list[Observation]:
    """Return the rows that a profile by the default sampler would have bought, looked up in a complete table.

    Args:
        table: The outcomes of the requests that may be profiled; its stop rule ends a path.
        coverage: Dollars to buy for, as a share of those of executing every reached cell once, in (0, 1].
        seed: Of the sampler.
    """
    budget_usd, spent = coverage * table.exhaustive_cost_usd, 0.0
    sampler = make_sampler("priced", table.template, table.request_ids, seed, catalog=table.catalog)
    rows: dict[tuple[int, int], Observation] = {}
    round_ = 0
    while True:
        before = len(rows)
        for cell in _proposed(table, sampler.propose(round_, list(rows.values()))):
            if cell in rows:
                continue
            row = table.observation(*cell)
            if spent + row.cost_usd > budget_usd and rows:
                return list(rows.values())
            rows[cell], spent = row, spent + row.cost_usd
        if len(rows) == before:
            return list(rows.values())
        round_ += 1


def _proposed(table: RecordedTable, paths: Iterable[RequestPath]) -> Iterator[tuple[int, int]]:
    """The (row, node) cells of the paths, in order, each path to where its request ends."""
    row_of = {request_id: row for row, request_id in enumerate(table.request_ids)}
    for path in paths:
        row = row_of[path.request_id]
        node = 0
        for model in path.path:
            node = table.trie.child(node, str(model))
            yield row, node
            if table.ended[row, node]:
                break


def oracle_halves(
    settings: DemoSettings, requests: tuple[tuple[Request, ...], tuple[Request, ...]], tables: Sequence[RecordedTable]
) -> tuple[Half, Half]:
    """Buy rows of each half, estimate its paths, and hand them to the other half to judge.

    Args:
        settings: The demo's settings.
        requests: The requests of the two halves.
        tables: Their complete tables, under any stop rule.
    """
    first, second = (table.with_stop("oracle") for table in tables)
    return _half(settings, requests[0], first, second), _half(settings, requests[1], second, first)


def _half(settings: DemoSettings, judged_by: tuple[Request, ...], table: RecordedTable, other: RecordedTable) -> Half:
    rows = sparse_rows(other, COVERAGE, settings.seed)
    annotated = make_estimator(ESTIMATOR).fit(rows, other.template, other.catalog).annotated_
    return Half(judged=judged_by, table=table, rows=tuple(rows), annotated=annotated)


def oracle_result(
    settings: DemoSettings, halves: tuple[Half, Half], tables: Sequence[RecordedTable], step: StepProgress
) -> StopRuleResult:
    """Replay all policies under the oracle stop, and judge them.

    Args:
        settings: The demo's settings.
        halves: From :func:`oracle_halves`.
        tables: The complete tables of the two halves, in the same order.
        step: Reports the budgets that are done.
    """
    complete = [Plans(table.with_stop("oracle").annotate()) for table in reversed(tables)]
    full = dict(zip(halves, complete, strict=True))

    def policies_of(half: Half) -> dict[Role, SweepPolicy]:
        def fully(objective: Objective) -> PolicyRun | None:
            return replayed_run(full[half], half.table, objective, "vinelm", "VineLM, fully profiled")

        return path_policies(half.plans, half.table) | {"full": SweepPolicy("VineLM, fully profiled", "full", fully)}

    comparisons = []
    for objective in shared_objectives(halves):
        parts = [replayed_comparison(half.plans, half.table, objective) for half in halves]
        comparisons.append(joined_comparisons([part for part in parts if part is not None]))
    policies = crossed(halves, policies_of)
    return judged(halves, policies, comparisons, sweeps_latency=True, on_done=step, seed=settings.seed)


def oracle_trie(settings: DemoSettings, table: RecordedTable) -> AnnotatedTrie:
    """Return the trie that rows of all requests give, with its provenance.

    Args:
        settings: The demo's settings.
        table: The complete table of all requests, under any stop rule.
    """
    table = table.with_stop("oracle")
    rows = sparse_rows(table, COVERAGE, settings.seed)
    annotated = make_estimator(ESTIMATOR).fit(rows, table.template, table.catalog).annotated_
    return with_provenance(
        annotated, rows, requests_registered=len(table.request_ids), workflow=settings.workflow.name,
        dataset_digest=settings.workflow.dataset_digest,
        is_simulated=any(backend.is_simulated for backend in settings.backends.values()),
    )  # fmt: skip
