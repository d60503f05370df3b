"""Baselines: the nodes that a restricted policy may plan over, and policies that do not replan."""

from __future__ import annotations

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.promise import single_model_paths
from vinelm.trie import Trie
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


def best_single_model(planner: Planner, objective: Objective) -> tuple[str, ...]:
    """Plan the best path that runs on one model only; returns its models from the root."""
    return planner.plan(objective, candidates=any_single_model_nodes(planner.annotated)).path


def any_single_model_nodes(annotated: AnnotatedTrie) -> BoolArray:
    """Mark the answerable nodes whose whole path runs on one model, whichever it is. Shape (n + 1,)."""
    return single_model_paths(annotated.trie)


def best_workflow_level(planner: Planner, objective: Objective) -> tuple[str, ...]:
    """Plan the best workflow-level path (the search space of Murakkab); returns its models from the root."""
    return planner.plan(objective, candidates=workflow_level_nodes(planner.annotated)).path


def greedy_cascade(planner: Planner, objective: Objective) -> tuple[str, ...]:
    """Plan one invocation at a time: at each node, compare ending here with the nearest answers below.

    The search looks one answer ahead only, so it misses paths that pay off later. Returns the path's models from the root.
    """
    trie, node = planner.trie, 0
    while True:
        near = _next_answers(trie, node)
        near[node] = trie.answerable[node]
        if not near.any():
            return trie.prefix(node)
        target = planner.plan(objective, node=node, elapsed_s=float(planner.annotated.path_latency_s[node]),
                              spent_usd=float(planner.annotated.full_cost_usd[node]), candidates=near).target  # fmt: skip
        if target == node:
            return trie.prefix(node)
        node = target


def _next_answers(trie: Trie, node: int) -> BoolArray:
    """Mark the answerable nodes below ``node`` that have no other answerable node in between."""
    near = np.zeros(len(trie), np.bool_)
    open_nodes = trie.children(node)
    while open_nodes:
        at = open_nodes.pop()
        if trie.answerable[at]:
            near[at] = True
        else:
            open_nodes.extend(trie.children(at))
    return near
