"""Find workflows by name: those of the package, or ``module:attribute`` for your own."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from vinelm.errors import ConfigError, InputError, WorkflowError
from vinelm.workflow import Workflow

WORKFLOWS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "nl2sql": (
            "vinelm.workflows.nl2sql.workflow:nl2sql",
            "question to SQL: generate, execute, up to 2 repairs; every model at each",
        ),
        "nl2sql-2": (
            "vinelm.workflows.nl2sql.workflow:nl2sql_2",
            "question to SQL: generate, execute, up to 3 repairs; meant for two models",
        ),
        "mathqa": (
            "vinelm.workflows.mathqa.workflow:mathqa",
            "math problems: answer, check the own calculation, reflect, up to 6 answers; meant for four models",
        ),
        "support": (
            "vinelm.workflows.support.workflow:support",
            "support tickets: router, three desks (SQL look-ups, article search, none), reply",
        ),
    }
)
"""Name to (``module:attribute``, one-line description). Modules are imported on first use."""

_SPEC = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def available() -> list[tuple[str, str]]:
    """Return (name, description) of every workflow of the package."""
    return [(name, description) for name, (_, description) in WORKFLOWS.items()]


def load_workflow(spec: str, *, dataset: str | Path | None = None) -> Workflow:
    """Load the workflow that ``spec`` names. Importing the module runs its code.

    Args:
        spec: a name from :func:`available`, or ``module:attribute``. The attribute is a :class:`Workflow` or a callable that
            returns one, without arguments or with the argument ``dataset``. Modules are searched as by ``python -m``, the
            working folder first.
        dataset: passed to the callable.

    Raises:
        ConfigError: unknown name, or a dataset for a workflow that takes none.
        WorkflowError: the module cannot be imported, lacks the attribute, or the attribute is not a workflow.
        DatasetError: the dataset cannot be used.
    """
    if spec in WORKFLOWS:
        target = WORKFLOWS[spec][0]
    elif _SPEC.fullmatch(spec):
        target = spec
        _look_in_working_folder()
    else:
        names = ", ".join(WORKFLOWS)
        raise ConfigError(f"unknown workflow {spec!r}: use one of {names}, or module:attribute for your own")
    return _made(spec, _resolve(spec, target), dataset)


def _look_in_working_folder() -> None:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # not removed again: the module may import from its folder later


def _resolve(spec: str, target: str) -> Any:
    module_name, _, path = target.partition(":")
    found: Any = _import(spec, module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise WorkflowError(f"{spec}: {module_name!r} has no attribute {path!r}{_suggestion(found)}")
        found = getattr(found, name)
    return found


def _import(spec: str, module_name: str) -> ModuleType:
    try:
        return import_module(module_name)
    except InputError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise WorkflowError(f"{spec}: no module {error.name!r}: run from its folder, or install it") from error
        raise WorkflowError(f"{spec}: importing {module_name!r} fails: {_line(error)}: install its dependencies") from error
    except (Exception, SystemExit) as error:
        raise WorkflowError(f"{spec}: importing {module_name!r} fails: {_line(error)}: fix the module") from error


def _made(spec: str, found: Any, dataset: str | Path | None) -> Workflow:
    if not isinstance(found, Workflow) and callable(found):
        return _checked(spec, _call(spec, found, dataset), "returns")
    workflow = _checked(spec, found, "is")
    if dataset is not None:
        raise ConfigError(f"{spec} is a finished workflow and takes no dataset: leave the dataset out, or name a factory")
    return workflow


def _call(spec: str, factory: Callable[..., Any], dataset: str | Path | None) -> Any:
    parameters = _parameters(factory)
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    takes_dataset = any(p.name == "dataset" or p.kind is p.VAR_KEYWORD for p in parameters)
    if dataset is not None and not takes_dataset:
        raise ConfigError(f"{spec} takes no dataset: leave the dataset out, or give it a parameter `dataset`")
    if [name for name in required if name != "dataset" or dataset is None]:
        raise WorkflowError(
            f"{spec} requires the arguments {', '.join(required)}: name a callable that requires at most `dataset`"
        )
    try:
        return factory() if dataset is None else factory(dataset=Path(dataset))
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise WorkflowError(f"{spec}: creating the workflow fails: {_line(error)}: fix the callable") from error


def _parameters(factory: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):  # builtins without a signature
        return []


def _checked(spec: str, found: Any, verb: str) -> Workflow:
    if not isinstance(found, Workflow):
        kind = type(found).__name__
        raise WorkflowError(
            f"{spec} {verb} a {kind}, not a Workflow: make it a vinelm.workflow.Workflow, or a callable that returns one"
        )
    return found


def _suggestion(module: Any) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Workflow)] if hasattr(module, "__dict__") else []
    return f": it has {', '.join(names)}" if names else ": name a Workflow, or a callable that returns one"


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
