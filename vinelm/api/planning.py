"""Plan over an annotated trie without an application: what the controller would choose before a request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack, overload

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.errors import ConfigError
from vinelm.objective import CostBudget, Objective, OnInfeasible, Risk
from vinelm.vinefile import load_trie

if TYPE_CHECKING:
    from vinelm.controller import Decision


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
    on_infeasible: OnInfeasible


@overload
def plan(trie: AnnotatedTrie | str | Path, objective: Objective, /) -> Decision: ...


@overload
def plan(trie: AnnotatedTrie | str | Path, /, **fields: Unpack[ObjectiveFields]) -> Decision: ...


def plan(
    trie: AnnotatedTrie | str | Path, objective: Objective | None = None, /, **fields: Unpack[ObjectiveFields]
) -> Decision:
    """Choose the best path for an objective, before any request runs. Calls no model.

    Args:
        trie: An annotated trie, or the path of its file.
        objective: The target and its bounds.
        **fields: Fields of an :class:`~vinelm.objective.Objective`, in place of ``objective``.

    Returns:
        The plan, what it is expected to achieve, and what each bound leaves unused. If no path meets the bounds, the
        plan relaxes one of them and its ``is_feasible`` is False.

    Raises:
        ConfigError: The objective makes no sense, or both an objective and fields are given.
        InfeasibleError: No path meets the bounds, and the objective has ``on_infeasible="raise"``.
        TrieFileError: The file is missing, damaged or written by a newer version.

    Example:
        >>> import vinelm
        >>> decision = vinelm.plan("my-app.vine", maximize="accuracy", max_cost_usd=0.001)
        >>> decision.path
        ('small', 'large', 'large')
        >>> decision.is_feasible
        True
    """
    from vinelm.controller import Planner

    if objective is not None and fields:
        raise ConfigError(f"plan got an objective and also {', '.join(fields)}: put these fields into the objective")
    annotated = trie if isinstance(trie, AnnotatedTrie) else load_trie(trie)
    wanted = objective if objective is not None else Objective(**fields)
    return Planner(annotated).plan(wanted, elapsed_s=float(annotated.latency_s[0]))
