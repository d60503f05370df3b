"""Builds hypotheses about served results from a node's annotations; e-processes test these hypotheses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import sqrt
from statistics import NormalDist

import numpy as np

from vinelm.estimator.drift.e_process import Bets, EProcess, MeanAbove, MeanBelow, ShareAbove, ShareBelow
from vinelm.estimator.drift.report import Direction
from vinelm.rows.observation import Observation
from vinelm.trie.annotated_trie import AnnotatedTrie

BORROWED_ROWS = 8
"""The fewest results that a node's annotation counts as, because estimators also use other nodes of its stage and model."""
VARIANCE_SLACK = 2.0
"""The factor by which the true variance may exceed the annotated one, when a mean is tested for a fall."""


@dataclass(frozen=True)
class Hypothesis:
    """The hypothesis that a quantity has not moved in a given direction.

    Attributes:
        quantity: the quantity's name: ``"stop"``, ``"dollars"``, ``"seconds"``, or ``"signal LABEL"`` for the share of a label.
        direction: ``"up"`` or ``"down"``.
        annotated: the trie's value of the quantity, given that the request reaches the node.
        value: returns the quantity of a result; None if the result has none.
        process: the bets against the hypothesis.
    """

    quantity: str
    direction: Direction
    annotated: float
    value: Callable[[Observation], float | None]
    process: EProcess


def hypotheses_of(
    annotated: AnnotatedTrie, node: int, *, alpha: float, points: float, relative: float
) -> tuple[Hypothesis, ...]:
    """Return the hypotheses about a node's stop rate, shares of labels, mean cost and mean latency.

    Args:
        annotated: the trie.
        node: the index of the node; not the root.
        alpha: the hypotheses also allow for errors of the node's annotations, which are estimates. This is the probability that
            any of these errors is larger than allowed for.
        points: how far a share may be from its annotation before it counts as moved, in [0, 1).
        relative: how far mean cost and mean latency may be from their annotations before they count as moved, as a fraction.
    """
    count = BORROWED_ROWS if annotated.count is None else max(int(annotated.count[node]), BORROWED_ROWS)
    labels = label_shares(annotated, node)
    amounts = {
        name: (float(mean[node]), float(var[node]))
        for name, mean, var in (
            ("dollars", annotated.cost_usd, annotated.cost_var),
            ("seconds", annotated.latency_s, annotated.latency_var),
        )
        if mean[node] > 0.0
    }
    # An annotation is an estimate and may be wrong from the start. The claim allows for that error too, divided over all claims
    # and both directions, so that noise in the profile is not reported as drift.
    z = NormalDist().inv_cdf(1.0 - alpha / (2 * (1 + len(labels) + len(amounts))))
    shares = {"stop": (float(annotated.stop[node]), stop_of)}
    shares |= {f"signal {label}": (share, partial(shows, label)) for label, share in labels.items()}
    found: list[Hypothesis] = []
    for name, (share, value) in shares.items():
        smoothed = (share * count + 2.0) / (count + 4.0)  # otherwise a share of 0 or 1 would have no error at all
        margin = max(points, z * sqrt(smoothed * (1.0 - smoothed) / count))
        if share + margin < 1.0:
            found.append(_claim(name, "up", share, value, ShareAbove(share + margin)))
        if share - margin > 0.0:
            found.append(_claim(name, "down", share, value, ShareBelow(share - margin)))
    for name, (mean, var) in amounts.items():
        value = dollars_of if name == "dollars" else seconds_of
        margin = max(relative * mean, z * sqrt(var / count))
        found.append(_claim(name, "up", mean, value, MeanAbove(mean + margin)))
        if margin < mean:
            below = MeanBelow(mean - margin, VARIANCE_SLACK * var + (2.0 * margin) ** 2)
            found.append(_claim(name, "down", mean, value, below))
    return tuple(found)


def label_shares(annotated: AnnotatedTrie, node: int) -> dict[str, float]:
    """Return the share of requests that give each signal after the call of ``node``, keyed by the signal.

    Empty if the trie has no signals or the node is not a first call.
    """
    told, trie = annotated.tries[-1], annotated.trie
    if int(trie.depth[node]) != 1:
        return {}
    path, outcomes = trie.prefix(node), told.outcomes
    try:
        own = told.trie.child(0, path[0], trie.stages[trie.stage[node]])
    except KeyError:
        return {}
    here = np.flatnonzero(outcomes.node == own)
    found: dict[str, float] = {}
    for place in here:
        signal = outcomes.labels[int(outcomes.label[place])].signal
        if signal is not None:
            found[signal] = found.get(signal, 0.0) + float(outcomes.chance[place])
    return {label: min(share, 1.0) for label, share in found.items()}


def stop_of(row: Observation) -> float | None:
    """Return 1 if the request ended here by the workflow's check or a failure, 0 if it continued; None if unknown."""
    if row.failure is not None:
        return 1.0
    return None if row.stopped is None else float(row.stopped)


def shows(label: str, row: Observation) -> float | None:
    """Return 1 if the signal of the result ``row`` is ``label``, 0 if it is another; None if it has no signal."""
    return None if row.signal is None else float(row.signal == label)


def dollars_of(row: Observation) -> float:
    """Return the cost in dollars of the call and the tools after it; a cached answer counts at its original cost."""
    return row.asked_usd


def seconds_of(row: Observation) -> float | None:
    """Return the latency in seconds of the call and the tools after it; None if unknown."""
    return row.latency_s + row.tool_latency_s if row.is_timed else None


def _claim(
    quantity: str, direction: Direction, annotated: float, value: Callable[[Observation], float | None], bets: Bets
) -> Hypothesis:
    return Hypothesis(quantity, direction, annotated, value, EProcess(bets))
