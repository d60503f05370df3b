"""The application's choice after a stage, by the model that ran it: the probabilities of the arms, for tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinelm.plans.promise import Z90
from vinelm.trie import MergedTrie, Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray


@dataclass(frozen=True, slots=True)
class ArmShares:
    """The arms after a stage that was run by one model, averaged over the histories before it.

    Attributes:
        stage: The stage.
        model: The model that ran it.
        arms: P(the stage of this name comes next), in template order.
        half_width90: Half of the 90 % interval of each; None where the estimator gives no standard errors.
        ends: P(the request ends there by the workflow's own check, or fails).
        observations: How many rows the shares rest on; None if the trie does not say.
    """

    stage: str
    model: str
    arms: dict[str, float]
    half_width90: dict[str, float] | None
    ends: float
    observations: int | None


def arm_shares(annotated: AnnotatedTrie) -> list[ArmShares]:
    """Return the shares of every stage behind which the application chooses between several arms, in template order.

    Histories are weighted by their observations (by their reach where there is none). The half widths are averaged in the same
    way, as if all histories erred alike: they do not shrink with the number of histories.
    """
    groups: dict[tuple[str, str, tuple[str, ...]], list[tuple[int, dict[str, int]]]] = defaultdict(list)
    trie = annotated.trie
    if annotated.arm is None:
        return []
    for node in range(1, len(trie)):
        arms = _arms(trie, node)
        if len(arms) > 1:
            groups[trie.stages[trie.stage[node]], trie.models[trie.model[node]], tuple(arms)].append((node, arms))
    order = {stage: at for at, stage in enumerate(trie.stages)}
    ordered = sorted(groups, key=lambda key: (order[key[0]], -len(key[2]), trie.models.index(key[1])))
    return [_shares(annotated, key[0], key[1], groups[key]) for key in ordered]


def _arms(trie: Trie, node: int) -> dict[str, int]:
    """Where the annotations of a node's arms stand: at the arm's first child, or at its first edge where histories merge."""
    if not isinstance(trie, MergedTrie):
        return {stage: children[0] for stage, children in trie.arms(node).items()}
    low, high = np.searchsorted(trie.source, (node, node + 1))
    found: dict[str, int] = {}
    for edge in range(int(low), int(high)):
        found.setdefault(trie.stages[trie.stage[trie.target[edge]]], edge)
    return found


def _shares(annotated: AnnotatedTrie, stage: str, model: str, found: Sequence[tuple[int, dict[str, int]]]) -> ArmShares:
    nodes, count = np.array([node for node, _ in found]), annotated.count
    where = {arm: np.array([arms[arm] for _, arms in found]) for arm in found[0][1]}
    if count is not None and count[nodes].any():
        weight = count[nodes].astype(float)
    else:
        weight = np.ones(len(nodes)) if annotated.trie.is_merged else np.maximum(annotated.reach[nodes], 1e-12)

    def mean(values: FloatArray) -> float:
        return float(np.average(values, weights=weight))

    assert annotated.arm is not None
    shares, errors = annotated.arm, annotated.arm_se
    return ArmShares(
        stage=stage,
        model=model,
        arms={arm: mean(shares[at]) for arm, at in where.items()},
        half_width90=None if errors is None else {arm: Z90 * mean(errors[at]) for arm, at in where.items()},
        ends=mean(annotated.stop[nodes]),
        observations=None if count is None else int(count[nodes].sum()),
    )
