"""Samplers: which requests to run along which paths. Pure functions of their settings, seed and paid observations."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from vinelm.errors import ConfigError
from vinelm.observation import Observation
from vinelm.protocols import Choice, RequestPath, Sampler
from vinelm.template import Template

Models = tuple[str, ...]


class CascadeSampler:
    """A random request and a random model at each depth (VineLM paper §4.2 and appendix A).

    Requests and paths are drawn uniformly with replacement, in one endless round. Where several stages may come, one draw
    decides the model of each of them, so that it is uniform whichever comes.
    """

    def __init__(self, template: Template, request_ids: Sequence[str], seed: int) -> None:
        self.template = template
        self.request_ids = tuple(request_ids)
        self.seed = seed

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterator[RequestPath]:
        """See :meth:`~vinelm.protocols.Sampler.propose`."""
        rng = random.Random(f"cascade:{self.seed}:{round_}")
        choices = models_by_depth(self.template)
        while True:
            request_id = self.request_ids[int(rng.random() * len(self.request_ids))]
            yield RequestPath(request_id, tuple(_drawn(models, rng.random()) for models in choices))


class ExhaustiveSampler:
    """Every request on every path, request by request and depth first, so that few checkpoints are kept at a time."""

    def __init__(self, template: Template, request_ids: Sequence[str], seed: int = 0) -> None:
        self.template = template
        self.request_ids = tuple(request_ids)
        self.seed = seed  # has no effect: every path is proposed

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterator[RequestPath]:
        """See :meth:`~vinelm.protocols.Sampler.propose`."""
        choices = [self._united(models) for models in models_by_depth(self.template)]
        for request_id in self.request_ids if round_ == 0 else ():
            for path in product(*choices):
                yield RequestPath(request_id, path)

    def _united(self, models: Models | Mapping[str, Models]) -> Models:
        """Every model that some stage allows there; a path ends where the stage that comes does not allow its model."""
        if isinstance(models, tuple):
            return models
        return tuple(name for name in self.template.models if any(name in allowed for allowed in models.values()))


def models_by_depth(template: Template) -> list[Models | Mapping[str, Models]]:
    """Return the models that each invocation may run on; by stage where several stages with different models may come.

    Raises:
        ConfigError: several stages may come first, with different models: which one comes is only known once it runs.
    """
    if template.is_linear:
        return [stage.models or () for stage in template.invocations]
    first, *others = template.first_stages
    for other in others:
        if set(other.models or ()) != set(first.models or ()):
            raise ConfigError(
                f"the stages {first.name!r} and {other.name!r} may both come first and allow different models, but which one "
                "comes is only known once it runs: allow the same models in both"
            )
    found: list[Models | Mapping[str, Models]] = []
    for stages in template.flow.stages_at:
        models = {name: template.stage(name).models or () for name in stages}
        one = next(iter(models.values()))
        found.append(one if all(set(other) == set(one) for other in models.values()) else models)
    return found


def _drawn(models: Models | Mapping[str, Models], share: float) -> Choice:
    """The model at this share of the list, of each stage's list where they differ."""
    if isinstance(models, tuple):
        return models[int(share * len(models))]
    return {stage: allowed[int(share * len(allowed))] for stage, allowed in models.items()}


_SAMPLERS: Mapping[str, type[CascadeSampler] | type[ExhaustiveSampler]] = {
    "cascade": CascadeSampler,
    "exhaustive": ExhaustiveSampler,
}

SAMPLERS: tuple[str, ...] = tuple(_SAMPLERS)
"""The names that :func:`make_sampler` accepts."""


def make_sampler(name: str, template: Template, request_ids: Sequence[str], seed: int) -> Sampler:
    """Return the sampler of that name over a bound template.

    Raises:
        ConfigError: no sampler has that name.
    """
    if name not in _SAMPLERS:
        raise ConfigError(f"unknown sampler {name!r}: use {' or '.join(_SAMPLERS)}")
    return _SAMPLERS[name](template, request_ids, seed)
