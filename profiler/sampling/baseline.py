"""The first rows of every profile: whole runs of what the application runs today, and of the strongest model, in pairs.

A plan is worth serving only beside what it replaces. So the comparison is bought before anything else, on the same requests for
both; exploring comes after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from vinelm.catalog import Catalog
from vinelm.requests.protocols import Choice, RequestPath
from vinelm.rows.observation import Cell, Observation
from vinelm.template import Template
from vinelm.trie import Trie
from vinelm.trie.arrays import FloatArray

PAIRED = 30
"""Requests that today's configuration and the strongest model both answer first, or all if there are fewer."""
NOMINAL_TOKENS = (1000, 250)
"""Prompt and completion tokens of the call that list prices are compared by."""
Path = tuple[Choice, ...]


def listed_usd(catalog: Catalog | None, model: str) -> float:
    """Return the list price of a usual call in dollars; 0 without a catalog."""
    return 0.0 if catalog is None else catalog[model].price.cost_usd(*NOMINAL_TOKENS)


def baselines(template: Template, catalog: Catalog | None) -> tuple[Path, ...]:
    """Return today's configuration and the strongest model, each as the models of a whole run.

    The strongest model of a stage is the dearest by list price. It is left out where nothing is dearer than what runs today.
    Where it is not known what runs today it is alone: an estimate of the dearest model from few rows leans on the others.

    Args:
        template: Bound.
        catalog: The models; None: prices are unknown, and today's configuration is compared alone.

    Returns:
        The paths, today's first where it is known.
    """
    today, strongest = template.today, {}
    for stage in template.stages:
        models = (*(() if today is None else (today[stage.name],)), *(stage.models or ()))
        strongest[stage.name] = max(models, key=lambda model: listed_usd(catalog, model))
    if today is not None:
        return distinct((whole_path(template, today), whole_path(template, strongest)))
    prices = {listed_usd(catalog, model) for stage in template.stages for model in stage.models or ()}
    return (whole_path(template, strongest),) if len(prices) > 1 else ()


def distinct(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return each path once, in order: a path with a model for each stage has no hash."""
    found: list[Path] = []
    for path in paths:
        if path not in found:
            found.append(path)
    return tuple(found)


def whole_path(template: Template, models: Mapping[str, str]) -> Path:
    """Return the path of a run in which each stage has its model, down to the last invocation that the template allows."""
    return tuple(_choice(stages, models) for stages in template.flow.stages_at)


def as_run(reached: FloatArray, trie: Trie, template: Template) -> Path:
    """Return the models of a whole run along a plan, the most frequent one at each stage of each invocation.

    Args:
        reached: P(a request of the plan runs the invocation of each node), shape (n + 1,). Beyond its end the path ends, too.
        trie: The plan's.
        template: Bound, and with what runs today: stages that the plan does not come to run that.
    """
    path: list[Choice] = []
    for stages, nodes in zip(template.flow.stages_at, trie.levels[1:], strict=True):
        if not np.any(reached[nodes] > 0.0):
            break
        models = dict(template.today or {})
        for node in sorted(nodes[reached[nodes] > 0.0], key=lambda node: float(reached[node])):
            models[trie.stages[trie.stage[node]]] = trie.models[trie.model[node]]
        path.append(_choice(stages, models))
    return tuple(path)


def _choice(stages: Iterable[str], models: Mapping[str, str]) -> Choice:
    chosen = {name: models[name] for name in stages}
    return next(iter(chosen.values())) if len(set(chosen.values())) == 1 else chosen


def paired(order: Sequence[str], paths: Sequence[Path]) -> Iterator[RequestPath]:
    """Yield whole runs of every path on each of the first requests, request by request."""
    for request in order[:PAIRED] if paths else ():
        for path in paths:
            yield RequestPath(request, path)


def is_run(rows: Mapping[Cell, Observation], template: Template, request: str, path: Path) -> bool:
    """Return whether the rows have a request's whole run along a path, down to its own end."""
    prefix: tuple[str, ...] = ()
    stage = template.first_stages[0].name if len(template.first_stages) == 1 else None
    for choice in path:
        model = choice if isinstance(choice, str) else choice.get(stage or "")
        row = None if model is None else rows.get((request, (*prefix, model)))
        if row is None:
            return False
        if row.ended(template.stop):
            return True
        prefix = row.prefix
        follower = template.following(row.depth, row.arm)
        stage = None if follower is None else follower.name
    return True
