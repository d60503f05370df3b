"""What `bench_slo.py` compares with besides the paper's policies: static plans under load, reactive rules, a sparse profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from bench_estimator import buy
from science.recorded_table import RecordedTable
from science.replay import ReplayResult
from science.simulator import Hedged, ModelChooser, SimulationSettings, simulate, static_chooser

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


MARGIN = 1.5
"""A call fits if its expected seconds times this are left."""
HEDGE_AFTER = 1.5
"""A call is hedged after its expected seconds times this."""


def expected_s(planner: Planner, node: int, load: Mapping[str, float]) -> float:
    """Expected seconds of the call of a node on its engine as it is loaded now."""
    annotated = planner.annotated
    engine = annotated.catalog[planner.trie.models[int(planner.trie.model[node])]].engine
    return float(annotated.latency_s[node]) + load.get(engine, 0.0)


def greedy_chooser(planner: Planner, slo_s: float) -> ModelChooser:
    """Return the reactive rule: of the models whose expected seconds times 1.5 fit now, the most accurate; else it ends.

    A first call is always made: of the fastest model where none fits.
    """
    trie, accuracy = planner.trie, planner.annotated.accuracy

    def choose(node: int, elapsed_s: float, spent_usd: float, load: Mapping[str, float]) -> str | None:
        children = [int(child) for child in trie.children(node)]
        seconds = {child: expected_s(planner, child, load) for child in children}
        fits = [child for child in children if MARGIN * seconds[child] <= slo_s - elapsed_s]
        if not fits and (node or not children):
            return None
        best = max(fits, key=lambda child: float(accuracy[child])) if fits else min(children, key=seconds.__getitem__)
        return str(trie.models[int(trie.model[best])])

    return choose


def guarded_chooser(path: Sequence[str], planner: Planner, slo_s: float) -> ModelChooser:
    """Return a static plan that makes no further call whose expected seconds times 1.5 do not fit now."""
    follow, trie = static_chooser(path, planner), planner.trie

    def choose(node: int, elapsed_s: float, spent_usd: float, load: Mapping[str, float]) -> str | None:
        model = follow(node, elapsed_s, spent_usd, load)
        if model is None or not node:
            return model
        fits = MARGIN * expected_s(planner, trie.child(node, str(model)), load) <= slo_s - elapsed_s
        return model if fits else None

    return choose


def hedged_chooser(path: Sequence[str], planner: Planner) -> ModelChooser:
    """Return a static plan whose late calls are made again, of the fastest other model; the first answer is taken.

    Where the other model answered first, the plan goes on as if its own model had.
    """
    trie, models = planner.trie, planner.trie.models

    def choose(node: int, elapsed_s: float, spent_usd: float, load: Mapping[str, float]) -> Hedged | None:
        depth = int(trie.depth[node])
        if depth == len(path):
            return None
        own = trie.child(node, path[depth])
        others = [int(child) for child in trie.children(node) if int(child) != own]
        fastest = min(others, key=lambda child: expected_s(planner, child, load))
        return Hedged(path[depth], models[int(trie.model[fastest])], HEDGE_AFTER * expected_s(planner, own, {}))

    return choose


def sparse_annotation(training: RecordedTable, seed: int) -> AnnotatedTrie:
    """Return the default estimator's trie from 2 % of the dollars of up to 500 training requests, by cascade sampling."""
    rng = np.random.default_rng([seed, 19])
    size = min(SPARSE_REQUESTS, len(training.request_ids))
    table = training.rows(rng.choice(len(training.request_ids), size, replace=False))
    cells = table.cells(buy(table, "cascade", SPARSE_COVERAGE, seed))
    estimator = make_estimator("latent")
    assert isinstance(estimator, RateEstimator)
    return estimator.fit_cells(cells, table.template, table.catalog).annotated_
