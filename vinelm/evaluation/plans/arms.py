"""Tables about a trie's branches: how often the application takes each, and a plan's behaviour per request type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from vinelm.controller.planning.contingent.decision import ContingentDecision
from vinelm.plans.plan import Plan
from vinelm.plans.promise import Z90
from vinelm.trie import Trie
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import FloatArray

LEAST_SHARE = 5e-4
"""Kinds with a smaller share of the requests are not shown."""


@dataclass(frozen=True, slots=True)
class ArmShares:
    """How often the application takes each branch after one model has run a stage, averaged over the histories before
    the stage.

    Attributes:
        stage: The stage after which the application chooses a branch.
        model: The model that ran the stage.
        arms: The probability that a stage comes next, keyed by that stage's name, in template order.
        half_width90: Half the width of each probability's 90 % interval, keyed like ``arms``; None if the estimator
            gives no standard errors.
        ends: The probability that no stage follows, because the workflow's own check ends the request or the call
            fails.
        observations: Number of rows that the shares were estimated from; None if the trie has no such number.
    """

    stage: str
    model: str
    arms: dict[str, float]
    half_width90: dict[str, float] | None
    ends: float
    observations: int | None


def arm_shares(annotated: AnnotatedTrie) -> list[ArmShares]:
    """Return how often each branch is taken, for each stage after which the application chooses a branch.

    The result has one item for each pair of such a stage and a model that ran it, in template order. Histories are
    weighted by their number of observations, or by their probability if the trie has no such numbers. The half widths
    of the 90 % intervals are averaged in the same way.
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
    """Return the branches after each node that has successors, as a dict of dicts.

    The outer keys are node indices, the inner keys the names of the stages that may come next. A value is the index of
    the first edge to that stage.
    """
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


@dataclass(frozen=True, slots=True)
class PlanOfKind:
    """The behaviour of a plan on requests of one type.

    Attributes:
        kind: The request type.
        share: The type's share of the requests, in [0, 1].
        accuracy: Expected accuracy, in [0, 1].
        cost_usd: Expected dollars per request.
        first: The share of the type's requests whose first call runs on a model, keyed by model, the most frequent
            model first.
    """

    kind: str
    share: float
    accuracy: float
    cost_usd: float
    first: dict[str, float]


def by_kind(decision: Any) -> list[PlanOfKind]:
    """Return the behaviour of a plan, or of a mixture of two, for each request type; empty without types.

    The types are in order of their share of the requests, largest first; types without requests are left out.
    """
    annotated = decision.annotated
    trie, stages = annotated.trie, annotated.stage_kinds
    if not any(stages):
        return []
    plans = [(share, cast("ContingentDecision", part).plan) for share, part in decision.parts]
    arms = {edge: stages[trie.stage[trie.target[edge]]] for edge in _arms(trie).get(0, {}).values()}
    shares: dict[str, float] = defaultdict(float)
    for edge, kind in arms.items():
        shares[kind] += float(annotated.arms_by_edge[0][edge])
    often = sorted((kind for kind in shares if shares[kind] > LEAST_SHARE), key=lambda kind: -shares[kind])
    return [_of_kind(kind, shares[kind], plans, stages) for kind in often]


def _of_kind(kind: str, share: float, plans: Sequence[tuple[float, Plan]], stages: Sequence[str]) -> PlanOfKind:
    accuracy = cost_usd = 0.0
    first: dict[str, float] = defaultdict(float)
    for part, plan in plans:
        graph, trie = plan.graph, plan.graph.annotated.trie
        own = {group: edge for group, edge in plan.first.items() if stages[graph.stage[group]] == kind}
        below = Plan(graph, 0, own, plan.choice)
        accuracy, cost_usd = accuracy + part * below.accuracy, cost_usd + part * below.cost_usd
        for edge in own.values():
            first[trie.models[graph.model[edge]]] += part / len(own)
    return PlanOfKind(kind, share, accuracy, cost_usd, dict(sorted(first.items(), key=lambda one: -one[1])))
