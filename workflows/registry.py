"""Finds workflows: those of the package by name, your own by ``module:attribute``."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, cast

from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from vinelm.datasets import Columns, read_dataset
from vinelm.datasets.reading import with_dataset
from vinelm.errors import ConfigError, InputError, WorkflowError
from vinelm.io.import_limit import import_limited
from vinelm.meant import did_you_mean
from vinelm.requests.workflow import Workflow

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
        "graphqa": (
            "vinelm.workflows.graphqa.workflow:bundled",
            "questions to a graph: classify; one code action, or plan and up to 3 turns of action and reasoning",
        ),
        "support": (
            "vinelm.workflows.support.workflow:support",
            "support tickets: router, three desks (SQL look-ups, article search, none), reply",
        ),
        "code": (
            "vinelm.workflows.recorded.classeval:code",
            "write a method, run its visible tests, retry up to twice; recorded outcomes of four real models",
        ),
        "exams": (
            "vinelm.workflows.recorded.exam_answers:exams",
            "exam questions, a second answer where it may help; recorded answers, dollars and seconds of nine real models",
        ),
    }
)
"""By name of a workflow, its (``module:attribute``, one-line description). Modules are imported on first use."""

_SPEC = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

_FILE = re.compile(r"^([^\W\d]\w*)\.py:")
"""Matches the name of a file of the working folder, which may be given instead of its module."""


def available() -> list[tuple[str, str]]:
    """Return (name, description) of every workflow of the package."""
    return [(name, description) for name, (_, description) in WORKFLOWS.items()]


def load_workflow(
    spec: str | Workflow,
    *,
    dataset: str | Path | None = None,
    columns: Columns | Iterable[str] | None = None,
    limit: int | None = None,
    labelled: bool = True,
) -> Workflow:
    """Load the workflow that ``spec`` names; an object is returned unchanged. Importing the module runs its code.

    Args:
        spec: a name from :func:`available`, or ``module:attribute``. A module in the working folder may also be given as
            ``module.py:attribute``. The attribute is a :class:`Workflow` or a callable that returns one, without arguments or
            with the argument ``dataset``. Modules are searched as by ``python -m``, the working folder first.
        dataset: a file or folder of requests. A callable with the argument ``dataset`` gets the path and reads the file itself.
            For any other workflow, :func:`vinelm.read_dataset` reads the file, and its requests replace the workflow's.
        columns: which columns of the dataset become inputs, labels and ids, unless the callable reads the dataset itself; or
            texts that :meth:`vinelm.datasets.Columns.parse` reads.
        limit: the maximum number of requests read from the dataset, unless the callable reads the dataset itself.
        labelled: whether the answers are scored. If False, rows need no label, and may repeat if they have no id.

    Raises:
        ConfigError: the name is unknown, or a dataset or columns are given that have no effect.
        WorkflowError: the module cannot be imported, lacks the attribute, or the attribute is not a workflow.
        DatasetError: the dataset cannot be used.
    """
    if columns is not None and not isinstance(columns, Columns):
        columns = Columns.parse(columns)
    if isinstance(spec, Workflow):
        if dataset is None and (columns is None or columns.is_default):
            return spec
        unused = "columns have" if dataset is None else "dataset has"
        raise ConfigError(f"{unused} no effect on a Workflow object: give it its requests, or name it as module:attribute")
    spec = _FILE.sub(r"\1:", spec)
    if spec in WORKFLOWS:
        target = WORKFLOWS[spec][0]
    elif _SPEC.fullmatch(spec):
        target = spec
    else:
        names = ", ".join(WORKFLOWS)
        raise ConfigError(
            f"unknown workflow {spec!r}{did_you_mean(spec, WORKFLOWS)}: use one of {names}, or module:attribute for your own"
        )
    if columns is not None and dataset is None and not columns.is_default:
        raise ConfigError("columns have no effect without a dataset: leave them out", code="columns-without-dataset")
    return _made(spec, _resolve(spec, target), dataset, columns, limit, labelled=labelled)


def load_function(spec: str, what: str) -> Callable[..., Any]:
    """Return the function that ``spec`` names as ``module:attribute``.

    A file in the working folder may also be given as ``file.py:attribute``. Importing the module runs its code. ``what`` is the
    description of the function in error messages.

    Raises:
        ConfigError: The text names no function, or the named object cannot be called.
        WorkflowError: The module cannot be imported, or lacks the attribute.
    """
    spec = _FILE.sub(r"\1:", spec)
    if not _SPEC.fullmatch(spec):
        raise ConfigError(f"{what}: {spec!r} names no function: write module:function")
    found = _resolve(spec, spec, lambda module: ": name a function of it")
    if not callable(found):
        raise ConfigError(f"{what}: {spec} is a {type(found).__name__}: name a function")
    return cast("Callable[..., Any]", found)


def _resolve(spec: str, target: str, suggestion: Callable[[Any], str] | None = None) -> Any:
    if spec == target and "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # not removed again: the module may import from its folder later
    module_name, _, path = target.partition(":")
    found: Any = _import(spec, module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise WorkflowError(f"{spec}: {module_name!r} has no attribute {path!r}{(suggestion or _suggestion)(found)}")
        found = getattr(found, name)
    return found


def _import(spec: str, module_name: str) -> ModuleType:
    try:
        with import_limited(f"{spec}: importing {module_name!r}"):
            return import_module(module_name)
    except InputError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise WorkflowError(f"{spec}: no module {error.name!r}: run from its folder, or install it") from error
        raise WorkflowError(f"{spec}: importing {module_name!r} fails: {_line(error)}: install its dependencies") from error
    except (Exception, SystemExit) as error:
        raise WorkflowError(f"{spec}: importing {module_name!r} fails: {_line(error)}: fix the module") from error


def _made(
    spec: str, found: Any, dataset: str | Path | None, columns: Columns | None, limit: int | None, *, labelled: bool
) -> Workflow:
    is_factory = not isinstance(found, Workflow) and callable(found)
    if is_factory and (dataset is None or _takes_dataset(found)):
        if columns is not None and not columns.is_default:
            raise ConfigError(f"{spec} reads its dataset itself: leave the columns out", code="columns-unused")
        return _checked(spec, _call(spec, found, dataset), "returns")
    workflow = _checked(spec, _call(spec, found, None) if is_factory else found, "returns" if is_factory else "is")
    if dataset is None:
        return workflow
    if spec in WORKFLOWS:  # its scorer knows only its own requests
        raise ConfigError(f"{spec} takes no dataset: leave the dataset out")
    return with_dataset(workflow, read_dataset(dataset, columns, limit=limit, may_repeat=not labelled), labelled=labelled)


def _takes_dataset(factory: Callable[..., Any]) -> bool:
    return any(p.name == "dataset" or p.kind is p.VAR_KEYWORD for p in _parameters(factory))


def _call(spec: str, factory: Callable[..., Any], dataset: str | Path | None) -> Any:
    parameters = _parameters(factory)
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
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
            f"{spec} {verb} a {kind}, not a Workflow: make it a vinelm.Workflow, or a callable that returns one",
            code="graph-not-workflow" if isinstance(found, Pregel | StateGraph) else None,
        )
    return found


def _suggestion(module: Any) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Workflow)] if hasattr(module, "__dict__") else []
    return f": it has {', '.join(names)}" if names else ": name a Workflow, or a callable that returns one"


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
