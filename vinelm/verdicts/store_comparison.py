"""Compares all policies according to the results in a store: computes the verdict, sweeps over limits, and the gain from
signals.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vinelm.errors import ConfigError
from vinelm.evaluation.comparison.cross_fit import Done, gain_between
from vinelm.evaluation.comparison.result import Evaluation
from vinelm.evaluation.off_policy.intervals import OffPolicyEstimate
from vinelm.evaluation.store_sweeps.swept_policies import PolicySweep, SweptBound, policy_sweep
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.verdicts.store_evaluation import evaluate

BOUNDS: tuple[SweptBound, ...] = ("max_cost_usd", "min_accuracy", "max_latency_s")


@dataclass(frozen=True, eq=False, kw_only=True)
class StoreComparison:
    """A comparison of policies according to a store's results.

    The requests are split into parts, and each part tests the plans that were chosen on the other parts.

    Attributes:
        evaluation: The evaluation with its verdict; None if nothing was compared.
        sweeps: One sweep for each limit of the objective (such as the budget), which takes a range of values; a sweep is
            left out if no policy meets any of its values.
        signals_gain: The accuracy gained by plans that depend on signals (what answers show without labels) over plans that do
            not. A mean over the cost budgets; None if it was not computed, for example without signals.
        why_not: The reason why nothing was compared, in one line; None if policies were compared.
    """

    evaluation: Evaluation | None = None
    sweeps: tuple[PolicySweep, ...] = ()
    signals_gain: OffPolicyEstimate | None = None
    why_not: str | None = None

    def sweep(self, bound: SweptBound) -> PolicySweep | None:
        """Return the sweep over the limit ``bound``; None if there is no such sweep."""
        return next((one for one in self.sweeps if one.bound == bound), None)


def compare_store(
    store: str | Path,
    trie: AnnotatedTrie,
    *,
    evaluation: Evaluation | None = None,
    in_use: str | Path | None = None,
    seed: int = 0,
    on_done: Done = lambda done, total, what: None,
) -> StoreComparison:
    """Return a comparison of the policies according to the results in a store. Calls no model.

    If a comparison is impossible, no error is raised, and ``why_not`` of the result gives the reason.

    Args:
        store: Path of the store.
        trie: A trie of this store. The comparison uses its estimator and stop rule.
        evaluation: The result of :func:`~vinelm.evaluate` for this store and trie; None computes it.
        in_use: The current setup: a model, or a file with a plan; see :func:`~vinelm.evaluate`.
        seed: Decides how the requests are split into parts.
        on_done: Called as ``on_done(done, total, what)`` with the number of finished and of all parts of the work, and its
            name.
    """
    try:
        found = evaluation or evaluate(store, trie, in_use=in_use, seed=seed, on_done=on_done)
    except ConfigError as error:
        return StoreComparison(why_not=str(error))
    fit = found.fit
    assert fit is not None
    found_sweeps = [policy_sweep(fit, bound, on_done=on_done) for bound in BOUNDS]
    sweeps = tuple(one for one in found_sweeps if one.runs)
    return StoreComparison(
        evaluation=found,
        sweeps=sweeps,
        signals_gain=(
            gain_between(sweeps[0].runs, "signals", "paths", "accuracy")
            if sweeps and sweeps[0].bound == "max_cost_usd"
            else None
        ),
    )
