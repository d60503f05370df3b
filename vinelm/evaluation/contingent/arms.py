"""What the application does after a stage, by the model that ran it: the probabilities of the arms, for tables."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.promise import Z90


@dataclass(frozen=True, slots=True)
class ArmShares:
    """What follows a stage that was run by one model, averaged over the histories before it.

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
    groups: dict[tuple[str, str, tuple[str, ...]], list[int]] = defaultdict(list)
    trie = annotated.trie
    for node in range(1, len(trie)):
        if trie.is_leaf[node] or annotated.arm is None:
            continue
        arms = tuple(trie.arms(node))
        if len(arms) > 1:
            groups[trie.stages[trie.stage[node]], trie.models[trie.model[node]], arms].append(node)
    order = {stage: at for at, stage in enumerate(trie.stages)}
    return [
        _shares(annotated, stage, model, arms, np.array(nodes))
        for (stage, model, arms), nodes in sorted(
            groups.items(), key=lambda item: (order[item[0][0]], -len(item[0][2]), trie.models.index(item[0][1]))
        )
    ]


def _shares(annotated: AnnotatedTrie, stage: str, model: str, arms: tuple[str, ...], nodes: np.ndarray) -> ArmShares:  # type: ignore[type-arg]
    trie, count = annotated.trie, annotated.count
    first = {arm: np.array([trie.arms(int(node))[arm][0] for node in nodes]) for arm in arms}
    weight = annotated.reach[nodes] if count is None or not count[nodes].any() else count[nodes].astype(float)
    if not weight.any():
        weight = np.ones(len(nodes))

    def mean(values: np.ndarray) -> float:  # type: ignore[type-arg]
        return float(np.average(values, weights=weight))

    assert annotated.arm is not None
    errors = annotated.arm_se
    return ArmShares(
        stage=stage,
        model=model,
        arms={arm: mean(annotated.arm[children]) for arm, children in first.items()},
        half_width90=None if errors is None else {arm: Z90 * mean(errors[children]) for arm, children in first.items()},
        ends=mean(annotated.stop[nodes]),
        observations=None if count is None else int(count[nodes].sum()),
    )
