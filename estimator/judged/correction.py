"""Corrects an estimate made from a judge's verdicts for the judge's errors, and widens its intervals accordingly."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from vinelm.estimator.judged.agreement import JudgeAgreement
from vinelm.estimator.observation_table import ObservationTable
from vinelm.estimator.validation.checks import ValidationReport
from vinelm.trie.annotated_trie import AnnotatedTrie, SignalTrie
from vinelm.trie.arrays import FloatArray
from vinelm.trie.difficulty import DifficultyRates

Rates = TypeVar("Rates", AnnotatedTrie, DifficultyRates)


def failed_share(cells: ObservationTable) -> FloatArray:
    """Return the share of failed calls for each node's stage and model, shape (nodes,). A judge does not see failed calls."""
    trie = cells.trie
    key = trie.stage.astype(np.int64) * (len(trie.models) + 1) + trie.model + 1
    size = int(key.max()) + 1
    failed = np.bincount(key[cells.node], cells.failed.astype(np.float64), size)
    every = np.bincount(key[cells.node], minlength=size)
    return np.asarray(np.divide(failed, every, out=np.zeros(size), where=every > 0)[key], np.float64)


def corrected_trie(annotated: AnnotatedTrie, agreement: JudgeAgreement, failed: FloatArray) -> AnnotatedTrie:
    """Return the trie with accuracies corrected for the judge's errors.

    Each probability of the form P(event and the verdict is correct) is corrected by
    :meth:`~vinelm.estimator.judged.agreement.JudgeAgreement.corrected`, and limited to P(event). If the trie has no branches,
    the standard errors of accuracy include the judge's error. If it has branches, they do not: the judge's error is common to
    all branches of a plan, while branches' errors count as independent. In a trie of signals, each branch is an outcome of a
    call; the probabilities of each outcome are corrected separately.

    Args:
        annotated: The estimate from the verdicts.
        agreement: The judge's agreement with labels.
        failed: The share of failed calls for each node's stage and model (:func:`failed_share`).
    """
    found = replace(
        _with_rates(annotated, failed, agreement),
        difficulty=annotated.difficulty and _with_rates(annotated.difficulty, failed[:, None], agreement),
        signals=annotated.signals and _signals(annotated.signals, agreement),
    )
    if found.branches and found.difficulty is None:  # an answer's probability is the sum over what may come next
        trie = found.trie
        first = np.flatnonzero(trie.begins_arm)
        below = np.bincount(trie.source[first], found.arms_by_edge[1][first], len(trie))
        success = np.where(annotated.success > 0.0, np.minimum(found.stop_success + below, 1.0), 0.0)
        found = replace(found, success=success)
    if annotated.accuracy_se is None:
        return found
    variance = (annotated.accuracy_se / agreement.informedness) ** 2
    if annotated.reading.holds_common_errors:
        variance = variance + agreement.variance_at(found.accuracy)
    error = np.sqrt(variance)
    error[0] = annotated.accuracy_se[0]
    return replace(found, accuracy_se=error)


def _with_rates(rates: Rates, failed: FloatArray, agreement: JudgeAgreement) -> Rates:
    """Return a copy of ``rates`` with each P(event and right) corrected, and limited to the probability of the event.

    ``failed`` is the share of failed calls.
    """
    stop, arm_success = rates.stop, rates.arm_success
    right = np.minimum(agreement.corrected(rates.success, 1.0 - failed), 1.0 - np.minimum(failed, 1.0))
    ended = agreement.corrected(rates.stop_success, np.maximum(stop - failed, 0.0))
    low = np.maximum(right - (1.0 - stop), 0.0)
    if rates.arm is not None and arm_success is not None:
        arm_success = _part(arm_success, rates.arm, agreement)
    return replace(rates, success=right, stop_success=np.clip(ended, low, np.minimum(stop, right)), arm_success=arm_success)


def _part(success: FloatArray, chance: FloatArray, agreement: JudgeAgreement) -> FloatArray:
    return np.minimum(agreement.corrected(success, chance), chance)


def _signals(annotated: SignalTrie, agreement: JudgeAgreement) -> SignalTrie:
    """Return the trie of signals with the probabilities of right answers corrected for the judge's errors.

    Each branch of this trie is an outcome of a call. An outcome without an answer counts neither as right nor as called correct
    by the judge.
    """
    outcomes = annotated.outcomes
    right = _part(outcomes.right, outcomes.chance, agreement)
    last = np.minimum(_part(outcomes.right_last, outcomes.chance, agreement), right)
    # Only the mass "it comes and the answer is right" of each fit is kept; how often it comes is taken from their mean.
    comes = (outcomes.chance * annotated.reach[outcomes.node])[:, None]
    spread = np.minimum(agreement.corrected(outcomes.spread, comes), 1.0).astype(np.float32)
    found = annotated.with_right(replace(outcomes, right=right, right_last=last, spread=spread), right)
    going_on = np.bincount(outcomes.node, outcomes.arm >= 0, len(annotated.trie)) > 0.0
    passed = np.array([label.passed for label in outcomes.labels])[outcomes.label]
    ends = (outcomes.arm < 0) & (passed | going_on[outcomes.node])
    stop_success = np.asarray(np.bincount(outcomes.node[ends], right[ends], len(annotated.trie)), np.float64)
    error = annotated.accuracy_se
    meta, selection = dict(annotated.meta), annotated.meta.get("evidence", {}).get("selection")
    if selection is not None:
        scaled = {name: [value / agreement.informedness for value in selection[name]] for name in ("accuracy", "advantage")}
        meta["evidence"] = {**meta["evidence"], "selection": {**selection, **scaled}}
    return replace(
        found, stop_success=stop_success, meta=meta, accuracy_se=None if error is None else error / agreement.informedness
    )


def corrected_report(report: ValidationReport, agreement: JudgeAgreement) -> ValidationReport:
    """Return the validation report, corrected for the judge's errors.

    Its shares by depth are not corrected: they remain shares of answers that the judge calls correct.
    """
    scale = agreement.informedness
    selection = report.selection
    if selection is not None:
        selection = replace(
            selection,
            accuracy=tuple(value / scale for value in selection.accuracy),
            advantage=tuple(value / scale for value in selection.advantage),
        )
    best = float(agreement.corrected(report.best_accuracy))
    return replace(
        report,
        best_accuracy=best,
        best_promised=max(best - (report.best_accuracy - report.best_promised) / scale, 0.0),
        best_half_width=agreement.half_width(best, report.best_half_width),
        held_out_error=None if report.held_out_error is None else report.held_out_error / scale,
        optimism=None if report.optimism is None else report.optimism / scale,
        selection=selection,
        disagreements=tuple(
            replace(one, mean_abs=one.mean_abs / scale, at_best=one.at_best / scale) for one in report.disagreements
        ),
    )
