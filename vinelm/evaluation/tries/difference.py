"""Significant differences between two annotated tries (trees of model sequences), and the plans that change with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from vinelm.catalog import Price
from vinelm.controller.planning.decision import told_apart
from vinelm.errors import ConfigError
from vinelm.evaluation.plans.graph_plans import matched
from vinelm.evaluation.plans.plans import Plans
from vinelm.evaluation.plans.plans_over import plans_over
from vinelm.evaluation.plans.sweep import spaced_caps
from vinelm.objective import Objective
from vinelm.template import StopRule
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray, FloatArray
from vinelm.trie.decision_graph import DecisionGraph

N_CAPS = 24
_EXTREMES = Objective(minimize="cost"), Objective(maximize="accuracy")
"""The objectives between whose plans caps are tried."""
_TWO_SIDED_95 = 1.96
"""Standard errors within which 95 % of the values of a normal distribution lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFlip:
    """A range of caps on mean cost per request in which two tries have different most accurate plans.

    Attributes:
        min_cap_usd: The smallest tried cap of the range, in dollars.
        max_cap_usd: The largest tried cap of the range, in dollars.
        before: The plan of the first trie: its models, from the first call on. If plans have a model for each branch,
            one item with the plan in words.
        after: The plan of the second trie, in the same form.
        gain: Accuracy of ``after`` minus that of ``before``, both according to the second trie; None if that trie lacks
            the plan ``before``.
        standard_error: The standard error of ``gain``, computed as if the accuracies of both plans had independent
            errors; None if unknown.
        old_cost_usd: Dollars per request of ``before`` according to the second trie; None if that trie lacks the plan.
    """

    min_cap_usd: float
    max_cap_usd: float
    before: tuple[str, ...]
    after: tuple[str, ...]
    gain: float | None
    standard_error: float | None
    old_cost_usd: float | None

    @property
    def why(self) -> Literal["gone", "over the cap", "beyond noise", "within noise"]:
        """The reason why the plan ``before`` is no longer chosen.

        ``gone``: the second trie lacks a model of the plan. ``over the cap``: the plan now costs too much. ``beyond noise`` and
        ``within noise``: another plan is more accurate, by more or by less than chance can explain.
        """
        if self.gain is None or self.old_cost_usd is None:
            return "gone"
        if self.old_cost_usd > self.min_cap_usd * (1 + _EXACT):
            return "over the cap"
        known = self.standard_error is not None and self.gain > _TWO_SIDED_95 * self.standard_error
        return "beyond noise" if known else "within noise"


def plan_flips(before: AnnotatedTrie, after: AnnotatedTrie) -> tuple[PlanFlip, ...]:
    """Return the ranges of caps on mean cost in which the plans of both tries differ, by rising cap.

    Neighbouring caps with the same two plans and the same reason (:attr:`PlanFlip.why`) form one range.
    """
    both = plans_over(before), plans_over(after)
    ends = [plans.decision(goal).path_cost_usd for plans in both for goal in _EXTREMES]
    found: list[PlanFlip] = []
    was_there = False
    for cap in spaced_caps(min(ends), max(ends), "max_cost_usd", N_CAPS):
        flip = _flip(both, cap)
        if flip is not None and was_there and (found[-1].before, found[-1].after, found[-1].why) == (
            flip.before, flip.after, flip.why
        ):  # fmt: skip
            flip = replace(found.pop(), max_cap_usd=cap)
        was_there = flip is not None
        if flip is not None:
            found.append(flip)
    return tuple(found)


def _flip(both: tuple[Plans[Any], Plans[Any]], cap: float) -> PlanFlip | None:
    old, new = (plans.decision(Objective(maximize="accuracy", max_cost_usd=cap, mix=False)) for plans in both)
    if not (old.is_feasible and new.is_feasible):
        return None
    carried = both[1].carried(old, new)
    if carried is not None and carried.is_same:
        return None
    errors = [new.standard_error, None if carried is None else carried.standard_error]
    known = [error for error in errors if error is not None]
    before, after = told_apart(old, new)
    return PlanFlip(
        min_cap_usd=cap,
        max_cap_usd=cap,
        before=before,
        after=after,
        gain=None if carried is None else new.accuracy - carried.accuracy,
        standard_error=math.hypot(*known) if len(known) == 2 else None,
        old_cost_usd=None if carried is None else carried.cost_usd,
    )


MovedMetric = Literal["accuracy", "cost", "latency"]
METRICS: Mapping[MovedMetric, tuple[str, str]] = {
    "accuracy": ("accuracy", "accuracy_se"),
    "cost": ("path_cost_usd", "cost_se"),
    "latency": ("path_latency_s", "latency_se"),
}
"""What is compared: the path metric of :class:`~vinelm.trie.annotated_trie.AnnotatedTrie`, and its standard error."""
FALSE_DISCOVERIES = 0.05
_EXACT = 1e-9
"""Relative difference below which two figures count as equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedNode:
    """A path whose estimate changed significantly.

    Attributes:
        path: The models from the root; in a trie that branches, the stage and model of each invocation, as ``search a``.
        before: The estimate in the first trie: a fraction, dollars or seconds.
        after: The estimate in the second trie.
        standard_error: The standard error of the difference, computed as if the tries shared no rows; None if the
            difference is exact.
    """

    path: tuple[str, ...]
    before: float
    after: float
    standard_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedPaths:
    """The comparison of one metric (accuracy, cost or latency) over the paths that two tries have in common.

    Attributes:
        tested: Number of paths compared; 0 if a trie lacks the standard errors or the latencies that the comparison
            needs.
        mean: Mean difference over the common paths, second trie minus first.
        moved: Paths that changed significantly, by the difference divided by its standard error, the largest first.
    """

    tested: int
    mean: float
    moved: tuple[MovedNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrieDifference:
    """The result of comparing two tries.

    Attributes:
        common: Number of paths that both tries have.
        only_before: Paths that only the first trie has.
        only_after: Paths that only the second trie has.
        has_same_answers: Whether both tries were estimated from the same answers (their accuracies are equal), so that
            differences in cost and latency are not noise.
        prices: Prices that differ, keyed by model: the price in the first trie and that in the second.
        metrics: The comparison of the common paths, keyed by ``accuracy``, ``cost`` or ``latency``.
        flips: The ranges of caps in which the plans of both tries differ, by rising cap.
        stop: The stop rule for which both tries were estimated.
    """

    common: int
    only_before: int
    only_after: int
    has_same_answers: bool
    prices: Mapping[str, tuple[Price, Price]]
    metrics: Mapping[MovedMetric, MovedPaths]
    flips: tuple[PlanFlip, ...]
    stop: StopRule = "workflow"


def compare_tries(before: AnnotatedTrie, after: AnnotatedTrie) -> TrieDifference:
    """Compare two tries of one workflow: the estimates for each path, and the most accurate plan under each cost limit.

    A path has changed if its difference is too large for two independent estimates with the standard errors of the
    tries. This is a two-sided normal test per path. With the Benjamini-Hochberg procedure over all common paths of a
    metric, at most 5 % of the named paths are expected to be false alarms. If both tries share rows, their errors are
    correlated, and the test names fewer paths than it could.

    In tries that branch, calls after the same stages and models are compared. The compared values are the share of all
    requests that take this path and are right at its end, and the path's cost and latency. If histories are merged, no
    single path leads to an invocation, so only plans are compared.

    Args:
        before: The first trie.
        after: The second trie; it may have other models, prices or rows, or more invocations.

    Raises:
        ConfigError: One trie branches or merges histories and the other does not, or the tries belong to different workflows or
            stop rules.
    """
    _require_comparable(before, after)
    one, other = _common(before, after)
    compared = before.reading.metrics
    mine, theirs = before.rated[one], after.rated[other]
    has_same_answers = bool(len(one)) and np.allclose(mine, theirs, rtol=_EXACT, atol=_EXACT)
    return TrieDifference(
        common=len(one),
        only_before=before.trie.n_nodes - len(one),
        only_after=after.trie.n_nodes - len(one),
        has_same_answers=has_same_answers,
        prices=_prices(before, after),
        metrics={name: _moved(before, after, one, other, name, is_exact=has_same_answers) for name in compared},
        flips=plan_flips(before, after),
        stop=before.template.stop,
    )


def _require_comparable(before: AnnotatedTrie, after: AnnotatedTrie) -> None:
    one, other = before.reading, after.reading
    for what, differs in (("branches", one.noun != other.noun), ("merges histories", one.metrics != other.metrics)):
        if differs:
            raise ConfigError(f"one of the tries {what} and the other does not: compare two of the same workflow")
    mine, theirs = (annotated.meta.get("workflow") for annotated in (before, after))
    if mine is not None and theirs is not None and mine != theirs:
        raise ConfigError(f"the tries belong to different workflows, {mine!r} and {theirs!r}: compare two of the same")
    if before.template.stop != after.template.stop:
        raise ConfigError(
            f"the tries were estimated for different stop rules, {before.template.stop} and {after.template.stop}: estimate "
            "both for the same"
        )


def _common(before: AnnotatedTrie, after: AnnotatedTrie) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return (nodes of the first trie, nodes of the second), of equal shape: paired nodes have the same sequence of
    (stage, model).

    The pairs are in the order of the first trie.
    """
    if before.trie == after.trie:
        nodes = np.arange(1, len(before.trie))
        return nodes, nodes
    graphs = DecisionGraph.of(before), DecisionGraph.of(after)
    same = [(graphs[0].nodes[at], graphs[1].nodes[to]) for to, at in matched(*graphs).items() if to]
    pairs = np.array(sorted(same), np.intp).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _prices(before: AnnotatedTrie, after: AnnotatedTrie) -> dict[str, tuple[Price, Price]]:
    about = {"source", "as_of"}
    both = [name for name in before.trie.models if name in after.trie.models]
    pairs = {name: (before.catalog[name].price, after.catalog[name].price) for name in both}
    return {name: (a, b) for name, (a, b) in pairs.items() if a.model_dump(exclude=about) != b.model_dump(exclude=about)}


def _moved(
    before: AnnotatedTrie,
    after: AnnotatedTrie,
    one: npt.NDArray[np.intp],
    other: npt.NDArray[np.intp],
    metric: MovedMetric,
    *,
    is_exact: bool,
) -> MovedPaths:
    name, error = METRICS[metric]
    if not len(one) or (metric == "latency" and not (before.knows_latency and after.knows_latency)):
        return MovedPaths(tested=0, mean=float("nan"), moved=())
    a, b = getattr(before, name)[one], getattr(after, name)[other]
    gap = np.asarray(b - a, np.float64)
    gap[np.abs(gap) <= _EXACT * np.maximum(np.abs(a), np.abs(b))] = 0.0
    errors = getattr(before, error), getattr(after, error)
    if not is_exact and (errors[0] is None or errors[1] is None):
        return MovedPaths(tested=0, mean=float(gap.mean()), moved=())
    se = np.zeros(len(gap)) if is_exact else np.hypot(errors[0][one], errors[1][other])
    distance = np.divide(np.abs(gap), se, out=np.where(gap != 0.0, np.inf, 0.0), where=se > 0)
    named = discoveries(2.0 * ndtr(-distance), FALSE_DISCOVERIES)
    size = np.where(np.isinf(distance), np.abs(gap), distance)
    order = [int(i) for i in np.argsort(-size, kind="stable") if named[i]]
    moved = [
        MovedNode(
            path=before.reading.display_path(int(one[i])),
            before=float(a[i]),
            after=float(b[i]),
            standard_error=None if is_exact else float(se[i]),
        )
        for i in order
    ]
    return MovedPaths(tested=len(gap), mean=float(gap.mean()), moved=tuple(moved))


def discoveries(p_values: FloatArray, level: float) -> BoolArray:
    """Return which hypotheses the Benjamini-Hochberg procedure rejects.

    Args:
        p_values: The p-value of each hypothesis, shape (hypotheses,).
        level: The false discovery rate, in (0, 1).

    Returns:
        A mask of the same shape: True for rejected hypotheses.
    """
    order = np.argsort(p_values, kind="stable")
    is_below = p_values[order] <= level * np.arange(1, len(order) + 1) / max(len(order), 1)
    count = int(np.flatnonzero(is_below)[-1]) + 1 if is_below.any() else 0
    rejected = np.zeros(len(order), np.bool_)
    rejected[order[:count]] = True
    return rejected
