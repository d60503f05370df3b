"""Computes the arrays of a trie, whose nodes are in pre-order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vinelm.errors import TemplateError
from vinelm.template import Template

MOST_NODES = 2**31 - 1


def template_arrays(template: Template) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a :class:`~vinelm.trie.trie.Trie` with every prefix that a template allows, keyed by attribute
    name. The template must be bound to a catalog.

    A prefix is a sequence of models that a request may have run so far.

    Raises:
        TemplateError: the trie would have 2**31 nodes or more.
    """
    model_index = {name: i for i, name in enumerate(template.models)}
    stage_index = {stage.name: i for i, stage in enumerate(template.stages)}
    allowed = {stage.name: [model_index[name] for name in stage.models or ()] for stage in template.stages}
    positions = template.flow.positions
    size = [1] * len(positions)
    for number in range(len(positions) - 1, -1, -1):  # an arm leads to a higher number
        size[number] += sum(len(allowed[stage]) * size[after] for stage, after in positions[number].arms.items())
    if size[0] > MOST_NODES:
        raise TemplateError(
            f"the template has {size[0] - 1:,} prefixes: allow fewer models or fewer loop turns, or give a loop memory=2"
        )
    arrays: dict[str, npt.NDArray[Any]] = {
        "parent": np.full(size[0], -1, np.int32),
        "end": np.empty(size[0], np.int32),
        "depth": np.zeros(size[0], np.int16),
        "stage": np.full(size[0], -1, np.int16),
        "model": np.full(size[0], -1, np.int16),
        "answerable": np.zeros(size[0], np.bool_),
    }
    arrays["end"][0] = size[0]
    level: dict[int, list[npt.NDArray[np.int64]]] = {0: [np.zeros(1, np.int64)]}
    depth = 0
    while level:
        depth += 1
        below: dict[int, list[npt.NDArray[np.int64]]] = {}
        for number in sorted(level):
            nodes, first = np.concatenate(level[number]), 1
            for stage, after in positions[number].arms.items():
                models = np.array(allowed[stage], np.int16)
                children = nodes[:, None] + first + np.arange(len(models)) * size[after]
                flat = children.ravel()
                arrays["parent"][children] = nodes[:, None]
                arrays["end"][flat] = flat + size[after]
                arrays["depth"][flat] = depth
                arrays["stage"][flat] = stage_index[stage]
                arrays["model"][flat] = np.tile(models, len(nodes))
                arrays["answerable"][flat] = template.stage(stage).answerable and not positions[after].is_joint
                below.setdefault(after, []).append(flat)
                first += len(models) * size[after]
        level = below
    return arrays


def prefix_arrays(template: Template, prefixes: Iterable[Sequence[str]]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a :class:`~vinelm.trie.trie.Trie` with these prefixes of a linear template and their ancestors,
    keyed by attribute name.

    Raises:
        TemplateError: a prefix is longer than the template, or has a model that its stage does not allow.
    """
    models = template.models
    index = {name: i for i, name in enumerate(models)}
    stages = tuple(stage.name for stage in template.stages)
    wanted: set[tuple[int, ...]] = {()}
    for prefix in prefixes:
        if len(prefix) > template.depth:
            raise TemplateError(f"prefix {'/'.join(prefix)} is longer than the template's {template.depth} invocations")
        for k, name in enumerate(prefix):
            if name not in (template.invocations[k].models or ()):
                raise TemplateError(f"stage {template.invocations[k].name!r} does not allow the model {name!r}")
        path = tuple(index[name] for name in prefix)
        wanted.update(path[:k] for k in range(1, len(path) + 1))
    rows = sorted(wanted)  # lexicographic order of tuples is pre-order
    node = {row: i for i, row in enumerate(rows)}
    end = np.arange(1, len(rows) + 1)
    for i in range(len(rows) - 1, 0, -1):
        up = node[rows[i][:-1]]
        end[up] = max(end[up], end[i])
    return {
        "parent": np.array([node[row[:-1]] if row else -1 for row in rows]),
        "end": end,
        "depth": np.array([len(row) for row in rows]),
        "stage": np.array([stages.index(template.invocations[len(row) - 1].name) if row else -1 for row in rows]),
        "model": np.array([row[-1] if row else -1 for row in rows]),
        "answerable": np.array([bool(row) and template.invocations[len(row) - 1].answerable for row in rows]),
    }
