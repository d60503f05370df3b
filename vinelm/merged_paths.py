"""Fixed plans over a merged trie: a model per stage, followed by its own requests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.errors import VineLMError
from vinelm.promise import share_variance
from vinelm.trie import MergedTrie
from vinelm.trie.arrays import FloatArray


class StageRun(NamedTuple):
    """What running a model per stage for so many invocations gives.

    Attributes:
        turns: Invocations after which the request ends, if its own check has not ended it before.
        may_end: Whether every request that gets there may end.
        accuracy: Expected accuracy.
        cost_usd: Expected dollars, those before the first invocation not counted.
        latency_s: Seconds of the longest history.
        standard_error: Of the accuracy (:func:`merged_standard_error`); NaN without errors in the trie.
    """

    turns: int
    may_end: bool
    accuracy: float
    cost_usd: float
    latency_s: float
    standard_error: float


def stage_runs(annotated: AnnotatedTrie, models: Sequence[str]) -> Iterator[StageRun]:
    """Follow a model per stage down a merged trie, and return what ending after each invocation gives.

    Args:
        annotated: An annotated merged trie; with rates by difficulty the plan's own requests are followed, else those of the
            profile.
        models: The model of each stage, in the order of ``annotated.trie.stages``.
    """
    trie, known = annotated.trie, annotated.difficulty
    if not isinstance(trie, MergedTrie):
        raise VineLMError("this trie merges no histories: its nodes are plans")
    start = np.ones(1) if known is None else known.weight
    going = _going(annotated)
    here, latest = {0: start}, {0: 0.0}
    stopped = cost = 0.0
    seen: list[tuple[int, float, float, float]] = []  # node, its reach, correct answers so far, reach of its depth
    for depth in range(1, trie.max_depth + 1):
        here, latest = _next(annotated, models, going, here, latest)
        if not here:
            return
        right = sum(_mean(annotated, "success", node, mass) for node, mass in here.items())
        cost += sum(float(mass.sum()) * float(annotated.cost_usd[node]) for node, mass in here.items())
        accuracy = stopped + right
        stopped += sum(_mean(annotated, "stop_success", node, mass) for node, mass in here.items())
        reached = sum(float(mass.sum()) for mass in here.values())
        before = [(node, reach, (accuracy - ended) / max(level, 1e-300)) for node, reach, ended, level in seen]
        own = [(node, float(mass.sum()), 0.0) for node, mass in here.items()]
        error = merged_standard_error(annotated, np.array([*before, *own]), accuracy)
        may_end = all(bool(trie.answerable[node]) for node in here)
        yield StageRun(depth, may_end, accuracy, cost, max(latest.values()), float("nan") if error is None else error)
        seen += [(node, float(mass.sum()), stopped, reached) for node, mass in here.items()]


def merged_standard_error(annotated: AnnotatedTrie, visited: FloatArray, accuracy: float) -> float | None:
    """Return an upper bound on the standard error of a plan's accuracy; None without errors in the trie.

    The sampling of the requests acts on the plan as on one share, p (1 - p) / n. The rest of a node's error moves the plan by
    the chance of reaching the node times that of no correct answer later. It comes from the effects of its stage and model,
    which nodes of the same stage and model share: these add up as standard deviations, those of different ones as variances.

    Args:
        annotated: An annotated merged trie; ``meta["requests"]`` is the number of requests that it was estimated from.
        visited: Rows of (node, P(it is reached), P(a correct answer later | it is reached)).
        accuracy: The plan's accuracy.
    """
    errors, requests = annotated.accuracy_se, annotated.meta.get("requests")
    if errors is None:
        return None
    node = visited[:, 0].astype(np.int64)
    own, sampling = errors[node] ** 2, 0.0
    if requests:
        own = np.maximum(own - share_variance(annotated.success[node], requests), 0.0)
        sampling = float(share_variance(np.array(accuracy), requests))
    moved = visited[:, 1] * np.sqrt(own) * np.clip(1.0 - visited[:, 2], 0.0, 1.0)
    kind = annotated.trie.stage[node].astype(np.int64) * len(annotated.trie.models) + annotated.trie.model[node]
    together = np.bincount(np.maximum(kind, 0), moved)
    return math.sqrt(float(together @ together) + sampling)


def _next(
    annotated: AnnotatedTrie, models: Sequence[str], going: FloatArray, here: dict[int, FloatArray], latest: dict[int, float]
) -> tuple[dict[int, FloatArray], dict[int, float]]:
    """The masses one level down, and the seconds of the longest history to each node."""
    trie = annotated.trie
    assert isinstance(trie, MergedTrie)
    below: dict[int, FloatArray] = {}
    until: dict[int, float] = {}
    for node, mass in here.items():
        for stage, children in trie.arms(node).items():
            wanted = trie.models.index(models[trie.stages.index(stage)])
            for edge in range(int(trie.first_edge[node]), int(trie.first_edge[node + 1])):
                target = int(trie.target[edge])
                if target in children and trie.model[target] == wanted:
                    arm = int(trie.edge_arm[edge])
                    below[target] = below.get(target, 0.0) + mass * going[arm]
                    until[target] = max(until.get(target, 0.0), latest[node] + float(annotated.latency_s[target]))
    return below, until


def _going(annotated: AnnotatedTrie) -> FloatArray:
    """P(each arm comes next | its source is reached), with one column per difficulty, or one."""
    trie, known = annotated.trie, annotated.difficulty
    assert isinstance(trie, MergedTrie)
    is_first = np.diff(trie.edge_arm, prepend=-1) != 0
    source = trie.source[is_first]
    if known is not None:
        return known.arm if known.arm is not None else 1.0 - known.stop[source]
    going = 1.0 - annotated.stop[source] if annotated.arm is None else annotated.arm[is_first]
    return np.asarray(going[:, None])


def _mean(annotated: AnnotatedTrie, name: str, node: int, mass: FloatArray) -> float:
    values = getattr(annotated if annotated.difficulty is None else annotated.difficulty, name)[node]
    return float((mass * values).sum())
