"""Validates an estimate from the observations alone: held-out error, optimism, disagreement of estimators, amount of evidence.

Requests are split into two halves by a hash of their ids, and the fit to each half is compared with the other half's
outcomes. A half has less data, so its errors overestimate the errors of the full fit. If the trie branches, "path" below
means a fixed plan, with one model for each stage. Then the optimism is measured for choices among contingent plans (also by
request type), of which there are more, unless histories are merged.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vinelm.catalog import Catalog
from vinelm.errors import EvidenceError
from vinelm.estimator.base import RateEstimator
from vinelm.estimator.baselines.cascade import CascadeEstimator
from vinelm.estimator.latent.estimator import LatentEstimator
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.registry import make_estimator
from vinelm.estimator.signals.optimism import FitMasses, gaps
from vinelm.plans.promise import Z90, PlanFigures, Promise, SelectionOptimism, single_model_paths
from vinelm.plans.static_plans import StaticPlans
from vinelm.template import Template
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray, FloatArray

N_CAPS = 10
SMALLEST_CAP = 1e-6
"""The smallest cost cap, as a fraction of the largest one, if some path costs nothing."""

Halves = tuple[AnnotatedTrie, AnnotatedTrie]
_Measure = Callable[[AnnotatedTrie, AnnotatedTrie], FloatArray]
"""Measures the optimism of the fit that chooses, given as first argument, by the fit that tests. Returns three rows: costs in
dollars, predicted minus tested accuracy, and the same for the advantage over the best single model."""


@dataclass(frozen=True, eq=False)
class SelectablePlans(PlanFigures):
    """The plans to choose from: the nodes of a linear trie, or the fixed plans of a branching trie.

    ``allowed``: whether each plan can be chosen at all.
    """

    allowed: BoolArray

    @classmethod
    def of(cls, fitted: AnnotatedTrie) -> SelectablePlans:
        """Return the plans of a trie, in the same order for every trie of one template."""
        if fitted.is_contingent:
            plans = StaticPlans.of(fitted)
            figures = plans.accuracy, plans.error, plans.cost_usd, plans.longest_s
            return cls(*figures, plans.runs_one_model, np.ones(len(plans.accuracy), np.bool_))
        error = np.full(len(fitted.trie), np.nan) if fitted.accuracy_se is None else fitted.accuracy_se
        figures = fitted.accuracy, error, fitted.path_cost_usd, fitted.path_latency_s
        return cls(*figures, single_model_paths(fitted.trie), fitted.trie.answerable)

    @property
    def best(self) -> int:
        """The index of the most accurate plan that can be chosen; the first on ties."""
        return int(np.argmax(np.where(self.allowed, self.accuracy, -1.0)))


def selection_optimism(splits: Sequence[Halves], fitted: AnnotatedTrie) -> tuple[SelectionOptimism, float]:
    """Return the optimism of the best plan as a function of a cost cap, and the mean optimism over the caps.

    Optimism is how much too high the accuracy of a plan is predicted because the plan was chosen as the best. The mean may be
    negative. The function is smoothed over neighbouring caps and limited to values >= 0; the mean is not.

    Args:
        splits: At least one pair of fits to the two halves of the requests. Each half chooses once and tests once.
        fitted: The fit to all requests, which provides the cost caps.
    """
    pairs = [pair for one, other in splits for pair in ((one, other), (other, one))]
    # If a node stands for several sequences of calls, fixed plans are measured instead of contingent ones.
    measure = _contingent_gaps if fitted.branches and not fitted.trie.is_merged else _by_caps(fitted)
    cost, *means = np.mean([measure(*pair) for pair in pairs], axis=0)
    order = np.argsort(cost, kind="stable")
    return SelectionOptimism.measured(cost[order], *(mean[order] for mean in means)), float(means[0].mean())


def _by_caps(fitted: AnnotatedTrie) -> _Measure:
    """Return a function that measures, under several cost caps, by how much the best plan's accuracy is predicted too high.

    The function takes a trie that chooses the plans and a trie that judges them. It returns three rows: the caps of ``fitted``,
    and the two rows of :func:`_gaps`, measured under the caps of the choosing trie.
    """
    caps = _caps(SelectablePlans.of(fitted))
    return lambda chooser, judge: np.array((caps, *_gaps(SelectablePlans.of(chooser), SelectablePlans.of(judge))))


def _contingent_gaps(chooser: AnnotatedTrie, judge: AnnotatedTrie) -> FloatArray:
    """Return the cost and the optimism of the best contingent plan at each price of a dollar, in three rows; shape (3, prices).

    A price is the accuracy that a plan must gain for one more dollar. Optimism is what ``chooser`` predicts minus what
    ``judge`` predicts.

    The first row has the plan's cost in dollars according to ``judge``. The second row has the optimism of its accuracy, the
    third row that of its advantage over the best single model.

    Args:
        chooser: The trie from the half of the requests that chooses the plans.
        judge: The trie from the half that tests them.
    """
    cost, gap, expected = gaps(FitMasses.of_tries([chooser]), FitMasses.of_tries([judge]))
    one, other = SelectablePlans.of(chooser), SelectablePlans.of(judge)
    alone = _chosen(one, one.single, expected[:, 0])
    of_single = [0.0 if plan is None else float(one.accuracy[plan] - other.accuracy[plan]) for plan in alone]
    return np.array([cost, gap, gap - of_single])


def _gaps(chooser: SelectablePlans, judge: SelectablePlans) -> FloatArray:
    """Return the optimism of the best plan under each cost cap, in two rows; shape (2, caps).

    Optimism is what ``chooser``, by which the plan is selected, predicts minus what ``judge`` predicts. The first row is for
    the plan's accuracy, the second row for the plan's advantage over the best single model.

    Args:
        chooser: The plans' figures from one half of the requests.
        judge: The figures of the same plans from the other half.
    """
    caps = _caps(chooser)
    rows = []
    for path, alone in zip(_chosen(chooser, chooser.allowed, caps), _chosen(chooser, chooser.single, caps), strict=True):
        gap = float(chooser.accuracy[path] - judge.accuracy[path])
        rows.append((gap, 0.0 if alone is None else gap - float(chooser.accuracy[alone] - judge.accuracy[alone])))
    return np.array(rows).T


def _chosen(chooser: SelectablePlans, candidates: BoolArray, caps: FloatArray) -> Iterator[int | None]:
    """Yield for each cost cap the index of the most accurate candidate within the cap; None if all candidates cost more.

    On ties, it is the first. ``candidates`` is a mask of the plans.
    """
    for cap in caps:
        allowed = candidates & (chooser.cost_usd <= cap)
        yield int(np.argmax(np.where(allowed, chooser.accuracy, -1.0))) if allowed.any() else None


def _caps(plans: SelectablePlans) -> FloatArray:
    """Return logarithmically spaced cost caps, from the cheapest plan that can be chosen to the most expensive."""
    cost = plans.cost_usd[plans.allowed]
    high = float(cost.max())
    if high <= 0.0:
        return np.zeros(N_CAPS)
    caps = np.geomspace(max(float(cost.min()), SMALLEST_CAP * high), high, N_CAPS)
    caps[-1] = high  # without rounding: the last cap allows every path
    return np.asarray(np.maximum(caps, float(cost.min())), dtype=np.float64)


FEWEST_REQUESTS = 10
N_SPLITS = 2
"""The number of random splits into halves that measure the optimism. The figures of held-out rows are those of the first."""
WARNING_Z = 3.0
"""A held-out difference of more standard errors than this gives a warning."""


@dataclass(frozen=True, kw_only=True)
class DepthCheck:
    """The predicted and observed share of right answers among the held-out results of one depth.

    ``standard_error`` is the standard error of the difference, clustered by request. Shares are fractions.
    """

    depth: int
    rows: int
    predicted: float
    observed: float
    standard_error: float


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """The path accuracies of another estimator minus those of the chosen estimator, as fractions.

    ``mean_abs`` is the mean absolute difference over the paths, ``at_best`` the difference at the path that is best according
    to the chosen estimator.
    """

    estimator: str
    mean_abs: float
    at_best: float


@dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """Evidence for the quality of an estimate. Accuracies and errors are fractions.

    Args:
        requests: distinct requests.
        best_accuracy: accuracy of the most accurate path, by the latent model.
        best_promised: that accuracy after correction for selection (:class:`vinelm.plans.promise.Promise`).
        best_half_width: half width of the 90 % interval of ``best_promised``, including the uncertainty of the correction.
        held_out_error: root mean square error of P(right | reached) at nodes with at least two held-out results, corrected for
            sampling noise; None if there is no such node.
        held_out_nodes: number of these nodes, over both halves.
        depths: predicted and observed outcomes per depth.
        optimism: accuracy that one half's fit predicts for its best path under a cost cap, minus the other half's
            prediction for the same path; mean over caps, splits and both directions. None if a half has no results.
        selection: the optimism as a function of a plan's cost; None if a half has no results.
        warnings: one sentence each.
    """

    requests: int
    observations: int
    best_accuracy: float
    best_promised: float
    best_half_width: float
    held_out_error: float | None
    held_out_nodes: int
    depths: tuple[DepthCheck, ...]
    optimism: float | None
    selection: SelectionOptimism | None
    disagreements: tuple[Disagreement, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        plain = asdict(self) | {"selection": None if self.selection is None else self.selection.to_dict()}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    def require(self, max_error: float, *, spent_usd: float, everything_usd: float) -> None:
        """Raise :class:`EvidenceError`, which names the additional data needed, if the estimate is too uncertain.

        Args:
            max_error: allowed half width of the 90 % interval of the best path's accuracy (a fraction). With 1 or more,
                every estimate passes; otherwise at least :data:`FEWEST_REQUESTS` requests are needed.
            spent_usd: dollars spent on the observations.
            everything_usd: the cost of running every registered request on every path once, in dollars.
        """
        lacks = self.lacks(max_error, spent_usd=spent_usd, everything_usd=everything_usd)
        if lacks is not None:
            raise EvidenceError(lacks, code="estimate-uncertain")

    def lacks(self, max_error: float, *, spent_usd: float, everything_usd: float) -> str | None:
        """Return in words why :meth:`require` would raise; None if it would not. The arguments are the same."""
        times = self.times_needed(max_error)
        if times <= 1.0:
            return None
        what = (
            f"the best path's accuracy ({100 * self.best_promised:.0f} %) is uncertain by +/- {100 * self.best_half_width:.1f}"
            f" points{self._of_selection()} ({self.requests} requests, {self.observations} rows;"
            f" {100 * max_error:g} points are allowed)"
        )
        return f"{what}: {more_evidence(times, self.requests, spent_usd, everything_usd)}"

    def times_needed(self, max_error: float) -> float:
        """Return the multiple of the current data that :meth:`require` needs: at most 1 if the estimate passes, otherwise more.

        Errors shrink with the square root of the amount of data.
        """
        if max_error >= 1.0:
            return 1.0
        return max((self.best_half_width / max_error) ** 2, FEWEST_REQUESTS / self.requests)

    def _of_selection(self) -> str:
        shrunk = 100 * (self.best_accuracy - self.best_promised)
        return f" and was {shrunk:.0f} points higher before the optimism of its selection" if shrunk >= 1.0 else ""


def more_evidence(times: float, requests: int, spent_usd: float, everything_usd: float) -> str:
    """Return a clause that advises how to get ``times`` as much data. Errors shrink with the square root of the amount of data.

    Args:
        times: The factor by which to multiply the data, > 1.
        requests: Distinct requests that were observed.
        spent_usd: Dollars spent on the observations.
        everything_usd: The cost of running every registered request on every path once, in dollars.
    """
    if spent_usd <= 0.0:
        return f"profile about {math.ceil(times):,} times as many rows"
    more = spent_usd * (times - 1.0)
    if spent_usd + more <= everything_usd:
        return f"about ${more:.2g} more of profiling on the same store would suffice"
    labels = f"label about {math.ceil(requests * times):,} requests"
    left_usd = everything_usd - spent_usd
    if left_usd < 0.01 * everything_usd:  # by the estimate, almost nothing is left to run, so running the rest is not mentioned
        return f"all paths of these requests together show no more: {labels}"
    return f"running everything (${left_usd:.2g} more) would not suffice: {labels}"


def validate_estimate(
    cells: ObservationTable, template: Template, catalog: Catalog, fitted: AnnotatedTrie, *, seed: int = 0
) -> ValidationReport:
    """Validate an estimate on held-out halves of the requests and against other estimators. Takes the time of about seven fits.

    Args:
        cells: the observations that ``fitted`` was estimated from.
        template: the template, bound to ``catalog``.
        catalog: the models.
        fitted: the estimate.
        seed: seed of the split into halves.
    """
    name = str(fitted.meta["estimator"])
    splits = [found for at in range(N_SPLITS) if (found := _split(name, cells, template, catalog, seed + at)) is not None]
    held_out = list(zip(splits[0].fits, reversed(splits[0].halves), strict=True)) if splits else []  # a fit, the other's rows
    latent = fitted if fitted.accuracy_se is not None else _fit("latent", cells, template, catalog)
    error, n_nodes = _held_out_error(held_out)
    depths = _depth_checks(held_out, cells.trie.max_depth)
    disagreements = _disagreements(cells, template, catalog, fitted)
    selection, optimism = selection_optimism([split.fits for split in splits], fitted) if splits else (None, None)
    plans = SelectablePlans.of(latent)
    promise = plans.promise(plans.best, selection)
    return ValidationReport(
        requests=cells.n_requests,
        observations=len(cells),
        best_accuracy=promise.estimate,
        best_promised=promise.accuracy,
        best_half_width=promise.half_width,
        held_out_error=error,
        held_out_nodes=n_nodes,
        depths=depths,
        optimism=optimism,
        selection=selection,
        disagreements=disagreements,
        warnings=(*_warnings(cells, depths), *_optimism_warnings(promise), *template.rule.warnings(template.steps)),
    )


# -- held-out error ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Split:
    """The results of two halves of the requests, split by a hash of the requests' ids, and the fit to each half."""

    halves: tuple[ObservationTable, ObservationTable]
    fits: tuple[AnnotatedTrie, AnnotatedTrie]


def _split(name: str, cells: ObservationTable, template: Template, catalog: Catalog, seed: int) -> _Split | None:
    is_first = np.array([hashlib.sha256(f"{seed}:{name}".encode()).digest()[0] % 2 == 0 for name in cells.request_ids])
    if is_first.all() or not is_first.any():
        return None
    halves = cells.of_requests(is_first), cells.of_requests(~is_first)
    first, second = (_fit(name, half, template, catalog) for half in halves)
    return _Split(halves, (first, second))


def _fit(name: str, cells: ObservationTable, template: Template, catalog: Catalog) -> AnnotatedTrie:
    return make_estimator(name).fit_cells(cells, template, catalog).annotated_


def _held_out_error(pairs: list[tuple[AnnotatedTrie, ObservationTable]]) -> tuple[float | None, int]:
    """Return the root mean square error of P(right) over the nodes with several held-out results, and the number of these
    nodes.

    The error is corrected for the sampling noise of the results; it is None if the number is 0. ``pairs`` has the fit to
    each half of the requests, with the results of the other half.
    """
    total = weight = 0.0
    nodes = 0
    for fitted, cells in pairs:
        keep = cells.labelled & cells.trie.answerable[cells.node]
        node, size = cells.node[keep], len(cells.trie)
        residual = cells.right[keep] - fitted.success[node]
        count = np.bincount(node, minlength=size)
        products = np.bincount(node, residual, size) ** 2 - np.bincount(node, residual**2, size)
        total += float(products[count > 1].sum())
        weight += float((count * (count - 1)).sum())
        nodes += int((count > 1).sum())
    return (math.sqrt(max(total / weight, 0.0)) if weight else None), nodes


def _depth_checks(pairs: list[tuple[AnnotatedTrie, ObservationTable]], max_depth: int) -> tuple[DepthCheck, ...]:
    found = []
    for depth in range(1, max_depth + 1):
        off, seen, rows, square = 0.0, 0.0, 0, 0.0
        for fitted, cells in pairs:
            here = cells.labelled & cells.trie.answerable[cells.node] & (cells.trie.depth[cells.node] == depth)
            residual = cells.right[here] - fitted.success[cells.node[here]]
            by_request = np.bincount(cells.request[here], residual, cells.n_requests)
            off, seen, rows = off + float(residual.sum()), seen + float(cells.right[here].sum()), rows + int(here.sum())
            square += float((by_request**2).sum())
        if rows:
            found.append(
                DepthCheck(
                    depth=depth, rows=rows, predicted=(seen - off) / rows, observed=seen / rows,
                    standard_error=math.sqrt(square) / rows,
                )
            )  # fmt: skip
    return tuple(found)


# -- disagreement ------------------------------------------------------------------------------------------------


def _disagreements(
    cells: ObservationTable, template: Template, catalog: Catalog, fitted: AnnotatedTrie
) -> tuple[Disagreement, ...]:
    others: dict[str, RateEstimator] = {"latent without difficulty": LatentEstimator(n_points=1)}
    if not fitted.trie.is_merged:
        others["cascade"] = CascadeEstimator()
    plans = SelectablePlans.of(fitted)
    best, ends = plans.best, plans.allowed
    found = []
    for name, estimator in others.items():
        if fitted.meta["estimator"] == name or (name.startswith("latent") and fitted.meta.get("latent") is False):
            continue
        gap = SelectablePlans.of(estimator.fit_cells(cells, template, catalog).annotated_).accuracy - plans.accuracy
        found.append(Disagreement(estimator=name, mean_abs=float(np.abs(gap[ends]).mean()), at_best=float(gap[best])))
    return tuple(found)


# -- warnings --------------------------------------------------------------------------------------------------


def _warnings(cells: ObservationTable, depths: tuple[DepthCheck, ...]) -> tuple[str, ...]:
    found = []
    count = cells.count_by_depth
    for depth, rows in enumerate(count, start=1):
        is_reached = depth == 1 or (~cells.stop & (cells.trie.depth[cells.node] == depth - 1)).any()
        if rows == 0 and is_reached:
            found.append(f"no observation at depth {depth}: its estimates are extrapolated from smaller depths")
    for check in depths:
        gap = check.observed - check.predicted
        if abs(gap) > WARNING_Z * max(check.standard_error, 1e-12) and abs(gap) > 0.02:
            found.append(f"held-out rows at depth {check.depth} differ from the prediction by {100 * gap:+.0f} points")
    if cells.failed.mean() > 0.1:
        found.append(f"{int(cells.failed.sum())} of {len(cells)} rows are failed calls, which count as wrong")
    unlabelled = int((~cells.labelled).sum())
    if unlabelled:
        found.append(f"{unlabelled} of {len(cells)} rows are unlabelled: their outcomes are predicted")
    return tuple(found)


def _optimism_warnings(promise: Promise) -> tuple[str, ...]:
    """Return a tuple with a warning if choosing the best path adds more error than all other sources; else an empty tuple.

    The added error is the optimism: the amount by which the best path's accuracy is predicted too high because it was chosen as
    the best.
    """
    if promise.optimism is None or promise.standard_error is None or promise.optimism <= Z90 * promise.standard_error:
        return ()
    return (
        f"choosing the best of many uncertain paths raises the best accuracy by up to {100 * promise.optimism:.0f} points:"
        f" {100 * promise.accuracy:.0f} % is promised instead of {100 * promise.estimate:.0f} %;"
        " four times as many rows would halve the difference",
    )
