"""Table 3: the time of one replanning step, beside the mean latency of the fastest model's first call."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from planner_tries import objectives
from reproduce_parts.tables import Case

from vinelm.controller import Planner
from vinelm.trie.annotated_trie import AnnotatedTrie

KIND = "max A | T"
"""Highest accuracy under a cap on seconds, with a load on every engine: what the paper replans."""


def table_3(cases: Sequence[Case], count: int = 200, stage_us: float | None = None) -> dict[str, Any]:
    """Case to microseconds and shares, of cases with seconds. ``stage_us``: what LangGraph and VineLM add per stage besides."""
    return {case.name: _case(case, count) | {"stage_overhead_us": stage_us} for case in cases if case.has_seconds}


def _case(case: Case, count: int) -> dict[str, Any]:
    annotated = case.table.annotate()
    steps_us = np.array(step_times(annotated, count))
    fastest_s = float(annotated.latency_s[annotated.trie.levels[1]].min())
    return {
        "paths": annotated.trie.n_nodes,
        "steps": len(steps_us),
        "mean_us": float(steps_us.mean()),
        "median_us": float(np.median(steps_us)),
        "p99_us": float(np.quantile(steps_us, 0.99)),
        "fastest_call_s": fastest_s,
        "overhead": float(steps_us.mean()) / 1e6 / fastest_s,
    }


def step_times(annotated: AnnotatedTrie, count: int, seed: int = 0) -> list[float]:
    """Microseconds of processor time of every step of so many requests, each with a cap of its own.

    A request follows its plan; its calls take what the annotation says times log-normal noise, so that each step is planned
    anew. What a planner computes once per kind of objective is done before.
    """
    rng = np.random.default_rng(seed)
    planner = Planner(annotated)
    asked = objectives(annotated, KIND, count, rng)
    planner.prepare(asked[0])
    engines = [model.engine for model in annotated.catalog.models]
    found = []
    for objective in asked:
        cap = float(objective.max_latency_s or 0.0) * float(rng.uniform(0.999, 1.0))  # never asked before
        load = {engine: float(seconds) for engine, seconds in zip(engines, rng.exponential(0.1, len(engines)), strict=True)}
        node, elapsed = 0, 0.0
        while True:
            fresh = type(objective)(maximize="accuracy", max_latency_s=cap)
            before = time.thread_time_ns()
            decision = planner.plan(fresh, node=node, elapsed_s=elapsed, load=load)
            found.append((time.thread_time_ns() - before) / 1000)
            if decision.next_model is None:
                break
            node = annotated.trie.child(node, decision.next_model)
            elapsed += float(annotated.latency_s[node]) * float(rng.lognormal(-0.03, 0.25))
    return found
