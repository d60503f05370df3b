"""The tools of an application that is not run, and the schemas of their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph.graph.state import CompiledStateGraph

from vinelm.adapters.langgraph.nodes.signature import held_attribute
from vinelm.adapters.tools.tool_box import schema_of
from vinelm.api import VineLM
from vinelm.backends import simulated_catalog
from vinelm.scaffold.target import find_target


def tool_schemas(spec: str | None, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the JSON schema of the arguments of each tool that the graph's nodes hold, by name; no node runs.

    Args:
        spec: See :func:`~vinelm.scaffold.target.find_target`.
        folder: The working folder.

    Raises:
        ConfigError: No graph is named, or several are possible.
        WorkflowError: The graph cannot be imported or built.
    """
    return _of_graph(find_target(spec, folder).built(VineLM(simulated_catalog("paper-2"))))


def _of_graph(graph: CompiledStateGraph[Any, Any, Any, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for node in graph.builder.nodes.values():
        runnable = node.runnable
        if isinstance(runnable, CompiledStateGraph):
            found.update(_of_graph(runnable))
        held = held_attribute(runnable, "_tools_by_name") or held_attribute(runnable, "tools_by_name") or {}
        found.update({name: schema_of(tool) for name, tool in held.items()})
    return found
