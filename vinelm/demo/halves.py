"""The two halves of a demo's requests: each is judged by plans that were made from the rows of the other one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from vinelm.dataset import split_requests
from vinelm.demo.result import DemoSettings, Frontiers, Half, StopRuleResult
from vinelm.errors import DatasetError
from vinelm.evaluation import PolicyRun, SweepPolicy, sweep
from vinelm.evaluation.policy_run import Role
from vinelm.evaluation.replay import single_model_runs
from vinelm.evaluation.sweep import frontier_range, showcase, spaced_caps
from vinelm.evaluation.verdicts.budget_sweep import BudgetSweep
from vinelm.evaluation.verdicts.cross_fitting import common_objectives, crossed_policy, joined_runs
from vinelm.evaluation.verdicts.verdict import PolicyComparison, compare
from vinelm.objective import Objective
from vinelm.observation import Observation
from vinelm.workflow import Request

ESTIMATOR = "latent"
N_CAPS = 9
"""Budgets, and latency caps, in a sweep."""


Policies = Mapping[Role, SweepPolicy]
"""What is compared, by role."""


def halves_of(settings: DemoSettings) -> tuple[tuple[Request, ...], tuple[Request, ...]]:
    """Split the workflow's requests into two halves, by request id and seed.

    Raises:
        DatasetError: One of the two would be empty.
    """
    first, second = split_requests(settings.workflow.requests, 0.5, settings.seed)
    if not first or not second:
        raise DatasetError(
            f"{len(settings.workflow.requests)} requests are too few to split: use more requests", code="too-few-requests"
        )
    return tuple(first), tuple(second)


def rows_of(rows: Iterable[Observation], requests: Iterable[Request]) -> tuple[Observation, ...]:
    """Return the rows of these requests, in their order."""
    ids = {request.id for request in requests}
    return tuple(row for row in rows if row.request_id in ids)


def shared_objectives(halves: Sequence[Half]) -> tuple[Objective, ...]:
    """Return the objectives that both halves are judged by: those of each half's plans, with the looser bounds."""
    return common_objectives([showcase(half.plans) for half in halves])


def crossed(halves: Sequence[Half], policies_of: Callable[[Half], Policies]) -> dict[Role, SweepPolicy]:
    """Return each policy over all requests, every half under the plans made from the other."""
    parts = [policies_of(half) for half in halves]
    return {role: crossed_policy([part[role] for part in parts]) for role in parts[0]}


def judged(
    halves: Sequence[Half],
    policies: Policies,
    comparisons: Sequence[PolicyComparison],
    *,
    sweeps_latency: bool,
    on_done: Callable[[int, int], None],
    seed: int,
) -> StopRuleResult:
    """Sweep the budgets, and judge the sweep beside the objectives.

    Args:
        halves: Both halves.
        policies: Over all requests; those of the roles ``hindsight`` and ``full`` are shown and no part of the sweep's verdict.
        comparisons: The runs under each objective.
        sweeps_latency: Whether to sweep latency caps, too.
        on_done: Called as ``on_done(done, total)`` after each budget of each policy.
        seed: Of the bootstrap.
    """
    ranges = [frontier_range(half.plans) for half in halves]
    caps = spaced_caps(max(r.cheapest_usd for r in ranges), max(r.dearest_usd for r in ranges), "max_cost_usd", N_CAPS)
    for k, cap in enumerate(caps, start=1):  # the runs are remembered; nothing below takes as long
        for policy in policies.values():
            policy.run(Objective(maximize="accuracy", max_cost_usd=cap))
        on_done(k, len(caps))
    models = tuple(joined_runs(runs) for runs in zip(*(single_model_runs(h.plans, h.table) for h in halves), strict=True))
    shown = list(policies.values())
    cost = sweep([*shown, *(_alone(run) for run in models)], "max_cost_usd", caps, seed=seed)
    latency = []
    if sweeps_latency:
        fastest, slowest = max(r.fastest_s for r in ranges), max(r.slowest_s for r in ranges)
        latency = sweep(shown, "max_latency_s", spaced_caps(fastest, slowest, "max_latency_s", N_CAPS), seed=seed)
    verdict = compare(comparisons, sweep=_budget_sweep(policies, caps, models), seed=seed)
    return StopRuleResult(verdict=verdict, frontiers=Frontiers(cost=tuple(cost), latency=tuple(latency)), halves=tuple(halves))


def _alone(run: PolicyRun) -> SweepPolicy:
    return SweepPolicy(run.policy, "model", lambda objective: run)


def _budget_sweep(policies: Policies, caps: Sequence[float], models: tuple[PolicyRun, ...]) -> BudgetSweep:
    """The runs of every budget under which all policies have a plan."""
    compared = {role: policy for role, policy in policies.items() if role not in {"hindsight", "full"}}
    kept: list[float] = []
    runs: dict[Role, list[PolicyRun]] = {role: [] for role in compared}
    for cap in caps:
        found = {role: policy.run(Objective(maximize="accuracy", max_cost_usd=cap)) for role, policy in compared.items()}
        if any(run is None for run in found.values()):
            continue
        kept.append(cap)
        for role, run in found.items():
            assert run is not None
            runs[role].append(run)
    return BudgetSweep(caps=tuple(kept), runs={role: tuple(found) for role, found in runs.items()}, models=models)
