"""Finds the tools in a graph's nodes, without running a node."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import BaseTool
from langgraph.graph.state import CompiledStateGraph

from vinelm.adapters.langgraph.nodes.signature import held_attribute


def tools_of(graph: CompiledStateGraph[Any, Any, Any, Any]) -> dict[str, BaseTool]:
    """Return the tools of a graph's nodes by name, subgraphs included."""
    found: dict[str, BaseTool] = {}
    for node in graph.builder.nodes.values():
        runnable = node.runnable
        if isinstance(runnable, CompiledStateGraph):
            found.update(tools_of(runnable))
        found.update(held_attribute(runnable, "_tools_by_name") or held_attribute(runnable, "tools_by_name") or {})
    return found
