"""The plans over any trie."""

from __future__ import annotations

from typing import Any

from vinelm.evaluation.plans.graph_plans import GraphPlans
from vinelm.evaluation.plans.path_plans import PathPlans
from vinelm.evaluation.plans.plans import Plans
from vinelm.trie.annotated_trie import AnnotatedTrie


def plans_over(annotated: AnnotatedTrie) -> Plans[Any]:
    """Return the plans over a trie: of its paths, or of its graph of decisions."""
    return annotated.by_ends(one=PathPlans, several=GraphPlans)
