"""What `bench_slo.py` compares with besides the paper's policies: the best static plan under load, and a sparse profile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from bench_estimator import buy
from science.recorded_table import RecordedTable
from science.replay import ReplayResult
from science.simulator import SimulationSettings, simulate, static_chooser

from vinelm.controller import Planner
from vinelm.controller.planning.metric import LATE_WEIGHT
from vinelm.estimator import RateEstimator, make_estimator
from vinelm.evaluation.plans.path_plans import workflow_level_nodes
from vinelm.trie.annotated_trie import AnnotatedTrie

TRIALS = 3
"""Simulations of each plan before one is chosen, each with arrivals and background traffic of its own."""
OTHER_SEEDS = 1_000
"""Added to the seed of the requests that are served: no trial sees their arrivals or their background traffic."""
SPARSE_REQUESTS, SPARSE_COVERAGE = 500, 0.02


@dataclass(frozen=True)
class PlansUnderLoad:
    """Every plan with one model per stage, tried on training requests under the load that requests will be served under.

    Args:
        planner: of the complete annotation; its trie has the plans.
        training: requests that are not served.
        count: requests of a trial, as many as are served.
        times: arrival times of a trial, by its seed.
        settings: engines, curves and background traffic of a trial, by its seed.
        seed: of the requests that are served.
    """

    planner: Planner
    training: RecordedTable
    count: int
    times: Callable[[int], np.ndarray]
    settings: Callable[[int], SimulationSettings]
    seed: int

    def best(self, slo_s: float, late_weight: float | None) -> tuple[str, ...]:
        """Return the plan with the highest value of the stochastic program: P(right in time) - weight x P(late)."""
        weight = LATE_WEIGHT if late_weight is None else late_weight

        def value(found: ReplayResult) -> float:
            in_time = found.latency_s <= slo_s
            return float((found.success * in_time).mean() - weight * (~in_time).mean())

        means = {path: np.mean([value(found) for found in trials]) for path, trials in self.tried.items()}
        return max(means, key=means.__getitem__)

    @cached_property
    def tried(self) -> dict[tuple[str, ...], Sequence[ReplayResult]]:
        """What each plan did in each trial. The trials are the same for all plans."""
        trie = self.planner.trie
        paths = [trie.prefix(int(node)) for node in np.flatnonzero(workflow_level_nodes(self.planner.annotated))]
        found: dict[tuple[str, ...], list[ReplayResult]] = {path: [] for path in paths}
        for trial in range(TRIALS):
            seed = OTHER_SEEDS + TRIALS * self.seed + trial
            rng = np.random.default_rng([seed, 17])
            table = self.training.rows(rng.choice(len(self.training.request_ids), self.count, replace=self._repeats))
            times, settings = self.times(seed), self.settings(seed)
            for path in paths:
                found[path].append(simulate(table, times, static_chooser(path, self.planner), settings))
        return found

    @property
    def _repeats(self) -> bool:
        return self.count > len(self.training.request_ids)


def sparse_annotation(training: RecordedTable, seed: int) -> AnnotatedTrie:
    """Return the default estimator's trie from 2 % of the dollars of up to 500 training requests, by cascade sampling."""
    rng = np.random.default_rng([seed, 19])
    size = min(SPARSE_REQUESTS, len(training.request_ids))
    table = training.rows(rng.choice(len(training.request_ids), size, replace=False))
    cells = table.cells(buy(table, "cascade", SPARSE_COVERAGE, seed))
    estimator = make_estimator("latent")
    assert isinstance(estimator, RateEstimator)
    return estimator.fit_cells(cells, table.template, table.catalog).annotated_
