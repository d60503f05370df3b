"""Policies replayed on a complete table of held-out outcomes: whole frontiers in a second, nothing called."""

from __future__ import annotations

from collections.abc import Callable

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.evaluation.policy_plans import NAMES, Plans, path_text
from vinelm.evaluation.policy_run import PolicyRun, resample_weights
from vinelm.evaluation.replay import Replayed, follow, oracle, replay
from vinelm.evaluation.sweep import Contestant, Frontier, cap_grid, point_of, sweep
from vinelm.evaluation.verdict import Contest
from vinelm.objective import Objective
from vinelm.recorded_table import OutcomeTable
from vinelm.reports.document import Role

HINDSIGHT = "oracle (best path of each request)"


def run_of(replayed: Replayed, policy: str, plan: str, expected_accuracy: float | None = None) -> PolicyRun:
    """A replay as a run."""
    return PolicyRun(
        policy=policy,
        plan=plan,
        success=replayed.success,
        cost_usd=replayed.cost_usd,
        latency_s=replayed.latency_s,
        expected_accuracy=expected_accuracy,
    )


def replayed_run(plans: Plans, table: OutcomeTable, objective: Objective, role: Role, name: str) -> PolicyRun | None:
    """The policy of that role on the table; None where it has no plan that meets the bounds. VineLM replans on the way."""
    node = plans.node(objective, role)
    if node is None:
        return None
    found = replay(table, plans.planner, objective) if role == "vinelm" else follow(table, node)
    return run_of(found, name, path_text(plans.trie, node), float(plans.annotated.accuracy[node]))


def replayed_contest(plans: Plans, table: OutcomeTable, objective: Objective) -> Contest | None:
    """One objective on the table; None where some policy has no feasible plan."""
    runs = {role: replayed_run(plans, table, objective, role, NAMES[role]) for role in ("vinelm", "static", "single")}
    node = plans.node(objective, "single")
    vinelm, static, single = runs["vinelm"], runs["static"], runs["single"]
    if vinelm is None or static is None or single is None or node is None:
        return None
    others = tuple(
        run_of(follow(table, at), model, path_text(plans.trie, at), float(plans.annotated.accuracy[at]))
        for model, at in plans.throughout()
    )
    return Contest(objective=objective, vinelm=vinelm, static=static, single=single, model=plans.model_at(node), others=others)


def frontiers_on(
    table: OutcomeTable, annotated: AnnotatedTrie, full: AnnotatedTrie | None, *, seed: int
) -> tuple[tuple[Frontier, ...], tuple[Frontier, ...]]:
    """(accuracy–cost, accuracy–latency) on the table: plans from ``annotated``, apart from it from ``full``, and the oracle."""
    plans = Plans(annotated)
    contestants = [_contestant(plans, table, role, NAMES[role], role) for role in ("vinelm", "static", "single")]
    if full is not None:
        contestants.insert(1, _contestant(Plans(full), table, "vinelm", "VineLM, fully profiled", "full"))
    ceiling = Contestant(
        HINDSIGHT, "hindsight", lambda objective: run_of(oracle(table, objective), HINDSIGHT, "differs by request")
    )
    contestants.append(ceiling)
    cost = sweep(contestants, "max_cost_usd", cap_grid(annotated, "max_cost_usd"), seed=seed)
    latency = sweep(contestants, "max_latency_s", cap_grid(annotated, "max_latency_s"), seed=seed)
    return (*cost, _every_model(plans, table, seed)), tuple(latency)


def _contestant(plans: Plans, table: OutcomeTable, role: Role, name: str, shown_as: Role) -> Contestant:
    run: Callable[[Objective], PolicyRun | None] = lambda objective: replayed_run(plans, table, objective, role, name)  # noqa: E731
    return Contestant(name, shown_as, run)


def _every_model(plans: Plans, table: OutcomeTable, seed: int) -> Frontier:
    """Each model throughout, without any cap: one point per model."""
    objective = Objective(maximize="accuracy")
    weights = resample_weights(len(table.request_ids), seed)
    runs = [run_of(follow(table, node), model, path_text(plans.trie, node)) for model, node in plans.throughout()]
    points = tuple(point_of(run, objective, weights, float("inf")) for run in runs)
    return Frontier("each model alone", "model", points)
