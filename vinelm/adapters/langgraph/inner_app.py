"""Runs applications that are plain functions like graphs, and detects graphs that must be run asynchronously."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from langgraph.graph.state import CompiledStateGraph

from vinelm.adapters.langgraph.nodes.signature import held_attribute
from vinelm.adapters.langgraph.runs.run_context import carried_by
from vinelm.errors import WorkflowError

if TYPE_CHECKING:
    from vinelm.adapters.langgraph.adapter import GraphInterface


class FunctionApp:
    """Wraps an application's ``function(inputs) -> state``, and has the methods of a compiled graph. Each call is one request.

    Attributes:
        function: the application's function, sync or async. The scorer gets the function's result as the state.
        is_async: whether it is a coroutine function.

    Args:
        vine: the ``vine`` whose chat models the function calls.
    """

    def __init__(self, function: Callable[[dict[str, Any]], Any], vine: GraphInterface) -> None:
        self.function = function
        called = function if inspect.isroutine(function) else type(function).__call__
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        self._vine = vine

    def invoke(self, inputs: Mapping[str, Any], config: Any = None, *, context: Any = None) -> dict[str, Any]:
        """Run the function for one request and return its result, the final state. ``context`` comes from
        ``vine.context(...)``. Spends money.

        Raises:
            WorkflowError: the function returned no mapping.
        """
        with self._vine.adapter.within(carried_by(context)):
            if self.is_async:
                return self._state(asyncio.run(self.function(dict(inputs))))
            return self._state(self.function(dict(inputs)))

    async def ainvoke(self, inputs: Mapping[str, Any], config: Any = None, *, context: Any = None) -> dict[str, Any]:
        """Run the function for one request, like :meth:`invoke`, without blocking the event loop."""
        with self._vine.adapter.within(carried_by(context)):
            found = self.function(dict(inputs))
            return self._state(await found if self.is_async else found)

    def _state(self, found: Any) -> dict[str, Any]:
        if not isinstance(found, Mapping):
            name = getattr(self.function, "__name__", type(self.function).__name__)
            raise WorkflowError(
                f"{name}(inputs) returned {type(found).__name__}: return a dict, the state that score(request, state) is given"
            )
        return dict(found)


def runs_async(app: Any) -> bool:
    """Return whether some node, edge or tool exists only as a coroutine, so that the graph must be run asynchronously."""
    if not isinstance(app, CompiledStateGraph):
        bound = [getattr(node, "bound", None) for node in app.nodes.values()]
        return any(map(_is_async, bound))
    nodes = [node.runnable for node in app.builder.nodes.values()]
    edges = [branch.path for branches in app.builder.branches.values() for branch in branches.values()]
    if any(map(_is_async, (*nodes, *edges))):
        return True
    return any(isinstance(node, CompiledStateGraph) and runs_async(node) for node in nodes)


def _is_async(runnable: Any) -> bool:
    if held_attribute(runnable, "afunc") is not None and held_attribute(runnable, "func") is None:
        return True
    tools = getattr(runnable, "tools_by_name", None)  # of LangGraph's tool node; those of MCP servers are coroutines
    return isinstance(tools, Mapping) and any(map(_is_async_tool, tools.values()))


def _is_async_tool(tool: Any) -> bool:
    return getattr(tool, "coroutine", None) is not None and getattr(tool, "func", None) is None
