"""Makes the files of a new VineLM project for an application, and writes them."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vinelm.catalog.loading import read_catalog_file
from vinelm.datasets import RequestSet
from vinelm.errors import ConfigError
from vinelm.scaffold.application import AppGraph
from vinelm.scaffold.applied import write_all
from vinelm.scaffold.catalog_file import (
    PROVIDER_MODELS,
    SIMULATED,
    bases_of,
    catalog_text,
    chosen_models,
    entry_names,
    unpriced,
)
from vinelm.scaffold.model_calls import edited
from vinelm.scaffold.request_keys import request_keys
from vinelm.scaffold.target import Target
from vinelm.scaffold.workflow_file import TODO, WorkflowFile
from vinelm.template import Template
from vinelm.template.steps import mapped, remembering

MODELS_FILE, WORKFLOW_FILE = "models.toml", "workflow.py"
OTHER_WORKFLOW_FILE = "vinelm_workflow.py"
_COMMON_NAMES = frozenset({"graph", "app", "agent", "main", "src"})


def workflow_file_of(folder: Path) -> Path:
    """Return the path of a project's workflow file, which may not exist yet.

    It is ``workflow.py``, or ``vinelm_workflow.py`` if the application has a ``workflow.py`` of its own: a file that imports
    LangGraph, LangChain or the openai SDK, and no :class:`~vinelm.Workflow`.
    """
    usual = folder / WORKFLOW_FILE
    try:
        tree = ast.parse(usual.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):  # loading it says what is wrong
        return usual
    imported = {
        ((getattr(node, "module", None) or alias.name).partition(".")[0], alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    is_application = any(package.startswith(("langgraph", "langchain", "openai")) for package, _ in imported)
    is_ours = not imported.isdisjoint({("vinelm", "Workflow"), ("vinelm", "vinelm")})
    return folder / OTHER_WORKFLOW_FILE if is_application and not is_ours else usual


def workflow_spec(folder: Path) -> str:
    """Return the name of a project's workflow as commands take it, ``workflow:workflow``; see :func:`workflow_file_of`."""
    return f"{workflow_file_of(folder).stem}:workflow"


@dataclass(frozen=True, kw_only=True)
class Project:
    """The files that are written for an application.

    Attributes:
        folder: The folder for new files, in which the next commands run.
        files: New files and their text.
        edits: Files of the application that change, and their new text.
        kept: Existing files that stay unchanged.
        is_simulated: Whether the models are simulated.
        today: The catalog name of the current model, keyed by stage; only for stages whose current model is known.
        asked: The stages whose current model is unknown, each with the models that it may be: ``write (gpt-4o or
            gpt-4o-mini)``.
    """

    folder: Path
    files: Mapping[Path, str]
    edits: Mapping[Path, str]
    kept: tuple[Path, ...]
    is_simulated: bool
    today: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[str, ...] = ()

    @property
    def workflow_file(self) -> Path:
        """The path of the workflow file."""
        return workflow_file_of(self.folder)

    @property
    def todos(self) -> list[tuple[int, str]]:
        """Pairs (line number in the workflow file, from 1; what the user still has to do there), for each ``TODO``."""
        lines = self.files[self.workflow_file].splitlines()
        return [(number, line.partition(f"{TODO}: ")[2]) for number, line in enumerate(lines, start=1) if f"{TODO}: " in line]

    @property
    def next_commands(self) -> list[str]:
        """The command lines that the user runs next, in :attr:`folder`."""
        line = f"{workflow_spec(self.folder)} --models {MODELS_FILE}"
        budget = " --max-error 0.15" + ("" if self.is_simulated else " --budget-usd 5")
        return [f"vinelm check {line}", f"vinelm profile {line}{budget} --dry-run", f"vinelm profile {line}{budget}"]

    def write(self, *, force: bool = False) -> None:
        """Write all files and edits, or none: see :mod:`~vinelm.scaffold.applied`.

        Args:
            force: Replace existing files.

        Raises:
            ConfigError: A file exists (code ``file-exists``), is read-only, or cannot be written. Nothing was written then.
        """
        if not force:
            refuse_existing(self.files)
        write_all(self.folder, {**self.files, **self.edits})


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raise :class:`ConfigError` (code ``file-exists``) if one of the files exists."""
    there = [path for path in paths if path.exists()]
    if there:
        names = " and ".join(path.name for path in there)
        raise ConfigError(f"{names}: exists already in {there[0].parent}: choose another folder", code="file-exists")


def suggested_models(application: AppGraph) -> tuple[str, ...]:
    """Return the application's models, and other models of the same providers; empty if the application names no model."""
    used = application.models
    prefixes = {model.partition(":")[0] for model in used}
    others = [model for group in PROVIDER_MODELS.values() for model in group if model.partition(":")[0] in prefixes]
    return tuple(dict.fromkeys((*used, *others)))


def models_for(application: AppGraph, folder: Path, named: str | None) -> tuple[str, ...]:
    """Return the models for a new catalog: the named models, otherwise the suggested ones; empty if the folder has a
    catalog already.

    Args:
        application: The application.
        folder: The project's folder.
        named: ``provider:model`` or names of providers, separated by commas; None if the user named no models.

    Raises:
        ConfigError: A name is unknown, the application does not say which models it uses, or they are on a server without a
            list price.
    """
    if named is not None:
        return chosen_models(named.split(","))
    if (folder / MODELS_FILE).exists():
        return ()
    own = next((call for call in application.calls if call.endpoint is not None), None)
    again = "and run this line again, which keeps the file (--models names others)"
    if own is not None:
        raise ConfigError(
            f"{own.path.name}:{own.line}: a server of your own ({own.endpoint}) has no list price: write {MODELS_FILE} first, "
            f"with api_base and price of each of its models, {again}"
        )
    suggested = suggested_models(application)
    if not suggested:
        raise ConfigError(f"{application.target.module.__name__} does not say which models it uses", code="models-required")
    if unknown := unpriced(suggested):
        raise ConfigError(
            f"{unknown[0]} has no list price: write {MODELS_FILE} first, with an entry and a price for each model "
            f"(docs/providers.md#prices), {again}"
        )
    return suggested


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
        folder: The folder for new files.
        models: The models, each as ``provider:model``, or ``simulated``; empty to keep the catalog in the folder.
        dataset: The requests; None if they do not exist yet.
        labels: The columns of the right answer; empty to search for them.
        is_applied: Change the application: put ``vine.around(...)`` around its models.

    Raises:
        ConfigError: A model has no known price, or the dataset lacks a label.
    """
    target = application.target
    is_simulated = tuple(models) == (SIMULATED,)
    names = entry_names(models) if models else kept_names(folder / MODELS_FILE, application.models)
    application = _within_reach(application, max(2, len(names or ())))
    today, asked = ({}, ()) if is_simulated or names is None else _today(application, names)
    file = WorkflowFile(
        name=_readable(target),
        spec=workflow_spec(folder),
        application=application,
        keys=request_keys(
            application.input_keys,
            application.output_keys,
            dataset,
            labels,
            structured=application.structured,
            fields=application.fields,
        ),
        dataset=None if dataset is None else _relative(dataset.path, folder),
        imports_from=None if target.root.resolve() == folder.resolve() else _relative(target.root, folder),
        is_simulated=is_simulated,
        is_edited=is_applied,
        defaults=today,
        asked=asked,
    )
    files = {workflow_file_of(folder): file.text()}
    if models:
        files[folder / MODELS_FILE] = catalog_text(models, bases_of(os.environ))
    paths = {call.path for call in application.calls} if is_applied else set()
    calls = {path: [call for call in application.calls if call.path == path] for path in sorted(paths)}
    return Project(
        folder=folder,
        files=files,
        edits={path: edited(path, of_file, MODELS_FILE, is_named=target.is_code) for path, of_file in calls.items()},
        kept=() if models else (folder / MODELS_FILE,),
        is_simulated=file.is_simulated,
        today=today,
        asked=asked,
    )


MOST_SEQUENCES = 20_000
"""If there are more sequences of models, the loops of a new template merge their histories: estimating all would take minutes.
"""


def _within_reach(application: AppGraph, n_models: int) -> AppGraph:
    """Return the application; if its template gives too many sequences of models, the template is simplified.

    ``n_models`` is the number of models at each stage. See :func:`within_reach`.
    """
    template = application.template
    return application if template is None else replace(application, template=within_reach(template, n_models))


def within_reach(template: Template, n_models: int) -> Template:
    """Return the template, simplified if ``n_models`` models at each stage would give too many sequences of models.

    It is simplified by setting ``memory=1`` in each loop that sets neither ``memory`` nor ``order``. In such a loop, sequences
    of models that end with the same model then count as one.
    """
    models = tuple(str(number) for number in range(n_models))
    bound = replace(template, steps=mapped(template.steps, lambda stage: replace(stage, models=models, default=None)))
    if bound.n_sequences <= MOST_SEQUENCES:
        return template
    return replace(template, steps=remembering(template.steps, 1))


def kept_names(file: Path, models: Iterable[str]) -> dict[str, str] | None:
    """Return the name of each model's entry in the catalog ``file``, keyed by ``provider:model``; models with no entry or
    several are left out.

    None if all models of the catalog are simulated; an empty dict if the catalog cannot be read.
    """
    try:
        entries = read_catalog_file(file).models
    except ConfigError:  # `vinelm check` reports what is wrong with it
        return {}
    if entries and all(entry.provider == SIMULATED for entry in entries):
        return None
    found = {spec: [one.name for one in entries if one.model_id in (spec, spec.partition(":")[2])] for spec in models}
    return {spec: names[0] for spec, names in found.items() if len(names) == 1}


def _today(application: AppGraph, names: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return two results: the catalog name of each stage's current model, keyed by stage; and a line of text for each stage
    without such a name.

    The line has the stage and the models that it may run, if any are known; see :attr:`Project.asked`.
    """
    found: dict[str, str] = {}
    asked: list[str] = []
    for stage in application.stages:
        models = application.today.get(stage, ())
        if len(models) == 1 and models[0] in names:
            found[stage] = names[models[0]]
        else:
            missing = [f"{model}{'' if model in names else ', which models.toml lacks'}" for model in models]
            asked.append(stage + (f" ({' or '.join(missing)})" if missing else ""))
    return found, tuple(asked)


def _relative(path: Path, folder: Path) -> Path:
    return Path(os.path.relpath(path.resolve(), folder.resolve()))


def _readable(target: Target) -> str:
    """Return a name for the workflow: the last part of the module's name, without common words such as ``app``.

    If nothing is left, it is the name of the module's folder.
    """
    parts = [part for part in target.module.__name__.split(".") if part not in _COMMON_NAMES]
    return re.sub(r"[^\w]+|_+", "-", parts[-1] if parts else target.root.name).strip("-") or "app"
