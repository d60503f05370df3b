"""What a command works on: a workflow by name, its catalog, and whether the models are simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vinelm.catalog import Catalog
from vinelm.errors import ConfigError
from vinelm.workflow import Workflow

if TYPE_CHECKING:
    from vinelm.protocols import Sampler


if TYPE_CHECKING:
    from vinelm.protocols import Backend
    from vinelm.template import StopRule

DEFAULT_PRESET = "paper"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A workflow with its template bound to the catalog, and one backend per provider. ``note``: what was taken by default."""

    workflow: Workflow
    catalog: Catalog
    backends: dict[str, Backend]
    note: str | None

    @property
    def is_simulated(self) -> bool:
        """Some answers are not those of real models."""
        return any(backend.is_simulated for backend in self.backends.values())


def load_inputs(
    spec: str,
    *,
    models: Path | None = None,
    preset: str | None = None,
    dataset: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    stop: str | None = None,
) -> Inputs:
    """Read everything a run needs and check that it fits together. Writes nothing, calls no model.

    :class:`InputError` for anything that is wrong with it. ``preset`` names a simulated catalog and excludes ``models``;
    with neither, workflows that bring a writer for simulated answers get the default preset.
    """
    from vinelm.backends import create_backends
    from vinelm.workflows import load_workflow

    if models is not None and preset is not None:
        raise ConfigError("--models and --preset exclude each other: keep one")
    workflow = load_workflow(spec, dataset=dataset)
    if limit is not None:
        workflow = replace(workflow, requests=tuple(workflow.requests[:limit]))
    catalog, note = _catalog(workflow, models, preset)
    template = workflow.template if stop is None else workflow.template.with_stop(cast("StopRule", stop))
    bound = replace(workflow, template=template.bind(tuple(catalog)))
    return Inputs(workflow=bound, catalog=catalog, backends=create_backends(catalog, workflow=bound, seed=seed), note=note)


def catalog_for_check(models: Path | None) -> Catalog:
    """The named catalog, or one whose models stand in where nothing is called."""
    if models is not None:
        return Catalog.from_file(models)
    from vinelm.backends import simulated_catalog

    return simulated_catalog(DEFAULT_PRESET)


def _catalog(workflow: Workflow, models: Path | None, preset: str | None) -> tuple[Catalog, str | None]:
    if models is not None:
        return Catalog.from_file(models), None
    from vinelm.backends import simulated_catalog

    if preset is None and workflow.writer is None:
        raise ConfigError(
            f"workflow {workflow.name!r} needs --models: name a catalog file (there is no simulated writer for it)"
        )
    catalog = simulated_catalog(preset or DEFAULT_PRESET)
    return catalog, f"simulated models (preset {preset or DEFAULT_PRESET}, {len(catalog)} models): give --models for real ones"


def refuse_replacing(output: Path, made_of: Path) -> None:
    """:class:`ConfigError` if ``output`` is the very file that a command reads: writing it would lose what was bought."""
    if output.exists() and made_of.exists() and output.samefile(made_of):
        raise ConfigError(f"{output}: this is the file that is read, and it would be replaced: give -o another name")


def refuse_other_file(output: Path) -> None:
    """:class:`ConfigError` if ``output`` exists and is no trie file: only an earlier trie is replaced."""
    if output.is_file() and output.stat().st_size:
        with output.open("rb") as file:
            if file.read(2) != b"PK":
                raise ConfigError(f"{output}: exists and is no trie file: give -o another name, or move it away")


def sampler_of(name: str, goal: str | None, inputs: Inputs, seed: int) -> str | Sampler:
    """What the runner is given: the profiler's own samplers by name, ``neyman`` as an object with its ``goal``.

    :class:`ConfigError` for an unknown name, and for a goal that would have no effect.
    """
    from vinelm.profiler import SAMPLERS

    if name == "neyman":
        from vinelm.estimator import Goal, NeymanSampler

        wanted = None if goal is None else Goal.parse(goal)
        ids = [request.id for request in inputs.workflow.requests]
        return NeymanSampler(inputs.workflow.template, inputs.catalog, ids, seed, goal=wanted)
    if goal is not None:
        raise ConfigError(f"--goal has no effect with --sampler {name}: use --sampler neyman, or leave it out")
    if name not in SAMPLERS:
        raise ConfigError(f"unknown sampler {name!r}: use {', '.join(SAMPLERS)} or neyman")
    return name
