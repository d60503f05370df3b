"""Defines functions on whole runs (the models of every call of a request) and their results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from vinelm.requests.protocols import Choice
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template
from vinelm.trie import Trie
from vinelm.trie.arrays import FloatArray

Run = tuple[Choice, ...]
"""The models of a whole run."""


def distinct(paths: Iterable[Run]) -> tuple[Run, ...]:
    """Return the paths without duplicates, in order.

    A path need not be hashable: a call may have a dictionary with a model for each stage.
    """
    found: list[Run] = []
    for path in paths:
        if path not in found:
            found.append(path)
    return tuple(found)


def whole_path(template: Template, models: Mapping[str, str]) -> Run:
    """Return the path in which each stage uses its model in ``models``, up to the template's last call."""
    return tuple(_choice(stages, models) for stages in template.flow.stages_at)


def is_run_of(template: Template, path: Sequence[Choice]) -> bool:
    """Return whether a path has a model of the template for each call and each stage that the call may run."""
    stages_at = template.flow.stages_at
    return len(path) == len(stages_at) and all(
        (choice if isinstance(choice, str) else choice.get(stage)) in (template.stage(stage).models or ())
        for choice, stages in zip(path, stages_at, strict=True)
        for stage in stages
    )


def as_run(reached: FloatArray, trie: Trie, template: Template) -> Run:
    """Return the models of a whole run that approximates a plan.

    For each call and each stage that the call may run, this is the model that the plan uses most.

    Args:
        reached: For each node of the trie, the probability that a request under the plan executes the node's call. Index 0 is
            the root, so that the shape is (nodes + 1,). The run ends where no node is reached.
        trie: The plan's trie.
        template: A bound template. In stages that the plan does not reach, the run uses the current model. If that is unknown,
            the run ends there.
    """
    path: list[Choice] = []
    for stages, nodes in zip(template.flow.stages_at, trie.levels[1:], strict=True):
        if not np.any(reached[nodes] > 0.0):
            break
        models = dict(template.today or {})
        for node in sorted(nodes[reached[nodes] > 0.0], key=lambda node: float(reached[node])):
            models[trie.stages[trie.stage[node]]] = trie.models[trie.model[node]]
        path.append(_choice([stage for stage in stages if stage in models], models))
    return tuple(path)


def _choice(stages: Iterable[str], models: Mapping[str, str]) -> Choice:
    chosen = {name: models[name] for name in stages}
    return next(iter(chosen.values())) if len(set(chosen.values())) == 1 else chosen


def run_of(
    rows: Mapping[Cell, Observation], template: Template, request: str, path: Sequence[Choice]
) -> tuple[list[Observation], bool]:
    """Return a request's results along a path, in order, and whether they are a complete run.

    They are complete if the request ends after the last result or the path has no further call. They are incomplete if the next
    call has no result.

    Args:
        rows: All results, keyed by (request id, models).
        template: The bound template.
        request: The request's id.
        path: The models of the path.
    """
    found: list[Observation] = []
    stage = template.first_stages[0].name if len(template.first_stages) == 1 else None
    for choice in path:
        prefix = found[-1].prefix if found else ()
        if stage is not None and not isinstance(choice, str) and stage not in choice:
            return found, True  # the path has no model for the stage that came, and ends
        named = (choice,) if isinstance(choice, str) else choice.values() if stage is None else (choice[stage],)
        ran = (rows.get((request, (*prefix, model))) for model in named)
        row = next(
            (row for row in ran if row is not None and (isinstance(choice, str) or choice.get(row.stage) == row.model)), None
        )
        if row is None:
            return found, False
        found.append(row)
        if row.ended(template.stop):
            break
        follower = template.following(row.depth, row.arm)
        stage = None if follower is None else follower.name
    return found, True
