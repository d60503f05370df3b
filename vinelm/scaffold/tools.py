"""The tools of an application that is not run, and the schemas of their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vinelm.adapters.langgraph.structure.graph_tools import tools_of
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
    graph = find_target(spec, folder).built(VineLM(simulated_catalog("paper-2")))
    return {name: schema_of(tool) for name, tool in tools_of(graph).items()}
