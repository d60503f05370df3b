"""The graph that a project is made for: where it is, how it is imported, and how it is built."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from langgraph.graph.state import CompiledStateGraph, StateGraph

from vinelm.errors import ConfigError, InputError, WorkflowError
from vinelm.io.reading import read_text
from vinelm.requests.workflow import Workflow

Kind = Literal["graph", "maker", "vine-maker", "model-maker"]
"""``graph``: the attribute is a graph. ``maker``: a function without arguments that returns one. ``vine-maker``,
``model-maker``: a function that is given a VineLM, or a chat model."""
LANGGRAPH_FILE = "langgraph.json"
_NO_GRAPH = " (code without a graph needs a workflow file by hand: see `Without a graph` in docs/langgraph.md)"
_NO_MODEL = (str, bytes, int, float, bool, dict, list, tuple, set)
"""Types of parameters that are no chat model: a function that wants one may call models, so it is not tried."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A graph of an application.

    Attributes:
        module: The module that has it, imported.
        attribute: Its name there.
        root: The folder from which the module is imported.
        value: The attribute's value.
        kind: What it is.
    """

    module: ModuleType
    attribute: str
    root: Path
    value: Any
    kind: Kind

    def built(self, vine: Any) -> CompiledStateGraph[Any, Any, Any, Any]:
        """Return the compiled graph. Runs the function that makes it, and no node.

        Args:
            vine: A VineLM, for a function that wants one or a chat model.

        Raises:
            WorkflowError: The function raises, or what it returns is no graph.
        """
        made = self.value
        where = f"{self.module.__name__}:{self.attribute}"
        if self.kind != "graph":
            arguments = {"maker": [], "vine-maker": [vine], "model-maker": [vine.chat_model()]}[self.kind]
            try:
                made = self.value(*arguments)
            except InputError:
                raise
            except Exception as error:
                raise WorkflowError(f"{where}: building the graph fails: {_line(error)}: fix it first") from error
        if isinstance(made, StateGraph):
            made = made.compile()
        if not isinstance(made, CompiledStateGraph):
            raise WorkflowError(
                f"{where} is a {type(made).__name__}, not a LangGraph graph: name the StateGraph, compiled or not, or a "
                "function that returns it"
            )
        return made


def find_target(spec: str | None, folder: Path) -> Target:
    """Import the module that ``spec`` names and return its graph. Importing runs the module's code.

    Args:
        spec: ``FILE.py:ATTR`` or ``MODULE:ATTR``; without ``:ATTR`` the module must have one graph. None takes the one graph of
            ``langgraph.json``.
        folder: The working folder, in which names are looked up.

    Raises:
        ConfigError: No graph is named, or several are possible; the message lists them.
        WorkflowError: The module cannot be imported, or the attribute is missing or no graph.
    """
    name, _, attribute = (spec or _of_langgraph_file(folder)).partition(":")
    root, module_name = _place(name, folder)
    module = _imported(module_name, root)
    attribute = attribute or _only_graph(module)
    if not hasattr(module, attribute):
        graphs = _graphs(module)
        known = f": it has {', '.join(graphs)}" if graphs else ": name the graph, or a function that returns it"
        raise WorkflowError(f"{module_name} has no attribute {attribute!r}{known}")
    value = getattr(module, attribute)
    return Target(module=module, attribute=attribute, root=root, value=value, kind=_kind(value, f"{module_name}:{attribute}"))


def _of_langgraph_file(folder: Path) -> str:
    """The graph that ``langgraph.json`` names, which LangGraph's own tools read."""
    advice = "name the graph, such as app.py:graph"
    try:
        graphs = json.loads(read_text(folder / LANGGRAPH_FILE))["graphs"]
        places = [str(place["path"] if isinstance(place, dict) else place) for place in graphs.values()]
    except FileNotFoundError:
        raise ConfigError(f"no graph is named, and there is no {LANGGRAPH_FILE}: {advice}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{LANGGRAPH_FILE}: cannot read its graphs ({_line(error)}): {advice}") from error
    if len(places) != 1:
        raise ConfigError(f"{LANGGRAPH_FILE} has {len(places)} graphs: name one: {', '.join(places)}")
    return places[0]


def _place(name: str, folder: Path) -> tuple[Path, str]:
    """The folder that a module is imported from, and its name. A file in a package is imported as a part of it."""
    if not name.endswith(".py"):
        if not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(f"{name!r} is neither a file nor a module: write it as app.py:graph or package.module:graph")
        return folder, name
    path = (folder / name).resolve()
    if not path.is_file():
        raise ConfigError(f"{name}: no such file: name the file that has the graph, such as app.py:graph")
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        root, parts = root.parent, [root.name, *parts]
    if not all(part.isidentifier() for part in parts):
        raise ConfigError(f"{name}: {'.'.join(parts)} is no name that Python can import: rename the file")
    return root, ".".join(parts)


def _imported(name: str, root: Path) -> ModuleType:
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))  # not removed again: the module may import from its folder later
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except InputError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise WorkflowError(f"no module {error.name!r}: run from its folder, or name its file: app.py:graph") from error
        raise WorkflowError(f"importing {name!r} fails: {_line(error)}: install its dependencies") from error
    except (Exception, SystemExit) as error:
        line = _line(error)
        cure = "fix the module"
        if "api_key" in line.lower():
            cure = "set the variable of the key, to any text: no model is called"
        raise WorkflowError(f"importing {name!r} fails: {line}: {cure}") from error


def _graphs(module: ModuleType) -> list[str]:
    found: dict[str, object] = {name: value for name, value in vars(module).items() if isinstance(value, CompiledStateGraph)}
    found = found or {name: value for name, value in vars(module).items() if isinstance(value, StateGraph)}
    return list({id(value): name for name, value in reversed(found.items())}.values())[::-1]


def _only_graph(module: ModuleType) -> str:
    graphs = _graphs(module)
    if len(graphs) == 1:
        return graphs[0]
    if graphs:
        raise ConfigError(f"{module.__name__} has {len(graphs)} graphs: name one: {', '.join(graphs)}")
    makers = [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and ("graph" in name.lower() or name == "build")
    ]
    if "build" in makers:
        return "build"
    known = f": it has the functions {', '.join(makers)}" if makers else ""
    raise ConfigError(f"{module.__name__} has no graph at module level: name the function that returns it{known}{_NO_GRAPH}")


def _kind(value: Any, where: str) -> Kind:
    if isinstance(value, Workflow):
        raise ConfigError(f"{where} is a Workflow already: run `vinelm check {where}`")
    if isinstance(value, CompiledStateGraph | StateGraph) or not callable(value):
        return "graph"
    required = _required(value)
    if not required:
        return "maker"
    if len(required) > 1:
        raise ConfigError(
            f"{where} requires the arguments {', '.join(required)}: name a graph, or a function with at most one argument, the "
            "chat model"
        )
    if (wanted := _plain_type(value, required[0])) is not None:
        what = f"{where} takes {required[0]}: {wanted}, which is no chat model"
        raise ConfigError(f"{what}: name a graph, or a function that returns it{_NO_GRAPH}")
    return "vine-maker" if required[0] == "vine" else "model-maker"


def _plain_type(function: Callable[..., Any], parameter: str) -> str | None:
    """The type of a parameter by its annotation, if that is a plain type of Python; else None."""
    found = inspect.signature(function).parameters[parameter].annotation
    found = getattr(found, "__origin__", found)  # dict[str, int]
    name = found if isinstance(found, str) else getattr(found, "__name__", "")
    return name if name.partition("[")[0] in {kind.__name__ for kind in _NO_MODEL} else None


def _required(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
