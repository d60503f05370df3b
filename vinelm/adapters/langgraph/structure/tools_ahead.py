"""Finds the tools that may be prefetched at a node: tools of the graph whose calls no application code may refuse or change.

LangGraph does not reveal which graph a node runs in, so the graph is found through LangGraph's loop object. If a version of
LangGraph hides that object, nothing is prefetched.
"""

from __future__ import annotations

import asyncio
import dis
import sys
import threading
from collections import deque
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool, StructuredTool, Tool
from langgraph.constants import START
from langgraph.errors import GraphInterrupt
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry
from langgraph.types import interrupt

from vinelm.adapters.langgraph.nodes.signature import is_user_code
from vinelm.adapters.langgraph.structure.chat_search import ANY_ATTRIBUTE, MOST_OBJECTS, ObjectSearch, code_names, file_of
from vinelm.adapters.tools.declaring import declared_in
from vinelm.adapters.tools.tool_box import DeclaredTool, ToolBox

_HOOKS = tuple(
    f"{way}{hook}" for hook in ("before_model", "after_model", "wrap_model_call", "wrap_tool_call") for way in ("", "a")
)
"""Methods of LangChain's middleware that may refuse or change what a model has asked for."""
_STEPS = ("run", "arun", "invoke", "ainvoke", "_parse_input", "_to_args_and_kwargs")
"""Methods of LangChain's tool classes that run before the tool's own code; a prefetch runs only that code."""
_WAYS = ("fget", "func", "__func__")
"""Attributes in which a property, a cached property and a static or class method keep their function."""
_PLAIN_HOOKS = {
    ("langchain.agents.middleware.types", "AgentMiddleware"),
    ("vinelm.adapters.langchain.middleware", "VineMiddleware"),
}
"""Middleware classes without hooks: LangChain's base and VineLM's own. Compared by class, since an application may reuse the
name."""
_THREAD_IDS = frozenset({"get_ident", "get_native_id", "ident", "native_id"})
"""Names by which code identifies its thread, apart from ``threading.local``."""
_ASKS = frozenset({"interrupt", "NodeInterrupt", "GraphInterrupt"})


class ToolsAhead:
    """Finds the tools that may be prefetched at a node.

    The objects that a node refers to may change between runs, so they are inspected again for each run, but only once per run.
    """

    def __init__(self, box: ToolBox) -> None:
        self._box = box
        self._seen: WeakKeyDictionary[Any, _GraphTools] = WeakKeyDictionary()

    def at(self, config: RunnableConfig) -> Mapping[str, DeclaredTool]:
        """Return the tools, by name, that may be prefetched while a model is called in the node of ``config``."""
        loop = _loop_of(config)
        nodes, node = getattr(loop, "nodes", None), config.get("metadata", {}).get("langgraph_node")
        if loop is None or not isinstance(nodes, Mapping):
            return {}
        found = self._seen.get(loop)
        if found is None:
            found = self._seen[loop] = _GraphTools(nodes, self._box)
        is_asked = bool(loop.interrupt_before or loop.interrupt_after or refuses_tools(config))
        return found.at(str(node), is_asked=is_asked)

    @staticmethod
    def outside(tools: Mapping[str, DeclaredTool]) -> Mapping[str, DeclaredTool]:
        """Return those of the given tools that may be prefetched if no graph runs around the call."""
        is_asked = refuses_tools(var_child_runnable_config.get() or {})
        return {name: one for name, one in tools.items() if _may_run(one, is_asked=is_asked)}


def _may_run(declared: DeclaredTool, *, is_asked: bool) -> bool:
    if not declared.says.read_only or not can_run_ahead(declared):
        return False
    return declared.says.unchecked or not (is_asked or is_checked_by_itself(declared.code.tool))


def refuses_tools(config: RunnableConfig) -> bool:
    """Return whether a callback handler in ``config`` may refuse the calls of tools by raising an exception."""
    callbacks: Any = config.get("callbacks") or ()
    return any(_may_refuse(one) for one in getattr(callbacks, "handlers", callbacks))


def _may_refuse(handler: Any) -> bool:
    plain = (BaseCallbackHandler.on_tool_start, AsyncCallbackHandler.on_tool_start)
    return bool(getattr(handler, "raise_error", False)) and type(handler).on_tool_start not in plain


def can_run_ahead(declared: DeclaredTool) -> bool:
    """Return whether a tool's code can run in parallel with the rest of its request. Cached for each tool object.

    Code that reads the current thread cannot, since the thread may identify the caller. Code that refers to a lock cannot
    either: the request may hold that lock, and the prefetch would wait for it, perhaps while holding another lock that the
    request needs.
    """
    if declared.can_run_ahead is None:
        tool = declared.code.tool
        own = [one for name in ("func", "coroutine") if (one := getattr(tool, name, None)) is not None]
        search, narrow = _Reach(""), _Reach("", every_method=False)
        for code in own or [tool._run, tool._arun]:
            search.held_by(code)
            narrow.held_by(code)
        asked = {name for one in search.held_by(None).functions for name in code_names(one.__code__)}
        is_by_thread = not declared.code.is_async and (
            bool(asked & _THREAD_IDS) or any(isinstance(one, threading.local) for one in search.objects)
        )
        # Many objects have a lock that this tool does not use: only what the code names counts.
        is_locked = not declared.says.unchecked and any(map(_is_lock, narrow.objects))
        declared.can_run_ahead = not (is_by_thread or is_locked)
    return declared.can_run_ahead


def _is_lock(item: Any) -> bool:
    conditions = isinstance(item, (threading.Condition, asyncio.Condition))
    return conditions or all(callable(getattr(type(item), name, None)) for name in ("acquire", "release"))


def is_checked_by_itself(tool: BaseTool) -> bool:
    """Return whether the tool's class, or one of its handlers, checks a call before the tool's code runs."""
    callbacks = getattr(tool, "callbacks", None)
    own = getattr(callbacks, "handlers", callbacks) or ()
    known = {getattr(kind, name) for kind in (BaseTool, StructuredTool, Tool) for name in _STEPS}
    return any(map(_may_refuse, own)) or any(getattr(type(tool), name) not in known for name in _STEPS)


@dataclass(slots=True)
class _Node:
    """The tools of a node, and what may refuse or change its tool calls.

    Attributes:
        tools: the tool objects that the node may call.
        asks: whether the node may interrupt the graph to ask a person; True if unknown.
        checks: whether the node contains a middleware of the application.
        is_plain: whether the node is only LangGraph's ``ToolNode``, without a wrapper around the calls.
        wraps: whether the node contains a ``ToolNode`` or a wrapper that may refuse or change calls.
    """

    tools: list[BaseTool] = field(default_factory=list)
    asks: bool = False
    checks: bool = False
    is_plain: bool = False
    wraps: bool = False


class _GraphTools:
    """The tools in the nodes of one graph, as found when a run calls its first model."""

    def __init__(self, nodes: Mapping[str, Any], box: ToolBox) -> None:
        self._nodes = {name: node for name, node in nodes.items() if name != START}
        self._box = box
        self._after = {name: self._goes_to(name) for name in self._nodes}
        self._found: dict[tuple[str, bool], Mapping[str, DeclaredTool]] = {}

    def at(self, node: str, *, is_asked: bool) -> Mapping[str, DeclaredTool]:
        """Return the tools that may be prefetched at a node, by name.

        ``is_asked`` states that a person or a callback handler may refuse calls. Then only tools declared ``unchecked`` are
        returned.
        """
        key = node, is_asked
        if key not in self._found:
            self._found[key] = self._at(node, is_asked=is_asked)
        return self._found[key]

    def _at(self, node: str, *, is_asked: bool) -> dict[str, DeclaredTool]:
        here = self._held.get(node)
        if here is not None and (here.is_plain or here.wraps):
            return {}  # a model inside a tool: the tools of that model are not this graph's
        ahead = set(self._held) if here is None else {node, *self._reached(node, without=frozenset())}
        holders: dict[int, tuple[BaseTool, set[str]]] = {}
        for name in ahead:
            for tool in self._held[name].tools:
                holders.setdefault(id(tool), (tool, set()))[1].add(name)
        names = [tool.name for tool, _ in holders.values()]
        is_asked = is_asked or any(one.asks or one.checks for one in self._held.values())
        found = {}
        for tool, where in holders.values():
            declared = declared_in(self._box, tool)
            if declared is None or names.count(tool.name) > 1 or not _may_run(declared, is_asked=is_asked):
                continue
            if declared.says.unchecked or self._is_open(node, where):
                found[tool.name] = declared
        return found

    def _is_open(self, node: str, holders: set[str]) -> bool:
        """Return whether a tool may be called right after the model in ``node``, without other code in between.

        ``holders`` are the nodes that call the tool. They must include ``node`` or a node right after it, and none of them may
        wrap its calls. All nodes between ``node`` and a holder must be plain ``ToolNode`` nodes.
        """
        if node not in self._held:  # a task of LangGraph's functional API: its entrypoint is the only node
            return len(self._held) == 1
        if any(self._held[name].wraps for name in holders):
            return False
        plain = {name for name, one in self._held.items() if one.is_plain}
        between = {one for name in holders - {node} for one in self._between(node, name)}
        return not between - plain and bool(holders & {node, *self._after[node]})

    def _between(self, node: str, holder: str) -> set[str]:
        around = frozenset({node, holder})
        return {one for one in self._reached(node, without=around) if holder in self._reached(one, without=frozenset({node}))}

    def _reached(self, node: str, *, without: frozenset[str]) -> set[str]:
        """Return the nodes that may follow a node on paths that avoid the nodes in ``without``."""
        found: set[str] = set()
        waiting = [node]
        while waiting:
            new = self._after[waiting.pop()] - found - without
            found |= new
            waiting += new
        return found

    def _goes_to(self, node: str) -> set[str]:
        """Return the nodes that may come right after a node; all nodes if the target of an edge is unknown."""
        channels: set[str] = set()
        for writer in self._nodes[node].writers:
            static = ChannelWrite.get_static_writes(writer)
            if isinstance(writer, ChannelWrite):
                channels |= {entry.channel for entry in writer.writes if isinstance(entry, ChannelWriteEntry)}
            elif not static:
                return set(self._nodes)
            channels |= {str(write[0]) for write in static or ()}
        return {name for name, other in self._nodes.items() if channels.intersection(other.triggers)}

    @cached_property
    def _held(self) -> dict[str, _Node]:
        return {name: _node_of(name, node) for name, node in self._nodes.items()}


def _node_of(name: str, node: Any) -> _Node:
    bound = node.bound
    if type(bound) is ToolNode:
        is_wrapped = any(getattr(bound, one, None) is not None for one in ("_wrap_tool_call", "_awrap_tool_call"))
        return _Node(list(bound.tools_by_name.values()), is_plain=not is_wrapped, wraps=is_wrapped)
    search = _Reach(name)
    search.held_by(bound)
    found = _Node([one for one in search.objects if isinstance(one, BaseTool)])
    for inner in (one for one in search.objects if isinstance(one, ToolNode)):
        found.tools += inner.tools_by_name.values()
        found.wraps = True
    found.checks = any(map(_checks, search.objects))
    for writer in node.writers:
        search.held_by(writer)
    found.asks = search.asks
    return found


def _checks(item: Any) -> bool:
    """Return whether an object is a LangChain agent middleware with hooks that VineLM's own middleware does not have."""
    kinds = type(item).__mro__
    if not _is_middleware(item):
        return False
    owners = [next((one for one in kinds if hook in vars(one)), None) for hook in _HOOKS]
    return any(one is not None and (one.__module__, one.__name__) not in _PLAIN_HOOKS for one in owners)


def _is_middleware(item: Any) -> bool:
    kinds = type(item).__mro__
    return any(one.__name__ == "AgentMiddleware" and one.__module__.startswith("langchain.agents.") for one in kinds)


class _Reach(ObjectSearch):
    """Searches for the objects that a node's code can reach, and for code that asks a person.

    The search may find too much: it follows every method of an application's object. Code that chooses by a string what it
    calls counts as asking a person if some loaded module asks a person (:func:`_asks_somewhere`).

    Args:
        node: the node's name.
        every_method: follow all methods of an object, rather than only the methods that the code names.

    Attributes:
        objects: the objects that were inspected.
        asks: whether some of the code asks a person; also True if code was left uninspected.
    """

    def __init__(self, node: str, *, every_method: bool = True) -> None:
        super().__init__(node)
        self._asks, self._every_method = False, every_method

    @property
    def objects(self) -> list[Any]:
        return list(self._seen.values())

    @property
    def asks(self) -> bool:
        return self._asks or id(interrupt) in self._seen or len(self._seen) >= MOST_OBJECTS

    def _add_graph(self, graph: CompiledStateGraph[Any, Any, Any, Any]) -> None:
        """Record whether the subgraph ``graph`` may interrupt to ask a person. Nothing else of the subgraph is recorded."""
        inner = _Reach(self._node)
        inner._seen[id(graph)] = graph
        for node in graph.nodes.values():
            inner.held_by(node.bound)
        self._asks |= inner.asks

    def _inside(self, item: Any) -> Iterator[Any]:
        if isinstance(item, (BaseTool, ToolNode)):  # a tool's actions are its own
            return
        if isinstance(item, Mapping):  # a table by name; a table by user or tenant holds no tool of this run
            yield from (value for key, value in list(item.items()) if not isinstance(value, BaseTool) or key == value.name)
            return
        yield from super()._inside(item)
        kind = type(item)
        if isinstance(item, MethodType) and _is_middleware(item.__self__):  # a hook around the model's call
            yield item.__self__
        elif isinstance(item, (SimpleNamespace, deque)):
            yield from list(item) if isinstance(item, deque) else vars(item).values()
        elif self._every_method and not isinstance(item, FunctionType) and _may_ask(kind.__module__, file_of(kind)):
            yield from _methods(kind)

    def _referred_to(self, function: FunctionType) -> Iterator[Any]:
        """Yield the objects that a function's code refers to. For an object of the application, yield only the attributes that
        the code names.
        """
        names, owner = frozenset(code_names(function.__code__)), function.__globals__
        is_imported = any(name.partition(".")[0] == "langgraph" for name in names)
        self._asks |= (is_imported and bool(names & _ASKS)) or any(owner.get(name) is interrupt for name in names)
        waiting, known = list(super()._referred_to(function)), set[int]()
        if not _may_ask(function.__module__ or "", function.__code__.co_filename):
            yield from waiting
            return
        imported = list(_imported(function))
        is_ours = (function.__module__ or "").startswith("vinelm.")  # a bundled workflow names what it calls
        self._asks |= None in imported or (bool(names & _BY_TEXT) and not is_ours and _asks_somewhere(len(sys.modules)))
        waiting += [owner[name] for name in names if name in owner]  # modules and classes too
        waiting += [one for one in imported if one is not None and one.__name__.partition(".")[0] != "langgraph"]
        while waiting:
            value = waiting.pop()
            if id(value) in known:
                continue
            known.add(id(value))
            kind = value if isinstance(value, type) else type(value)
            if isinstance(value, ModuleType):
                members = [vars(value)[name] for name in names if name in vars(value)]
                inner = f"{value.__name__}."
                waiting += [one for one in members if not isinstance(one, ModuleType) or one.__name__.startswith(inner)]
                continue
            self._asks |= isinstance(value, type) and issubclass(value, GraphInterrupt)
            is_theirs = _may_ask(kind.__module__, file_of(kind))
            called = None if self._every_method else names | ({"__init__", "__call__"} if kind is value else {"__call__"})
            if is_theirs and not isinstance(value, BaseTool):
                yield from _methods(kind, called)
            if not is_theirs or isinstance(value, Runnable) or names & ANY_ATTRIBUTE or not hasattr(value, "__dict__"):
                yield value
            elif kind is not value:
                self._seen[id(value)] = value
                methods = [one for one in _methods(kind, called) if isinstance(one, FunctionType)]
                of_object = names.union(*(code_names(one.__code__) for one in methods))
                waiting += [one for name, one in list(vars(value).items()) if name in of_object]


_BY_TEXT = ANY_ATTRIBUTE | {"import_module", "__import__", "exec", "eval", "globals", "methodcaller"}
"""Names in code that may call something known only by a text."""
_FOLLOWED_APART = ("langgraph", "langchain", "langchain_core", "langsmith", "vinelm")
"""Libraries whose code is not searched: where they ask a person, they do so through objects that the search recognizes."""


def _may_ask(module: str, filename: str) -> bool:
    """Return whether code may ask a person.

    True for the application's code, code of an interactive session, and code of a package that uses LangGraph.
    """
    package = module.partition(".")[0]
    if is_user_code(module, filename):
        return True
    if package in _FOLLOWED_APART or package in sys.stdlib_module_names:
        return False
    return package == "__main__" or filename.startswith("<") or _uses_langgraph(package, len(sys.modules))


@lru_cache(maxsize=1024)
def _uses_langgraph(package: str, _loaded: int) -> bool:
    """Return whether any loaded module of an installed package imports LangGraph.

    ``_loaded`` is the number of loaded modules. It is not used, but a new number makes the cache compute the result again.
    """
    known = [one for name, one in list(sys.modules.items()) if name == package or name.startswith(f"{package}.")]
    return any(_origin(value) == "langgraph" for one in known for value in list(vars(one).values()))


@lru_cache(maxsize=1)
def _asks_somewhere(_loaded: int) -> bool:
    """Return whether a loaded module that may ask a person (:func:`_may_ask`) refers to LangGraph's ``interrupt``.

    ``_loaded`` is the number of loaded modules. It is not used, but a new number makes the cache compute the result again.
    """
    for name, module in list(sys.modules.items()):
        known = list(getattr(module, "__dict__", {}).values())
        kinds = (one for one in known if isinstance(one, type))
        has_some = any(one is interrupt for one in known) or any(issubclass(one, GraphInterrupt) for one in kinds)
        if has_some and _may_ask(name, getattr(module, "__file__", None) or ""):
            return True
    return False


def _origin(value: Any) -> str:
    named = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    return named.partition(".")[0] if isinstance(named, str) else ""


def _methods(kind: type, called: Container[str] | None = None) -> Iterator[Any]:
    """Yield a class's functions, properties and other attributes; if ``called`` is given, only the attributes named in it."""
    for base in kind.__mro__:
        if _may_ask(base.__module__, file_of(base)):
            for name, member in list(vars(base).items()):
                if called is not None and name not in called:
                    continue
                found = next((one for way in _WAYS if (one := getattr(member, way, None)) is not None), member)
                if isinstance(found, FunctionType) or not name.startswith("_"):  # pydantic keeps its schemas in classes
                    yield found


def _imported(function: FunctionType) -> Iterator[ModuleType | None]:
    """Yield the modules that a function imports when it runs, with their top-level packages; None for a module that is not
    loaded.
    """
    parents = str(function.__globals__.get("__package__") or "").split(".")
    for level, asked in _imports(function.__code__):
        name = ".".join(filter(None, [*(parents[: len(parents) - level + 1] if level else ()), asked]))
        top = name.partition(".")[0]
        yield from (sys.modules[each] for each in (name, top) if each in sys.modules)
        if name not in sys.modules and top not in sys.stdlib_module_names and top not in _FOLLOWED_APART:
            yield None


@lru_cache(maxsize=1024)
def _imports(code: CodeType) -> tuple[tuple[int, str], ...]:
    """Return the imports in code and its inner functions: the level of a relative import, and the module's name."""
    found: list[tuple[int, str]] = []
    levels: list[int] = []
    for one in dis.get_instructions(code):
        if one.opname == "IMPORT_NAME":
            found.append((levels[-1] if levels else 0, str(one.argval)))
        elif one.opname.startswith("LOAD_") and isinstance(one.argval, int):  # the relative level is loaded before the names
            levels.append(one.argval)
    inner = (_imports(const) for const in code.co_consts if isinstance(const, CodeType))
    return (*found, *(one for each in inner for one in each))


def _loop_of(config: RunnableConfig) -> Any:
    """Return LangGraph's loop object that runs the node of ``config``; None if LangGraph hides it."""
    call = config.get("configurable", {}).get("__pregel_call")
    if isinstance(call, FunctionType):  # LangGraph wraps the call for a node with a timeout
        cells = [cell.cell_contents for cell in call.__closure__ or ()]
        call = next((one for one in cells if hasattr(one, "keywords")), None)
    return getattr(getattr(call, "keywords", {}).get("schedule_task"), "__self__", None)
