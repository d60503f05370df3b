"""The inputs of a command: the workflow, its catalog and backends, samplers, and checks of output paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vinelm.errors import ConfigError

if TYPE_CHECKING:
    from vinelm.catalog import Catalog
    from vinelm.requests.protocols import Backend
    from vinelm.requests.workflow import Workflow
    from vinelm.template import StopRule

DEFAULT_PRESET = "paper"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A workflow with its template bound to the catalog, and one backend per provider.

    ``note`` describes the catalog that was used by default; None if the user named one.
    """

    workflow: Workflow
    catalog: Catalog
    backends: dict[str, Backend]
    note: str | None

    @property
    def is_simulated(self) -> bool:
        """True if some models are simulated."""
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
    columns: Sequence[str] = (),
) -> Inputs:
    """Load the workflow, catalog and backends of a command, and check that they fit together. Calls no model.

    Args:
        spec: Registry name of the workflow, or ``module:attribute``.
        models: Catalog file.
        preset: Simulated catalog to use instead of ``models``. With neither, a workflow that can simulate answers gets the
            default preset.
        dataset: Path of the requests; None for the workflow's own.
        limit: Number of requests to keep; None for all.
        seed: Decides simulated answers.
        stop: Stop rule; None for the workflow's own.
        columns: Columns of the dataset, as :meth:`vinelm.datasets.Columns.parse` reads them.

    Raises:
        InputError: An input is missing, invalid, or does not fit the others.
    """
    from vinelm.api.profiling import bind_workflow, resolve_workflow
    from vinelm.backends import create_backends
    from vinelm.datasets import Columns
    from vinelm.workflows import load_workflow

    if models is not None and preset is not None:
        raise ConfigError("--models and --preset exclude each other: keep one")
    workflow = load_workflow(spec, dataset=dataset, columns=Columns.parse(columns), limit=limit)
    if limit is not None:
        workflow = replace(workflow, requests=tuple(workflow.requests[:limit]))
    catalog, note = _catalog(workflow, models, preset)
    workflow = resolve_workflow(workflow, catalog)
    template = workflow.template if stop is None else workflow.template.with_stop(cast("StopRule", stop))
    bound = replace(workflow, template=template.bind(tuple(catalog)))
    backends = create_backends(catalog, workflow=bound, seed=seed)
    return Inputs(workflow=bind_workflow(bound, catalog, backends), catalog=catalog, backends=backends, note=note)


def catalog_for_check(models: Path | None, preset: str | None = None) -> Catalog:
    """Load the catalog file, or return a simulated catalog (by default the default preset) for a check that calls no model."""
    from vinelm.backends import simulated_catalog
    from vinelm.catalog import Catalog

    return simulated_catalog(preset or DEFAULT_PRESET) if models is None else Catalog.from_file(models)


def _catalog(workflow: Workflow, models: Path | None, preset: str | None) -> tuple[Catalog, str | None]:
    if models is not None:
        return catalog_for_check(models), None
    if preset is None and workflow.writer is None:
        raise ConfigError(f"workflow {workflow.name!r} needs --models with a catalog file: it has no simulated answers")
    name = preset or workflow.simulated_preset or DEFAULT_PRESET
    catalog = catalog_for_check(None, name)
    return catalog, f"simulated models (preset {name}, {len(catalog)} models): use --models for real ones"


def is_trie_file(path: Path) -> bool:
    """True if the file is an annotated trie, by its content; by its suffix where there is no such file."""
    if not path.is_file():
        return path.suffix == ".vine"
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def refuse_replacing(output: Path, made_of: Path) -> None:
    """Raise :class:`ConfigError` if ``output`` is the input file itself, which would be overwritten."""
    if output.exists() and made_of.exists() and output.samefile(made_of):
        raise ConfigError(f"{output}: this is the input file and would be overwritten: use another name for -o")


def refuse_other_file(output: Path) -> None:
    """Raise :class:`ConfigError` if ``output`` exists and is not a trie file: only an earlier trie is replaced."""
    if output.exists() and not output.is_file():
        raise ConfigError(f"{output}: is not a regular file and would be destroyed: use another name for -o")
    if output.is_file() and output.stat().st_size:
        with output.open("rb") as file:
            if file.read(2) != b"PK":
                raise ConfigError(f"{output}: exists and is not a trie file: use another name for -o, or move the file away")
