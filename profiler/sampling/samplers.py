"""Samplers choose the requests and paths to run. They are pure functions of their settings, seed and the results so far."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.meant import did_you_mean
from vinelm.profiler.sampling.deciding_sampler import Candidates, DecidingSampler
from vinelm.profiler.sampling.limits import ProfileLimits
from vinelm.profiler.sampling.priced_sampler import Models, PricedSampler, models_by_depth
from vinelm.requests.protocols import Choice, RequestPath, Sampler
from vinelm.rows.observation import Observation
from vinelm.template import Template


class CascadeSampler:
    """A sampler that draws a random request, and a random model for each call (VineLM paper §4.2 and appendix A).

    Requests and paths are drawn uniformly with replacement, in one endless round. If several stages may come next, one random
    number selects a model for each of them.
    """

    def __init__(self, template: Template, request_ids: Sequence[str], seed: int) -> None:
        self.template = template
        self.request_ids = tuple(request_ids)
        self.seed = seed

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterator[RequestPath]:
        """Yield random paths without end, drawn by the seed and the round. ``observations`` are ignored."""
        rng = random.Random(f"cascade:{self.seed}:{round_}")
        choices = models_by_depth(self.template)
        while True:
            request_id = self.request_ids[int(rng.random() * len(self.request_ids))]
            yield RequestPath(request_id, tuple(_drawn(models, rng.random()) for models in choices))


class ExhaustiveSampler:
    """A sampler that runs every request on every path, one request after the other, depth first.

    This order keeps the number of stored checkpoints small.
    """

    def __init__(self, template: Template, request_ids: Sequence[str], seed: int = 0) -> None:
        self.template = template
        self.request_ids = tuple(request_ids)
        self.seed = seed  # has no effect: every path is proposed

    def propose(self, round_: int, observations: Sequence[Observation]) -> Iterator[RequestPath]:
        """Yield every path of every request in round 0, and nothing in later rounds. ``observations`` are ignored."""
        choices = [self._united(models) for models in models_by_depth(self.template)]
        for request_id in self.request_ids if round_ == 0 else ():
            for path in product(*choices):
                yield RequestPath(request_id, path)

    def _united(self, models: Models | Mapping[str, Models]) -> Models:
        """Return every model that some possible stage of a call allows.

        If the stage that runs does not allow the path's model, the path ends there.
        """
        if isinstance(models, tuple):
            return models
        return tuple(name for name in self.template.models if any(name in allowed for allowed in models.values()))


def _drawn(models: Models | Mapping[str, Models], share: float) -> Choice:
    """Return the model whose index is the fraction ``share``, in [0, 1), of the list's length, rounded down.

    If ``models`` has a list for each possible stage, return a model for each stage, by stage name.
    """
    if isinstance(models, tuple):
        return models[int(share * len(models))]
    return {stage: allowed[int(share * len(allowed))] for stage, allowed in models.items()}


SAMPLERS: tuple[str, ...] = ("deciding", "priced", "cascade", "exhaustive")
"""The names that :func:`make_sampler` accepts; the first is the default."""


def make_sampler(
    name: str,
    template: Template,
    request_ids: Sequence[str],
    seed: int,
    *,
    catalog: Catalog | None = None,
    limits: ProfileLimits | None = None,
    continued_share: float = 0.0,
    candidates: Candidates | None = None,
    kinds: Mapping[str, str] | None = None,
    few_rounds: bool = False,
) -> Sampler:
    """Return the sampler with the given name, for a bound template.

    Args:
        name: One of :data:`SAMPLERS`.
        template: The template.
        request_ids: The requests to sample from.
        seed: Seed of the random choices.
        catalog: List prices for ``"deciding"`` and ``"priced"``; with None, the first rounds call all models equally often.
        limits: The limits of the whole profile, from which ``"deciding"`` computes its budgets.
        continued_share: Share, in [0, 1), of the paths drawn by price (``"deciding"`` and ``"priced"``) that continue after an
            answer that passed the workflow's own check.
        candidates: Returns the plans for which ``"deciding"`` buys whole runs.
        kinds: The type of each request, so that ``"deciding"`` and ``"priced"`` cover each type. None does not distinguish
            types.
        few_rounds: Whether a round takes hours, so that ``"deciding"`` plans fewer and larger rounds.

    Raises:
        ConfigError: no sampler has that name, or ``continued_share`` is out of range.
    """
    require_sampler(name)
    if name == "deciding":
        return DecidingSampler(
            template, catalog, request_ids, seed, limits=limits, continued_share=continued_share, candidates=candidates,
            kinds=kinds, few_rounds=few_rounds,
        )  # fmt: skip
    if name == "priced":
        return PricedSampler(template, catalog, request_ids, seed, continued_share=continued_share, kinds=kinds)
    if name == "cascade":
        return CascadeSampler(template, request_ids, seed)
    return ExhaustiveSampler(template, request_ids, seed)


def require_sampler(sampler: str | Sampler) -> None:
    """Raise :class:`ConfigError` if ``sampler`` is a string other than the name of a sampler."""
    if isinstance(sampler, str) and sampler not in SAMPLERS:
        raise ConfigError(
            f"unknown sampler {sampler!r}{did_you_mean(sampler, SAMPLERS)}: use {', '.join(SAMPLERS[:-1])} or {SAMPLERS[-1]}"
        )
