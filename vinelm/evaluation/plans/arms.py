"""The application's choice after a stage, by the model that ran it: the probabilities of the arms, for tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vinelm.plans.promise import Z90
from vinelm.trie import Trie
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
    for node, arms in sorted(_arms(trie).items()):
        if node > 0 and len(arms) > 1:
            groups[trie.stages[trie.stage[node]], trie.models[trie.model[node]], tuple(arms)].append((node, arms))
    order = {stage: at for at, stage in enumerate(trie.stages)}
    ordered = sorted(groups, key=lambda key: (order[key[0]], -len(key[2]), trie.models.index(key[1])))
    return [_shares(annotated, key[0], key[1], groups[key]) for key in ordered]


def _arms(trie: Trie) -> dict[int, dict[str, int]]:
    """The first edge of each arm by its stage, of every node that is left."""
    found: dict[int, dict[str, int]] = defaultdict(dict)
    first = np.flatnonzero(trie.begins_arm)
    stages = trie.stage[trie.target[first]]
    for node, stage, edge in zip(trie.source[first].tolist(), stages.tolist(), first.tolist(), strict=True):
        found[node][trie.stages[stage]] = edge
    return found


def _shares(annotated: AnnotatedTrie, stage: str, model: str, found: Sequence[tuple[int, dict[str, int]]]) -> ArmShares:
    nodes, count = np.array([node for node, _ in found]), annotated.count
    where = {arm: np.array([arms[arm] for _, arms in found]) for arm in found[0][1]}
    weight = annotated.weight_of(nodes)

    def mean(values: FloatArray) -> float:
        return float(np.average(values, weights=weight))

    shares, errors = annotated.arms_by_edge[0], annotated.arm_se
    errors = None if errors is None else errors[annotated.trie.arm_items]
    return ArmShares(
        stage=stage,
        model=model,
        arms={arm: mean(shares[at]) for arm, at in where.items()},
        half_width90=None if errors is None else {arm: Z90 * mean(errors[at]) for arm, at in where.items()},
        ends=mean(annotated.stop[nodes]),
        observations=None if count is None else int(count[nodes].sum()),
    )
