"""Which requests to send down which paths: pure, seeded, and blind to anything that was not paid for."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from vinelm.errors import ConfigError
from vinelm.observation import Observation
from vinelm.protocols import RequestPath, Sampler
from vinelm.template import Template

__all__ = ["SAMPLERS", "CascadeSampler", "ExhaustiveSampler", "RequestPath", "Sampler", "make_sampler"]


class CascadeSampler:
    """The paper's (§4.2, appendix A): a random request, a random model at each depth, ended where the stop rule fires.

    Requests and paths are drawn uniformly, with replacement, for as long as they are asked for: one endless round.
    """

    def __init__(self, template: Template, request_ids: Sequence[str], seed: int) -> None:
        self.template = template
        self.request_ids = tuple(request_ids)
        self.seed = seed

    def walks(self, round_: int, seen: Sequence[Observation]) -> Iterator[RequestPath]:
        """See :class:`Sampler`."""
        rng = random.Random(f"cascade:{self.seed}:{round_}")
        choices = [stage.models or () for stage in self.template.invocations]
        while True:
            request_id = self.request_ids[int(rng.random() * len(self.request_ids))]
            yield RequestPath(request_id, tuple(models[int(rng.random() * len(models))] for models in choices))


class ExhaustiveSampler:
    """Every request on every path, request by request and depth first, so that checkpoints are used while they are fresh."""

    def __init__(self, template: Template, request_ids: Sequence[str], seed: int = 0) -> None:
        self.template = template
        self.request_ids = tuple(request_ids)
        self.seed = seed  # takes no part: everything is run

    def walks(self, round_: int, seen: Sequence[Observation]) -> Iterator[RequestPath]:
        """See :class:`Sampler`."""
        choices = [stage.models or () for stage in self.template.invocations]
        for request_id in self.request_ids if round_ == 0 else ():
            for path in product(*choices):
                yield RequestPath(request_id, path)


_SAMPLERS: Mapping[str, type[CascadeSampler] | type[ExhaustiveSampler]] = {
    "cascade": CascadeSampler,
    "exhaustive": ExhaustiveSampler,
}

SAMPLERS: tuple[str, ...] = tuple(_SAMPLERS)
"""Names that :func:`make_sampler` knows."""


def make_sampler(name: str, template: Template, request_ids: Sequence[str], seed: int) -> Sampler:
    """The sampler of that name over a bound template; :class:`ConfigError` lists the known ones."""
    if name not in _SAMPLERS:
        raise ConfigError(f"unknown sampler {name!r}: use {' or '.join(_SAMPLERS)}")
    return _SAMPLERS[name](template, request_ids, seed)
