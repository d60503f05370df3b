"""The LangGraph graph: generate, execute, and repair until the check is content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vinelm.protocols import Vine
from vinelm.workflows.nl2sql.databases import Databases
from vinelm.workflows.nl2sql.stages import Stages, State, finished


def make_build(databases: Databases) -> Callable[[Vine], Any]:
    """A ``build(vine)`` over these databases. It gives a ``StateGraph``, not compiled; input: ``question`` and ``db_id``."""
    stages = Stages(databases)

    def build(vine: Vine) -> Any:
        from langgraph.graph import END, START, StateGraph

        graph = StateGraph(State)
        graph.add_node("generate", vine.stage("generate", stages.generate))
        graph.add_node("execute", stages.execute)
        graph.add_node("repair", vine.stage("repair", stages.repair))
        graph.add_edge(START, "generate")
        graph.add_edge("generate", "execute")
        graph.add_edge("repair", "execute")
        graph.add_conditional_edges("execute", vine.route(finished, again="repair", end=END), ["repair", END])
        return graph

    return build
