"""Samplers by the name that a user types: the profiler's own, and the estimator's allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from vinelm.cli.inputs import Inputs
    from vinelm.protocols import Sampler


def sampler_of(name: str, goal: str | None, inputs: Inputs, seed: int) -> str | Sampler:
    """What the runner is given: the profiler's own samplers by name, ``neyman`` as an object with its ``goal``.

    :class:`ConfigError` for an unknown name, and for a goal that would have no effect.
    """
    from vinelm.profiler.samplers import SAMPLERS

    if name == "neyman":
        from vinelm.estimator.sampling.goal import Goal
        from vinelm.estimator.sampling.neyman import NeymanSampler

        wanted = None if goal is None else Goal.parse(goal)
        ids = [request.id for request in inputs.workflow.requests]
        return NeymanSampler(inputs.workflow.template, inputs.catalog, ids, seed, goal=wanted)
    if goal is not None:
        raise ConfigError(f"--goal has no effect with --sampler {name}: use --sampler neyman, or leave it out")
    if name not in SAMPLERS:
        raise ConfigError(f"unknown sampler {name!r}: use {', '.join(SAMPLERS)} or neyman")
    return name
