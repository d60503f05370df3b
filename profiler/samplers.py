"""Samplers: which requests to run along which paths. Pure functions of their settings, seed and paid observations."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from vinelm.errors import ConfigError
from vinelm.observation import Observation
from vinelm.protocols import RequestPath, Sampler
from vinelm.template import Template


class CascadeSampler:
    """A random request and a random model at each depth (VineLM paper §4.2 and appendix A).

    Requests and paths are drawn uniformly with replacement, in one endless round.
    """

    def __init__(self, template: Template, request_ids: Sequence[str], seed: int) -> None:
        self.template = template
        self.request_ids = tuple(request_ids)
        self.seed = seed

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterator[RequestPath]:
        """See :meth:`~vinelm.protocols.Sampler.propose`."""
        rng = random.Random(f"cascade:{self.seed}:{round_}")
        choices = [stage.models or () for stage in self.template.invocations]
        while True:
            request_id = self.request_ids[int(rng.random() * len(self.request_ids))]
            yield RequestPath(request_id, tuple(models[int(rng.random() * len(models))] for models in choices))


class ExhaustiveSampler:
    """Every request on every path, request by request and depth first, so that few checkpoints are kept at a time."""

    def __init__(self, template: Template, request_ids: Sequence[str], seed: int = 0) -> None:
        self.template = template
        self.request_ids = tuple(request_ids)
        self.seed = seed  # has no effect: every path is proposed

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterator[RequestPath]:
        """See :meth:`~vinelm.protocols.Sampler.propose`."""
        choices = [stage.models or () for stage in self.template.invocations]
        for request_id in self.request_ids if round_ == 0 else ():
            for path in product(*choices):
                yield RequestPath(request_id, path)


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
