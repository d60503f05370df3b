"""Figure 7: accuracy of VineLM's plans less that of the best workflow-level plan, over cost caps.

The workflow-level plan (one model per stage and a maximum depth, the space of Murakkab) is planned over a complete annotation,
as in the paper. What is compared with it:

- ``full``: VineLM over the same complete annotation, judged on the same requests under the same cap. This is the figure of the
  paper. Its plans are a superset, so that it cannot be below zero.
- ``full, held out``: both planned over the complete annotation of one half, judged on the other half at equal dollars.
- ``sparse, latent`` and ``sparse, cascade-svd``: VineLM over rows of 2 % of the dollars, judged by the complete table at equal
  dollars: a plan that is dearer than it was thought to be gains nothing by that.

At equal dollars means that each method's two plans whose true spends bracket the cap are mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from reproduce_parts.estimation import Fits
from science.mixtures import mixture_at
from science.recorded_table import RecordedTable

from vinelm.controller import Planner
from vinelm.evaluation.plans.path_plans import workflow_level_nodes
from vinelm.objective import Objective
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray, FloatArray

CAPS, BUDGETS = 20, 40
SPARSE = ("latent", "cascade-svd")
FULL, HELD_OUT = "full", "full, held out"


def figure_7(fits: Sequence[Fits], seeds: Sequence[int]) -> dict[str, Any]:
    """Case to the caps, the workflow-level plan's accuracy, and the gain of each line at each cap; means over seeds."""
    return {one.case.name: _case(one, seeds) for one in fits}


def _case(fits: Fits, seeds: Sequence[int]) -> dict[str, Any]:
    table = fits.case.table
    truth = table.annotate()
    caps, budgets = _range(truth, CAPS), _range(truth, BUDGETS)
    static = [truth.accuracy[node] for node in planned(truth, caps, workflow_level_nodes(truth))]
    full = [truth.accuracy[node] for node in planned(truth, caps)]
    base = at_spends(truth, planned(truth, budgets, workflow_level_nodes(truth)), caps)
    lines = {FULL: np.array(full) - static, HELD_OUT: _held_out(table, seeds, caps)}
    for name in SPARSE:
        nodes = [planned(fitted, budgets) for fitted in fits.at_2_percent[name]]
        lines[f"sparse, {name}"] = np.mean([at_spends(truth, one, caps) - base for one in nodes], axis=0)
    return {
        "caps_usd": caps.tolist(),
        "workflow_level_plans": int(workflow_level_nodes(truth).sum()),
        "paths": truth.trie.n_nodes,
        "static_accuracy": [float(value) for value in static],
        "second_answer": second_answers(table),
        "gain": {name: values.tolist() for name, values in lines.items()},
        "summary": {name: {"mean": float(values.mean()), "highest": float(values.max())} for name, values in lines.items()},
    }


def second_answers(table: RecordedTable) -> dict[str, float]:
    """P(the second answer is right | the first is not), mean over models or pairs: of the same model, and of another one.

    Why mixing models in a loop pays.
    """
    trie, truth = table.trie, table.annotate()
    found: dict[bool, list[float]] = {True: [], False: []}
    for node in trie.levels[2].tolist():
        if table.reached[:, node].any():
            found[bool(trie.model[node] == trie.model[trie.parent[node]])].append(float(truth.success[node]))
    return {"same_model": float(np.mean(found[True])), "another_model": float(np.mean(found[False]))}


def _held_out(table: RecordedTable, seeds: Sequence[int], caps: FloatArray) -> FloatArray:
    """The mean gain over random halves."""
    found = []
    for seed in seeds:
        order = np.random.default_rng([seed, 23]).permutation(len(table.request_ids))
        half = len(order) // 2
        training, kept = (table.rows(part.tolist()).annotate() for part in (order[:half], order[half:]))
        budgets = _range(training, BUDGETS)
        ours, static = planned(training, budgets), planned(training, budgets, workflow_level_nodes(training))
        found.append(at_spends(kept, ours, caps) - at_spends(kept, static, caps))
    return np.asarray(np.mean(found, axis=0))


def _range(truth: AnnotatedTrie, count: int) -> FloatArray:
    """Dollars from the cheapest answer to the most accurate path, evenly in the logarithm."""
    usd = truth.path_cost_usd[truth.trie.answerable]
    best = int(truth.accuracy.argmax())
    return np.asarray(np.geomspace(usd.min() * (1 + 1e-9), max(float(truth.path_cost_usd[best]), float(usd.min()) * 2), count))


def planned(annotated: AnnotatedTrie, budgets: FloatArray, candidates: BoolArray | None = None) -> list[int]:
    """The node that the planner chooses under each budget; the nearest one where none fits."""
    planner = Planner(annotated)
    asked: Callable[[float], Objective] = lambda usd: Objective(maximize="accuracy", max_cost_usd=usd)  # noqa: E731
    return [planner.plan(asked(float(usd)), candidates=candidates).target for usd in budgets]


def at_spends(truth: AnnotatedTrie, nodes: Sequence[int], caps: FloatArray) -> FloatArray:
    """True accuracy of the plans, mixed to spend each cap."""
    distinct = list(dict.fromkeys(nodes))
    spends, accuracy = truth.path_cost_usd[distinct].tolist(), truth.accuracy[distinct]
    return np.array([float(mixture_at(spends, float(cap)).of(accuracy)) for cap in caps])
