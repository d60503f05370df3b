"""Checks the planner against its specification: random questions on random irregular, non-monotone tries, with ties.

On tries that branch, plans are compared with all contingent plans: with bounds for each request and load, at every tested price
of accuracy, and, with bounds on averages, with the best of all corners of the hull and all fixed plans. Where histories are
merged, plans without bounds are exact; with bounds the gap to the best plan of all is measured.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import attack_paths  # noqa: F401 - first: where the oracles are
from kit.oracles.brute_force import brute_force
from kit.oracles.contingent_checks import check_averages, check_prices, check_request_bounds, small_branching
from kit.oracles.merged_checks import check_merged
from kit.oracles.mixtures_of_plans import check_mixtures
from kit.oracles.random_cases import grid_annotated, random_annotated, random_question
from studies import Options, named, study

from vinelm.controller import Planner
from vinelm.controller.planning import frontier
from vinelm.controller.planning.metric import Metric
from vinelm.controller.planning.plan_request import PlanRequest, load_array
from vinelm.controller.planning.subtree import SubtreeView
from vinelm.errors import InfeasibleError


def main() -> int:
    options = {
        "--queries": (20_000, ""),
        "--large": (20_000, "questions on tries of 340 to 5,460 paths, against a full scan"),
        "--branching": (10_000, "random tries that branch"),
        "--merged": (2_000, "random tries that merge histories"),
        "--mixtures": (300, "random tries of each kind whose plans are mixed"),
        "--per-trie": (25, ""),
        "--seed": (20261121, ""),
    }
    return study(__doc__, options, measured, named, fails=lambda found: found["mismatches"])


def measured(options: Options) -> dict[str, Any]:
    started = time.perf_counter()
    mismatches, feasible, ties, looked_up, nodes = [], 0, 0, 0, 0
    for done in range(0, options.queries, options.per_trie):
        rng = random.Random(f"{options.seed}:{done}")
        annotated = random_annotated(rng, max_models=rng.choice((2, 3, 3, 4, 5)), max_depth=rng.choice((1, 2, 3, 3, 4)))
        planner = Planner(annotated)
        nodes += annotated.trie.n_nodes
        for _ in range(options.per_trie):
            objective, asked = random_question(rng, annotated)
            expected = brute_force(annotated, objective, **asked)
            found = answer(planner, objective, asked)
            feasible += expected is not None and expected[1]
            if expected is not None:
                ties += is_tied(planner, objective, asked, expected[0])
                looked_up += "candidates" not in asked and expected[1]
            if found != expected:
                mismatches.append(f"{objective}, {asked}: expected {expected}, found {found}")
    result = {
        "queries": options.queries,
        "feasible": feasible,
        "tied": ties,
        "from_frontiers_at_most": looked_up,
        "large_queries": check_large(options.large, options.seed, mismatches),
        "mean_nodes": nodes / (options.queries / options.per_trie),
        **check_branching(options.branching, options.seed, mismatches),
        **check_merged(options.merged, options.seed, mismatches),
        **check_mixtures(options.mixtures, options.seed, mismatches),
        "mismatches": len(mismatches),
        "seconds": round(time.perf_counter() - started, 1),
    }
    for line in mismatches[:10]:
        print(line, file=sys.stderr)
    return result


def check_large(queries: int, seed: int, mismatches: list[str]) -> int:
    """Check plans from frontiers against scans of the whole subtree, which were checked against the specification on the
    small tries. Frontiers are built on demand or in advance, and scanned as a whole or through a block index, by turns.
    """
    shapes = ((4, 4), (8, 3), (4, 6), (3, 7))
    for number, shape in enumerate(shapes * 3):
        rng = random.Random(f"{seed}:large:{number}")
        annotated = grid_annotated(rng, *shape, n_engines=rng.choice((1, 3, 8)), steps=rng.choice((8, 16, 64)))
        planner = Planner(annotated)
        frontier.SCAN = rng.choice((16, 12_000))
        is_ahead = rng.random() < 0.5
        for _ in range(queries // (3 * len(shapes))):
            objective, asked = random_question(rng, annotated, has_errors=False)
            if is_ahead:
                planner.prepare(objective)
            depth = rng.choice((0, 0, 1, 2))
            asked["node"] = int(rng.choice(annotated.trie.levels[depth]))
            load = load_array(asked.get("load"), annotated.engines)
            question = PlanRequest(objective, asked["node"], asked["elapsed_s"], asked["spent_usd"], load,
                                   asked.get("candidates"), asked["may_stop"])  # fmt: skip
            view = SubtreeView(planner.metrics, question)
            choice = view.choose()
            expected = None if choice is None else (choice.target, not choice.relaxed)
            found = answer(planner, objective, asked)
            if found != expected:
                mismatches.append(f"large: {objective}, {asked}: expected {expected}, found {found}")
    return queries


def check_branching(tries: int, seed: int, mismatches: list[str]) -> dict[str, float]:
    """Check contingent plans on so many tries: two questions with bounds for each request, eight prices and one question with
    bounds on averages on each. The gap is what the best contingent plan of all has over the best corner or fixed plan.
    """
    at_prices, gaps, questions = 0, [], 0
    for number in range(tries):
        rng = random.Random(f"{seed}:branching:{number}")
        annotated = small_branching(rng)
        planner = Planner(annotated)
        for _ in range(2):
            questions += 1
            wrong = check_request_bounds(rng, annotated, planner)
            mismatches += [] if wrong is None else [f"branching {number}: {wrong}"]
        wrong_prices = check_prices(annotated)
        at_prices += len(wrong_prices)
        mismatches += [f"branching {number}: {wrong}" for wrong in wrong_prices]
        wrong, gap = check_averages(rng, annotated, planner)
        mismatches += [] if wrong is None else [f"branching {number}: {wrong}"]
        gaps.append(gap)
    return {
        "branching_tries": tries,
        "branching_queries": questions,
        "lambda_mismatches": at_prices,
        "population_queries": len(gaps),
        "population_gap_mean": sum(gaps) / max(len(gaps), 1),
        "population_gap_max": max(gaps, default=0.0),
    }


def answer(planner: Planner, objective, asked):
    try:
        decision = planner.plan(objective, **asked)
    except InfeasibleError:
        return None
    return decision.target, decision.is_feasible


def is_tied(planner: Planner, objective, asked, target: int) -> bool:
    """Whether another end of the same subtree is equally good by the objective's target."""
    annotated = planner.annotated
    values = {
        "accuracy": planner.metrics.mean(Metric.ACCURACY, objective.confidence),
        "cost": annotated.path_cost_usd,
        "latency": annotated.path_latency_s,
    }[objective.target]
    span = annotated.trie.subtree(asked["node"])
    return bool((annotated.trie.answerable[span] & (values[span] == values[target])).sum() > 1)


if __name__ == "__main__":
    sys.exit(main())
