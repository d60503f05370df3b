"""Builds a workflow's graph, checks it against the template and compiles it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from langgraph.graph.state import CompiledStateGraph, StateGraph

from vinelm.adapters.langgraph.adapter import AdapterHolder
from vinelm.adapters.langgraph.chat.channel import with_path_channel
from vinelm.adapters.langgraph.chat.search import HeldStages, chat_nodes
from vinelm.adapters.langgraph.path_channel import PATH_KEY
from vinelm.adapters.langgraph.stage import STAGE_MARK
from vinelm.adapters.langgraph.structure.reading import read_template, teach_routes
from vinelm.errors import WorkflowError
from vinelm.template import Parallel, Template, walk
from vinelm.workflow import Workflow


def build_graph(workflow: Workflow, vine: AdapterHolder, checkpointer: Any = None) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the compiled graph of ``workflow.build(vine)``, checked against the template. Runs no node and spends nothing.

    Args:
        workflow: the workflow.
        vine: wraps the stages and routes.
        checkpointer: replaces the one of a graph that the application compiled itself; None keeps it.

    Raises:
        WorkflowError: something cannot be profiled or served.
    """
    built = workflow.build(vine)
    if isinstance(built, StateGraph):
        graph = built.compile(checkpointer=checkpointer)
    elif isinstance(built, CompiledStateGraph):
        graph = built if checkpointer is None else built.copy(update={"checkpointer": checkpointer})
    else:
        raise WorkflowError(
            f"workflow {workflow.name!r}: build(vine) returned {type(built).__name__}: return the StateGraph, compiled or not"
        )
    chats = chat_nodes(graph)
    if not workflow.has_template:
        workflow = replace(workflow, template=template_of_graph(workflow, graph, vine.adapter.agents, chats))
    _check_stages(workflow, graph, vine.adapter.agents, chats)
    names = [stage.name for stage in workflow.template.stages]
    refuse_unsupported(graph, names, vine.adapter.agents, chats, joint_stages(workflow.template))
    teach_routes(graph, nodes_of_stages(graph, vine.adapter.agents, chats))
    return with_path_channel(graph) if chats else graph


def template_of_graph(
    workflow: Workflow,
    graph: CompiledStateGraph[Any, Any, Any, Any],
    agents: Iterable[str],
    chats: Mapping[str, HeldStages] | None = None,
) -> Template:
    """Return the template that the graph implies, where all stages are answerable and allow every model.

    Raises:
        WorkflowError: the graph does not say enough.
    """
    label = f"workflow {workflow.name!r}"
    held = chat_nodes(graph) if chats is None else chats
    for node, found in held.items():
        if found.hidden or len(found.names) > 1:
            where = "in a subgraph" if found.hidden else "side by side or in turn"
            names = ", ".join(sorted(found.hidden or found.names))
            raise WorkflowError(f"{label}: the node {node!r} runs {names} {where}: give the template, Workflow(template=...)")
    return read_template(graph, nodes_of_stages(graph, agents, held), label)


def joint_stages(template: Template) -> list[frozenset[str]]:
    """Return the stages of each superstep that the template declares as :class:`~vinelm.template.Parallel`."""
    return [frozenset(stage.name for stage in step.stages) for step in walk(template.steps) if isinstance(step, Parallel)]


def nodes_of_stages(
    graph: CompiledStateGraph[Any, Any, Any, Any], agents: Iterable[str], chats: Mapping[str, HeldStages] | None = None
) -> dict[str, str]:
    """Return node to stage, for the nodes of the root graph that run exactly one stage."""
    held = chat_nodes(graph) if chats is None else chats
    found = wrapped_stages(graph) | _routed_agents(graph, agents)
    for node, stages in held.items():
        if node not in found and len(stages.names) + stages.makes_some == 1:
            found[node] = min(stages.names, default=node)
    return found


def stage_nodes(graph: CompiledStateGraph[Any, Any, Any, Any], stages: Iterable[str], agents: Iterable[str] = ()) -> StageNodes:
    """Return the nodes of the root graph that run each of the stages, as far as they can be known before they run."""
    wrapped = wrapped_stages(graph) | _routed_agents(graph, agents)
    found: dict[str, tuple[str, ...]] = {}
    chats = chat_nodes(graph)
    for stage in stages:
        holders = tuple(node for node, held in chats.items() if stage in held.names and node not in wrapped)
        if stage in wrapped:
            found[stage] = (stage,)
        elif holders or stage in chats:
            found[stage] = holders or (stage,)
    return StageNodes(found, frozenset(wrapped))


@dataclass(frozen=True, slots=True)
class StageNodes:
    """The nodes of each stage.

    Attributes:
        by_stage: the nodes that run a stage; stages of which none is known are left out.
        wrapped: the nodes of wrapped stages and of agents: each execution of them is an invocation.
    """

    by_stage: Mapping[str, tuple[str, ...]]
    wrapped: frozenset[str]


def wrapped_stages(graph: CompiledStateGraph[Any, Any, Any, Any]) -> dict[str, str]:
    """Return node to stage, for the nodes of the root graph that ``vine.stage`` made."""
    return dict(_wrapped(graph))


def refuse_unsupported(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    stages: Iterable[str],
    agents: Iterable[str] = (),
    chats: Mapping[str, HeldStages] | None = None,
    joint: Collection[frozenset[str]] = (),
) -> None:
    """Raise :class:`WorkflowError` for a graph that would lose or repeat a choice of model silently.

    That is a cached stage, a stage inside a subgraph, an explicit input schema that hides the path, or two stages that one edge
    source starts together and that are not ``joint`` in the template.
    """
    held = chat_nodes(graph) if chats is None else chats
    for node, inner in graph.nodes.items():
        if isinstance(inner.bound, CompiledStateGraph):
            for hidden in (*(wrapped_stages(inner.bound) | _routed_agents(inner.bound, agents)), *_held_names(inner.bound)):
                raise WorkflowError(
                    f"stage {hidden!r} is inside the subgraph {node!r}, where its path is lost: move it to the root graph"
                )
    wrapped = [name for name in stages if name in wrapped_stages(graph) or name in agents]
    nodes = {name: name for name in wrapped} | {
        node: min(found.names) for node, found in held.items() if found.names and node not in wrapped
    }
    for node, stage in nodes.items():
        if graph.nodes[node].cache_policy is not None:
            raise WorkflowError(
                f"stage {stage!r} has a cache_policy: it would answer with an earlier choice of model, so remove it"
            )
    for name in wrapped:
        if PATH_KEY not in graph.builder.schemas[graph.builder.nodes[name].input_schema]:
            raise WorkflowError(
                f"stage {name!r} was added with input_schema=, which hides its path: "
                "leave it out of add_node and give the type to vine.stage(..., state=)"
            )
    _refuse_side_by_side(graph, nodes, joint)


def _refuse_side_by_side(
    graph: CompiledStateGraph[Any, Any, Any, Any], nodes: Mapping[str, str], joint: Collection[frozenset[str]]
) -> None:
    for source in dict.fromkeys(start for start, _ in sorted(graph.builder._all_edges)):
        together = list(dict.fromkeys(stage for node, stage in nodes.items() if (source, node) in graph.builder._all_edges))
        if len(together) > 1 and not any(group.issuperset(together) for group in joint):
            first, second = together[:2]
            raise WorkflowError(
                f"stages {first!r} and {second!r} both follow {source!r} in one superstep: put an edge between them, or "
                f"Parallel((Stage({first!r}), Stage({second!r}))) into the template"
            )


def _held_names(graph: CompiledStateGraph[Any, Any, Any, Any]) -> list[str]:
    return sorted({name for held in chat_nodes(graph).values() for name in held.names})


def _check_stages(
    workflow: Workflow,
    graph: CompiledStateGraph[Any, Any, Any, Any],
    agents: Iterable[str],
    chats: Mapping[str, HeldStages],
) -> None:
    label = f"workflow {workflow.name!r}"
    wrapped = wrapped_stages(graph) | _routed_agents(graph, agents)
    for node, stage in wrapped.items():
        if node != stage:
            raise WorkflowError(f"{label}: the node {node!r} runs vine.stage({stage!r}, ...): give both one name")
    declared = [stage.name for stage in workflow.template.stages]
    held = {name for found in chats.values() for name in found.names}
    is_open = any(found.makes_some for found in chats.values())
    for name in declared:
        if name in wrapped or name in held or is_open:
            continue
        for node, found in chats.items():
            if name in found.hidden:
                raise WorkflowError(
                    f"{label}: the stage {name!r} is called inside a subgraph of the node {node!r}, where its path is lost: "
                    "call it in a node of the root graph"
                )
        if name in graph.nodes:
            raise WorkflowError(
                f"{label}: the node {name!r} is not wrapped: add_node({name!r}, vine.stage({name!r}, ...)), "
                f"or let it call vine.chat_model({name!r})"
            )
        nodes = ", ".join(node for node in graph.builder.nodes)
        raise WorkflowError(f"{label}: its template has a stage {name!r}, which the graph lacks: it has the nodes {nodes}")
    for name in wrapped:
        if name not in declared:
            raise WorkflowError(
                f"{label}: the graph wraps a stage {name!r}, which the template lacks: add Stage({name!r}) to it"
            )


def _routed_agents(graph: CompiledStateGraph[Any, Any, Any, Any], agents: Iterable[str]) -> dict[str, str]:
    """The same for nodes that a ``VineMiddleware`` runs: its state schema brings the path's channel."""
    return {name: name for name in agents if name in graph.nodes and PATH_KEY in graph.channels}


def _wrapped(graph: CompiledStateGraph[Any, Any, Any, Any]) -> Iterator[tuple[str, str]]:
    for node, spec in graph.builder.nodes.items():
        runnable = spec.runnable
        for function in (getattr(runnable, "func", None), getattr(runnable, "afunc", None)):
            stage = getattr(function, STAGE_MARK, None)
            if isinstance(stage, str):
                yield node, stage
                break


__all__ = ["StageNodes", "build_graph", "refuse_unsupported", "stage_nodes", "wrapped_stages"]
