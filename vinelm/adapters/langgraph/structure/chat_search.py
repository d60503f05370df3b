"""Finds the nodes of a graph that contain a chat model of VineLM, without running anything.

A node's function may refer to a chat model by a global name, a closure, an attribute or a chain. The search follows the
application's functions that it calls. It cannot find a chat model that is made while the node runs, but finds the code that
makes it.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.graph.state import CompiledStateGraph, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from vinelm.adapters.langgraph.nodes.signature import closure_values, held_attribute, is_user_code, marked
from vinelm.adapters.langgraph.nodes.stage import STAGE_MARK
from vinelm.adapters.langgraph.path.path_channel import WITHIN
from vinelm.adapters.langgraph.runs.run_finder import RunFinder
from vinelm.adapters.langgraph.runs.settings import AdapterSettings

CHAT_MARK = "__vinelm_chat__"
"""Attribute of the classes whose instances are stages: true for a chat model of VineLM."""
_MAKERS = frozenset({"chat_model", "VineChatModel", "openai_client"})
MOST_OBJECTS = 5_000
"""How many objects are looked at for one node, at most."""


@dataclass(slots=True)
class HeldStages:
    """The stages and chat models that the search has found inside a node.

    Attributes:
        names: the stages of the node's chat models.
        hidden: the stages of graphs that are inside the node.
        paths: the nodes of the graphs inside the node whose names serve as stage names, each prefixed with its surrounding
            nodes: ``helper/model``.
        is_by_node: whether some chat model has no stage name, so that its stage is named after the node.
        on_edges: the stages of chat models that the node's conditional edges call.
        remembering: the stages that are in a graph which was compiled with its own checkpointer.
        makes_some: whether the node's code makes a chat model when it runs, so that the node may call any stage.
        makes_graph: whether the node's code, when it runs, makes a graph or an agent. The nodes of such a graph are not known
            in advance.
        inner: the graphs inside the node that have stages.
        is_in_tools: whether the node calls models only in tools, so that an execution may call no model.
        is_tools: whether the node is LangGraph's ``ToolNode``, which runs the tool calls of a model.
        chats: LangChain chat models that are not VineLM's, if the search includes them.
        makers: the code objects of functions that make a chat model when they run.
        functions: the application's functions that the node's code refers to, directly or through other functions.
        adapters: the adapters that made the chat models and wrapped the stages.
    """

    names: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    is_by_node: bool = False
    on_edges: set[str] = field(default_factory=set)
    remembering: set[str] = field(default_factory=set)
    makes_some: bool = False
    makes_graph: bool = False
    inner: list[InnerGraph] = field(default_factory=list)
    is_in_tools: bool = False
    is_tools: bool = False
    chats: list[Any] = field(default_factory=list)
    makers: list[CodeType] = field(default_factory=list)
    functions: list[FunctionType] = field(default_factory=list)
    adapters: list[Any] = field(default_factory=list)

    def is_one_stage(self, node: str) -> bool:
        """Return whether all model calls of the node can only be planned together, as one stage.

        This holds if the node makes a graph when it runs, and calls or makes a chat model. It must also use no other stage's
        name, and not be LangGraph's ``ToolNode``.
        """
        return self.makes_graph and not self.is_tools and self.names <= {node} and (self.makes_some or bool(self.names))


@dataclass(frozen=True, slots=True)
class InnerGraph:
    """A graph inside a node.

    Attributes:
        held: the stages inside its nodes.
        stage_of: the stage of each node that runs exactly one stage.
    """

    graph: CompiledStateGraph[Any, Any, Any, Any]
    held: dict[str, HeldStages]
    stage_of: dict[str, str]


def chat_nodes(
    graph: CompiledStateGraph[Any, Any, Any, Any], within: frozenset[int] = frozenset(), *, is_any: bool = False
) -> dict[str, HeldStages]:
    """Return the stages inside each node of a graph; nodes without stages are left out.

    For a chat model without a stage name, the stage has the name of its node.

    Args:
        graph: the graph.
        within: ids of the surrounding graphs, to which a node may refer.
        is_any: whether to look for all LangChain chat models, not only VineLM's. The result then has the stages that the graph
            would have with chat models of VineLM.
    """
    found: dict[str, HeldStages] = {}
    for node, spec in graph.builder.nodes.items():
        search = ObjectSearch(node, within | {id(graph)}, is_any=is_any)
        held = search.held_by(spec.runnable)
        if held.names or held.makes_some or held.inner:
            if search.has_met_tools:
                apart = ObjectSearch(node, within | {id(graph)}, is_any=is_any, without_tools=True).held_by(spec.runnable)
                held.is_in_tools = not (apart.names or apart.makes_some or apart.inner)
            held.is_tools = any(kind.__name__ == "ToolNode" for kind in type(spec.runnable).__mro__)
            found[node] = held
    for source, branches in graph.builder.branches.items():
        for branch in branches.values():
            called = ObjectSearch(source, within | {id(graph)}, is_any=is_any).held_by(branch.path)
            names = called.names | ({source} if called.makes_some and is_any else set())
            if names:
                held = found.setdefault(source, HeldStages())
                held.on_edges |= names
                held.is_by_node |= called.is_by_node
                held.chats += called.chats
                held.makers += called.makers
                held.functions += called.functions
    return found


def single_stages(graph: CompiledStateGraph[Any, Any, Any, Any], held: Mapping[str, HeldStages]) -> dict[str, str]:
    """Return the stage of each node that runs exactly one stage, as a wrapped stage or through its chat model.

    ``held`` are the stages inside the nodes.
    """
    found = wrapped_stages(graph)
    for node, stages in held.items():
        if node not in found and len(stages.names) + stages.makes_some == 1:
            found[node] = min(stages.names, default=node)
    return found


def holds_stage(target: Any) -> bool:
    """Return whether a chain, a function or another object contains a chat model that is a stage."""
    return bool(ObjectSearch("").held_by(target).names)


def adapters_behind(app: Any) -> list[Any]:
    """Return the adapters that wrap an application's stages and routes or make its chat models, as far as they can be found.

    Args:
        app: a compiled graph, an entrypoint of the functional API, or an object that contains its function.
    """
    search = ObjectSearch("")
    nodes = [node.bound for node in app.nodes.values()] if isinstance(app, Pregel) else [app.function]
    branches = app.builder.branches.values() if isinstance(app, CompiledStateGraph) else ()
    paths = [branch.path for of_node in branches for branch in of_node.values()]
    return search.held_by([*nodes, *paths]).adapters


def holds_chat(target: Any) -> bool:
    """Return whether an object contains or makes a LangChain chat model of any kind, or is a graph that does."""
    held = ObjectSearch("chat", is_any=True).held_by(target)
    return bool(held.names or held.makes_some or held.inner)


def makes_client(value: Any) -> bool:
    """Return whether ``value`` is a client class of the openai SDK, not a subclass by VineLM."""
    is_sdk = getattr(value, "__module__", "").partition(".")[0] == "openai"
    return isinstance(value, type) and is_sdk and value.__name__ in {"OpenAI", "AsyncOpenAI"}


def makes_client_holder(value: Any) -> bool:
    """Return whether ``value`` is LlamaIndex's class ``OpenAI``, which calls models through clients of the openai SDK, or a
    subclass.
    """
    kinds = value.__mro__ if isinstance(value, type) else ()
    return any(kind.__name__ == "OpenAI" and kind.__module__.startswith("llama_index.llms.openai.") for kind in kinds)


def makes_chat(value: Any) -> bool:
    """Return whether ``value`` makes a chat model when called: a chat model class, a client class or ``init_chat_model``."""
    if isinstance(value, type):
        return issubclass(value, BaseChatModel) or makes_client(value) or makes_client_holder(value)
    return isinstance(value, FunctionType) and value.__name__ == "init_chat_model"


def is_chat(value: Any) -> bool:
    """Return whether ``value`` is a LangChain chat model, a configurable model, or a client."""
    kind = type(value)
    return (
        isinstance(value, BaseChatModel)
        or makes_client(kind)
        or makes_client_holder(kind)
        or (
            kind.__name__ == "_ConfigurableModel" and kind.__module__.startswith("langchain.")  # of init_chat_model
        )
    )


def wrapped_stages(graph: CompiledStateGraph[Any, Any, Any, Any]) -> dict[str, str]:
    """Return the stage of each node that ``vine.stage`` made."""
    marks = {node: marked(spec.runnable, STAGE_MARK) for node, spec in graph.builder.nodes.items()}
    return {node: stage for node, stage in marks.items() if isinstance(stage, str)}


ANY_ATTRIBUTE = frozenset({"getattr", "vars", "__dict__", "attrgetter", "__getattribute__"})
"""Names in code after which any attribute may be read."""


class ObjectSearch:
    """Searches for stages in the objects that a node's code refers to.

    Args:
        node: name of the node.
        graphs: ids of the graphs around the node.
        is_any: whether to look for all LangChain chat models, not only VineLM's.
        without_tools: whether to leave out the code of tools.
    """

    def __init__(
        self, node: str, graphs: frozenset[int] = frozenset(), *, is_any: bool = False, without_tools: bool = False
    ) -> None:
        self._node = node
        self._without_tools = without_tools
        self._graphs = graphs
        self._is_any = is_any
        self._seen: dict[int, Any] = {}  # keeps the objects alive, so that no id is reused
        self._held = HeldStages()

    @property
    def has_met_tools(self) -> bool:
        """Whether the searched objects include a tool."""
        return any(isinstance(item, (BaseTool, ToolNode)) for item in self._seen.values())

    def held_by(self, target: Any) -> HeldStages:
        """Search ``target``, and return all stages found so far, including those of earlier searches."""
        # A prebuilt middleware's hook (``SummarizationMiddleware.before_model``) calls the model that it was made with. Hooks
        # around the agent's own call, such as for a fallback, do not belong to the node.
        owners = (getattr(held_attribute(target, name), "__self__", None) for name in ("func", "afunc"))
        waiting = [target, *(vars(owner) for owner in owners if _is_middleware(owner))]
        # An agent's own nodes know its tools, and call none of them: its ``ToolNode`` does.
        calls_no_tools = self._without_tools or any(_is_of_agents(held_attribute(target, name)) for name in ("func", "afunc"))
        while waiting and len(self._seen) < MOST_OBJECTS:
            item = waiting.pop()
            if calls_no_tools and isinstance(item, (BaseTool, ToolNode)):
                continue
            if id(item) in self._seen or isinstance(item, (str, bytes, int, float, type, ModuleType, type(None))):
                continue
            self._seen[id(item)] = item
            if isinstance(item, RunFinder):
                self._held.adapters.append(item.settings)
            elif isinstance(adapter := getattr(item, "__dict__", {}).get("adapter"), AdapterSettings):
                self._held.adapters.append(adapter)  # a VineLM, from which a chat model is made when the node runs
            elif getattr(type(item), CHAT_MARK, False):
                self._held.names.add(item.stage or self._node)
                self._held.adapters.append(item.vine.adapter)
                self._held.is_by_node |= not item.stage
                if self._is_any and getattr(item, "own", None) is not None:
                    self._held.chats.append(item.own.inner.given)
            elif self._is_any and is_chat(item):
                self._held.names.add(self._node)
                self._held.is_by_node = True
                self._held.chats.append(item)
            elif isinstance(item, CompiledStateGraph):
                if id(item) not in self._graphs:
                    self._add_graph(item)
            else:
                waiting.extend(self._inside(item))
        return self._held

    def _add_graph(self, graph: CompiledStateGraph[Any, Any, Any, Any]) -> None:
        names = set(wrapped_stages(graph).values())
        held = chat_nodes(graph, self._graphs, is_any=self._is_any)
        for node, inner in held.items():
            names |= inner.names | inner.hidden | inner.on_edges
            own = {node} if inner.is_by_node or inner.makes_some else set()
            names |= own
            self._held.paths |= {f"{self._node}{WITHIN}{path}" for path in own | inner.paths}
            self._held.remembering |= inner.remembering
            self._held.adapters += inner.adapters
        self._held.hidden |= names
        if names:
            self._held.inner.append(InnerGraph(graph, held, single_stages(graph, held)))
        if graph.checkpointer not in {None, False}:
            self._held.remembering |= names

    def _inside(self, item: Any) -> Iterator[Any]:
        wrapped = getattr(item, "__dict__", {}).get("__wrapped__")  # of a function, a ``functools.cache`` and other decorators
        if wrapped is not None:
            yield wrapped
        if isinstance(item, MethodType):
            read = _attributes_read(item)
            yield from (*([item.__self__] if read is None else read), item.__func__)
        elif isinstance(item, functools.partial):
            yield from (item.func, *item.args, *item.keywords.values())
        elif isinstance(item, FunctionType):
            yield from self._referred_to(item)
        elif isinstance(item, Mapping):
            yield from list(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            yield from item
        elif isinstance(item, Runnable) or is_user_code(type(item).__module__, file_of(type(item))):
            yield from getattr(item, "__dict__", {}).values()
            yield from (vars(base)["__call__"] for base in type(item).__mro__ if "__call__" in vars(base))

    def _referred_to(self, function: FunctionType) -> Iterator[Any]:
        yield from closure_values(function)
        yield from (function.__defaults__ or (), (function.__kwdefaults__ or {}))
        if not is_user_code(function.__module__ or "", function.__code__.co_filename):
            return
        self._held.functions.append(function)
        names = frozenset(code_names(function.__code__))
        owner = function.__globals__
        makes = names & _MAKERS or ("around" in names and not any(_has_around(owner.get(name)) for name in names))
        if makes or (self._is_any and any(makes_chat(owner.get(name)) for name in names)):
            self._held.makes_some = True
            self._held.makers.append(function.__code__)
        reads = _reads(function.__code__)
        for name, value in [(name, owner[name]) for name in names if name in owner]:
            if isinstance(value, ModuleType):
                inside = [getattr(value, name, None) for name in names]
                self._held.makes_graph |= any(map(_makes_graph, inside))
                yield from inside
            elif _makes_graph(value):
                self._held.makes_graph = True
            elif isinstance(value, type):
                yield from _methods_used(value, names)
            else:
                yield from _of_object(value, [chain[1:] for chain in reads if chain[0] == name])


_GRAPH_MAKERS = frozenset({"create_agent", "create_react_agent", "create_deep_agent", "create_supervisor", "create_swarm"})
"""Functions of libraries that return an agent or a graph of agents."""


def _makes_graph(value: Any) -> bool:
    """Return whether ``value`` makes a graph when called: LangGraph's ``StateGraph``, or a function that returns an agent."""
    if isinstance(value, type):
        return issubclass(value, StateGraph)
    is_theirs = isinstance(value, FunctionType) and not is_user_code(value.__module__ or "", value.__code__.co_filename)
    return is_theirs and value.__name__ in _GRAPH_MAKERS


def _methods_used(kind: type, names: Set[str]) -> list[FunctionType]:
    """Return the methods of the class ``kind`` that code may call on an instance, given all ``names`` that occur in the code.

    ``__init__`` is included, and so are the methods that these methods name. Empty for classes outside the application's code.
    """
    if issubclass(kind, BaseChatModel) or not is_user_code(kind.__module__, file_of(kind)):
        return []
    members = {name: value for base in reversed(kind.__mro__[:-1]) for name, value in vars(base).items()}
    waiting, found = {*names, "__init__"}, dict[str, FunctionType]()
    while waiting:
        name = waiting.pop()
        inner = getattr(members.get(name), "__func__", members.get(name))
        if isinstance(inner, FunctionType) and name not in found:
            found[name] = inner
            waiting |= set(code_names(inner.__code__)) - found.keys()
    return list(found.values())


def _has_around(value: Any) -> bool:
    """Return whether ``value`` is a module with another ``around`` than ``vine.around``, such as numpy.

    Code that refers to such a module is not taken for code that calls ``vine.around``.
    """
    return isinstance(value, ModuleType) and hasattr(value, "around")


def _attributes_read(method: MethodType) -> list[Any] | None:
    """Return the values of the attributes of ``self`` that ``method``, or a method that it calls, reads; None if unknown.

    A class with several models usually has one method per node, and each method uses only its own model.
    """
    owner, names = method.__self__, set[str]()
    codes: list[CodeType] = []
    is_theirs = is_user_code(type(owner).__module__, file_of(type(owner)))
    if isinstance(owner, type) or not is_theirs or not hasattr(owner, "__dict__"):
        return None
    classes = [vars(base) for base in type(owner).__mro__]
    waiting: list[Any] = [method.__func__]
    while waiting:
        code = getattr(inspect.unwrap(waiting.pop()), "__code__", None)
        if code is None:
            return None
        codes.append(code)
        new = set(code_names(code)) - names
        names |= new
        for value in (members[name] for name in new for members in classes if name in members):
            inner = next((f for kind in ("fget", "func", "__func__") if (f := getattr(value, kind, None)) is not None), value)
            if callable(inner) and not isinstance(inner, type) and not is_chat(inner):
                waiting.append(inner)
    if names & ANY_ATTRIBUTE:
        return None
    reads = [chain for code in codes for chain in _reads(code)]
    found: list[Any] = []
    for name, value in [(name, members[name]) for members in (vars(owner), *classes) for name in names if name in members]:
        found += _of_object(value, [chain[1:] for chain in reads if chain[0] == name])
    return found


@functools.lru_cache(maxsize=4096)
def _reads(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """Return the chains of names in code: a name that the code loads, followed by the attributes that it then reads.

    For example ``("agents", "writer", "invoke")``. The ends of each chain, here ``("writer", "invoke")`` and ``("invoke",)``,
    are included, and so are the chains of inner functions.
    """
    found: list[tuple[str, ...]] = []
    chain: list[str] = []
    for one in dis.get_instructions(code):
        is_attribute = one.opname.startswith(("LOAD_ATTR", "LOAD_METHOD"))
        if chain and not is_attribute:
            found += (tuple(chain[number:]) for number in range(len(chain)))
            chain = []
        if is_attribute or one.opname.startswith(("LOAD_GLOBAL", "LOAD_DEREF")):
            chain.append(str(one.argval))
    found += (tuple(chain[number:]) for number in range(len(chain)))
    for const in code.co_consts:
        if isinstance(const, CodeType):
            found += _reads(const)
    return tuple(found)


def _of_object(value: Any, chains: list[tuple[str, ...]]) -> list[Any]:
    """Return the parts of an object to which the attribute chains in ``chains`` refer.

    If the code may use the object as a whole, or if the parts are unknown, return the object itself. An object may hold one
    model for each node, as in ``self.agents.writer``.
    """
    kind = type(value)
    classes = [vars(base) for base in kind.__mro__]
    is_used_whole = not chains or not all(chains) or isinstance(value, Runnable) or any("__call__" in one for one in classes)
    if is_used_whole or not hasattr(value, "__dict__") or not is_user_code(kind.__module__, file_of(kind)):
        return [value]
    found: list[Any] = []
    for name in dict.fromkeys(chain[0] for chain in chains):
        members = [one[name] for one in (vars(value), *classes) if name in one][:1]
        if not members or name in ANY_ATTRIBUTE:  # made on demand
            return [value]
        function = next(
            (f for kind in ("fget", "func", "__func__") if (f := getattr(members[0], kind, None)) is not None), members[0]
        )
        if isinstance(function, FunctionType) and name not in vars(value):
            found.append(MethodType(function, value))
        else:
            found += _of_object(members[0], [chain[1:] for chain in chains if chain[0] == name])
    return found


def _is_middleware(value: Any) -> bool:
    return any(kind.__module__.startswith("langchain.agents.middleware") for kind in type(value).__mro__)


def _is_of_agents(function: Any) -> bool:
    return isinstance(function, FunctionType) and function.__module__.startswith(("langchain.agents.", "langgraph.prebuilt."))


def code_names(code: CodeType) -> Iterator[str]:
    """Yield the names that code refers to, inner functions included."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from code_names(const)


def file_of(kind: type) -> str:
    """Return the file that defines a class; empty if there is none."""
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
