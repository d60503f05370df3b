"""Baselines: the nodes that a restricted policy may plan over."""

from __future__ import annotations

import numpy as np

from vinelm.errors import ConfigError
from vinelm.plans.promise import single_model_paths
from vinelm.trie.annotated_trie import AnnotatedTrie
from vinelm.trie.arrays import BoolArray


def single_model_nodes(annotated: AnnotatedTrie, model: str) -> BoolArray:
    """Mark the answerable nodes whose whole path runs on one model.

    Returns:
        A mask of shape (n + 1,) over the nodes of the trie.

    Raises:
        ConfigError: The trie has no such model.
    """
    trie = annotated.trie
    if model not in trie.models:
        raise ConfigError(f"unknown model {model!r}: the trie has {', '.join(trie.models)}")
    wanted = trie.models.index(model)
    alone = np.ones(len(trie), np.bool_)
    for level in trie.levels[1:]:
        alone[level] = alone[trie.parent[level]] & (trie.model[level] == wanted)
    return alone & trie.answerable


def workflow_level_nodes(annotated: AnnotatedTrie) -> BoolArray:
    """Mark the answerable nodes of workflow-level plans: one model per stage and a maximum depth (VineLM paper §5.1).

    A generate stage with a repair loop has 136 such plans with 8 models and 3 invocations, and 14 with 2 models and 4.

    Returns:
        A mask of shape (n + 1,) over the nodes of the trie.
    """
    trie = annotated.trie
    uniform = np.ones(len(trie), np.bool_)
    model_of = np.full((len(trie), len(trie.stages)), -1, np.int16)  # the model of each stage so far, -1 for none yet
    for level in trie.levels[1:]:
        up = trie.parent[level]
        model_of[level] = model_of[up]
        before = model_of[level, trie.stage[level]]
        uniform[level] = uniform[up] & ((before == -1) | (before == trie.model[level]))
        model_of[level, trie.stage[level]] = trie.model[level]
    return uniform & trie.answerable


def any_single_model_nodes(annotated: AnnotatedTrie) -> BoolArray:
    """Mark the answerable nodes whose whole path runs on one model, whichever it is. Shape (n + 1,)."""
    return single_model_paths(annotated.trie)
