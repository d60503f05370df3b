"""Returns the plans over any trie, and the plan that a verdict is about."""

from __future__ import annotations

from typing import Any

from vinelm.controller import Planner
from vinelm.errors import InfeasibleError
from vinelm.evaluation.plans.graph_plans import GraphPlans
from vinelm.evaluation.plans.path_plans import PathPlans
from vinelm.evaluation.plans.plans import Plans
from vinelm.plans.recommendation import served_objective
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.verdict import Verdict, short_words


def plans_over(annotated: AnnotatedTrie) -> Plans[Any]:
    """Return an object that makes the plans over a trie: :class:`PathPlans` if each plan ends at one node, else
    :class:`GraphPlans`.
    """
    return (GraphPlans if annotated.is_contingent else PathPlans)(annotated)


def trie_of_verdict(annotated: AnnotatedTrie, found: Verdict) -> AnnotatedTrie:
    """Return the trie from which the verdict's plan was made: the trie over signals if the plan uses signals, otherwise
    the trie of paths.
    """
    policy = annotated.policy if found.plan is None else found.plan.policy
    return next((one for one in annotated.tries if one.policy == policy), annotated)


def plan_of_verdict(annotated: AnnotatedTrie, found: Verdict) -> Any:
    """Return the plan that the verdict tested, computed again from all recorded results; None if the verdict names no
    plan.

    Args:
        annotated: The trie that was estimated from all recorded results.
        found: The trie's verdict.
    """
    objective, own = served_objective(found), found.plan
    if objective is None or own is None:
        return None
    if own.policy == "fixed":
        plans = plans_over(annotated)
        among = [plans.fixed(objective, "static"), *(plan for _, plan in plans.single_models())]
        return next((plan for plan in among if plan is not None and short_words(plan.words) == own.words), among[0])
    try:
        return Planner(trie_of_verdict(annotated, found)).mixed(objective)
    except InfeasibleError:
        return None
