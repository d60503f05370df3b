"""How far an estimate can be trusted, from the observations alone: held-out error, disagreement, optimism, and when to refuse.

Requests are split in two by a hash of their ids; each half's fit is judged by the other half's outcomes. A half knows less than
the whole, so that its errors are upper estimates of those of the full fit.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.catalog import Catalog
from vinelm.errors import EvidenceError
from vinelm.estimator.baselines.cascade import CascadeEstimator
from vinelm.estimator.latent.estimator import LatentEstimator
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.registry import make_estimator
from vinelm.template import Stage, Template
from vinelm.trie import BoolArray, FloatArray

Z90 = 1.6449
FEWEST_REQUESTS = 10
N_CAPS = 10
LOUD_Z = 3.0
"""Standard errors from which a held-out difference is worth a warning."""


@dataclass(frozen=True, kw_only=True)
class DepthCheck:
    """Right answers of the held-out rows of one depth: what was predicted from the other half, and what was seen.

    Means over ``rows``; ``standard_error`` is that of the difference, requests taken whole.
    """

    depth: int
    rows: int
    predicted: float
    observed: float
    standard_error: float


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """Path accuracies of another estimator less those of the chosen one, as fractions: mean size, and at the best path."""

    estimator: str
    mean_abs: float
    at_best: float


@dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """What the observations say of the estimate's worth. All accuracies and errors are fractions.

    - ``held_out_error``: root mean square error of P(right | reached) at nodes with two held-out rows or more, sampling noise
      taken out; None where there is no such node.
    - ``best_accuracy``, ``best_half_width``: the most accurate path, and half of its 90 % interval (by the latent model).
    - ``optimism``: what the best path under a cost cap promises from one half, less what the other half's fit says of that same
      path; mean over caps and both directions. None if a half has no rows.
    """

    requests: int
    observations: int
    best_accuracy: float
    best_half_width: float
    held_out_error: float | None
    held_out_nodes: int
    depths: tuple[DepthCheck, ...]
    optimism: float | None
    disagreements: tuple[Disagreement, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        plain = asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()}

    def require(self, max_error: float, *, spent_usd: float, everything_usd: float) -> None:
        """:class:`EvidenceError` if the best path's accuracy is known less well than ``max_error`` (a fraction), or if fewer
        than :data:`FEWEST_REQUESTS` requests were seen; says what would settle it.

        ``everything_usd``: dollars of running every registered request on every path once.
        """
        if self.best_half_width <= max_error and (self.requests >= FEWEST_REQUESTS or max_error >= 1.0):
            return
        times = max((self.best_half_width / max_error) ** 2, FEWEST_REQUESTS / self.requests)
        what = (
            f"the best path's accuracy ({100 * self.best_accuracy:.0f} %) is known to +/- {100 * self.best_half_width:.0f}"
            f" points only ({self.requests} requests, {self.observations} rows; {100 * max_error:.0f} points are allowed)"
        )
        raise EvidenceError(f"{what}: {_remedy(times, self.requests, spent_usd, everything_usd)}, or raise --max-error")


def _remedy(times: float, requests: int, spent_usd: float, everything_usd: float) -> str:
    """Errors shrink with the root of what is spent, for as long as there is something left to buy."""
    if spent_usd <= 0.0:
        return f"profile about {math.ceil(times):,} times as many rows"
    more = spent_usd * (times - 1.0)
    if spent_usd + more <= everything_usd:
        return f"about ${more:.2g} more of profiling would settle it (vinelm profile, on the same store)"
    return (
        f"running everything (${max(everything_usd - spent_usd, 0.0):.2g} more) would not settle it:"
        f" label about {math.ceil(requests * times):,} requests"
    )


def gather_evidence(
    cells: ObservationTable, template: Template, catalog: Catalog, fitted: AnnotatedTrie, *, seed: int = 0
) -> ValidationReport:
    """Fits the estimator of ``fitted`` on either half of the requests, and others on all. Pure; the time of some five fits."""
    halves = _halves(cells, seed)
    name = str(fitted.meta["estimator"])
    checked = [(half, _fit(name, half, template, catalog)) for half in halves] if halves else []
    held_out = [(checked[0][1], checked[1][0]), (checked[1][1], checked[0][0])] if checked else []
    latent = fitted if fitted.accuracy_se is not None else _fit("latent", cells, template, catalog)
    best = _best(latent)
    error, n_nodes = _held_out_error(held_out)
    depths = _depth_checks(held_out, cells.trie.max_depth)
    disagreements = _disagreements(cells, template, catalog, fitted)
    se = latent.accuracy_se
    assert se is not None
    return ValidationReport(
        requests=cells.n_requests,
        observations=len(cells),
        best_accuracy=float(latent.accuracy[best]),
        best_half_width=float(Z90 * se[best]),
        held_out_error=error,
        held_out_nodes=n_nodes,
        depths=depths,
        optimism=_optimism(checked[0][1], checked[1][1]) if checked else None,
        disagreements=disagreements,
        warnings=(*_warnings(cells, depths), *shape_warnings(template)),
    )


# -- the split -------------------------------------------------------------------------------------------------


def _halves(cells: ObservationTable, seed: int) -> tuple[ObservationTable, ObservationTable] | None:
    """Two sets of requests, by a hash of their ids alone; None if one would be empty."""
    first = np.array([hashlib.sha256(f"{seed}:{name}".encode()).digest()[0] % 2 == 0 for name in cells.request_ids])
    if first.all() or not first.any():
        return None
    return cells.of_requests(first), cells.of_requests(~first)


def _fit(name: str, cells: ObservationTable, template: Template, catalog: Catalog) -> AnnotatedTrie:
    return make_estimator(name).fit_cells(cells, template, catalog).annotated_


def _held_out_error(pairs: list[tuple[AnnotatedTrie, ObservationTable]]) -> tuple[float | None, int]:
    """Products of two different requests' residuals at a node have the squared error of its rate as their mean: their own noise
    does not enter.
    """
    total = weight = 0.0
    nodes = 0
    for fitted, cells in pairs:
        node, residual = _residuals(fitted, cells)
        size = len(cells.trie)
        count = np.bincount(node, minlength=size)
        products = np.bincount(node, residual, size) ** 2 - np.bincount(node, residual**2, size)
        total += float(products[count > 1].sum())
        weight += float((count * (count - 1)).sum())
        nodes += int((count > 1).sum())
    return (math.sqrt(max(total / weight, 0.0)) if weight else None), nodes


def _residuals(fitted: AnnotatedTrie, cells: ObservationTable) -> tuple[Any, FloatArray]:
    """(node, right - predicted) of the labelled cells at nodes that hold an answer."""
    keep = cells.labelled & cells.trie.answerable[cells.node]
    node = cells.node[keep]
    return node, cells.right[keep] - fitted.success[node]


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


# -- picking the best of many ----------------------------------------------------------------------------------


def _optimism(first: AnnotatedTrie, second: AnnotatedTrie) -> float:
    gaps = []
    for chooser, judge in ((first, second), (second, first)):
        ends = np.flatnonzero(chooser.trie.answerable)
        cost = chooser.path_cost_usd[ends]
        for cap in np.quantile(cost, np.linspace(0.1, 1.0, N_CAPS)):
            allowed = ends[cost <= cap]
            best = allowed[np.argmax(chooser.accuracy[allowed])]
            gaps.append(float(chooser.accuracy[best] - judge.accuracy[best]))
    return float(np.mean(gaps))


def _best(fitted: AnnotatedTrie) -> int:
    """The most accurate node that holds an answer; the first one in trie order."""
    return int(np.argmax(np.where(fitted.trie.answerable, fitted.accuracy, -1.0)))


def _disagreements(
    cells: ObservationTable, template: Template, catalog: Catalog, fitted: AnnotatedTrie
) -> tuple[Disagreement, ...]:
    others = {
        "latent without difficulty": LatentEstimator(n_points=1),
        "cascade": CascadeEstimator(),
    }
    best, ends = _best(fitted), fitted.trie.answerable
    found = []
    for name, estimator in others.items():
        if fitted.meta["estimator"] == name or (name.startswith("latent") and fitted.meta.get("latent") is False):
            continue
        gap = estimator.fit_cells(cells, template, catalog).annotated_.accuracy - fitted.accuracy
        found.append(Disagreement(estimator=name, mean_abs=float(np.abs(gap[ends]).mean()), at_best=float(gap[best])))
    return tuple(found)


# -- warnings --------------------------------------------------------------------------------------------------


def _warnings(cells: ObservationTable, depths: tuple[DepthCheck, ...]) -> tuple[str, ...]:
    found = []
    count = cells.count_by_depth
    for depth, rows in enumerate(count, start=1):
        going_on = depth == 1 or _go_on(cells, depth - 1).any()
        if rows == 0 and going_on:
            found.append(f"no observation at depth {depth}: everything said of it is a guess from the depths above")
    for check in depths:
        gap = check.observed - check.predicted
        if abs(gap) > LOUD_Z * max(check.standard_error, 1e-12) and abs(gap) > 0.02:
            found.append(f"held-out rows at depth {check.depth} are off by {100 * gap:+.0f} points: more than chance")
    if cells.failed.mean() > 0.1:
        found.append(f"{int(cells.failed.sum())} of {len(cells)} rows are failed calls: they count as wrong")
    unlabelled = int((~cells.labelled).sum())
    if unlabelled:
        found.append(f"{unlabelled} of {len(cells)} rows have no label: their outcomes are predicted")
    return tuple(found)


def _go_on(cells: ObservationTable, depth: int) -> BoolArray:
    """Cells of that depth after which the request goes on."""
    return np.asarray(~cells.stop & (cells.trie.depth[cells.node] == depth))


def shape_warnings(template: Template) -> tuple[str, ...]:
    """Why the oracle stop does not fit a workflow that is no retry or repair loop; nothing under the workflow's own stop.

    It takes each further invocation as another chance at the same answer. In a chain of different tasks (a planner, then a
    solver) accuracy is not prefix-closed: a stage that is no attempt cannot end a request, and a right one says nothing yet.
    """
    if template.stop != "oracle":
        return ()
    silent = [stage.name for stage in template.stages if not stage.answerable]
    if silent:
        return (
            f"stage {silent[0]!r} holds no answer: this is no retry or repair workflow, and the oracle stop's accuracy is not"
            " prefix-closed for it: use --stop workflow",
        )
    chain = [step.name for step in template.steps if isinstance(step, Stage)]
    if len(chain) > 1:
        return (
            f"stages {' -> '.join(chain)} are a chain, not a retry or repair loop: the oracle stop would end a request before"
            f" {chain[1]!r} has run: use --stop workflow, or declare {chain[0]!r} as not answerable",
        )
    return ()
