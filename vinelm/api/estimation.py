"""Estimates an annotated trie (the accuracy, cost and seconds of each path) from the results in a store, at recorded or other
prices.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.estimator.optional_steps import optional_steps
from vinelm.estimator.prompt_cache import cached_shares
from vinelm.rows.observation import Observation
from vinelm.template import StopRule
from vinelm.traces import ObservationStore, reprice_store
from vinelm.trie.annotated_trie import UNTOLD, AnnotatedTrie
from vinelm.trie.verdict import MAX_LOSS, Verdict, require_max_loss
from vinelm.version import __version__

if TYPE_CHECKING:
    from vinelm.estimator import ObservationTable
    from vinelm.estimator.validation.checks import ValidationReport
    from vinelm.evaluation.comparison.evidence import StoreEvidence
    from vinelm.evaluation.comparison.scored_rows import ScoredRows
    from vinelm.traces import PostgresUrl

_EQUAL = 1e-9


def repriced_trie(annotated: AnnotatedTrie, store: Path, prices: Catalog, *, where: str = "the trie") -> AnnotatedTrie:
    """Return a trie whose costs are computed at other prices. Calls no model, and changes no file.

    A trie has no token counts. So the rows are repriced in a temporary copy of the store, and a trie is estimated from this
    copy. Accuracies and seconds stay the same. ``meta["repriced"]`` names the models with a new price.

    Args:
        annotated: The trie.
        store: The store that the trie was estimated from; no row may have been added since.
        prices: A catalog with an entry for each model of the store; only its prices are used.
        where: The trie's file, for error messages.

    Raises:
        ConfigError: The trie was estimated from another store, the store's rows have changed, a model has no price, or no price
            differs.
        StoreError: The store cannot be read, or a row of a model with a new price recorded no tokens.
    """
    with ObservationStore.open(store) as opened:
        require_same_workflow(annotated, opened.identity.workflow, opened.identity.dataset_digest, where)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / store.name
        done = reprice_store(store, path, prices)
        name, stop = str(annotated.meta.get("estimator", "latent")), annotated.template.stop
        is_checked, rate = "evidence" in annotated.meta, annotated.calls_per_hour or 0.0
        by_kind = bool(annotated.template.kinds)
        found = estimate_store(path, estimator=name, stop=stop, checked=is_checked, calls_per_hour=rate, by_kind=by_kind)
    if not _has_same_answers(annotated, found):
        raise ConfigError(
            f"{where}: was not estimated from the rows that {store} has now: run `vinelm estimate` on the store first",
            code="trie-not-of-store",
        )
    names = [model.name for model in done.models if model.has_new_price]
    return replace(found, meta={**found.meta, "repriced": names})


def _has_same_answers(one: AnnotatedTrie, other: AnnotatedTrie) -> bool:
    if one.trie != other.trie or one.meta.get("observations") != other.meta.get("observations"):
        return False
    return bool(
        np.allclose(one.success, other.success, rtol=_EQUAL, atol=_EQUAL)
        and np.allclose(one.stop, other.stop, rtol=_EQUAL, atol=_EQUAL)
    )


ONLY_TRIED = "Plans take only steps that enough requests have run, since of others too little is known"
MAX_ERROR = 0.15
"""The largest accepted half-width of the 90 % interval of the best path's accuracy, as a fraction."""


def estimate(
    store: ObservationStore | str | Path,
    *,
    estimator: str = "latent",
    stop: StopRule | None = None,
    check: bool = True,
    max_error: float | None = None,
    calls_per_hour: float | None = None,
    max_loss: float | None = None,
) -> AnnotatedTrie:
    """Estimate the accuracy, cost and seconds of every path from the results in a store. Calls no model.

    Args:
        store: The store, or its path. It is only read.
        estimator: Estimator that fits the trie to the observations. In Python: one of :data:`vinelm.estimator.ESTIMATORS`.
        stop: Stop rule to estimate for: a request ends when the workflow's own check passes, or when its answer is right. None:
            the rule with which the rows were bought.
        check: Validate the trie on held-out requests and against other estimators, and decide whether to switch; ``max_error``
            needs it. In Python the results are in ``meta["evidence"]`` and ``verdict``. The check also decides whether declared
            request types are used: if plans by type predict no more accuracy than other plans, the types are not distinguished.
        max_error: Fail if half the width of the 90 % interval of the best path's accuracy is above this. The interval includes
            the optimism of choosing the best path. 1 never fails. In Python a fraction in (0, 1]. None: 0.15.
        calls_per_hour: Requests that the application serves per hour. They decide how often a provider's prompt cache still has
            the prompt of another request. In Python 0 counts all such cache hits as misses. None: as in the rows of --update,
            else 0 (never).
        max_loss: Accuracy that a cheaper plan may lose and still be recommended by the verdict. In Python a fraction in [0, 1).
            None: 3 points.

    Returns:
        The annotated trie. The same results give the same trie, bit for bit. ``meta`` holds its provenance. If signals were
        recorded, ``signals`` is the trie for plans that use them; otherwise it is None.

    Raises:
        EvidenceError: The store is empty, or the estimate is less certain than ``max_error`` requires.
        StoreError: The store cannot be read.
        ConfigError: The estimator is unknown or does not support the stop rule. ``max_error`` is out of range or has no effect.
            ``calls_per_hour`` is negative or not finite. Or the judge that scored the answers disagrees with the labels.

    Examples:
        >>> import vinelm
        >>> trie = vinelm.estimate("my-app.db")
        >>> trie.trie.n_nodes
        14
        >>> vinelm.save_trie("my-app.vine", trie)
    """
    path = store if isinstance(store, str | Path) else store.path
    if max_error is not None and not check:
        raise ConfigError(
            "max_error has no effect without check, which finds the error: leave one of them out", code="max-error-unchecked"
        )
    accepted = MAX_ERROR if max_error is None else max_error
    return estimate_store(
        path, estimator=estimator, stop=stop, checked=check, max_error=accepted, calls_per_hour=calls_per_hour or 0.0,
        max_loss=MAX_LOSS if max_loss is None else max_loss,
    )  # fmt: skip


def estimate_store(
    path: str | Path | PostgresUrl,
    *,
    estimator: str,
    stop: str | None = None,
    checked: bool = False,
    max_error: float = 1.0,
    calls_per_hour: float = 0.0,
    by_kind: bool | None = None,
    max_loss: float = MAX_LOSS,
    verdict: Verdict | None = None,
) -> AnnotatedTrie:
    """Fit an estimator to the results in the store at a path, and return the annotated trie.

    Args:
        path: The store.
        estimator: The estimator's name.
        stop: The stop rule to estimate for; None takes the workflow's rule.
        checked: Also test the estimate by fits on each half of the requests (about seven more fits), and put the result into
            ``meta["evidence"]``.
        max_error: The largest accepted half-width of the best path's 90 % interval, in (0, 1]; only used with ``checked``.
        calls_per_hour: Requests that the application serves per hour, as in :func:`estimate`.
        by_kind: Whether to distinguish declared request types. None distinguishes them; with ``checked`` only if plans by type
            predict more accuracy (:func:`~vinelm.evaluation.tries.promises.promised_gain`), and otherwise
            ``meta["untold_kinds"]`` records that they are not distinguished.
        max_loss: Accuracy that a cheaper plan may lose, as in :func:`estimate`.
        verdict: The verdict on the store's rows for this ``max_loss``, if already known; only used with ``checked``. None
            computes it.

    Raises:
        StoreError: The store cannot be read.
        ConfigError: The estimator is unknown, or does not support the stop rule, or ``calls_per_hour`` is out of range.
        EvidenceError: The store is empty, or the estimate is less certain than ``max_error`` requires.
    """
    from vinelm.estimator import estimate_signals
    from vinelm.evaluation.comparison.comparison import Comparison
    from vinelm.evaluation.comparison.evidence import StoreEvidence
    from vinelm.evaluation.comparison.tried import with_verdict
    from vinelm.evaluation.tries.promises import promised_gain

    require_max_error(max_error)
    require_max_loss(max_loss)
    store = StoreEvidence.of(path, stop=stop, calls_per_hour=calls_per_hour, by_kind=by_kind is not False)
    annotated, cells = fitted(store, estimator)
    observations = store.rate.rows(annotated)
    annotated = replace(annotated, signals=estimate_signals(annotated, observations))
    if checked:
        evidence, spent_usd, everything_usd = _evidence(annotated, cells, observations, store.scored)
        lacks = evidence.lacks(max_error, spent_usd=spent_usd, everything_usd=everything_usd)
        known = None
        # A judge's errors are corrected for all paths together: none is left out.
        if lacks is not None and not store.scored.errs:
            known = _known(annotated, evidence, observations, store.registered, max_error)
        if known is None:
            evidence.require(max_error, spent_usd=spent_usd, everything_usd=everything_usd)
        annotated = replace(annotated, meta={**annotated.meta, "evidence": evidence.to_dict()})
        if verdict is None:
            verdict = Comparison.of(replace(store, annotated=annotated), estimator=estimator).verdict(max_loss=max_loss)
        if known is not None and (verdict.tried_only or verdict.advice != "switch"):
            annotated, evidence = known
            evidence = replace(evidence, warnings=(*evidence.warnings, f"{ONLY_TRIED}: {lacks}"))
            annotated = replace(annotated, meta={**annotated.meta, "evidence": evidence.to_dict()})
        annotated = with_verdict(annotated, verdict, store.requests, observations)
    annotated = store.scored.corrected(annotated, cells)
    if not checked or not store.kinds or by_kind is not None or store.scored.errs:
        return annotated
    without = estimate_store(
        path, estimator=estimator, stop=stop, checked=True, max_error=1.0, calls_per_hour=calls_per_hour, by_kind=False,
        max_loss=max_loss,
    )  # fmt: skip
    gain = promised_gain(annotated, without)
    return annotated if gain > 0.0 else replace(without, meta={**without.meta, UNTOLD: gain})


def require_max_error(max_error: float) -> None:
    """Raise :class:`ConfigError` (code ``max-error``) unless ``max_error`` is a fraction in (0, 1]."""
    if not 0.0 < max_error <= 1.0:
        raise ConfigError(f"max_error is {max_error}: it must be a fraction in (0, 1]", code="max-error")


def evidence_of(path: str | Path | PostgresUrl, max_error: float = 1.0) -> tuple[ValidationReport, float, float, StoreEvidence]:
    """Return a report on how reliable an estimate from a store is, as in :func:`estimate`, with costs and the store's contents.

    Args:
        path: The store. It is only read; no model is called.
        max_error: The largest acceptable half width of the 90 % interval of the best path's accuracy, a fraction. If the half
            width is larger, the report covers only the plans that requests have run; :func:`estimate` then leaves out all
            others. If it is also too large for these plans, the report covers all paths.

    Returns:
        (report, cost of the rows in dollars, estimated cost in dollars of running every path on every request, store's contents
        with the trie of its rows). The estimated cost is 0 if unknown.

    Raises:
        EvidenceError: The store is empty.
        StoreError: The store cannot be read.
        ConfigError: The answers were scored by a judge that disagrees with the labels.
    """
    from vinelm.evaluation.comparison.evidence import StoreEvidence

    store = StoreEvidence.of(path)
    annotated, cells = fitted(store, "latent")
    rows = store.rate.rows(annotated)
    evidence, spent_usd, everything_usd = _evidence(annotated, cells, rows, store.scored)
    if evidence.times_needed(max_error) > 1.0 and not store.scored.errs:
        known = _known(annotated, evidence, rows, store.registered, max_error)
        evidence = evidence if known is None else known[1]
    return evidence, spent_usd, everything_usd, replace(store, annotated=annotated)


def _known(
    annotated: AnnotatedTrie,
    evidence: ValidationReport,
    rows: Sequence[Observation],
    registered: Sequence[str],
    max_error: float,
) -> tuple[AnnotatedTrie, ValidationReport] | None:
    """Return the trie and the report, limited to the plans all of whose steps have been run on requests.

    None if no such plan exists, or if half the width of the accuracy interval of the most accurate such plan is above
    ``max_error``.
    """
    from vinelm.evaluation.comparison.tried import as_known, first_stages

    known = as_known(annotated, evidence, rows, len(registered), first_stages(rows))
    return known if known is not None and known[1].times_needed(max_error) <= 1.0 else None


def fitted(store: StoreEvidence, estimator: str) -> tuple[AnnotatedTrie, ObservationTable]:
    """Return the trie estimated from a store, with its provenance but not validated, and the table of results that it was
    fitted to.
    """
    from vinelm.estimator import ObservationTable, make_estimator
    from vinelm.estimator.arms import with_kinds_counted
    from vinelm.trie import Trie

    model = make_estimator(estimator)
    template, catalog, rate, identity = store.template, store.catalog, store.rate, store.identity
    # In an imported log, each row that uses a recorded answer carries its dollars, although they were paid once.
    is_shared = store.committed_usd < store.charged_usd * (1 - 1e-9)
    cells = ObservationTable.from_observations(rate.warm_rows(), template, Trie.from_template(template))
    annotated = rate.applied(model.fit_cells(cells, template, catalog).annotated_)
    annotated = with_kinds_counted(annotated, Counter(store.kinds.values()))
    observations = rate.rows(annotated)
    annotated = with_provenance(
        annotated,
        observations,
        workflow=identity.workflow,
        dataset_digest=identity.dataset_digest,
        is_simulated=identity.is_simulated,
        requests_registered=len(store.registered),
        cached_share=cached_shares(observations, catalog),
        **({"optional_steps": worth} if (worth := optional_steps(observations, template)) else {}),
        **rate.facts,
        **store.scored.meta,
        **({} if store.referred is None else {"as_today": {**store.referred.facts, "registered": len(store.registered)}}),
        **({} if store.n_timed == len(observations) else {"timed_rows": store.n_timed}),
        **({"paid_usd": store.committed_usd} if is_shared else {}),
    )
    return replace(annotated, meta={**annotated.meta, "spent_usd": store.charged_usd}), cells


def why_paths_only(store: ObservationStore | str | Path, annotated: AnnotatedTrie) -> str | None:
    """Return in one line why plans over a trie cannot use signals; None if the plans can use them.

    Args:
        store: The store that the trie was estimated from, or its path. It is only read.
        annotated: The trie.

    Raises:
        StoreError: The store cannot be read.
    """
    from vinelm.estimator.signals.build import why_without_signals
    from vinelm.traces import ObservationStore

    if annotated.signals is not None:
        return None
    with ObservationStore.open(store if isinstance(store, str | Path) else store.path) as opened:
        rows = opened.observations()
    return why_without_signals(rows, annotated.template)


def _evidence(
    annotated: AnnotatedTrie, cells: ObservationTable, rows: Sequence[Observation], scored: ScoredRows
) -> tuple[ValidationReport, float, float]:
    """Return (validation report of an estimate, cost of the rows, estimated cost of running every path on every request).

    Costs are in dollars; the estimated cost is 0 if unknown.

    Args:
        annotated: The estimated trie.
        cells: The table of results that it was fitted to.
        rows: The results.
        scored: How the answers were scored, to correct for a judge's errors.
    """
    from vinelm.estimator.validation.checks import validate_estimate
    from vinelm.evaluation.tries.promises import merging_optimism

    evidence = validate_estimate(cells, annotated.template, annotated.catalog, annotated)
    if evidence.selection is not None:
        evidence = replace(evidence, selection=evidence.selection.or_more(merging_optimism(annotated, rows)))
    evidence = scored.corrected_report(evidence)
    spent, coverage = annotated.meta["spent_usd"], annotated.meta["coverage"]
    return evidence, spent, spent / coverage if coverage else 0.0


def with_provenance(
    annotated: AnnotatedTrie, observations: Iterable[Observation], *, requests_registered: int, **facts: Any
) -> AnnotatedTrie:
    """Return the same trie with its provenance in ``meta``: dollars spent, coverage, stop rule, version, and ``facts``.

    Args:
        annotated: The trie.
        observations: The results that the trie was estimated from.
        requests_registered: The number of requests that the profile sampled from. ``meta["coverage"]`` is the cost of the
            results divided by the estimated cost of running every reached path on each of these requests once. It is None if
            that estimate is 0, or if the trie merges paths that differ in earlier calls.
        **facts: More entries of ``meta``, plain JSON.
    """
    spent = _dollars(observations)
    everything = (annotated.reading.everything_usd or 0.0) * max(requests_registered, 1)
    meta = {
        **annotated.meta,
        **facts,
        "requests_registered": requests_registered,
        "spent_usd": spent,
        "coverage": spent / everything if everything else None,
        "stop": annotated.template.stop,
        "vinelm": __version__,
    }
    return replace(annotated, meta=meta)


def _dollars(observations: Iterable[Observation]) -> float:
    return sum(row.cost_usd + row.tool_cost_usd for row in observations)


def require_same_workflow(annotated: AnnotatedTrie, workflow: str, dataset_digest: str, where: str) -> None:
    """Raise :class:`ConfigError` unless the trie was estimated for the store's workflow and dataset.

    Args:
        annotated: The trie.
        workflow: The store's workflow.
        dataset_digest: The store's digest of the dataset.
        where: The trie's file, for the error message.
    """
    meta = annotated.meta
    if meta.get("workflow", workflow) != workflow:
        raise ConfigError(
            f"{where}: estimated for the workflow {meta['workflow']!r}, the store holds {workflow!r}: give a matching pair"
        )
    if meta.get("dataset_digest", dataset_digest) != dataset_digest:
        raise ConfigError(f"{where}: estimated from another dataset than the store's: run `vinelm estimate` on this store")
