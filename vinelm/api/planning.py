"""Plans over an annotated trie without an application, as the controller does before a request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

from vinelm.errors import ConfigError, EvidenceError
from vinelm.objective import CostBudget, Objective, OnInfeasible, Risk
from vinelm.trie.annotated_trie import AnnotatedTrie, SignalTrie
from vinelm.vinefile import load_trie

if TYPE_CHECKING:
    from vinelm.controller import Decision

LEAST_TIMES = 1.1
"""The smallest recommended factor by which the rows grow: even a plan that only just fails needs a tenth more."""


class ObjectiveFields(TypedDict, total=False):
    """The fields of an :class:`~vinelm.objective.Objective` as keyword arguments."""

    maximize: Literal["accuracy"] | None
    minimize: Literal["cost", "latency"] | None
    min_accuracy: float | None
    max_cost_usd: float | None
    max_latency_s: float | None
    cost_budget: CostBudget
    risk: Risk
    z: float | None
    late_weight: float | None
    confidence: float | None
    mix: bool
    on_infeasible: OnInfeasible


@overload
def plan(trie: AnnotatedTrie | str | Path, objective: Objective, /, *, signals: bool = False) -> Decision: ...


@overload
def plan(trie: AnnotatedTrie | str | Path, /, *, signals: bool = False, **fields: Unpack[ObjectiveFields]) -> Decision: ...


def plan(
    trie: AnnotatedTrie | str | Path,
    objective: Objective | None = None,
    /,
    *,
    signals: bool = False,
    **fields: Unpack[ObjectiveFields],
) -> Decision:
    """Choose the best path for an objective, before any request runs. Calls no model.

    If the objective limits an average over requests, requests may be divided between two plans: ``parts`` of the result has
    both plans, each with its share of the requests.

    If the graph branches, the result is a :class:`~vinelm.controller.ContingentDecision`: its ``plan`` has a model for each
    stage of each route that a request may take, and ``path`` is empty.

    Args:
        trie: An annotated trie, or the path of its file.
        objective: The target and its bounds.
        signals: Let the plan depend on what requests show (the check's verdict, signals, whether answers agree). In Python the
            result is then a contingent plan, as :class:`~vinelm.VineLM` serves it if ``signal``, ``agree`` or ``answer`` is
            declared and every end of the graph is ``vine.finish``. With False the result is a path.
        **fields: Fields of an :class:`~vinelm.objective.Objective`, in place of ``objective``.

    Returns:
        The plan, its predicted accuracy, cost and latency, and the unused part of each of the objective's limits. If no path
            meets the limits, the plan misses one of them and its ``is_feasible`` is False. ``promise`` is the accuracy to
            expect from serving the plan: the estimate, corrected for choosing the best of many plans. :func:`require_evidence`
            refuses a plan whose advantage comes only from that choice.

    Raises:
        ConfigError: The objective is invalid, both an objective and fields are given, or ``signals`` are requested and the trie
            has none.
        InfeasibleError: No path meets the objective's limits, and the objective has ``on_infeasible="raise"``.
        TrieFileError: The file is missing, damaged or written by a newer version.

    Examples:
        >>> import vinelm
        >>> decision = vinelm.plan("my-app.vine", maximize="accuracy", max_cost_usd=0.001, mix=False)
        >>> decision.path
        ('small', 'large')
        >>> decision.is_feasible
        True
    """
    from vinelm.controller import Planner

    if objective is not None and fields:
        raise ConfigError(f"plan got an objective and also {', '.join(fields)}: put these fields into the objective")
    annotated = trie if isinstance(trie, AnnotatedTrie) else load_trie(trie)
    if signals:
        annotated = require_signals(annotated)
    wanted = objective if objective is not None else Objective(**fields)
    return Planner(annotated).mixed(wanted)


def require_signals(annotated: AnnotatedTrie) -> SignalTrie:
    """Return ``annotated.signals``, the trie for plans that use signals.

    Raises:
        ConfigError: It is missing (code ``no-signals``).
    """
    if annotated.signals is None:
        raise ConfigError(
            "the trie knows nothing of what requests show: plan over paths, or run `vinelm estimate` again, which says why",
            code="no-signals",
        )
    return annotated.signals


def require_evidence(decision: Decision) -> None:
    """Raise :class:`EvidenceError` if a plan's whole advantage over a single model may come from choosing the best of many
    plans.

    Args:
        decision: A plan for a new request.

    Raises:
        EvidenceError: The advantage may be due to chance. The message names a single model that the observations support
            equally well, and how many more observations would decide.
    """
    promise, annotated = decision.promise, decision.metrics.annotated
    if not promise.is_decided_by_optimism or promise.reference is None:
        return
    trie, reference = annotated.trie, promise.reference
    single = f"{reference if isinstance(reference, str) else trie.models[int(trie.model[reference])]!r} alone"
    gained, by_chance = 100 * promise.advantage, 100 * (promise.advantage_optimism or 0.0)
    raise EvidenceError(
        f"optimism decides: {gained:.1f} points over running {single}, and the choice among {trie.n_nodes:,} "
        f"{annotated.reading.noun} alone can make {by_chance:.1f}: run the single model, or {_remedy(decision)}",
        code="optimism-decides",
    )


def _remedy(decision: Decision) -> str:
    from vinelm.estimator.validation.checks import more_evidence

    promise, meta = decision.promise, decision.metrics.annotated.meta
    if promise.advantage <= 0.0:
        return "give a bound that the single model does not meet"
    times = ((promise.advantage_optimism or 0.0) / promise.advantage) ** 2
    spent, coverage = float(meta.get("spent_usd") or 0.0), meta.get("coverage")
    everything = spent / coverage if coverage else 0.0
    return "buy more rows: " + more_evidence(max(times, LEAST_TIMES), int(meta.get("requests") or 1), spent, everything)
