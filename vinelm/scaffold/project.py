"""The files of a new project, and writing them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vinelm.datasets import RequestSet
from vinelm.errors import ConfigError
from vinelm.io.atomic import write_atomic
from vinelm.scaffold.application import AppGraph
from vinelm.scaffold.catalog_file import PROVIDER_MODELS, SIMULATED, catalog_text
from vinelm.scaffold.model_edits import edited
from vinelm.scaffold.request_keys import request_keys
from vinelm.scaffold.target import Target
from vinelm.scaffold.workflow_file import TODO, WorkflowFile

MODELS_FILE, WORKFLOW_FILE = "models.toml", "workflow.py"
_COMMON_NAMES = frozenset({"graph", "app", "agent", "main", "src"})


@dataclass(frozen=True, kw_only=True)
class Project:
    """The files that are written for an application.

    Attributes:
        folder: Where the new files go, and where the next commands run.
        files: New files and their text.
        edits: Files of the application that change, and their new text.
        kept: Files that exist and stay as they are.
        is_simulated: Whether the models are simulated.
    """

    folder: Path
    files: Mapping[Path, str]
    edits: Mapping[Path, str]
    kept: tuple[Path, ...]
    is_simulated: bool

    @property
    def todos(self) -> list[tuple[int, str]]:
        """Line of the workflow file, from 1, and what is to be done there."""
        lines = self.files[self.folder / WORKFLOW_FILE].splitlines()
        return [(number, line.partition(f"{TODO}: ")[2]) for number, line in enumerate(lines, start=1) if f"{TODO}: " in line]

    @property
    def next_commands(self) -> list[str]:
        """The commands that come next, to be run in :attr:`folder`."""
        line = f"workflow:workflow --models {MODELS_FILE}"
        budget = " --max-error 0.15" + ("" if self.is_simulated else " --budget-usd 5")
        return [f"vinelm check {line}", f"vinelm profile {line}{budget} --dry-run", f"vinelm profile {line}{budget}"]

    def write(self, *, force: bool = False) -> None:
        """Write all files, each whole or not at all, and the edits after them.

        Args:
            force: Replace new files that exist.

        Raises:
            ConfigError: A file exists (code ``file-exists``), or cannot be written. Nothing was written in the first case.
        """
        if not force:
            refuse_existing(self.files)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path, text in (*self.files.items(), *self.edits.items()):
                write_atomic(path, text.encode())
        except OSError as error:
            raise ConfigError(f"{error.filename or self.folder}: cannot be written: {error.strerror}") from error


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise :class:`ConfigError` (code ``file-exists``) if one of the files exists."""
    there = [path for path in paths if path.exists()]
    if there:
        names = " and ".join(path.name for path in there)
        raise ConfigError(f"{names}: exists already in {there[0].parent}: choose another folder", code="file-exists")


def suggested_models(application: AppGraph) -> tuple[str, ...]:
    """Return the models that the application uses today, and others of the same providers; nothing if it does not say."""
    used = application.models
    prefixes = {model.partition(":")[0] for model in used}
    others = [model for group in PROVIDER_MODELS.values() for model in group if model.partition(":")[0] in prefixes]
    return tuple(dict.fromkeys((*used, *others)))


def make_project(
    application: AppGraph,
    folder: Path,
    models: Sequence[str],
    *,
    dataset: RequestSet | None = None,
    labels: Sequence[str] = (),
    is_applied: bool = False,
) -> Project:
    """Return the project of an application. Writes nothing.

    Args:
        application: The application.
        folder: Where the new files go.
        models: The models, each as ``provider:model``, or ``simulated``; empty to keep the catalog that is in the folder.
        dataset: The requests; None if they are still to be made.
        labels: The columns of the right answer; empty to look for one.
        is_applied: Change the application, so that VineLM makes its models.

    Raises:
        ConfigError: A model has no known price, or the dataset lacks a label.
    """
    target = application.target
    file = WorkflowFile(
        name=_readable(target),
        application=application,
        keys=request_keys(application.input_keys, application.output_keys, dataset, labels),
        dataset=None if dataset is None else _relative(dataset.path, folder),
        imports_from=None if target.root.resolve() == folder.resolve() else _relative(target.root, folder),
        is_simulated=tuple(models) == (SIMULATED,),
        is_edited=is_applied,
    )
    files = {folder / WORKFLOW_FILE: file.text()}
    if models:
        files[folder / MODELS_FILE] = catalog_text(models)
    paths = {call.path for call in application.calls} if is_applied else set()
    calls = {path: [call for call in application.calls if call.path == path] for path in sorted(paths)}
    return Project(
        folder=folder,
        files=files,
        edits={path: edited(path, of_file, MODELS_FILE) for path, of_file in calls.items()},
        kept=() if models else (folder / MODELS_FILE,),
        is_simulated=file.is_simulated,
    )


def _relative(path: Path, folder: Path) -> Path:
    return Path(os.path.relpath(path.resolve(), folder.resolve()))


def _readable(target: Target) -> str:
    """A name for the workflow: the part of the module's name that says something, else that of its folder."""
    parts = [part for part in target.module.__name__.split(".") if part not in _COMMON_NAMES]
    return re.sub(r"[^\w]+|_+", "-", parts[-1] if parts else target.root.name).strip("-") or "app"
