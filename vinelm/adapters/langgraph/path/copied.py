"""Copies compiled graphs, including subclasses with arbitrary constructors."""

from __future__ import annotations

from typing import Any, TypeVar

from langgraph.graph.state import CompiledStateGraph

Graph = TypeVar("Graph")


def copied(graph: Graph, **update: Any) -> Graph:
    """Return a copy of a compiled graph in which the attributes of ``update`` are replaced.

    The graph's constructor is not called, since a subclass may have a constructor with other parameters.
    """
    constructor: object = getattr(type(graph), "__init__", None)
    if constructor is vars(CompiledStateGraph).get("__init__") or not isinstance(graph, CompiledStateGraph):
        return graph.copy(update=update)  # type: ignore[attr-defined,no-any-return]
    twin = object.__new__(type(graph))
    vars(twin).update({**vars(graph), **update})
    return twin


def held_graph(graph: CompiledStateGraph[Any, Any, Any, Any]) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the graph that really runs: ``graph``, or the graph that it contains if it only forwards calls to that graph."""
    name = held_in(graph)
    return graph if name is None else held_graph(getattr(graph, name))


def held_in(graph: CompiledStateGraph[Any, Any, Any, Any]) -> str | None:
    """Return the name of the attribute with the graph to which ``graph`` forwards all calls; None if ``graph`` runs itself."""
    held = [name for name, one in vars(graph).items() if isinstance(one, CompiledStateGraph)]
    return held[0] if "channels" not in vars(graph) and len(held) == 1 else None
