"""What VineLM is compared with, in the same interface: nodes to plan over, and policies that do not replan."""

from __future__ import annotations

import numpy as np

from vinelm.annotated_trie import AnnotatedTrie
from vinelm.controller import Planner
from vinelm.errors import ConfigError
from vinelm.objective import Objective
from vinelm.trie import BoolArray, Trie


def single_model_nodes(annotated: AnnotatedTrie, model: str) -> BoolArray:
    """Answerable nodes whose whole path runs on ``model``, shape (n + 1,): one model for everything, and a depth cap.

    :class:`ConfigError` for a model that the trie lacks.
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
    """Answerable nodes that a workflow-level plan can end at, shape (n + 1,): one model per stage, and a depth cap (§5.1).

    8 models at 3 invocations give 136 of them, 2 models at 4 give 14.
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
    """The best path that runs on one model throughout, as models from the root."""
    alone = np.zeros(len(planner.trie), np.bool_)
    for model in planner.trie.models:
        alone |= single_model_nodes(planner.annotated, model)
    return planner.plan(objective, candidates=alone).path


def best_workflow_level(planner: Planner, objective: Objective) -> tuple[str, ...]:
    """The best workflow-level plan (Murakkab's space), as models from the root."""
    return planner.plan(objective, candidates=workflow_level_nodes(planner.annotated)).path


def greedy_cascade(planner: Planner, objective: Objective) -> tuple[str, ...]:
    """A path found one invocation at a time: at each node the best of ending here and of the next answers one step away.

    Looks no further, so it misses what only pays off later.
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
    """The answerable nodes below ``node`` with no other in between."""
    near = np.zeros(len(trie), np.bool_)
    open_nodes = trie.children(node)
    while open_nodes:
        at = open_nodes.pop()
        if trie.answerable[at]:
            near[at] = True
        else:
            open_nodes.extend(trie.children(at))
    return near
