"""Everything that the rows of a store say about the choice of models: sweeps, the decision, and what signals are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.errors import ConfigError, EvidenceError
from vinelm.evaluation.judging.cross_fit import CrossFit, Done, gain_over
from vinelm.evaluation.judging.store_evaluation import require_judgeable
from vinelm.evaluation.off_policy.intervals import OffPolicyEstimate
from vinelm.evaluation.off_policy.scores import Scores
from vinelm.evaluation.store_sweeps.plan_in_use import PlanInUse
from vinelm.evaluation.store_sweeps.swept_policies import JudgedSweep, SweptBound, judged_sweep
from vinelm.evaluation.store_sweeps.switch_decision import SwitchDecision, decide
from vinelm.observation import Observation

BOUNDS: tuple[SweptBound, ...] = ("max_cost_usd", "min_accuracy", "max_latency_s")


@dataclass(frozen=True, eq=False, kw_only=True)
class JudgedStore:
    """What the rows of a store say, one half of the requests planning and the other judging, both ways.

    Attributes:
        sweeps: By bound; those without any bound that all policies meet are left out.
        decision: Keep or switch; None where nothing was judged.
        signals_gain: Paired gain in accuracy of planning over what requests show, over planning paths, mean over the cost
            budgets; None where the trie has no outcomes.
        unjudged: Why nothing was judged, in one line; None if it was.
    """

    sweeps: tuple[JudgedSweep, ...] = ()
    decision: SwitchDecision | None = None
    signals_gain: OffPolicyEstimate | None = None
    unjudged: str | None = None

    def sweep(self, bound: SweptBound) -> JudgedSweep | None:
        """Return the sweep of a bound; None if there is none."""
        return next((one for one in self.sweeps if one.bound == bound), None)


def judge_store(
    requests: Sequence[str],
    rows: Sequence[Observation],
    annotated: AnnotatedTrie,
    *,
    in_use: PlanInUse | None = None,
    seed: int = 0,
    on_done: Done = lambda done, total, what: None,
) -> JudgedStore:
    """Judge the policies over the rows of a store. Calls no model.

    Where that is not possible, the result says why; it is no error.

    Args:
        requests: All requests of the store, those without a row included.
        rows: Its rows.
        annotated: A trie of this store: its estimator and stop rule are used.
        in_use: What the decision compares with; None: the most accurate single model of each half.
        seed: Decides the split and the bootstrap.
        on_done: Called as ``on_done(done, total, what)``.
    """
    known = set(requests)
    everyone = [*requests, *dict.fromkeys(row.request_id for row in rows if row.request_id not in known)]
    try:
        require_judgeable(everyone, rows, annotated.template)
        fit = CrossFit(
            everyone, rows, annotated.template, annotated.catalog,
            estimator=str(annotated.meta.get("estimator", "latent")), seed=seed, on_done=on_done,
        )  # fmt: skip
    except (ConfigError, EvidenceError) as error:
        return JudgedStore(unjudged=str(error))
    sweeps = [judged_sweep(fit, bound, seed=seed, on_done=on_done) for bound in BOUNDS]
    found = tuple(one for one in sweeps if one.runs)
    return JudgedStore(
        sweeps=found,
        decision=decide(fit, in_use),
        signals_gain=_signals_gain(found[0]) if found and found[0].bound == "max_cost_usd" else None,
    )


def _signals_gain(sweep: JudgedSweep) -> OffPolicyEstimate | None:
    runs = [both for both in sweep.runs if all({"signals", "paths"} <= set(one) for one in both.by_half)]
    if not runs:
        return None
    own, other = (
        [Scores.mean([both.by_half[half][name].scores for both in runs]) for half in (0, 1)] for name in ("signals", "paths")
    )
    return gain_over(own, other, "accuracy")
