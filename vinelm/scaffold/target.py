"""Finds, imports and builds the graph of an application."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from langgraph.graph.state import CompiledStateGraph, StateGraph
from langgraph.pregel import Pregel

from vinelm.adapters.langgraph.path.copied import held_in
from vinelm.adapters.langgraph.structure.chat_search import holds_chat
from vinelm.errors import ConfigError, InputError, WorkflowError
from vinelm.foreign_code import explained
from vinelm.io.file_kinds import near
from vinelm.io.reading import read_text
from vinelm.requests.workflow import Workflow
from vinelm.scaffold.no_calls import no_model_calls
from vinelm.scaffold.plain_code import called_graphs, graph_code, returns_value

Kind = Literal["graph", "maker", "config-maker", "vine-maker", "model-maker", "function", "entrypoint"]
"""``graph``: the attribute is a graph. ``maker``: a function without arguments that returns one. ``config-maker``,
``vine-maker``, ``model-maker``: a function that is given LangGraph's config, a VineLM, or a chat model. ``function``,
``entrypoint``: code without a graph, which is not called."""
LANGGRAPH_FILE = "langgraph.json"
_GIVEN = frozenset({"llm", "model", "vine", "config"})
"""Arguments of a function that makes a graph, not of one that answers a request."""
_NO_GRAPH = " (code without a graph needs a workflow file by hand: see docs/frameworks.md#plain-python-no-framework)"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A graph of an application, or a function without a graph.

    Attributes:
        module: The imported module that contains the object ``value``.
        attribute: The object's name in the module.
        root: The folder from which the module is imported.
        value: The graph, a function that makes the graph, or a function of an application without a graph.
        kind: How to get the graph from ``value``, such as ``"maker"`` for a function that returns it; see :data:`Kind`.
        rest: Code that follows the object's name, such as ``.graph`` if the object holds the graph in an attribute;
            otherwise empty.
    """

    module: ModuleType
    attribute: str
    root: Path
    value: Any
    kind: Kind
    rest: str = ""

    @property
    def spec(self) -> str:
        """The target as ``MODULE:ATTRIBUTE``, for messages."""
        return f"{self.module.__name__}:{self.attribute}{self.rest}"

    @property
    def is_code(self) -> bool:
        """Whether the target is a function or entrypoint without a graph."""
        return self.kind in ("function", "entrypoint")

    def built(self, vine: Any) -> CompiledStateGraph[Any, Any, Any, Any]:
        """Return the compiled graph. This runs the function that builds the graph, but no node; calls of chat models are
        refused.

        Args:
            vine: The ``VineLM`` object to pass if the function takes one, or takes a chat model.

        Raises:
            WorkflowError: The function raises, calls a model, or does not return a graph.
        """
        made = self.value
        if self.kind != "graph":
            given: dict[str, list[Any]] = {"config-maker": [{"configurable": {}}], "vine-maker": [vine]}
            arguments = [vine.chat_model()] if self.kind == "model-maker" else given.get(self.kind, [])
            with _making(f"{self.spec}: building the graph"), no_model_calls(f"building {self.spec}"):
                made = self.value(*arguments)
                made = asyncio.run(made) if inspect.iscoroutine(made) else made
        if isinstance(made, StateGraph):
            made = made.compile()
        if not isinstance(made, CompiledStateGraph):
            raise WorkflowError(
                f"{self.spec} is of type {type(made).__name__}, not a LangGraph graph: {_use_instead(self.module)}"
            )
        return made


def find_target(spec: str | None, folder: Path) -> Target:
    """Import the module that ``spec`` names, and return its graph or function as a target. Importing runs the module's
    code.

    Args:
        spec: ``FILE.py:ATTR`` or ``MODULE:ATTR``; without ``:ATTR`` the module must have one graph. None and ``langgraph.json``
            take the one graph of that file, ``langgraph.json:NAME`` one of several.
        folder: The working folder, in which names are looked up.

    Raises:
        ConfigError: No graph is named, or several are possible; the message lists them.
        WorkflowError: The module cannot be imported, or the attribute is missing or not a graph.
    """
    name, _, attribute = place_of(spec, folder).partition(":")
    root, module_name = _place(name, folder)
    module = _imported(module_name, root)
    attribute, _, path = (attribute or _only_graph(module)).partition(".")
    if not hasattr(module, attribute):
        graphs = _graphs(module)
        known = f": it has {', '.join(graphs)}" if graphs else ": name the graph, or a function that returns it"
        raise WorkflowError(f"{module_name} has no attribute {attribute!r}{known}")
    where = f"{module_name}:{attribute}"
    value, rest = getattr(module, attribute), f".{path}" if path else ""
    for part in path.split(".") if path else ():
        if not hasattr(value, part):
            raise WorkflowError(
                f"{where} has no attribute {path!r}: name the graph, such as app.py:graph or app.py:agent.graph"
            )
        value = getattr(value, part)
    if isinstance(value, type):
        value, rest = _instance(value, where), "()"
    held = None if path else _held_graph(value, where, module)
    if held is not None:
        value, rest = getattr(value, held), f"{rest}.{held}"
    return Target(module=module, attribute=attribute, root=root, value=value, kind=_kind(value, where), rest=rest)


def root_of(spec: str | None, folder: Path) -> Path:
    """Return the folder from which the application that ``spec`` names would be imported. Imports nothing.

    Raises:
        ConfigError: ``langgraph.json`` is missing, or does not name one graph.
    """
    return _place(place_of(spec, folder).partition(":")[0], folder)[0]


def project_folder(root: Path, folder: Path) -> Path:
    """Return the folder for a project's files: ``root`` or, if ``root`` is the folder ``src`` in the working folder, the
    working folder.

    Args:
        root: The folder that the application is imported from.
        folder: The working folder.
    """
    return folder if root.name == "src" and root.resolve().parent == folder.resolve() else root


def _instance(kind: type, where: str) -> Any:
    """Return a new object of the class ``kind``, whose objects hold a graph; ``where`` names the class in error messages."""
    if required := required_of(kind):
        raise ConfigError(
            f"{where} is a class that wants {', '.join(required)}: make an object of it at module level, and name its graph, "
            "such as app.py:agent.graph"
        )
    with _making(f"{where}: making an object of it"), no_model_calls(f"making {where}()"):
        return kind()


def _making(what: str) -> AbstractContextManager[None]:
    return explained(lambda error: WorkflowError(f"{what} fails: {_line(error)}: fix it first"), passes=(InputError,))


def _held_graph(value: Any, where: str, module: ModuleType) -> str | None:
    """Return the name of the attribute in which an object holds a graph, or of its method that makes one; None if ``value`` is
    itself a graph, function or workflow.

    Args:
        value: The object.
        where: The object's name in error messages.
        module: The module that contains it.

    Raises:
        ConfigError: Several attributes hold graphs.
        WorkflowError: No attribute holds a graph, and the object cannot be called.
    """
    if isinstance(value, CompiledStateGraph):
        return held_in(value)
    if isinstance(value, Pregel | StateGraph | Workflow | ModuleType) or inspect.isroutine(value):
        return None
    graphs = [name for name, one in _attributes(value) if isinstance(one, CompiledStateGraph)]
    graphs = graphs or [name for name, one in _attributes(value) if isinstance(one, StateGraph)]
    if len(graphs) > 1:
        raise ConfigError(f"{where} holds {len(graphs)} graphs: name one: {', '.join(f'{where}.{name}' for name in graphs)}")
    if graphs or callable(value):
        return graphs[0] if graphs else None
    methods = _making_methods(value)
    if len(methods) != 1:
        raise WorkflowError(
            f"{where} is of type {type(value).__name__}, not a LangGraph graph, and none of its attributes is one: "
            f"{_use_instead(module)}"
        )
    return methods[0]


def _making_methods(value: Any) -> list[str]:
    """Return the names of an object's methods that take no argument and return a graph, as far as their code shows."""
    found = [(name, method) for name, method in inspect.getmembers(value, inspect.ismethod) if not name.startswith("__")]
    return [name for name, one in found if returns_value(one) and not required_of(one) and _only_builds(one)]


def _only_builds(function: Callable[..., Any]) -> bool:
    code = graph_code(function)
    return code.builds and not code.runs


def _attributes(value: Any) -> list[tuple[str, Any]]:
    return list(getattr(value, "__dict__", {}).items())


def place_of(spec: str | None, folder: Path) -> str:
    """Return the name of the graph for :func:`find_target`: ``FILE.py:ATTR`` or ``MODULE:ATTR``.

    This is ``spec`` or, if ``spec`` is None or ``langgraph.json``, the path of the graph in that file.

    Raises:
        ConfigError: ``langgraph.json`` is missing, or does not name one graph.
    """
    place = spec or LANGGRAPH_FILE
    file, _, name = place.partition(":")
    return _of_langgraph_file(folder, name) if file == LANGGRAPH_FILE else place


def _of_langgraph_file(folder: Path, wanted: str) -> str:
    """Return the path of the graph named ``wanted``, such as ``app.py:graph``, from ``langgraph.json`` in a folder.

    ``""`` takes the only graph of the file.

    Raises:
        ConfigError: The file is missing or unreadable, lacks the graph, or has several graphs and ``wanted`` is empty.
    """
    advice = "name the graph, such as app.py:graph"
    try:
        graphs = json.loads(read_text(folder / LANGGRAPH_FILE))["graphs"]
        places = {name: str(place["path"] if isinstance(place, dict) else place) for name, place in graphs.items()}
    except FileNotFoundError:
        raise ConfigError(f"no graph is named, and there is no {LANGGRAPH_FILE}: {advice}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{LANGGRAPH_FILE}: cannot read its graphs ({_line(error)}): {advice}") from error
    if wanted and wanted not in places:
        raise ConfigError(f"{LANGGRAPH_FILE} has no graph {wanted!r}: it has {', '.join(places) or 'none'}")
    found = [place for name, place in places.items() if wanted in ("", name)]
    if len(found) != 1:
        raise ConfigError(f"{LANGGRAPH_FILE} has {len(found)} graphs: name one: {', '.join(found)}")
    return found[0]


def _place(name: str, folder: Path) -> tuple[Path, str]:
    """Return the folder from which a module is imported, and the module's name, including its packages.

    Args:
        name: The module's name, or the path of its file.
        folder: The working folder.

    Raises:
        ConfigError: The file does not exist, or Python cannot import it by its name.
    """
    if not name.endswith(".py"):
        if not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(f"{name!r} is neither a file nor a module: write it as app.py:graph or package.module:graph")
        return folder, name
    path = (folder / name).resolve()
    if not path.is_file():
        raise ConfigError(f"{name}: no such file{near(path)}: name the file that has the graph, such as app.py:graph")
    root, parts, levels = path.parent, [path.stem], _levels(path)
    while (root / "__init__.py").is_file() or len(parts) <= levels:  # a folder may be a package without that file
        root, parts = root.parent, [root.name, *parts]
    if any("." in part for part in parts):
        raise ConfigError(f"{name}: Python cannot import a file with a dot in its name: rename it")
    return root, ".".join(parts)


def _levels(path: Path) -> int:
    """Return the number of folders that a file's relative imports go up at most: 1 for ``from .state import State``."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # importing it says what is wrong
        return 0
    return max((node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)), default=0)


def _imported(name: str, root: Path) -> ModuleType:
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))  # stays in the path: the module may import from its folder later
    importlib.invalidate_caches()
    try:
        with no_model_calls(f"importing {name!r}"):
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
    """Return the names of a module's graphs.

    If it has none, return the names of graphs that are attributes of the module's objects, such as ``agent.graph``.
    """
    found: dict[str, object] = {}
    values = [item for item in vars(module).items() if not item[0].startswith("__")]
    own = [(name, one) for name, one in values if type(one).__module__ == module.__name__]
    held = [(f"{name}.{inner}", graph) for name, one in own for inner, graph in _attributes(one)]
    for kind, among in ((CompiledStateGraph, values), (StateGraph, values), (CompiledStateGraph, held), (Pregel, values)):
        found = found or {name: value for name, value in among if isinstance(value, kind)}
    return list({id(value): name for name, value in reversed(found.items())}.values())[::-1]


def _use_instead(module: ModuleType) -> str:
    """Return advice for the error message about an object that is not a graph: it names the module's graphs."""
    known = " or ".join(f"{module.__name__}:{name}" for name in _graphs(module))
    return f"name {known or 'the StateGraph, compiled or not'}, or a function that returns it"


def _only_graph(module: ModuleType) -> str:
    graphs = _graphs(module)
    outer = _not_within(module, graphs)
    if len(outer) == 1:
        return outer[0]
    if graphs:
        raise ConfigError(f"{module.__name__} has {len(graphs)} graphs: name one: {', '.join(graphs)}")
    makers = _makers(module)
    if "build" in makers or len(makers) == 1:
        return "build" if "build" in makers else makers[0]
    makers = makers or _answering(module)
    if len(makers) == 1:
        return makers[0]
    known = f": it has {', '.join(makers)}" if makers else ""
    raise ConfigError(f"{module.__name__} has no graph at module level: name the function that returns it{known}{_NO_GRAPH}")


def _not_within(module: ModuleType, names: Sequence[str]) -> list[str]:
    """Return the names of those graphs of a module that are not part of another graph.

    Graph A is part of graph B if A is a node of B, or if the function of a node of B refers to A. ``names`` are the names of
    all graphs of the module.
    """
    graphs = {name: attrgetter(name)(module) for name in names}
    inner: list[Any] = []
    for graph in graphs.values():
        builder = getattr(graph, "builder", graph)  # a compiled graph's, or one that is not compiled
        for spec in getattr(builder, "nodes", {}).values():
            runnable = getattr(spec, "runnable", None)
            inner += [runnable, *called_graphs(runnable)]
    return [name for name, graph in graphs.items() if not any(graph is one for one in inner)]


def _makers(module: ModuleType) -> list[str]:
    """Return the names of a module's functions that return a graph, as far as their code shows.

    If there are none, return the names of the classes with a method that makes a graph.
    """
    own = {name: value for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__}
    functions = [
        name
        for name, value in own.items()
        if inspect.isfunction(value) and returns_value(value) and not set(required_of(value)) - _GIVEN
    ]
    found = [name for name in functions if _only_builds(own[name])]
    methods = {name: filter(inspect.isfunction, vars(one).values()) for name, one in own.items() if isinstance(one, type)}
    return found or [name for name, among in methods.items() if any(graph_code(method).builds for method in among)]


def _answering(module: ModuleType) -> list[str]:
    """Return the names of a module's public functions that make a value of plain data, such as ``question: str``, and whose
    code refers to a model.
    """
    own = {name: one for name, one in vars(module).items() if inspect.isfunction(one) and one.__module__ == module.__name__}
    found = {name: required_of(one) for name, one in own.items() if not name.startswith("_") and returns_value(one)}
    plain = [name for name, required in found.items() if required and _takes_plain(own[name], required)]
    return [name for name in plain if holds_chat(own[name])]


def _kind(value: Any, where: str) -> Kind:
    if isinstance(value, Workflow):
        raise ConfigError(f"{where} is a Workflow already: run `vinelm check {where}`")
    if isinstance(value, CompiledStateGraph | StateGraph):
        return "graph"
    if isinstance(value, Pregel):
        return "entrypoint"
    if not callable(value):
        return "graph"  # ``built`` then says that it is not a graph
    code, required = graph_code(value), required_of(value)
    is_of_request = bool(required) and (not _GIVEN & set(required) if code.runs else _takes_plain(value, required))
    if code.builds and is_of_request:
        return "function"  # its arguments are a request's, and the graph is made for each or runs in a function that it calls
    if code.builds and code.runs:
        raise ConfigError(
            f"{where} builds a graph and runs it: name the graph, or a function that only returns it: app.py:graph"
        )
    if not code.builds:
        return "function"
    if not required:
        return "maker"
    if len(required) > 1:
        raise ConfigError(
            f"{where} requires the arguments {', '.join(required)}: name a graph, or a function with at most one argument, the "
            "chat model"
        )
    if required[0] == "config" or "RunnableConfig" in str(inspect.signature(value).parameters[required[0]].annotation):
        return "config-maker"
    return "vine-maker" if required[0] == "vine" else "model-maker"


def _takes_plain(function: Callable[..., Any], names: Sequence[str]) -> bool:
    """Return whether the annotations of all these arguments are types of plain data, such as ``question: str``."""
    parameters = inspect.signature(function).parameters
    kinds = [str(getattr(kind := parameters[name].annotation, "__name__", kind)).lower() for name in names]
    return all(kind.partition("[")[0] in {"str", "int", "float", "bool", "dict", "list"} for kind in kinds)


def required_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that a function or class requires, because they have no default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
